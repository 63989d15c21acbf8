"""How far isr's training step is from what the machine could do at best.

    python benchmarks/machine_limit.py [--quick] [--out rows.jsonl]

The bound is the time of the step's arithmetic at the measured peak (a large matrix product in single precision on one
core), plus its transcendental functions at their measured cost inside a long loop, plus Adam's sweep over the weights
at the measured rate of memory-bound arithmetic. It leaves out everything else: activations moved between kernels, the
shuffling of rows, the start of each kernel. ``times_bound`` is measured time over that bound.
"""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from harness import Case, Row, main, time_calls
from isr.bijections.coupling import Coupling
from isr.bijections.flow import Flow
from isr.bijections.networks import EQL, units
from isr.bijections.primitives import arctan, cos, sin
from peers.ours import OurFlow
from shape import ARM, arm_rows

# Multiply and add for each weight and row: once forward, twice backward (gradients by weights and by inputs).
FLOPS_A_WEIGHT = 6
N_PROBE = 1 << 14
# Sine and arctangent as the polynomials that isr uses: XLA's own take ten times as long, and so would be no bound.
PROBES = {
    "sin": sin, "cos": cos, "exp": jnp.exp, "sigmoid": jax.nn.sigmoid, "atan": arctan,
}  # fmt: skip
# Kernels of a compiled program: what starts and ends in memory.
KERNELS = ("fusion(", "dot(", "convolution(", "custom-call(", "copy(", "reduce(", "dynamic-update-slice(")


def cases(quick: bool) -> list[Case]:
    """Return the cases: both kinds of subnetwork, or equations alone."""
    return [Case({"flow": name}) for name in ("isr cISR", "isr cINN")[: 1 if quick else 2]]


def measure(flow: str, *, quick: bool, seed: int) -> Iterator[Row]:
    """Yield the bound and the measured step for each size of batch."""
    seconds = 0.3 if quick else 2.0
    peak, costs, sweep = gemm_peak(seconds), transcendental_costs(seconds), sweep_cost(seconds)
    x, y = arm_rows(20_000, seed)
    for batch in (1000,) if quick else (100, 1000):
        n_steps = len(x) // batch
        ours = OurFlow(
            ARM, x, y, batch_size=batch, seed=seed, subnet="eql" if flow == "isr cISR" else "mlp",
            steps_a_call=n_steps,
        )  # fmt: skip
        timing = time_calls(lambda ours=ours, n=n_steps: ours.train(n), seconds=4 * seconds).as_row(n_steps)
        counts = transcendentals(ours.flow)
        arithmetic = FLOPS_A_WEIGHT * n_weights(ours.flow) * batch / peak
        functions = sum(n * costs[name] for name, n in counts.items()) * batch
        optimiser = ours.n_parameters * sweep
        bound = 1e3 * (arithmetic + functions + optimiser)
        yield timing | {
            "batch_size": batch, "n_parameters": ours.n_parameters, "gemm_gflops": peak / 1e9,
            "arithmetic_ms": 1e3 * arithmetic, "functions_ms": 1e3 * functions, "optimiser_ms": 1e3 * optimiser,
            "bound_ms": bound, "times_bound": timing["cpu_ms_best"] / bound,
            "functions_a_row": counts, "nanoseconds_a_function": {k: 1e9 * v for k, v in costs.items()},
            "n_kernels": n_kernels(ours),
        }  # fmt: skip


def gemm_peak(seconds: float) -> float:
    """Return floating-point operations a second of a large product in single precision."""
    n = 768
    a = jnp.asarray(np.random.default_rng(0).normal(size=(n, n)), jnp.float32)
    product = jax.jit(jnp.matmul)
    timing = time_calls(lambda: product(a, a).block_until_ready(), seconds=seconds)
    return 2 * n**3 / min(timing.cpu)


def transcendental_costs(seconds: float) -> dict[str, float]:
    """Return seconds a value of each function, over an array that fits the caches, the loop's own cost taken off."""
    values = jnp.linspace(-3.0, 3.0, N_PROBE, dtype=jnp.float32)

    def cost(function: Any) -> float:
        repeated = jax.jit(lambda v: jax.lax.fori_loop(0, 20, lambda _, u: function(u) * 0.9 + 0.1, v))
        timing = time_calls(lambda: repeated(values).block_until_ready(), seconds=seconds / 4)
        return min(timing.cpu) / (20 * N_PROBE)

    idle = cost(lambda v: v)
    return {name: max(cost(function) - idle, 0.0) for name, function in PROBES.items()}


def sweep_cost(seconds: float) -> float:
    """Return seconds a weight of Adam's update, as one kernel."""
    n = 1 << 16
    vectors = tuple(jnp.full(n, 0.5, jnp.float32) for _ in range(3))

    @jax.jit
    def update(w: Any, m: Any, v: Any) -> tuple[Any, Any, Any]:
        g = 0.1 * w
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
        return w - 1e-3 * m / (jnp.sqrt(v) + 1e-8), m, v

    timing = time_calls(lambda: jax.block_until_ready(update(*vectors)), seconds=seconds / 4)
    return median(timing.cpu) / n


def n_weights(flow: Flow) -> int:
    """Return how many weights enter matrix products; biases do not."""
    return sum(w.size for network in _networks(flow) for w in network.weights)


def transcendentals(flow: Flow) -> dict[str, int]:
    """Return how many values of each function one row needs, forward and backward."""
    counts = dict.fromkeys(PROBES, 0)
    for network in _networks(flow):
        # Half of the stacked outputs are log-scales: each is clamped by an arc tangent and enters an exponential.
        counts["atan"] += network.n_outputs
        counts["exp"] += network.n_outputs
        if isinstance(network, EQL):
            for primitive, multiplicity in units(network.library):
                n = multiplicity * network.stack * (len(network.weights) - 1)
                if primitive.name == "sin2pi":  # its gradient is a cosine
                    counts["sin"] += n
                    counts["cos"] += n
                elif primitive.name == "sigmoid":
                    counts["sigmoid"] += n
    return counts


def _networks(flow: Flow) -> list[Any]:
    return [n for step in flow.steps if isinstance(step, Coupling) for n in (step.first, step.second)]


def n_kernels(ours: OurFlow) -> int:
    """Return how many kernels the compiled step starts: those in the body of the loop over steps."""
    text = ours.epoch.lower(*ours.arguments()).compile().as_text()
    bodies = text.split("\n\n")
    count = lambda body: sum(line.count(f" {k}") for line in body.splitlines() for k in KERNELS)  # noqa: E731
    return max(count(body) for body in bodies)


if __name__ == "__main__":
    main("machine_limit", cases, measure)
