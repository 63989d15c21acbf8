"""The folder in which compiled programs are kept between processes."""

from __future__ import annotations

import os
from pathlib import Path


def kept_programs() -> Path | None:
    """Return the folder, which exists then, or None where there is none.

    ``ISR_CACHE`` names another one, or none when it is ``off``; the default is ``isr`` in the user's cache folder.
    """
    if os.environ.get("ISR_CACHE") == "off":
        return None
    try:
        folder = Path(os.environ.get("ISR_CACHE") or _user_folder() / "isr")
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError):  # the user has no home
        return None
    return folder


def _user_folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
