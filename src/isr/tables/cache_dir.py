"""The folder in which compiled programs are kept between processes: the user's own, and writable by nobody else."""

from __future__ import annotations

import os
from pathlib import Path


def cache_dir() -> Path | None:
    """Return the folder, which exists then, or None where there is none that can be trusted.

    ``ISR_CACHE`` names another one, or none when it is ``off``; the default is ``isr`` in the user's cache folder.
    What lies in it is loaded and run, so a folder of somebody else, or one that others may write to, is left alone.
    """
    named = os.environ.get("ISR_CACHE")
    if named == "off":
        return None
    try:
        folder = Path(named) if named else _user_cache() / "isr"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not named and is_own(folder):
            folder.chmod(0o700)
        return folder if is_private(folder) else None
    except (OSError, RuntimeError):  # the user has no home
        return None


def is_own(path: Path) -> bool:
    """Return whether a file or folder belongs to the user; on Windows the profile's rights answer for that."""
    return not hasattr(os, "getuid") or path.stat().st_uid == os.getuid()


def is_private(path: Path) -> bool:
    """Return whether a file or folder belongs to the user and nobody else may write to it."""
    return is_own(path) and (os.name == "nt" or not path.stat().st_mode & 0o022)


def _user_cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
