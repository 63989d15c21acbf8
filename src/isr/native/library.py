"""The native library: couplings in single precision, compiled on this machine the first time they are needed.

It needs a C compiler (``CC``, or ``cc``, ``gcc`` or ``clang`` on the path) and takes a second or two once; without one,
or with ``ISR_NATIVE=off``, XLA does the same work more slowly. The library is kept beside other compiled programs,
under a name that tells its source, the compiler's options, JAX and the processor apart.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import cache
from importlib.metadata import version
from pathlib import Path

import jax

from isr.native.cache_dir import kept_programs
from isr.tables.whole_files import write_whole

SOURCE = Path(__file__).with_name("coupling.c")
HEADERS = tuple(Path(__file__).with_name(f"{part}.h") for part in ("vectors", "networks", "blocks"))
FUNCTIONS = ("forward", "inverse", "forward_back", "inverse_back")
OPTIONS = (
    "-O3", "-march=native", "-std=gnu11", "-ffp-contract=fast", "-fno-math-errno", "-fno-trapping-math", "-shared",
    "-fPIC",
)  # fmt: skip
LONGEST_SECONDS = 120
_lock = threading.Lock()
_left_out: ContextVar[bool] = ContextVar("native_left_out", default=False)


def library_tag() -> str | None:
    """Return what the names of the library's functions end in, or None where there is no library."""
    return None if _left_out.get() or jax.default_backend() != "cpu" else _registered()


@contextmanager
def left_out(is_left_out: bool = True) -> Iterator[None]:
    """Leave the library out of what is traced inside.

    It works on one device, and knows neither forward-mode nor second derivatives; XLA does.
    """
    token = _left_out.set(is_left_out)
    try:
        yield
    finally:
        _left_out.reset(token)


def _registered() -> str | None:
    with _lock:  # threads may begin side by side, and XLA takes a name once
        return _register()


@cache
def _register() -> str | None:
    if os.environ.get("ISR_NATIVE") == "off" or platform.system() not in ("Linux", "Darwin"):
        return None
    try:
        tag = _tag()
        library = _loaded(tag)
        for name in FUNCTIONS:
            capsule = jax.ffi.pycapsule(getattr(library, f"isr_{name}"))
            jax.ffi.register_ffi_target(f"isr_{name}_{tag}", capsule, platform="cpu")
    except (OSError, AttributeError, subprocess.SubprocessError, jax.errors.JaxRuntimeError):
        return None
    return tag


def _tag() -> str:
    parts = (
        *(path.read_text() for path in (SOURCE, *HEADERS)),
        *OPTIONS,
        version("jaxlib"),
        platform.machine(),
        _processor(),
    )
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def _processor() -> str:
    """Return what this processor can do: a library for another one may hold instructions that it lacks."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return "\n".join(
        sorted({line for line in lines if line.split("\t")[0] in ("flags", "Features", "model name")})
    )


def _loaded(tag: str) -> ctypes.CDLL:
    folder = kept_programs()
    if folder is not None:
        with suppress(OSError):  # a folder that cannot be written to, a damaged file, one of somebody else
            return _kept(folder / f"native-{tag}.so")
    with tempfile.TemporaryDirectory() as passing:
        _compile(Path(passing) / "library.so")
        return ctypes.CDLL(str(Path(passing) / "library.so"))


def _kept(path: Path) -> ctypes.CDLL:
    if not path.exists():
        write_whole(path, _compile)
    if path.stat().st_uid != os.getuid():
        raise PermissionError(f"{path} belongs to somebody else")
    return ctypes.CDLL(str(path))


def _compile(path: Path) -> None:
    compiler = next(filter(shutil.which, [os.environ.get("CC", ""), "cc", "gcc", "clang"]), None)
    if compiler is None:
        raise FileNotFoundError("there is no C compiler")
    subprocess.run(
        [compiler, *OPTIONS, f"-I{jax.ffi.include_dir()}", str(SOURCE), "-o", str(path), "-lm"],
        check=True, capture_output=True, timeout=LONGEST_SECONDS,
    )  # fmt: skip
