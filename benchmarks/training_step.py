"""What a training step takes: isr's cISR and cINN on the planar arm beside the same flows of other libraries.

    python benchmarks/training_step.py [--quick] [--out rows.jsonl] [--only FrEIA]

Six two-sided affine couplings, three hidden layers, 4 variables given 2, batches of 100 and 1,000 rows, single
precision, Adam; every flow takes the likelihood's gradient, as its library's documentation has it. Three parts:

- ``step``: time of one step in a running training, on one core and on two. For isr also with the backward term that
  its fits bring in every fourth step, and with the learned linear maps that are its default between blocks.
- ``compile``: the first call of the training program in a new process, without and with isr's cache of programs, the
  backward term included, with linear maps between blocks (the default) and with permutations.
- ``fit``: a whole fit, compilation included, 10 epochs of 100,000 rows in batches of 100, beside FlowJAX's own
  ``fit_to_data``. Equations are written out when somebody asks for them, and are not part of it."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from harness import Case, Row, main, time_calls
from peers import FLOWS, build
from shape import ARM, arm_rows

BATCHES = (100, 1000)
N_STEPS = 20
LEFT_OUT = {"FlowJAX spline", "sbi MAF"}
# isr beyond the architecture that all share: what its own fits do.
VARIANTS = {"with backward term": {"backward": 1.0}, "with linear maps": {"mixing": "linear"}}


def cases(quick: bool) -> list[Case]:
    """Return every flow on one core, and on two unless a quick look is wanted."""
    found = []
    for cores in (1,) if quick else (1, 2):
        for name, peer in FLOWS.items():
            if name not in LEFT_OUT:
                found.append(Case({"part": "step", "flow": name}, peer.needs, cores))
        if not quick:
            found += [Case({"part": "step", "flow": "isr cISR", "variant": v}, (), cores) for v in VARIANTS]
    # Blocks with linear maps between them are alike and compiled once; permutations make each its own.
    for mixing in ("linear",) if quick else ("linear", "permutation"):
        found.append(Case({"part": "compile", "flow": "isr cISR", "mixing": mixing}, cores=2))
    # A short fit is nearly all compilation, which is told already.
    for name in () if quick else ("isr cISR", "isr cINN", "FlowJAX coupling"):
        found.append(Case({"part": "fit", "flow": name}, FLOWS[name].needs, timeout=3600))
    return found


def measure(
    part: str, flow: str, *, quick: bool, seed: int, variant: str = "", mixing: str = "linear"
) -> Iterator[Row]:
    """Yield the rows of one case."""
    if part == "step":
        yield from step_rows(flow, VARIANTS.get(variant, {}), quick=quick, seed=seed)
    elif part == "compile":
        yield from compile_rows(mixing, seed)
    else:
        yield fit_row(flow, seed)


def step_rows(name: str, options: dict[str, Any], *, quick: bool, seed: int) -> Iterator[Row]:
    """Yield the time of a step by size of batch, from many short calls: on a busy machine some go undisturbed."""
    for batch in BATCHES[:1] if quick else BATCHES:
        # isr's program is a whole pass over the rows, as in its fits; the others return to Python after every step.
        x, y = arm_rows(N_STEPS * batch, seed)
        more = {"steps_a_call": N_STEPS, **options} if name.startswith("isr") else {}
        flow = build(name, ARM, x, y, batch_size=batch, seed=seed, **more)
        timing = time_calls(lambda flow=flow: flow.train(N_STEPS), seconds=1.5 if quick else 8.0)
        yield timing.as_row(N_STEPS) | {"batch_size": batch, "n_parameters": flow.n_parameters}


def compile_rows(mixing: str, seed: int) -> Iterator[Row]:
    """Yield what the first call of isr's training program takes in a new process: cache empty, then filled."""
    program = (
        "import time; from isr.training.loop import keep_compiled_programs; keep_compiled_programs();"
        "from peers import build; from shape import ARM, arm_rows; x, y = arm_rows(5000);"
        f"flow = build('isr cISR', ARM, x, y, batch_size=100, seed={seed}, steps_a_call=1,"
        f"backward=1.0, mixing={mixing!r});"
        "wall, cpu = time.perf_counter(), time.process_time(); flow.train(1);"
        "print(time.perf_counter() - wall, time.process_time() - cpu)"
    )
    with tempfile.TemporaryDirectory() as folder:
        for cache in ("empty", "filled"):
            done = subprocess.run(
                [sys.executable, "-c", program], env=os.environ | {"ISR_CACHE": folder},
                cwd=Path(__file__).parent, capture_output=True, text=True, check=True,
            )  # fmt: skip
            wall, cpu = map(float, done.stdout.split())
            yield {"cache": cache, "compile_seconds": round(wall, 3), "compile_cpu_seconds": round(cpu, 3)}


def fit_row(name: str, seed: int) -> Row:
    """Return what a whole fit takes, compilation included."""
    n_rows, n_epochs = 100_000, 10
    x, y = arm_rows(n_rows, seed)
    os.environ["ISR_CACHE"] = "off"
    fit = _fit_flowjax if name.startswith("FlowJAX") else _fit_isr
    wall, cpu = time.perf_counter(), time.process_time()
    held_out = fit(name, x, y, n_epochs, seed)
    return {
        "n_rows": n_rows, "n_epochs": n_epochs, "fit_seconds": round(time.perf_counter() - wall, 3),
        "fit_cpu_seconds": round(time.process_time() - cpu, 3), "held_out_nats": held_out,
    }  # fmt: skip


def _fit_isr(name: str, x: Any, y: Any, n_epochs: int, seed: int) -> float:
    from isr import ConditionalISR
    from isr.estimators.settings import Effort, Training

    model = ConditionalISR(
        ARM.n_blocks,
        ARM.n_layers,
        subnet="eql" if name.endswith("cISR") else "mlp",
        noise=0.0,
        training=Training(
            Effort(n_epochs * len(x) // 100, 0, 0, peak=1e-3),
            penalty=None,
            n_restarts=1,
            backward=0.0,
            verbose=False,
        ),
        random_state=seed,
    ).fit(x, y)
    return min(point.held_out_nats for point in model.fit_.front)


def _fit_flowjax(name: str, x: Any, y: Any, n_epochs: int, seed: int) -> float:
    from peers.flowjax_flows import fit

    return fit(ARM, x, y, n_epochs=n_epochs, batch_size=100, seed=seed)


if __name__ == "__main__":
    main("training_step", cases, measure)
