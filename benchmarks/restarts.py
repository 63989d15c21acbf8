"""Thirty-two restarts in one program beside thirty-two fits one after another.

    python benchmarks/restarts.py [--quick] [--out rows.jsonl]

Two parts. ``steps``: the time of a training step for one restart alone and for each of 32 side by side, everything
compiled. ``fits``: whole fits as a user would call them: `isr.SymbolicFlow` with 32 restarts, and fits with one restart
each, one after another in the same process, of which a few are timed and 32 reckoned. Fits of one shape share what is
compiled, so the first of either kind is told apart.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from statistics import median

from harness import Case, Row, main, time_calls
from peers.ours import OurFlow
from shape import ARM, Shape, arm_rows

N_RESTARTS = 32
SHAPES = {"arm, six blocks": ARM, "arm, two blocks": Shape(n_blocks=2, n_layers=2)}


def cases(quick: bool) -> list[Case]:
    """Return steps for each size of flow on one core and on two, and whole fits, which alone are quick."""
    sizes = [(name, cores) for name in SHAPES for cores in (1, 2)]
    found = [] if quick else [Case({"part": "steps", "model": name}, cores=cores) for name, cores in sizes]
    fits = {"part": "fits", "model": "banana, one block"}
    return [*found, *(Case(fits, cores=cores, timeout=3600) for cores in ((1,) if quick else (1, 2)))]


def measure(part: str, model: str, *, quick: bool, seed: int) -> Iterator[Row]:
    """Yield the rows of one case."""
    if part == "steps":
        yield step_row(SHAPES[model], seed)
    else:
        yield fit_row(quick=quick, seed=seed)


def step_row(shape: Shape, seed: int) -> Row:
    """Return the time of a step, alone and for each of many."""
    x, y = arm_rows(5000, seed)
    found = {}
    for n in (1, N_RESTARTS):
        flow = OurFlow(
            shape,
            x,
            y,
            batch_size=100,
            seed=seed,
            subnet="eql",
            n_members=n,
            steps_a_call=50,
            mixing="linear",
        )
        found[n] = time_calls(lambda flow=flow: flow.train(50), seconds=6.0).as_row(50 * n)
    together = found[N_RESTARTS]
    return together | {
        "n_restarts": N_RESTARTS, "alone_cpu_ms": found[1]["cpu_ms"], "alone_wall_ms": found[1]["wall_ms"],
        "times_faster": found[1]["cpu_ms"] / together["cpu_ms"],
        "times_faster_wall": found[1]["wall_ms"] / together["wall_ms"],
    }  # fmt: skip


def fit_row(*, quick: bool, seed: int) -> Row:
    """Return what 32 restarts take as one fit and one after another."""
    from isr import SymbolicFlow
    from isr.estimators.settings import Effort, Training
    from isr.problems.densities import DENSITIES

    x = DENSITIES["banana"].sample(2000, random_state=seed)
    effort = Effort(500, 0, 0) if quick else Effort(3000, 0, 0)
    n_timed = 2 if quick else 6

    def fit_seconds(n_restarts: int, number: int) -> tuple[float, float]:
        model = SymbolicFlow(
            1,
            2,
            training=Training(effort, n_restarts=n_restarts, penalty=None, verbose=False),
            random_state=number,
        )
        wall, cpu = time.perf_counter(), time.process_time()
        model.fit(x)
        return time.perf_counter() - wall, time.process_time() - cpu

    (_, together_first), *together = (fit_seconds(N_RESTARTS, seed + number) for number in range(1 + n_timed))
    (_, alone_first), *alone = (fit_seconds(1, seed + number) for number in range(1 + n_timed))
    together, (wall, cpu) = (tuple(map(median, zip(*times, strict=True))) for times in (together, alone))
    return {
        "n_restarts": N_RESTARTS, "n_timed": n_timed, "together_first_cpu_seconds": together_first,
        "alone_first_cpu_seconds": alone_first, "together_seconds": together[0],
        "together_cpu_seconds": together[1], "alone_seconds": wall, "alone_cpu_seconds": cpu,
        "times_faster": N_RESTARTS * cpu / together[1], "times_faster_wall": N_RESTARTS * wall / together[0],
    }  # fmt: skip


if __name__ == "__main__":
    main("restarts", cases, measure)
