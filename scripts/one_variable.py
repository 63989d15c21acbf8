"""One unknown: a coupling with a padding beside it, as fits have it, against monotone maps without any padding.

    python scripts/one_variable.py [--seeds 3] [--out rows.jsonl]

A coupling changes one half of the variables by functions of the other, so that a single x has a normal number beside
it. Without it there are monotone maps alone: here four layers ``sinh(exp(tail) asinh(x exp(s) + t) - skew)``, whose
parameters are equation learners of y, trained as the others are. Told are nats per fresh row, lower is better, and R²
of the surrogate y = f(x) of `isr.ISR` beside that of the best monotone function (isotonic regression).
"""

from __future__ import annotations

import argparse
import json
import subprocess
import time

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from sklearn.isotonic import IsotonicRegression
from sklearn.metrics import r2_score

import isr
from isr.bijections.affine import Standardise
from isr.bijections.bijection import AbstractBijection
from isr.bijections.coupling import ConditionMap
from isr.bijections.flow import Flow
from isr.bijections.networks import EQL, build_eql
from isr.bijections.parameters import cast
from isr.bijections.primitives import log_cosh, soft_clamp
from isr.estimators import pipeline
from isr.estimators.rows import FlowTask, prepare
from isr.estimators.settings import Plan, make_schedule
from isr.training.losses import FlowObjective
from isr.training.monitor import Monitor

N, N_FRESH, N_LAYERS = 4000, 20_000, 4


class Monotone(AbstractBijection):
    """One variable through ``sinh(exp(tail) asinh(x exp(s) + t) - skew)``, layer after layer."""

    network: EQL
    dim: int = eqx.field(static=True, default=1)

    def _parameters(self, condition):
        s, t, tail, skew = self.network(condition)
        return list(zip(soft_clamp(s, 3.0), t, soft_clamp(tail, 2.0), skew, strict=True))

    def forward_and_log_det(self, x, condition=None):
        total = jnp.zeros((), x.dtype)
        for s, t, tail, skew in self._parameters(condition):
            u = x[0] * jnp.exp(s) + t
            w = jnp.exp(tail) * jnp.arcsinh(u) - skew
            x, total = jnp.sinh(w)[None], total + s + tail + log_cosh(w) - 0.5 * jnp.log1p(u * u)
        return x, total

    def inverse_and_log_det(self, z, condition=None):
        raise NotImplementedError("densities alone are compared")


def bimodal(rng, n):
    """Two modes of x, whatever y: a density."""
    return np.where(rng.uniform(size=n) < 0.4, -1.5, 1.0) + 0.3 * rng.normal(size=n), rng.normal(size=n)


def skewed(rng, n):
    """A gamma law whose size follows y."""
    y = rng.normal(size=n)
    return rng.gamma(2.0, np.exp(0.5 * y)), y


def root(rng, n):
    """Two branches of x for positive y, one for negative: y is x² with noise."""
    x = rng.normal(size=n)
    return x, x**2 + 0.1 * rng.normal(size=n)


def monotone(rng, n):
    """A single branch, x of y."""
    x = rng.uniform(-2, 2, size=n)
    return x, np.tanh(x) + 0.1 * rng.normal(size=n)


TASKS = (bimodal, skewed, root, monotone)


def without_padding(x, y, fresh_x, fresh_y, seed):
    training = isr.Training(n_restarts=4, batch_size=100, penalty=None)
    schedule = make_schedule(training, N - N // 5, peak=3e-3)
    rows = prepare(FlowTask(x[:, None], y=y[:, None]), seed=seed)
    unchanged = ConditionMap(Standardise((0.0,), (1.0,)), None, None)

    def build(key):
        return Flow(Monotone(build_eql(key, 1, N_LAYERS, n_layers=2, stack=4)), unchanged)

    with jax.enable_x64(True):
        plan = Plan(training, schedule, seed, Monitor(verbose=False))
        data = rows.fresh(rows.train), rows.fresh(rows.held_out)
        population, restore = pipeline.train_networks(plan, build, FlowObjective, *data, about="monotone")
        flow = cast(restore(population.weights[0].astype(np.float32)), jnp.float64)
        fresh = [(v - s.shift[0]) / s.scale[0] for v, s in ((fresh_x, rows.scale), (fresh_y, rows.y_scale))]
        return float(-np.mean(flow.joint_log_prob_columns(*(v[None] for v in fresh))) + rows.width)


def with_padding(x, y, fresh_x, fresh_y, seed):
    model = isr.ConditionalISR(noise=0, training=isr.Training(penalty=None, verbose=False), random_state=seed)
    return -model.fit(x[:, None], y[:, None]).score(fresh_x[:, None], fresh_y[:, None])


def surrogate(x, y, fresh_x, fresh_y, seed):
    model = isr.ISR(training=isr.Training(penalty=None, verbose=False), random_state=seed).fit(
        x[:, None], y[:, None]
    )
    best = max(
        r2_score(fresh_y, IsotonicRegression(increasing=up, out_of_bounds="clip").fit(x, y).predict(fresh_x))
        for up in (True, False)
    )
    return r2_score(fresh_y, model.predict(fresh_x[:, None])), best


def main() -> None:
    """Print a row for each task and seed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out")
    options = parser.parse_args()
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True
    )
    for seed in range(options.seeds):
        for task in TASKS:
            rng = np.random.default_rng(seed)
            pair = (*task(rng, N), *task(rng, N_FRESH), seed)
            row = {"task": task.__name__, "seed": seed, "commit": commit.stdout.strip()}
            for way in (with_padding, without_padding):
                begun = time.process_time()
                row |= {
                    way.__name__: round(way(*pair), 4),
                    f"{way.__name__}_s": round(time.process_time() - begun, 1),
                }
            if task in (root, monotone):
                row |= dict(
                    zip(("isr_r2", "isotonic_r2"), np.round(surrogate(*pair), 4).tolist(), strict=True)
                )
            print(json.dumps(row), flush=True)
            if options.out:
                with open(options.out, "a") as file:
                    file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
