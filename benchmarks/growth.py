"""How time and memory grow with rows, variables and blocks.

    python benchmarks/growth.py [--quick] [--out rows.jsonl]

Each case trains a cISR in a process of its own for a fixed number of steps of 100 rows and tells the time of a
step, the time to compile, the time to prepare the data and the peak of memory. ``rows`` fits 10⁴ to 10⁶ rows of the
arm by `isr.ConditionalISR.fit`, and so does ``rows, one pass``, whose steps are as many as the rows ask for.
``variables`` (2 to 64, a tenth of them observed) and ``blocks`` (1 to 32) run the training program itself. Exponents
are fitted on the page.
"""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Iterator

import numpy as np

from harness import Case, Row, main, time_calls
from isr.problems import kinematics
from peers.ours import OurFlow
from shape import Shape

GRID = {
    "rows": (10_000, 100_000, 1_000_000),
    "rows, one pass": (10_000, 100_000, 1_000_000),
    "variables": (2, 4, 8, 16, 32, 64),
    "blocks": (1, 2, 4, 8, 16, 32),
}
QUICK_GRID = {"rows": (10_000,), "blocks": (1, 4)}
N_STEPS = 2000
BATCH = 100


def cases(quick: bool) -> list[Case]:
    """Return every size."""
    grid = QUICK_GRID if quick else GRID
    return [Case({"along": along, "size": size}) for along, sizes in grid.items() for size in sizes]


def measure(along: str, size: int, *, quick: bool, seed: int) -> Iterator[Row]:
    """Yield time and memory of one size."""
    if along.startswith("rows"):
        n_steps = size // BATCH if along.endswith("one pass") else 500 if quick else N_STEPS
        yield fit_row(size, n_steps, seed)
        return
    shape = Shape(dim=4, condition_dim=2, n_blocks=2, n_layers=2)
    if along == "variables":
        shape = Shape(dim=size, condition_dim=max(1, size // 10), n_blocks=2, n_layers=2)
    else:
        shape = Shape(dim=4, condition_dim=2, n_blocks=size, n_layers=2)
    rng = np.random.default_rng(seed)
    x, y = (rng.normal(size=(5000, n)).astype(np.float32) for n in (shape.dim, shape.condition_dim))
    before = peak_megabytes()
    flow = OurFlow(shape, x, y, batch_size=BATCH, seed=seed, subnet="eql", mixing="linear", steps_a_call=50)
    timing = time_calls(lambda: flow.train(50), seconds=0.5 if quick else 3.0)
    yield timing.as_row(50) | {
        "n_parameters": flow.n_parameters, "peak_mb": peak_megabytes(), "peak_mb_before": before,
    }  # fmt: skip


def fit_row(n: int, n_steps: int, seed: int) -> Row:
    """Return what a fit of so many rows of the arm takes."""
    from isr import ConditionalISR
    from isr.estimators.settings import Effort, Training

    before = peak_megabytes()
    x, y = kinematics.sample(n, random_state=seed)
    wall, cpu = time.perf_counter(), time.process_time()
    training = Training(Effort(n_steps, 0, 0), n_restarts=1, penalty=None, verbose=False, batch_size=BATCH)
    ConditionalISR(2, 2, noise=0.0, training=training, random_state=seed).fit(x, y)
    return {
        "n_steps": n_steps, "fit_seconds": time.perf_counter() - wall, "fit_cpu_seconds": time.process_time() - cpu,
        "peak_mb": peak_megabytes(), "peak_mb_before": before, "data_mb": (x.nbytes + y.nbytes) / 1e6,
    }  # fmt: skip


def peak_megabytes() -> float:
    """Return the largest resident memory this process has had."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6


if __name__ == "__main__":
    main("growth", cases, measure)
