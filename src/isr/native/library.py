"""Blocks of couplings as one call for all samples, and one for its gradient; and the library of C that does it.

The library is compiled on this machine the first time it is needed and kept in the user's cache folder: at first use
and not when the package is installed, because it is made for this very processor: wheels are built on other machines,
environments are copied between them, and installing needs no compiler. It takes ``CC``, or ``cc``, ``gcc`` or
``clang`` on the path, two seconds once. Without one, or with ``ISR_NATIVE=off``, XLA does the same work.
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
from functools import cache, partial
from importlib.metadata import version
from pathlib import Path
from subprocess import SubprocessError
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from isr.tables.whole_files import cache_dir, is_private, write_whole

SOURCE = Path(__file__).with_name("coupling.c")
HEADERS = tuple(SOURCE.with_name(f"{part}.h") for part in ("vectors", "networks", "blocks"))
FUNCTIONS = ("forward", "inverse", "forward_back", "inverse_back")
OPTIONS = (
    "-O3", "-march=native", "-std=gnu11", "-ffp-contract=fast", "-fno-math-errno", "-fno-trapping-math", "-shared",
    "-fPIC",
)  # fmt: skip
LONGEST_SECONDS = 20
# Large products are faster in XLA's matrix library, which also shares them among cores.
WIDEST = 96
_lock = threading.Lock()
Images = tuple[Float[Array, "dim n"], Float[Array, " n"]]


class Blocks(NamedTuple):
    """Couplings of both halves in a row, alike in all but their numbers and the order of variables in front of each.

    ``widest`` is the most rows or columns of a matrix in their networks, ``units`` are those of a hidden layer with how
    many of each; a ``clamp`` or ``guard`` of 0 is none. With ``with_matrix`` one stands in front of each block.
    """

    dim: int
    split: int
    n_condition: int
    widest: int
    n_layers: int
    with_bias: bool
    skip: bool
    units: tuple[tuple[str, int], ...]
    clamp: float
    guard: float
    with_matrix: bool
    orders: tuple[tuple[int, ...], ...]


def kernel(blocks: Blocks) -> Kernel | None:
    """Return the C kernel for these blocks, or None where there is no library or it lacks one of their units."""
    if blocks.widest > WIDEST:
        return None
    found = library()
    if not all(name in found.units for name, _ in blocks.units):
        return None
    kinds = tuple((found.units.index(name), count) for name, count in blocks.units)
    return Kernel(found.tag, blocks, kinds)


class Kernel(NamedTuple):
    """Both directions of blocks, each with its log-determinant and gradient.

    Weights are those of the blocks one after the other: the matrix, if any, then weights and biases of each network.
    """

    tag: str
    blocks: Blocks
    kinds: tuple[tuple[int, int], ...]

    @property
    def plan(self) -> np.ndarray:
        """Integer fields, in the order that ``read_plan`` in C has them."""
        b = self.blocks
        sizes = (b.dim, b.split, b.n_condition, b.n_layers, b.with_bias, b.skip, len(b.orders), b.with_matrix)
        pairs = (number for pair in (*self.kinds, *b.orders) for number in pair)
        return np.array([*sizes, len(self.kinds), *pairs], np.int32)

    def map(self, direction: str, weights: Array, x: Array, condition: Array | None) -> Images:
        """Return images and log-determinants of columns, ``"forward"`` from x or ``"inverse"`` from z."""
        if condition is None:
            condition = jnp.zeros((0, 1), x.dtype)
        elif condition.ndim == 1:
            condition = condition[:, None]
        dim, n_condition = self.blocks.dim, self.blocks.n_condition
        fits = x.shape[0] == dim and condition.shape in {(n_condition, 1), (n_condition, x.shape[1])}
        if not fits or any(a.dtype != jnp.float32 for a in (weights, x, condition)):
            raise TypeError(
                f"a coupling of {dim} variables given {n_condition} takes as many rows in single precision, got "
                f"{x.dtype}{list(x.shape)} and {condition.dtype}{list(condition.shape)}"
            )
        return _mapped(direction, self, weights, x, condition)


@partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _mapped(direction: str, kernel: Kernel, weights: Array, x: Array, condition: Array) -> Images:
    return _call(direction, kernel, _images(x), weights, x, condition)


def _images(x: Array) -> tuple[jax.ShapeDtypeStruct, jax.ShapeDtypeStruct]:
    return jax.ShapeDtypeStruct(x.shape, x.dtype), jax.ShapeDtypeStruct(x.shape[1:], x.dtype)


def _mapped_forward(direction: str, kernel: Kernel, weights: Array, x: Array, condition: Array):
    given = jax.ShapeDtypeStruct((len(kernel.blocks.orders), *x.shape), x.dtype)
    z, log_det, kept = _call(direction, kernel, (*_images(x), given), weights, x, condition)
    return (z, log_det), (weights, kept, condition)


def _mapped_backward(direction: str, kernel: Kernel, kept: tuple[Array, ...], outer: Images):
    weights, _, condition = kept
    shapes = tuple(jax.ShapeDtypeStruct(a.shape, a.dtype) for a in (weights, outer[0], condition))
    return _call(f"{direction}_back", kernel, shapes, *kept, *outer)


_mapped.defvjp(_mapped_forward, _mapped_backward)


def _call(name: str, kernel: Kernel, shapes: tuple[jax.ShapeDtypeStruct, ...], *arrays: Any) -> Any:
    bounds = np.array([kernel.blocks.clamp, kernel.blocks.guard], np.float32)
    call = jax.ffi.ffi_call(f"isr_{name}_{kernel.tag}", shapes, vmap_method="broadcast_all")
    return call(kernel.plan, bounds, *arrays)


class Library(NamedTuple):
    """What was made of the C source: what names of its functions end in for XLA, empty where there is none; the units
    it knows, in the order of their numbers in C; and what became of it, as a clause for people.
    """

    tag: str
    units: tuple[str, ...]
    status: str


def library() -> Library:
    """Return the library, compiled and loaded at the first call."""
    with _lock:  # threads may begin side by side, and XLA takes a name once
        return _library()


def status() -> str:
    """Return whether fits use C kernels, and if not, why XLA does their work."""
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
    except (OSError, AttributeError, ValueError, SubprocessError, jax.errors.JaxRuntimeError) as error:
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
    """Return a name that tells source, options, JAX and processor apart: another one may lack instructions."""
    processor, told = platform.processor(), ("flags", "Features", "model name")
    with suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        processor = "\n".join(sorted({line for line in lines if line.split("\t")[0] in told}))
    sources = (path.read_text() for path in (SOURCE, *HEADERS))
    parts = (*sources, *OPTIONS, version("jaxlib"), platform.machine(), processor)
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def _load(tag: str) -> ctypes.CDLL:
    """Return the library kept in the cache folder, or a new one, kept under a name with the digest of its content."""
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
        code = made.read_bytes()

        def write(hidden: Path) -> None:
            hidden.touch(mode=0o700)
            hidden.write_bytes(code)

        if folder is not None:
            path = folder / f"native-{tag}-{_digest(code)}.so"
            with suppress(OSError):  # a folder that cannot be written to
                write_whole(path, write)
                return _opened(path)
        return ctypes.CDLL(str(made))


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
