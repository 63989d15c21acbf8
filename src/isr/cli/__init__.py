"""The command line: ``isr --help``.

Nothing heavy is imported at the top of these modules, so help and completion answer at once; each command imports
what it needs.
"""

import _thread
import sys
import threading
from typing import Any

__all__ = ["main"]


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and leave with its exit code; an error becomes one line on stderr."""
    if sys.unraisablehook is sys.__unraisablehook__:
        sys.unraisablehook = _not_lost
    try:
        from isr.cli.program import main as run
    except KeyboardInterrupt:  # while modules are imported
        print("error: interrupted", file=sys.stderr)
        sys.exit(130)
    run(arguments)


def _not_lost(error: Any) -> None:
    """Ctrl-C that met a callback which can raise nothing, such as JAX's while memory is cleared, comes again."""
    if issubclass(error.exc_type, KeyboardInterrupt):
        threading.Timer(0.01, _thread.interrupt_main).start()
    else:
        sys.__unraisablehook__(error)
