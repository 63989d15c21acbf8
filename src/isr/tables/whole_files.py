"""Files that appear whole or not at all: whoever reads sees the old content or the new one, never a part.

What is written goes to a hidden file in the same folder, to the disk, and then under its name in one step. A process
that is killed in between leaves only the hidden file, which a writer to that folder clears away a day later. Compiled
programs are kept between processes in a folder that is the user's own, and writable by nobody else.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np


def cache_dir() -> Path | None:
    """Return the folder, which exists then, or None where there is none that can be trusted.

    ``ISR_CACHE`` names another one, or none when it is ``off``; the default is ``isr`` in the user's cache folder.
    What lies in it is loaded and run, so a folder of somebody else, or one that others may write to, is left alone.
    """
    named = os.environ.get("ISR_CACHE")
    if named == "off":
        return None
    try:
        folder = Path(named or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "isr")
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not named and _is_own(folder):
            folder.chmod(0o700)
        if os.name != "nt":  # nobody else may put another folder in this one's place, at any level above it
            for above in (parent.stat() for parent in folder.resolve().parents):
                if above.st_uid not in (0, os.getuid()) or (
                    above.st_mode & 0o022 and not above.st_mode & stat.S_ISVTX
                ):
                    return None
        return folder if is_private(folder) else None
    except (OSError, RuntimeError):  # the user has no home
        return None


def is_private(path: Path | int) -> bool:
    """Return whether a file or folder, or one that is open, belongs to the user and nobody else may write to it."""
    return _is_own(path) and (os.name == "nt" or not os.stat(path).st_mode & 0o022)


def _is_own(path: Path | int) -> bool:
    # On Windows the profile's rights answer for that.
    return not hasattr(os, "getuid") or os.stat(path).st_uid == os.getuid()


# A hidden file this old (seconds) belongs to nobody: whoever wrote it was killed.
ABANDONED_AFTER = 24 * 3600.0

_SPACE, _PLACE = "free some space and try again", "choose a folder that can be written to"
_REMEDIES = {
    errno.ENOSPC: _SPACE, errno.EDQUOT: _SPACE, errno.EROFS: _PLACE, errno.EACCES: _PLACE, errno.EPERM: _PLACE,
    errno.EFBIG: "the system allows no file that large; raise the limit or choose another place",
    errno.ENOENT: "create the folder first",
}  # fmt: skip
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)
_swept: set[Path] = set()


def write_whole(path: str | os.PathLike[str], write: Callable[[Path], Any], *, replace: bool = True) -> None:
    """Write a file so that it appears complete or not at all, even if the machine stops.

    ``write`` gets a name in the same folder to write under. An `OSError` names the file and what to do; the file is
    then as it was, and nothing else is left behind. Without ``replace`` an existing file stays, which is an error.
    """
    target = _plain(path)
    if target.parent not in _swept:  # once per process is enough
        _swept.add(target.parent)
        for left in target.parent.glob(".isr-*.tmp"):
            with suppress(OSError):  # someone else was faster
                if time.time() - left.stat().st_mtime > ABANDONED_AFTER:
                    left.unlink()
    hidden = _hidden(target.parent)
    try:
        write(hidden)
        _to_disk(hidden, os.O_RDWR)
        if replace:
            os.replace(hidden, target)
        else:
            _take_free_name(hidden, target)
        if hasattr(os, "O_DIRECTORY"):  # the new name itself must reach the disk as well
            _to_disk(target.parent, os.O_RDONLY | os.O_DIRECTORY)
    except FileExistsError:
        raise FileExistsError(f"{target} exists already; choose another name") from None
    except OSError as error:
        raise explained(error, target) from error
    finally:
        hidden.unlink(missing_ok=True)


def write_arrays(path: Path, arrays: dict[str, np.ndarray]) -> None:
    """Write named arrays as one npz file, complete or not at all; its folder is made if it is missing."""
    import numpy as np  # the command line, which starts without it, writes other files

    def write(hidden: Path) -> None:
        with hidden.open("wb") as file:
            np.savez_compressed(file, allow_pickle=False, **arrays)

    make_folder(path.parent)
    write_whole(path, write)


def make_folder(path: Path) -> None:
    """Make a folder and those above it, unless they are there; an `OSError` says what to do."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise explained(error, path) from error


def refuse_unwritable(path: str | os.PathLike[str]) -> None:
    """Raise the `OSError` that writing this file would raise for lack of a folder or of rights, before any work."""
    target = _plain(path)
    if not target.parent.is_dir():
        raise FileNotFoundError(f"the folder {target.parent} does not exist; create it first")
    try:
        probe = _hidden(target.parent)
        os.close(os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
        probe.unlink()
    except OSError as error:
        raise explained(error, path) from error


def _plain(path: str | os.PathLike[str]) -> Path:
    """Return a path where there is nothing or a plain file: a new file would take the place of a device."""
    target = Path(path)
    if target.is_dir():
        raise IsADirectoryError(f"{target} is a folder; give a file name inside it")
    if target.exists() and not target.is_file():
        raise OSError(f"{target} is no plain file (a pipe or a device); give the name of a file")
    return target


def explained(error: OSError, path: str | os.PathLike[str]) -> OSError:
    """Return an error of the same kind that says which file could not be written, why and what to do."""
    number = error.errno or 0
    why = os.strerror(number) if number not in (0, errno.ENOENT) else error.strerror or error
    remedy = _REMEDIES.get(number, "choose another place or try again")
    told = type(OSError(number, ""))(f"cannot write {path}: {why}; {remedy}")
    told.errno = error.errno
    return told


def _hidden(folder: Path) -> Path:
    return folder / f".isr-{secrets.token_hex(8)}.tmp"


def _to_disk(path: Path, flags: int) -> None:
    descriptor = os.open(path, flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _take_free_name(hidden: Path, target: Path) -> None:
    """Give a file its name unless that is taken, in one step where the file system knows links."""
    try:
        os.link(hidden, target)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        if target.exists():
            raise FileExistsError from None
        os.replace(hidden, target)
