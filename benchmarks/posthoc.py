"""Equations by training them, beside equations fitted afterwards to a trained network.

    python benchmarks/posthoc.py [--quick] [--out rows.jsonl]

The Banana density, one coupling block. *isr*: `isr.SymbolicFlow`, whose subnetworks are equations from the start.
*MLP + pyoperon*: the same flow with leaky-ReLU subnetworks (the INN), and then symbolic regression of each log-
scale and shift over the rows it was trained on, which is what one does to make a flow readable after the fact. The
regression of each of the four functions may take as long as a quarter of what is left of the time isr's fit took.
Errors are KL divergences in nats on fresh samples, before and after the functions are replaced; complexity is the
number of operations.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import sympy as sp

from harness import Case, Row, main
from isr.problems.densities import DENSITIES

N_TEST = 20_000


def cases(quick: bool) -> list[Case]:
    """Return the one case, both ways in one process, so that they can have the same time; none is quick."""
    return [] if quick else [Case({"problem": "banana"}, ("pyoperon",), timeout=3600)]


def measure(problem: str, *, quick: bool, seed: int) -> Iterator[Row]:
    """Yield isr's row, then that of the network with equations fitted afterwards."""
    from isr import SymbolicFlow

    density = DENSITIES[problem]
    x, test = density.sample(10_000, random_state=seed), density.sample(N_TEST, random_state=seed + 1)
    effort = "quick" if quick else "normal"
    began = time.process_time()
    ours = SymbolicFlow(1, 2, effort=effort, random_state=seed, verbose=False).fit(x)
    seconds = time.process_time() - began
    yield {
        "method": "isr", "kl": kl(-ours.score(test), problem), "fit_cpu_seconds": seconds,
        "n_operations": int(ours.expressions_.complexity),
    }  # fmt: skip

    began = time.process_time()
    network = SymbolicFlow(1, 2, subnet="mlp", effort=effort, random_state=seed, verbose=False).fit(x)
    left = max(4.0, seconds - (time.process_time() - began))
    functions, n_operations = fitted_functions(network.flow_, x, left / 4, seed)
    yield {
        "method": "MLP + pyoperon", "kl_before": kl(-network.score(test), problem),
        "kl": kl(-float(np.mean(log_density(network.flow_, functions, test))), problem),
        "fit_cpu_seconds": time.process_time() - began, "n_operations": n_operations,
    }  # fmt: skip


def kl(nats: float, problem: str) -> float:
    """Return the KL divergence that a mean loss over fresh samples stands for."""
    return float(nats - DENSITIES[problem].entropy)


Functions = list[Callable[[np.ndarray], np.ndarray]]


def fitted_functions(flow: Any, x: np.ndarray, seconds: float, seed: int) -> tuple[Functions, int]:
    """Return s1, t1, s2 and t2 as equations of what they read, and how many operations these have together."""
    before, coupling = split_flow(flow)
    u = before(x)[0]
    s1, t1 = network_values(coupling, coupling.first, u[:, 1:])
    v1 = u[:, :1] * np.exp(s1) + t1
    s2, t2 = network_values(coupling, coupling.second, v1)
    found, total = [], 0
    for read, values in ((u[:, 1:], s1), (u[:, 1:], t1), (v1, s2), (v1, t2)):
        expression = regression(read, values[:, 0], seconds, seed)
        total += int(sp.count_ops(expression))
        found.append(sp.lambdify(sp.Symbol("x0", real=True), expression, "numpy"))
    return found, total


def regression(x: np.ndarray, y: np.ndarray, seconds: float, seed: int) -> sp.Expr:
    """Return pyoperon's equation for one function."""
    from peers.regressors import pyoperon

    if np.ptp(y) < 1e-9:
        return sp.Float(float(y.mean()))
    return pyoperon(x, y, family="Kim", seed=seed, quick=False, seconds=seconds)[0]


def split_flow(flow: Any) -> tuple[Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]], Any]:
    """Return what stands before the one coupling, as a function of rows, and the coupling."""
    import jax
    import jax.numpy as jnp

    from isr.model.chain import Chain
    from isr.model.coupling import Coupling

    position = next(i for i, step in enumerate(flow.steps) if isinstance(step, Coupling))
    if position != len(flow.steps) - 1:
        raise ValueError("the coupling must be the last step of the flow")
    chain = Chain(tuple(flow.steps[:position]))

    def before(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        with jax.enable_x64(True):
            mapped, log_det = jax.jit(chain.forward_columns)(jnp.asarray(rows.T))
            return np.asarray(mapped).T, np.asarray(log_det)

    return before, flow.steps[position]


def network_values(coupling: Any, network: Any, read: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return log-scales and shifts for rows, clamp and guard included."""
    import jax
    import jax.numpy as jnp

    with jax.enable_x64(True):
        evaluate = jax.vmap(lambda half: coupling.scale_and_shift(network, half, None))
        s, t = jax.jit(evaluate)(jnp.asarray(read))
    return np.asarray(s), np.asarray(t)


def log_density(flow: Any, functions: Functions, x: np.ndarray) -> np.ndarray:
    """Return the log-density of rows by the equations."""
    u, log_det = split_flow(flow)[0](x)
    u1, u2 = u[:, 0], u[:, 1]
    s1, t1 = (np.broadcast_to(f(u2), u2.shape) for f in functions[:2])
    v1 = u1 * np.exp(s1) + t1
    s2, t2 = (np.broadcast_to(f(v1), v1.shape) for f in functions[2:])
    z = np.stack([v1, u2 * np.exp(s2) + t2])
    return log_det + s1 + s2 - 0.5 * np.sum(z**2, axis=0) - np.log(2 * np.pi)


if __name__ == "__main__":
    main("posthoc", cases, measure)
