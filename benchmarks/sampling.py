"""A million posterior draws and a million log-densities: isr, FrEIA, FlowJAX, sbi and the others, and generated C.

    python benchmarks/sampling.py [--quick] [--out rows.jsonl]

Flows of the training benchmark with untrained weights: what counts is how many there are, not their value. All
draws are for one observation. The others work in single precision, their default; isr is measured in double, its own
default, and with ``precision="single"``. The C code works in double, is compiled by the system's compiler
(``cc -O3 -march=native``) and runs on one core.
"""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from harness import Case, Row, main, time_calls
from peers import FLOWS, build
from shape import ARM, arm_rows

Y_STAR = np.array([[0.2, -0.3]])
SPARSE = "a tenth of the weights"
QUICK_FLOWS = ("isr cISR", "FrEIA cINN", "FlowJAX coupling", "sbi MAF")
C_LOOP = """
void benchmark_log_prob(size_t n, const double *x, const double *y, double *out)
{
    for (size_t i = 0; i < n; i++) out[i] = isr_log_prob(x + i*ISR_N_X, y);
}
void benchmark_sample(size_t n, const double *y, double *x)
{
    isr_rng rng = isr_seed(1);
    isr_sample(n, y, &rng, x);
}
"""


def cases(quick: bool) -> list[Case]:
    """Return every flow, and isr's other forms."""
    found = [
        Case({"flow": name}, FLOWS[name].needs, cores)
        for cores in ((1,) if quick else (1, 2))
        for name in (QUICK_FLOWS if quick else FLOWS)
    ]
    # A C compiler takes a minute for the five thousand constants of the dense flow.
    forms = (
        "isr cISR, single precision", f"isr cISR, {SPARSE}, generated C", "isr cISR, generated C",
        "isr cINN, single precision",
    )  # fmt: skip
    return [*found, *(Case({"flow": form}) for form in (forms[:2] if quick else forms))]


def measure(flow: str, *, quick: bool, seed: int) -> Iterator[Row]:
    """Yield the time of draws and of densities."""
    n = 100_000 if quick else 1_000_000
    x, y = arm_rows(2000, seed)
    many = np.tile(x, (-(-n // len(x)), 1))[:n]
    name = flow.split(",")[0]
    built: Any = build(name, ARM, x, y, batch_size=100, seed=seed)
    compile_seconds = 0.0
    if flow.endswith("generated C"):
        draw, density, compile_seconds = generated_c(thinned(built, seed) if SPARSE in flow else built.flow)
    elif flow.endswith("single precision"):
        draw = partial(built.sample, Y_STAR, precision="single")
        density = partial(built.log_prob, y=Y_STAR, precision="single")
    else:
        draw, density = (lambda n: built.sample(Y_STAR, n)), (lambda rows: built.log_prob(rows, Y_STAR))
    for what, call in (("sample", lambda: draw(n)), ("log_prob", lambda: density(many))):
        timing = time_calls(call, seconds=0.5 if quick else 4.0, least=2)
        row = timing.as_row(n) | {"what": what, "n": n, "n_parameters": built.n_parameters}
        row["compile_seconds"] += round(compile_seconds, 3)
        yield row | {"million_cpu_seconds": 1e3 * row["cpu_ms"], "million_seconds": 1e3 * row["wall_ms"]}


def thinned(built: Any, seed: int) -> Any:
    """Return the flow with nine in ten of its weights zero, about what pruning leaves."""
    weights = np.asarray(built.state.weights[0])
    return built.restore(np.where(np.random.default_rng(seed).random(len(weights)) < 0.1, weights, 0.0))


def generated_c(flow: Any) -> tuple[Callable, Callable, float]:
    """Return draws and densities by the C code that isr writes, and the seconds to write and compile it."""
    from isr.equations import extract

    compiler = shutil.which("cc")
    if compiler is None:
        raise FileNotFoundError("there is no C compiler (cc) on PATH")
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder) / "flow.c", Path(folder) / "flow.so"
        source.write_text(extract(flow).code("c") + C_LOOP)
        options = ["-O3", "-march=native", "-std=c99", "-shared", "-fPIC"]
        subprocess.run([compiler, *options, str(source), "-o", str(library), "-lm"], check=True)
        loaded = ctypes.CDLL(str(library))
    seconds = time.perf_counter() - began
    observed = np.ascontiguousarray(Y_STAR[0])

    def draw(n: int) -> np.ndarray:
        rows = np.empty((n, ARM.dim))
        loaded.benchmark_sample(ctypes.c_size_t(n), _pointer(observed), _pointer(rows))
        return rows

    def density(rows: np.ndarray) -> np.ndarray:
        rows = np.ascontiguousarray(rows, np.float64)
        values = np.empty(len(rows))
        loaded.benchmark_log_prob(
            ctypes.c_size_t(len(rows)), _pointer(rows), _pointer(observed), _pointer(values)
        )
        return values

    return draw, density, seconds


def _pointer(array: np.ndarray) -> Any:
    return array.ctypes.data_as(ctypes.POINTER(ctypes.c_double))


if __name__ == "__main__":
    main("sampling", cases, measure)
