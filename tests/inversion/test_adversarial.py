"""Twenty cases where a posterior could be wrong and look right: each comes out right, or warns.

Right is a mean within 0.15 sd of the exact one and an sd within 15 %. A warning is one in
Python, or a verdict that is not green: a refuted law, a flow in its place, or a note.
"""

import warnings
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from scipy import stats
from scipy.special import logsumexp

import isr

normal = stats.norm.logpdf


def line(low, high, n=20_001):
    return np.linspace(low, high, n)[:, None]


def box(n, dim, low, high):
    return np.random.default_rng(0).uniform(low, high, size=(n, dim))


def noise(x, sd, seed=1, n_columns=1):
    return sd * np.random.default_rng(seed).normal(size=(len(x), n_columns))


@dataclass
class Case:
    """Rows, an observation, and the exact log posterior at points where it has to come out right."""

    x: Any
    y: Any
    y_star: list[float]
    points: Any = None
    log_posterior: Any = None
    options: dict[str, Any] = field(default_factory=dict)


def two_normals(x):
    return np.logaddexp(normal(x, -2, 0.3), normal(x, 2, 0.3))


U1, U2 = box(2000, 1, 0, 2), box(3000, 1, 0, 2)
SQUARE = U1**2 + noise(U1, 0.1)
SUM = U2 + noise(U2, 0.1)
BIMODAL = np.random.default_rng(0).choice([-2.0, 2.0], (3000, 1)) + noise(U2, 0.3, 2)
COUNTS = np.random.default_rng(0).poisson(5, (3000, 1)).astype(float)
WIDE4 = box(4000, 4, -2, 2)
OUTLIERS = np.where(np.arange(2000)[:, None] % 100 == 0, SQUARE + 50, SQUARE)
PAIRS = box(3000, 2, 0, 1)
PRODUCT = PAIRS[:, :1] * PAIRS[:, 1:] + noise(PAIRS, 0.01)
MIXED = U2 + np.where(np.random.default_rng(3).random(U2.shape) < 0.2, 0.5, 0.05) * noise(U2, 1)
TWENTY = np.repeat(np.arange(150), 20)
GROWING = box(4000, 1, 0.1, 3)

CASES = {
    "noise stated too small": Case(U1, SQUARE, [1.0], options={"noise": 0.02}),
    "noise stated too large": Case(U1, SQUARE, [1.0], options={"noise": 0.5}),
    "a variable is missing": Case(
        U2 + 0.2, (U2 + 0.2) * np.random.default_rng(1).uniform(0.5, 1.5, U2.shape), [1.0], line(0.2, 2.2),
        lambda x: np.where((x >= 1 / 1.5) & (x <= 2), -np.log(x), -np.inf),
    ),
    "an observation from outside the box": Case(U1, SQUARE, [9.0]),
    "a prior wider than the rows": Case(U1 / 2, U1**2 / 4 + noise(U1, 0.02), [4.0], options={"prior": {"x1": (0, 4)}}),
    "a prior with two modes": Case(
        BIMODAL, BIMODAL**2 + noise(BIMODAL, 0.3), [4.0], line(-4, 4),
        lambda x: two_normals(x) + normal(4.0, x**2, 0.3),
    ),
    "two scales of noise": Case(
        U2, MIXED, [1.0], line(0, 2),
        lambda x: np.logaddexp(np.log(0.8) + normal(1, x, 0.05), np.log(0.2) + normal(1, x, 0.5)),
    ),
    "y twice": Case(U2, np.hstack([SUM, 2 * SUM]), [1.0, 2.0], line(0, 2), lambda x: normal(1, x, 0.1)),
    "copies that contradict": Case(U2, np.hstack([SUM, SUM]), [1.0, 1.2]),
    "x takes whole values": Case(
        COUNTS, 0.5 * COUNTS + noise(COUNTS, 0.4), [2.3], np.arange(30.0)[:, None],
        lambda x: stats.poisson.logpmf(x, 5) + normal(2.3, 0.5 * x, 0.4),
    ),
    "every row twenty times": Case(U2[TWENTY], (U2**2 + noise(U2, 0.1))[TWENTY], [1.0]),
    "columns of x nearly equal": Case(
        np.hstack([U2, U2 + noise(U2, 1e-6, 4)]), SUM, [1.0], line(0, 2), lambda x: normal(1, x, 0.1)
    ),
    "sixteen modes": Case(WIDE4, WIDE4**2 + noise(WIDE4, 0.05, n_columns=4), [1.0] * 4),
    "rounded y": Case(
        U2, np.round(U2 + noise(U2, 0.02), 1), [1.0], line(0, 2),
        lambda x: np.log(stats.norm.cdf((1.05 - x) / 0.02) - stats.norm.cdf((0.95 - x) / 0.02) + 1e-300),
    ),
    "saturated y": Case(
        U2, np.clip(U2 + noise(U2, 0.05), 0, 1), [1.0], line(0, 2), lambda x: stats.norm.logcdf((x - 1) / 0.05)
    ),
    "a jump": Case(
        U2, U2 + (U2 > 1.1) + noise(U2, 0.05), [1.05], line(0, 2), lambda x: normal(1.05, x + (x > 1.1), 0.05)
    ),
    "25 rows": Case(U1[:25], SQUARE[:25], [1.0], line(0, 2), lambda x: normal(1, x**2, 0.1)),
    "y says nothing": Case(U1, noise(U1, 1.0), [0.5], line(0, 2), lambda x: 0 * x),
    "outliers": Case(U1, OUTLIERS, [1.0], line(0, 2), lambda x: normal(1, x**2, 0.1)),
    "noise grows with x": Case(
        GROWING, np.sin(GROWING) + 0.2 * GROWING * noise(GROWING, 1), [0.5], line(0.1, 3),
        lambda x: normal(0.5, np.sin(x), 0.2 * x),
    ),
    "a column that stood still moves": Case(PAIRS, np.hstack([PRODUCT, np.full_like(PRODUCT, 3.0)]), [0.25, 4.0]),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_it_comes_out_right_or_warns(case):
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        model = isr.Inversion(random_state=0, **case.options).fit(case.x, case.y)
        draws = model.posterior(case.y_star).sample(8000)
    told = [w for w in said if type(w.message).__module__.startswith("isr")]
    assert told or not model.is_green_ or is_right(case, draws), model.verdict_


def is_right(case, draws):
    if len(case.y_star) == 4:  # all combinations of signs alike
        signs = (draws > 0) @ (2 ** np.arange(4))
        return np.bincount(signs, minlength=16).min() > 0.7 * len(draws) / 16
    if case.points is None:
        return False
    log_weights = case.log_posterior(case.points[:, 0])
    weights = np.exp(log_weights - logsumexp(log_weights))
    mean = weights @ case.points
    sd = np.sqrt(weights @ (case.points - mean) ** 2)
    return bool(abs(draws.mean() - mean) < 0.15 * sd and abs(draws.std() / sd - 1) < 0.15)
