"""Error against the number of constants: flows of several sizes, each trained for the same time on the same rows.

    python benchmarks/constants.py [--quick] [--out rows.jsonl]

The planar arm and the training of `equal_time.py`, whose flows have the size that suits their kind; here each kind is
made smaller, by fewer units in a layer and fewer blocks and layers. A cISR of ``width`` 1 has half the functions in
each layer.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from equal_time import HALF, trained_row
from harness import Case, Row, main
from isr.paper.kinematics import WIDER
from peers import FLOWS
from shape import ARM

BUDGET = 180.0
QUICK_BUDGET = 5.0
LIBRARIES = {1: HALF, 2: WIDER}
# Blocks, hidden layers, units of a layer (for a cISR: which library).
SIZES = {
    "isr cISR": ((2, 2, 1), (3, 2, 1), (6, 2, 1), (6, 3, 1)),
    "isr cINN": ((6, 3, 4), (6, 3, 8), (6, 3, 16)),
    "FlowJAX coupling": ((6, 3, 8), (6, 3, 16)),
    "FlowJAX spline": ((6, 3, 4), (6, 3, 8)),
}


def cases(quick: bool) -> list[Case]:
    """Return every size of every flow; a quick look has the smallest cISR."""
    found = [
        Case({"problem": "arm", "flow": name, "n_blocks": blocks, "n_layers": layers, "width": width,
              "budget": QUICK_BUDGET if quick else BUDGET}, FLOWS[name].needs, timeout=120 + 2 * BUDGET)
        for name, sizes in SIZES.items()
        for blocks, layers, width in sizes
    ]  # fmt: skip
    return found[:1] if quick else found


def measure(
    problem: str,
    flow: str,
    n_blocks: int,
    n_layers: int,
    width: int,
    budget: float,
    *,
    quick: bool,
    seed: int,
) -> Iterator[Row]:
    """Yield the error of one size."""
    shape = replace(ARM, n_blocks=n_blocks, n_layers=n_layers, width=width)
    library = LIBRARIES.get(width, WIDER)
    yield trained_row(problem, flow, budget, quick=quick, seed=seed, shape=shape, library=library)


if __name__ == "__main__":
    main("constants", cases, measure)
