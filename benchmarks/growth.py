"""How time and memory grow with rows, variables and blocks.

    python benchmarks/growth.py [--quick] [--out rows.jsonl]

Each case trains a cISR in a process of its own for a fixed number of steps of 100 rows and tells the time of a
step, the time to compile, the time to prepare the data and the peak of memory. ``rows`` reads a Parquet file of 10⁴
to 10⁷ rows of the arm through `isr.ConditionalISR.fit_file`, the way a user would, and so does ``rows, one pass``,
whose steps are as many as the rows ask for. ``rows, limited`` may have `LIMIT_MB` more memory than a fit of few rows
needs, less than its table takes, and reads that table whole afterwards, which must fail. ``variables`` (2 to 64, a
tenth of them observed) and ``blocks`` (1 to 32) run the training program itself. Exponents are fitted on the page.
"""

from __future__ import annotations

import resource
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from harness import Case, Row, main, time_calls
from isr.problems import kinematics
from peers.ours import OurFlow
from shape import Shape

GRID = {
    "rows": (10_000, 100_000, 1_000_000, 10_000_000),
    "rows, one pass": (10_000, 100_000, 1_000_000, 10_000_000),
    "rows, limited": (10_000_000,),
    "variables": (2, 4, 8, 16, 32, 64),
    "blocks": (1, 2, 4, 8, 16, 32),
}
QUICK_GRID = {"rows": (10_000,), "blocks": (1, 4)}
N_STEPS = 2000
BATCH = 100
FEW_ROWS = 10_000
LIMIT_MB = 300


def cases(quick: bool) -> list[Case]:
    """Return every size."""
    grid = QUICK_GRID if quick else GRID
    return [Case({"along": along, "size": size}) for along, sizes in grid.items() for size in sizes]


def measure(along: str, size: int, *, quick: bool, seed: int) -> Iterator[Row]:
    """Yield time and memory of one size."""
    if along.startswith("rows"):
        n_steps = size // BATCH if along.endswith("one pass") else 500 if quick else N_STEPS
        yield (limited_row if along.endswith("limited") else fit_row)(size, n_steps, seed)
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
    """Return what a fit of so many rows from a Parquet file takes."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "arm.parquet"
        write_parquet(path, n, seed)
        before = peak_megabytes()
        return timed_fit(path, n, n_steps, seed) | {"peak_mb_before": before}


def limited_row(n: int, n_steps: int, seed: int) -> Row:
    """Return the same where the system grants less memory than the table takes, and what reading it whole ends in."""
    import pandas as pd

    with tempfile.TemporaryDirectory() as folder:
        few, path = Path(folder) / "few.parquet", Path(folder) / "arm.parquet"
        write_parquet(few, FEW_ROWS, seed)
        write_parquet(path, n, seed)
        timed_fit(few, FEW_ROWS, n_steps, seed)
        granted = round(1e6 * (private_megabytes() + LIMIT_MB))
        resource.setrlimit(resource.RLIMIT_DATA, (granted, granted))
        row = timed_fit(path, n, n_steps, seed) | {"limit_mb": LIMIT_MB}
        try:
            pd.read_parquet(path)
        except MemoryError as error:
            return row | {"read_whole": f"{type(error).__name__}: {error}"}
    return row | {"failure": "the whole table could be read: the limit shows nothing"}


def timed_fit(path: Path, n: int, n_steps: int, seed: int) -> Row:
    """Fit the ``n`` rows of a file and return what it took."""
    from isr import ConditionalISR
    from isr.estimators.settings import Effort, Training

    wall, cpu = time.perf_counter(), time.process_time()
    ConditionalISR(
        2,
        2,
        noise=0.0,
        training=Training(Effort(n_steps, 0, 0), n_restarts=1, penalty=None, verbose=False, batch_size=BATCH),
        random_state=seed,
    ).fit_file(path, x=kinematics.X_NAMES, y=kinematics.Y_NAMES)
    return {
        "n_steps": n_steps, "fit_seconds": time.perf_counter() - wall, "fit_cpu_seconds": time.process_time() - cpu,
        "peak_mb": peak_megabytes(), "data_mb": n * (len(kinematics.X_NAMES) + len(kinematics.Y_NAMES)) * 8 / 1e6,
    }  # fmt: skip


def private_megabytes() -> float:
    """Return the private memory that the system counts against a limit of data (Linux)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 / 1e6 for line in lines if line.startswith("VmData"))


def write_parquet(path: Path, n: int, seed: int, *, chunk: int = 500_000) -> None:
    """Write rows of the arm in pieces, so that writing them takes little memory."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    writer = None
    for start in range(0, n, chunk):
        x, y = kinematics.sample(min(chunk, n - start), random_state=seed + start)
        names = [*kinematics.X_NAMES, *kinematics.Y_NAMES]
        table = pa.table(dict(zip(names, [*x.T, *y.T], strict=True)))
        writer = writer or pq.ParquetWriter(path, table.schema)
        writer.write_table(table)
    if writer is not None:
        writer.close()


def peak_megabytes() -> float:
    """Return the largest resident memory this process has had."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6


if __name__ == "__main__":
    main("growth", cases, measure)
