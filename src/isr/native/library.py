"""The native library, compiled on this machine the first time it is needed and kept in the user's cache folder.

At first use and not when the package is installed, because it is made for this very processor: wheels are built on
other machines, environments are copied between them, and installing needs no compiler. It takes ``CC``, or ``cc``,
``gcc`` or ``clang`` on the path, two seconds once. Without one, or with ``ISR_NATIVE=off``, XLA does the same work.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shutil
import signal
import stat
import subprocess
import tempfile
import threading
from contextlib import suppress
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

import jax

from isr.tables.whole_files import cache_dir, is_private, write_whole

SOURCE = Path(__file__).with_name("coupling.c")
HEADERS = tuple(SOURCE.with_name(f"{part}.h") for part in ("vectors", "networks", "blocks"))
FUNCTIONS = ("forward", "inverse", "forward_back", "inverse_back")
OPTIONS = (
    "-O3", "-march=native", "-std=gnu11", "-ffp-contract=fast", "-fno-math-errno", "-fno-trapping-math", "-shared",
    "-fPIC",
)  # fmt: skip
LONGEST_SECONDS = 20
_lock = threading.Lock()


class Library(NamedTuple):
    """What was made of the C source, or why nothing was.

    Attributes:
        tag: What the names of its functions end in for XLA; empty where there is none.
        units: The units it knows, in the order of their numbers in C.
        status: What became of it, as a clause for people.
    """

    tag: str
    units: tuple[str, ...]
    status: str


def library() -> Library:
    """Return the library, compiled and loaded at the first call."""
    with _lock:  # threads may begin side by side, and XLA takes a name once
        return _library()


def status() -> str:
    """Return whether fits use C kernels, and if not, why XLA does their work.

    Example:
        >>> status()  # doctest: +SKIP
        'C kernels, compiled for this processor'
    """
    return library().status


@cache
def _library() -> Library:
    try:
        _refuse_other_systems()
        tag = _tag()
        code = _load(tag)
        units = ctypes.string_at(ctypes.addressof(ctypes.c_char.in_dll(code, "isr_units"))).decode().split()
        for name in FUNCTIONS:
            capsule = jax.ffi.pycapsule(getattr(code, f"isr_{name}"))
            jax.ffi.register_ffi_target(f"isr_{name}_{tag}", capsule, platform="cpu")
    except (
        OSError,
        AttributeError,
        ValueError,
        subprocess.SubprocessError,
        jax.errors.JaxRuntimeError,
    ) as error:
        return Library("", (), f"XLA alone: {_reason(error)}")
    return Library(tag, tuple(units), "C kernels, compiled for this processor")


def _refuse_other_systems() -> None:
    if os.environ.get("ISR_NATIVE") == "off":
        raise OSError("ISR_NATIVE=off")
    if platform.system() not in ("Linux", "Darwin"):
        raise OSError(f"the C kernels are for Linux and macOS, this is {platform.system()}")
    if jax.default_backend() != "cpu":
        raise OSError(f"the C kernels run on processors, JAX works on {jax.default_backend()}")


def _reason(error: Exception) -> str:
    if isinstance(error, subprocess.TimeoutExpired):
        return f"the C compiler was stopped after {error.timeout:g} s"
    if isinstance(error, subprocess.CalledProcessError):
        said = (error.stderr or b"").decode(errors="replace").strip().splitlines()
        return f"the C compiler failed: {said[0] if said else f'exit code {error.returncode}'}"
    return str(error) or type(error).__name__


def _tag() -> str:
    """Return a name that tells source, options, JAX and processor apart."""
    sources = (path.read_text() for path in (SOURCE, *HEADERS))
    parts = (*sources, *OPTIONS, version("jaxlib"), platform.machine(), _processor())
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def _processor() -> str:
    """Return what this processor can do: a library for another one may hold instructions that it lacks."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    told = ("flags", "Features", "model name")
    return "\n".join(sorted({line for line in lines if line.split("\t")[0] in told}))


def _load(tag: str) -> ctypes.CDLL:
    folder = cache_dir()
    for path in () if folder is None else sorted(folder.glob(f"native-{tag}-*.so")):
        try:
            return _opened(path)
        except (OSError, AttributeError):  # of somebody else, damaged or junk: one of our own takes its place
            with suppress(OSError):
                path.unlink()
    with tempfile.TemporaryDirectory() as private:
        made = Path(private) / "library.so"
        _compile(made)
        if folder is not None:
            with suppress(OSError):  # a folder that cannot be written to
                return _opened(_keep(made, folder, tag))
        return ctypes.CDLL(str(made))


def _keep(made: Path, folder: Path, tag: str) -> Path:
    """Copy the library into the cache folder, under a name that holds the digest of its content."""
    code = made.read_bytes()

    def write(hidden: Path) -> None:
        hidden.touch(mode=0o700)
        hidden.write_bytes(code)

    path = folder / f"native-{tag}-{_digest(code)}.so"
    write_whole(path, write)
    return path


def _opened(path: Path) -> ctypes.CDLL:
    """Load a library that may be run: a plain file, nobody else's work, as it was written, with all its functions.

    What is checked is what is loaded, also where the name changes hands in between: both go by the open file.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise PermissionError(f"{path} is not a plain file")
        if not is_private(descriptor):
            raise PermissionError(f"{path} belongs to somebody else, or others may write to it")
        if path.stem.split("-")[-1] != _digest(file.read()):
            raise OSError(f"{path} is damaged")
        # Never closed: the loader knows libraries by name, and would take the next one of this number for this one.
        opened = Path(f"/proc/self/fd/{os.dup(descriptor)}")
        code = ctypes.CDLL(str(opened if opened.exists() else path))
    for name in FUNCTIONS:
        getattr(code, f"isr_{name}")
    return code


def _digest(code: bytes) -> str:
    return hashlib.sha256(code).hexdigest()


def _compile(path: Path) -> None:
    compiler = next(filter(shutil.which, [os.environ.get("CC", ""), "cc", "gcc", "clang"]), None)
    if compiler is None:
        raise FileNotFoundError("there is no C compiler (CC, cc, gcc or clang)")
    command = [compiler, *OPTIONS, f"-I{jax.ffi.include_dir()}", str(SOURCE), "-o", str(path), "-lm"]
    # A session of its own, so that what the compiler started ends with it.
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    ) as process:
        try:
            _, told = process.communicate(timeout=LONGEST_SECONDS)
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command, stderr=told)
