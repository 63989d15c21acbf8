"""Equations by training them, beside equations fitted afterwards to a trained network.

    python benchmarks/posthoc.py [--quick] [--out rows.jsonl] [--only funnel]

Laws of two variables that one coupling block can express exactly. *isr*: `isr.SymbolicFlow`, whose subnetworks are
equations from the start, with one library for all laws. *MLP + pyoperon*: the same flow with leaky-ReLU subnetworks
(the INN), and then symbolic regression of each log-scale and shift over the rows it was trained on, which is what one
does to make a flow readable after the fact. Each of the four functions gets pyoperon's default budget, over rows
spread evenly over what the function reads, and the shortest equation that is as near the network as the network is to
the law. Errors are KL divergences in nats, the mean difference of true and found
log-density on fresh samples, before and after the functions are replaced. Complexity is the number of operations of
the latents as equations of x, by SymPy's count for both; exact means every term with its constants within 2 %.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import sympy as sp

from harness import Case, Row, main
from isr.problems.laws import LAWS, Law

N_TRAIN, N_TEST, N_REGRESSION = 40_000, 20_000, 1000
PROBLEMS = ("banana", "funnel", "sine_shear", "sigmoid_shift", "decay_with_drift", "uneven_parabola")
LIBRARY = {"constant": 1, "id": 2, "square": 2, "sin": 2, "exp": 1, "sigmoid": 1}


def cases(quick: bool) -> list[Case]:
    """Return a case a law, both ways in one process, so that they can have the same time; none is quick."""
    return [] if quick else [Case({"problem": name}, ("pyoperon",), timeout=3600) for name in PROBLEMS]


def measure(problem: str, *, quick: bool, seed: int) -> Iterator[Row]:
    """Yield isr's row, then that of the network with equations fitted afterwards."""
    from isr import SymbolicFlow, Training

    law = LAWS[problem]
    x, test = law.sample(N_TRAIN, random_state=seed), law.sample(N_TEST, random_state=seed + 1)
    began = time.process_time()
    ours = SymbolicFlow(1, 2, library=LIBRARY, training=Training(verbose=False), random_state=seed).fit(x)
    seconds = time.process_time() - began
    composed = ours.expressions_.composed()
    yield {
        "method": "isr", "kl": kl(law, test, ours.score_samples(test)), "fit_cpu_seconds": seconds,
        **judged(law, list(composed.outputs), ours.expressions_.forward.inputs),
    }  # fmt: skip

    began = time.process_time()
    network = SymbolicFlow(1, 2, subnet="mlp", training=Training(verbose=False), random_state=seed).fit(x)
    kl_before = kl(law, test, network.score_samples(test))
    functions = fitted_functions(network.flow_, x, error_each(kl_before), seed)
    symbols = sp.symbols("x0 x1", real=True)
    yield {
        "method": "MLP + pyoperon", "kl_before": kl_before,
        "kl": kl(law, test, log_density(network.flow_, functions, test)),
        "fit_cpu_seconds": time.process_time() - began,
        **judged(law, latents(network.flow_, functions, symbols), symbols),
    }  # fmt: skip


def error_each(divergence: float) -> float:
    """Return the error of each of four functions with which they together make this divergence; 0.001 at least.

    An error e of a shift makes ``e² / 2`` nats, one of a log-scale ``e²``.
    """
    return float(np.sqrt(max(divergence / 3, 1e-6)))


def kl(law: Law, test: np.ndarray, log_density: np.ndarray) -> float:
    """Return the KL divergence of a density from a law, over fresh samples of the law."""
    return float(np.mean(law.log_prob(test) - log_density))


def judged(law: Law, found: list[Any], symbols: Any) -> Row:
    """Return how long equations of the latents are, and whether they are the law's."""
    n_operations = int(sum(sp.count_ops(equation) for equation in found))
    try:
        return {"n_operations": n_operations, "exact": bool(law.compare(found, symbols=symbols).same)}
    except ValueError:  # too long to be the law
        return {"n_operations": n_operations, "exact": False}


# Log-scale and shift of either half, as equations of x0, which stands for the half they read.
READ = sp.Symbol("x0", real=True)
Functions = list[Any]


def fitted_functions(flow: Any, x: np.ndarray, noise: float, seed: int) -> Functions:
    """Return s1, t1, s2 and t2 as equations of what they read."""
    before, coupling = split_flow(flow)
    u = before(x)[0]
    s1, t1 = network_values(coupling, coupling.first, u[:, 1:])
    v1 = u[:, :1] * np.exp(s1) + t1
    s2, t2 = network_values(coupling, coupling.second, v1)
    pairs = ((u[:, 1:], s1), (u[:, 1:], t1), (v1, s2), (v1, t2))
    return [regression(read, values[:, 0], noise, seed) for read, values in pairs]


def regression(x: np.ndarray, y: np.ndarray, noise: float, seed: int) -> Any:
    """Return pyoperon's equation for one function of one variable."""
    from peers.regressors import pyoperon

    if np.ptp(y) < 1e-9:
        return sp.Float(float(y.mean()))
    even = np.argsort(x[:, 0])[np.linspace(0, len(x) - 1, N_REGRESSION).astype(int)]
    return pyoperon(x[even], y[even], family="Kim", seed=seed, quick=False, noise=noise)[0]


def latents(flow: Any, functions: Functions, symbols: Any) -> list[Any]:
    """Return both latents as equations of x, by the equations found for the functions of the one coupling."""
    before, _ = split_flow(flow)
    origin, unit = before(np.zeros((1, 2)))[0][0], before(np.ones((1, 2)))[0][0]
    u1, u2 = (sp.Float(b) + sp.Float(a - b) * x for a, b, x in zip(unit, origin, symbols, strict=True))
    s1, t1, s2, t2 = (sp.sympify(f) for f in functions)
    v1 = u1 * sp.exp(s1.subs(READ, u2)) + t1.subs(READ, u2)
    return [v1, u2 * sp.exp(s2.subs(READ, v1)) + t2.subs(READ, v1)]


def split_flow(flow: Any) -> tuple[Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]], Any]:
    """Return what stands before the one coupling, as a function of rows, and the coupling."""
    import jax
    import jax.numpy as jnp

    from isr.bijections.affine import Standardise
    from isr.bijections.bijection import Chain
    from isr.bijections.coupling import Coupling

    *first, coupling = flow.steps
    if not isinstance(coupling, Coupling) or not all(isinstance(step, Standardise) for step in first):
        raise ValueError("the flow must be one coupling of standardised variables")
    chain = Chain(tuple(first))

    def before(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        with jax.enable_x64(True):
            mapped, log_det = jax.jit(chain.forward_columns)(jnp.asarray(rows.T))
            return np.asarray(mapped).T, np.asarray(log_det)

    return before, coupling


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
    values = [sp.lambdify(READ, function, "numpy") for function in functions]
    s1, t1 = (np.broadcast_to(f(u2), u2.shape) for f in values[:2])
    v1 = u1 * np.exp(s1) + t1
    s2, t2 = (np.broadcast_to(f(v1), v1.shape) for f in values[2:])
    z = np.stack([v1, u2 * np.exp(s2) + t2])
    return log_det + s1 + s2 - 0.5 * np.sum(z**2, axis=0) - np.log(2 * np.pi)


if __name__ == "__main__":
    main("posthoc", cases, measure)
