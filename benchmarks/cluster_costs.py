"""What large runs would cost: unit costs measured on this machine, and what follows from them on paper.

    python benchmarks/cluster_costs.py [--quick] [--out rows.jsonl]

Writes one JSON row per unit: a geoacoustic environment of seven frequencies, a planar arm, a training step of one
restart of the conditional model of the arm (6 blocks of 3 layers, batches of 100), a task handed to a joblib worker.
Seconds are processor time, so that other work on the machine does not count, and compiling is told apart. The last two
rows multiply: 10⁹ simulations, 1,000 restarts.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import joblib
import numpy as np

from isr import ocean as geoacoustics
from isr.bijections.build import Architecture, build_flow
from isr.bijections.parameters import flatten, jax_keys
from isr.problems import kinematics
from isr.training.loop import batches, make_epoch, start
from isr.training.losses import FlowObjective
from isr.training.penalties import SmoothHalfNorm

N_SIMULATIONS, N_RESTARTS, STEPS_OF_A_RESTART = 10**9, 1000, 30_000


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="fewer repetitions; ends within a minute")
    parser.add_argument("--out", type=Path, help="append the rows to this file")
    arguments = parser.parse_args()
    common = {
        "benchmark": "cluster_costs",
        "commit": commit(),
        "seed": 0,
        "quick": arguments.quick,
        "machine": machine(),
    }
    rows = measure(quick=arguments.quick)
    for row in [*rows.values(), *on_paper(rows)]:
        print(json.dumps(common | row))
        if arguments.out is not None:
            with arguments.out.open("a", encoding="utf-8") as file:
                file.write(json.dumps(common | row) + "\n")


def measure(*, quick: bool) -> dict[str, dict[str, Any]]:
    """Return the unit costs by name."""
    return {
        "environment": environment(20 if quick else 400),
        "arm": arm(10**5 if quick else 10**6),
        "step": training_step(n_members=2, n_steps=20 if quick else 300),
        "task": task(200 if quick else 2000),
    }


def environment(n: int) -> dict[str, Any]:
    """One environment, seven frequencies, computed and written as part of a chunk."""
    prior = geoacoustics.prior(2)
    with tempfile.TemporaryDirectory() as folder:
        geoacoustics.simulate(2, prior=prior, n_jobs=1, progress=False)  # compiles
        seconds = processor_seconds(
            lambda: geoacoustics.simulate(n, Path(folder) / "rows", prior=prior, n_jobs=1, progress=False)
        )
        n_bytes = sum(path.stat().st_size for path in (Path(folder) / "rows").glob("part-*"))
    return {"unit": "geoacoustic environment", "n": n, "seconds": seconds / n, "bytes": n_bytes / n}


def arm(n: int) -> dict[str, Any]:
    """One row of the planar arm, drawn and computed."""
    rng = np.random.default_rng(0)
    seconds = processor_seconds(lambda: kinematics.forward(kinematics.sample_prior(n, rng)))
    return {"unit": "planar arm", "n": n, "seconds": seconds / n, "bytes": 6 * 8.0}


def training_step(n_members: int, n_steps: int) -> dict[str, Any]:
    """One step of one restart, several restarts side by side in a single program."""
    shape = Architecture(n_blocks=6, n_layers=3, mixing="linear")
    flows = [
        build_flow(k, 4, condition_dim=2, architecture=shape)
        for k in jax.random.split(jax.random.key(0), n_members)
    ]
    weights = jnp.stack([flatten(flow)[0].astype(jnp.float32) for flow in flows])
    _, restore = flatten(flows[0])
    rng, n_rows = np.random.default_rng(0), 100 * n_steps
    data = {
        "x": jnp.asarray(rng.normal(size=(4, n_rows)), jnp.float32),
        "y": jnp.asarray(rng.normal(size=(2, n_rows)), jnp.float32),
    }
    objective = FlowObjective(restore, backward=1.0)
    epoch = make_epoch(objective, SmoothHalfNorm())
    order = batches(1, n_rows=n_rows, batch_size=100, n_steps=n_steps)
    ones, keys = jnp.ones_like(weights), jax_keys(1, n_steps, n_members)

    def run() -> None:
        found = epoch(
            start(weights), data, jnp.full(n_steps, 1e-4), jnp.zeros(n_members), ones, ones[0], keys,
            order,
        )  # fmt: skip
        jax.block_until_ready(found)

    compiling = processor_seconds(run)
    seconds = processor_seconds(run)
    return {
        "unit": "training step of one restart", "n": n_steps, "seconds": seconds / n_steps / n_members,
        "compile_seconds": compiling - seconds, "n_weights": int(weights.shape[1]),
    }  # fmt: skip


def task(n: int) -> dict[str, Any]:
    """A task that does nothing, handed to a worker process and back: wall time, for it is spent waiting."""
    workers: Any = joblib.Parallel(n_jobs=2, batch_size=1)
    workers(joblib.delayed(abs)(0) for _ in range(4))  # starts the processes
    begun = time.perf_counter()
    workers(joblib.delayed(abs)(0) for _ in range(n))
    return {"unit": "task of a joblib worker", "n": n, "seconds": (time.perf_counter() - begun) / n}


def on_paper(rows: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """Return what the large runs would cost."""
    restart = STEPS_OF_A_RESTART * rows["step"]["seconds"] + rows["step"]["compile_seconds"]
    simulations = [
        {
            "run": f"{N_SIMULATIONS:.0e} {rows[name]['unit']}s",
            "core_hours": N_SIMULATIONS * rows[name]["seconds"] / 3600,
            "terabytes": N_SIMULATIONS * rows[name]["bytes"] / 1e12,
        }
        for name in ("environment", "arm")
    ]
    restarts = f"{N_RESTARTS} restarts of {STEPS_OF_A_RESTART} steps"
    return [*simulations, {"run": restarts, "core_hours": N_RESTARTS * restart / 3600}]


def processor_seconds(work: Callable[[], Any]) -> float:
    begun = time.process_time()
    work()
    return time.process_time() - begun


def commit() -> str:
    done = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    )
    return done.stdout.strip()


def machine() -> dict[str, Any]:
    return {
        "cpu": platform.processor() or platform.machine(),
        "n_cpus": os.cpu_count(),
        "python": platform.python_version(),
    }


if __name__ == "__main__":
    main()
