"""Files that appear whole or not at all: whoever reads sees the old content or the new one, never a part.

What is written goes to a hidden file in the same folder, to the disk, and then under its name in one step. A process
that is killed in between leaves only the hidden file, which the next writer to that folder clears away. Compiled
programs are kept between processes in a folder that is the user's own, and writable by nobody else.
"""

from __future__ import annotations

import errno
import hashlib
import os
import platform
import secrets
import stat
import time
from collections.abc import Callable
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
        folder = Path(named) if named else _user_cache() / "isr"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not named and is_own(folder):
            folder.chmod(0o700)
        return folder if is_private(folder) and is_beyond_reach(folder) else None
    except (OSError, RuntimeError):  # the user has no home
        return None


def is_own(path: Path | int) -> bool:
    """Return whether a file or folder belongs to the user; on Windows the profile's rights answer for that."""
    return not hasattr(os, "getuid") or os.stat(path).st_uid == os.getuid()


def is_private(path: Path | int) -> bool:
    """Return whether a file or folder, or one that is open, belongs to the user and nobody else may write to it."""
    return is_own(path) and (os.name == "nt" or not os.stat(path).st_mode & 0o022)


def is_beyond_reach(folder: Path) -> bool:
    """Return whether nobody else may put another folder in this one's place, at any level above it."""
    if os.name == "nt":
        return True
    above = [parent.stat() for parent in folder.resolve().parents]
    return all(
        s.st_uid in (0, os.getuid()) and (not s.st_mode & 0o022 or s.st_mode & stat.S_ISVTX) for s in above
    )


def _user_cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")


# A hidden file this old (seconds) whose writer is gone belongs to nobody.
ABANDONED_AFTER = 60.0

_SPACE, _PLACE = "free some space and try again", "choose a folder that can be written to"
_REMEDIES = {
    errno.ENOSPC: _SPACE, errno.EDQUOT: _SPACE, errno.EROFS: _PLACE, errno.EACCES: _PLACE, errno.EPERM: _PLACE,
    errno.EFBIG: "the system allows no file that large; raise the limit or choose another place",
    errno.ENOENT: "create the folder first",
}  # fmt: skip
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)
_swept: set[str] = set()


def write_whole(path: str | os.PathLike[str], write: Callable[[Path], Any], *, replace: bool = True) -> None:
    """Write a file so that it appears complete or not at all, even if the machine stops.

    ``write`` gets a name in the same folder to write under. An `OSError` names the file and what to do; the file is
    then as it was, and nothing else is left behind. Without ``replace`` an existing file stays, which is an error.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "note.txt"
        >>> write_whole(path, lambda hidden: hidden.write_text("all of it"))
        >>> path.read_text(), len(list(path.parent.iterdir()))
        ('all of it', 1)
    """
    target = Path(path)
    _sweep(target.parent)
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
    folder = Path(path).parent
    try:
        if not folder.is_dir():
            raise FileNotFoundError(errno.ENOENT, f"the folder {folder} does not exist")
        probe = _hidden(folder)
        os.close(os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
        probe.unlink()
    except OSError as error:
        raise explained(error, path) from error


def explained(error: OSError, path: str | os.PathLike[str]) -> OSError:
    """Return an error of the same kind that says which file could not be written, why and what to do."""
    number = error.errno or 0
    why = os.strerror(number) if number not in (0, errno.ENOENT) else error.strerror or error
    remedy = _REMEDIES.get(number, "choose another place or try again")
    told = type(OSError(number, ""))(f"cannot write {path}: {why}; {remedy}")
    told.errno = error.errno
    return told


def _hidden(folder: Path) -> Path:
    return folder / f".isr-{_host()}-{os.getpid()}-{secrets.token_hex(8)}.tmp"


def _host() -> str:
    return hashlib.sha256(platform.node().encode()).hexdigest()[:8]


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


def _sweep(folder: Path) -> None:
    """Clear away what killed writers of this machine left in a folder; once per process is enough."""
    if str(folder) in _swept:
        return
    _swept.add(str(folder))
    for left in folder.glob(f".isr-{_host()}-*.tmp"):
        try:
            is_old = time.time() - left.stat().st_mtime > ABANDONED_AFTER
            if is_old and not _is_alive(int(left.name.split("-")[2])):
                left.unlink()
        except (OSError, ValueError, IndexError):  # someone else was faster, or it is none of ours
            continue


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:  # not ours to signal, but there
        pass
    return True
