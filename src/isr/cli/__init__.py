"""The command line: ``isr --help``.

Nothing heavy is imported at the top of these modules, so help and completion answer at once; each command imports
what it needs.
"""

from isr.cli.program import app, main

__all__ = ["app", "main"]
