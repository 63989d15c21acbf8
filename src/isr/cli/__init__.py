"""The command line: ``isr --help``.

Nothing heavy is imported at the top of these modules, so help and completion answer at once; each command imports
what it needs.
"""

import contextlib
import os
import signal
import sys

__all__ = ["main"]


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and leave with its exit code; an error becomes one line on stderr."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        with contextlib.suppress(ValueError):  # not the main thread, where signals do not arrive
            signal.signal(signal.SIGINT, _interrupt)
    if sys.unraisablehook is sys.__unraisablehook__:
        sys.unraisablehook = _not_lost
    from isr.cli.program import main as run

    run(arguments)


def _interrupt(number, frame):
    """Ctrl-C: leave at once where a module is half imported, which compiled ones do not survive."""
    while frame is not None:
        if frame.f_code.co_filename == "<frozen importlib._bootstrap>":
            os.write(2, b"error: interrupted\n")
            os._exit(130)
        frame = frame.f_back
    raise KeyboardInterrupt


def _not_lost(error):
    """Ctrl-C that met a callback which can raise nothing, such as JAX's while memory is cleared, comes again."""
    if issubclass(error.exc_type, KeyboardInterrupt):
        import _thread
        import threading

        threading.Timer(0.01, _thread.interrupt_main).start()
    else:
        sys.__unraisablehook__(error)
