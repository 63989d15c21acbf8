"""Exit codes, each with one meaning."""

FAULT = 1
WRONG_INPUT = 2
FIT_FAILED = 3
CHECK_FAILED = 4
INTERRUPTED = 130


class CheckFailedError(Exception):
    """Equations and model disagree; everything else the command was to do is done."""
