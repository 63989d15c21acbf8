"""Calibration: do posteriors hold the truth as often as they say? Ranks, coverage and TARP, each with a test.

Every check takes the same arrays: ``truths`` ``(n, dim)``, drawn from the prior, and ``samples`` ``(n, m, dim)``, the
``m`` posterior draws for the observation simulated from each truth.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from jaxtyping import Float, Int
from numpy.typing import ArrayLike
from scipy import stats

N_BINS, N_SIMULATIONS = 20, 2000
LEVELS = tuple(np.round(np.linspace(0.05, 0.95, 19), 2).tolist())
"""Default credible levels of coverage curves."""
# The share of the rows at each end of a column of y that is judged by itself, of how many columns, and with corners.
END, MOST_COLUMNS, MOST_CORNERED = 0.2, 8, 3
# So many failed tests are named.
MOST_TOLD = 6


def sbc_ranks(truths: ArrayLike, samples: ArrayLike, *, random_state: int = 0) -> Int[np.ndarray, "n dim"]:
    """Return how many of the ``m`` draws lie below each truth: uniform on 0…m when the posterior is right.

    Ties, as discrete parameters give, are broken at random.

    Example:
        >>> sbc_ranks([[0.5]], [[[0.0], [1.0], [0.2]]]).tolist()
        [[2]]
    """
    truths, samples = _check(truths, samples)
    below = np.sum(samples < truths[:, None], axis=1)
    ties = np.sum(samples == truths[:, None], axis=1)
    return below + np.random.default_rng(random_state).integers(0, ties + 1)


def _check(truths: ArrayLike, samples: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    truths, samples = np.asarray(truths, dtype=float), np.asarray(samples, dtype=float)
    if truths.ndim != 2 or samples.ndim != 3 or samples.shape[::2] != truths.shape:
        raise ValueError(
            f"truths must be (n, dim) and samples (n, m, dim), got {truths.shape} and {samples.shape}"
        )
    if not np.all(np.isfinite(samples)):
        bad = int(np.sum(~np.isfinite(samples).all(axis=-1)))
        raise ValueError(f"{bad} posterior draws are not finite; calibration needs all of them")
    return truths, samples


def uniformity(
    ranks: ArrayLike, n_draws: int, *, names: Sequence[str] | None = None, random_state: int = 0
) -> pd.DataFrame:
    """Return p-values of rank uniformity for each parameter: χ² over bins and Kolmogorov–Smirnov.

    A random jitter spreads each of the ``n_draws + 1`` possible ranks over its step.

    Example:
        >>> ranks = np.arange(1000)[:, None] % 100
        >>> bool((uniformity(ranks, 99, names=["depth"]) > 0.9).all(axis=None))
        True
    """
    columns = _positions(ranks, n_draws, random_state).T
    counts = [np.histogram(column, bins=N_BINS, range=(0, 1))[0] for column in columns]
    p_values = {
        "chi2": stats.chisquare(counts, axis=1).pvalue,
        "ks": stats.kstest(columns, "uniform", axis=1).pvalue,
    }
    return pd.DataFrame(p_values, pd.Index(names or [f"x{i}" for i in range(len(columns))], name="parameter"))


def regions_of(y: Float[np.ndarray, "n d"], names: Sequence[str]) -> dict[str, np.ndarray]:
    """Return which rows of y lie where: everywhere, in the middle, at either end of each of the first columns, and in
    the corners of two.
    """
    place = (stats.rankdata(y, axis=0) - 0.5) / len(y)
    ends = {}
    for name, column in list(zip(names, place.T, strict=True))[:MOST_COLUMNS]:
        ends |= {f"where {name} is lowest": column < END, f"where {name} is highest": column > 1 - END}
    middle = ~np.any(list(ends.values()), axis=0)
    corners = {
        f"{first} and {second.removeprefix('where ')}": ends[first] & ends[second]
        for first, second in itertools.combinations(list(ends)[: 2 * MOST_CORNERED], 2)
    }
    regions = {"over all": np.ones(len(y), bool), "in the middle of y": middle, **ends, **corners}
    return {where: kept for where, kept in regions.items() if kept.any()}


def _positions(ranks: ArrayLike, n_draws: int, seed: int) -> np.ndarray:
    ranks = np.atleast_2d(np.asarray(ranks).T).T
    return (ranks + np.random.default_rng(seed).uniform(size=ranks.shape)) / (n_draws + 1)


def ecdf_band(
    n: int, grid: ArrayLike, *, prob: float = 0.95, random_state: int = 0
) -> tuple[Float[np.ndarray, " k"], Float[np.ndarray, " k"]]:
    """Return the simultaneous band within which the ECDF of ``n`` uniforms stays everywhere with probability ``prob``.

    Pointwise binomial limits at a level found by simulating ECDFs (Säilynoja, Bürkner and Vehtari 2022).

    Example:
        >>> low, high = ecdf_band(100, [0.5])
        >>> bool(0.3 < low[0] < 0.5 < high[0] < 0.7)
        True
    """
    grid, rng = np.asarray(grid, dtype=float), np.random.default_rng(random_state)
    # Counts per grid cell are multinomial, so their running sums are ECDFs on the grid.
    cells = np.diff(np.concatenate([[0.0], grid, [1.0]]))
    counts = np.cumsum(rng.multinomial(n, cells, size=N_SIMULATIONS), axis=1)[:, :-1]
    tail = np.minimum(stats.binom.cdf(counts, n, grid), stats.binom.sf(counts - 1, n, grid))
    gamma = np.quantile(tail.min(axis=1), 1 - prob)
    return stats.binom.ppf(gamma, n, grid) / n, stats.binom.ppf(1 - gamma, n, grid) / n


@dataclass(frozen=True)
class Coverage:
    """How often a credible region of each level holds the truth.

    Args:
        levels: Credible levels.
        coverage: Share of truths inside, ``(levels,)`` or ``(levels, dim)``; that of an exact posterior is the level.
        p_value: Kolmogorov–Smirnov test against exact coverage, a scalar or one per parameter.
        n: Number of truths.

    Example:
        >>> Coverage(np.array([0.5, 1.0]), np.array([0.7, 1.0]), np.array(0.01), n=100).coverage
        array([0.7, 1. ])
    """

    levels: Float[np.ndarray, " k"]
    coverage: Float[np.ndarray, "k ..."]
    p_value: Float[np.ndarray, "..."]
    n: int


def marginal_coverage(
    truths: ArrayLike, samples: ArrayLike, *, levels: Sequence[float] = LEVELS, random_state: int = 0
) -> Coverage:
    """Return the coverage of central intervals, parameter by parameter.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> found = marginal_coverage(rng.normal(size=(500, 1)), rng.normal(size=(500, 99, 1)), levels=[0.5])
        >>> bool(0.45 < found.coverage[0, 0] < 0.55)
        True
    """
    truths, samples = _check(truths, samples)
    position = _positions(sbc_ranks(truths, samples), samples.shape[1], random_state)
    return _coverage(np.abs(2 * position - 1), levels)


def _coverage(content: np.ndarray, levels: ArrayLike) -> Coverage:
    """Coverage from the content of the smallest region that holds each truth, uniform when calibrated."""
    level = np.asarray(levels, dtype=float)
    inside = content[None] <= level.reshape(-1, *([1] * content.ndim))
    p_value = np.apply_along_axis(lambda c: stats.kstest(c, "uniform").pvalue, 0, content)
    return Coverage(level, inside.mean(axis=1), np.asarray(p_value), len(content))


def tarp(truths: ArrayLike, samples: ArrayLike, *, random_state: int = 0) -> Coverage:
    """Return the coverage of balls around random points that reach just to the truth (TARP, Lemos et al. 2023).

    Unlike ranks, it sees all parameters at once. Each parameter is scaled by the spread of the truths; the centres are
    uniform over the box of the truths.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> bool(tarp(rng.normal(size=(300, 2)), 0.3 * rng.normal(size=(300, 99, 2))).p_value < 0.001)  # too narrow
        True
    """
    truths, samples = _check(truths, samples)
    rng = np.random.default_rng(random_state)
    centres = rng.uniform(truths.min(axis=0), truths.max(axis=0), truths.shape)
    scale = np.where(truths.std(axis=0) > 0, truths.std(axis=0), 1.0)
    reach = np.linalg.norm((truths - centres) / scale, axis=-1)
    distance = np.linalg.norm((samples - centres[:, None]) / scale, axis=-1)
    nearer = np.sum(distance < reach[:, None], axis=1)
    content = _positions(nearer, samples.shape[1], random_state + 1)[:, 0]
    return _coverage(content, np.linspace(0, 1, 51))


def check_calibration(
    truths: ArrayLike,
    samples: ArrayLike,
    *,
    names: Sequence[str] | None = None,
    y: pd.DataFrame | None = None,
    random_state: int = 0,
) -> pd.DataFrame:
    """Return one row per test with its p-value, and ``passed`` at 5 % after Holm's correction for their number.

    Args:
        truths: Rows of x.
        samples: Draws of the posterior of each.
        names: What the variables are called.
        y: The observation of each; ranks are then also judged in the middle of y and at the ends of each column.
        random_state: Seed that breaks ties of ranks.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> shift = rng.normal(size=(300, 1, 2))
        >>> truths, samples = (shift + rng.normal(size=(300, 100, 2)))[:, 0], shift + rng.normal(size=(300, 99, 2))
        >>> bool(check_calibration(truths, samples)["passed"].all())
        True
    """
    truths, samples = _check(truths, samples)
    ranks = sbc_ranks(truths, samples)
    frame = uniformity(ranks, samples.shape[1], names=names, random_state=random_state)
    rows = [(f"sbc {kind}", name, frame.loc[name, kind]) for name in frame.index for kind in frame]
    if y is not None:
        positions = _positions(ranks, samples.shape[1], random_state)
        for where, kept in list(regions_of(y.to_numpy(float), [str(c) for c in y.columns]).items())[1:]:
            for name, column in zip(frame.index, positions[kept].T, strict=True):
                rows.append((f"ranks {where}", name, float(stats.kstest(column, "uniform").pvalue)))
    rows.append(("tarp", "all", float(tarp(truths, samples, random_state=random_state).p_value)))
    table = pd.DataFrame(rows, columns=["test", "parameter", "p_value"])
    ordered = table["p_value"].sort_values()
    holm = (ordered * np.arange(len(ordered), 0, -1)).cummax().clip(upper=1.0)
    return table.assign(adjusted=holm, passed=holm > 0.05)


@dataclass(frozen=True)
class Calibration:
    """Results of all checks, for a figure or a report.

    Args:
        ranks: From ``sbc_ranks``, a column per parameter.
        n_draws: Posterior draws behind every rank.
        coverage: From ``marginal_coverage``.
        tarp: From ``tarp``.
        tests: From ``check_calibration``, a row per test.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> print(Calibration.of(rng.normal(size=(60, 1)), rng.normal(size=(60, 99, 1))))
        calibrated, as far as 60 observations tell
        >>> str(Calibration.of(rng.normal(size=(60, 1)), 0.3 * rng.normal(size=(60, 99, 1))))[:14]
        'not calibrated'
    """

    ranks: Int[np.ndarray, "n dim"]
    n_draws: int
    coverage: Coverage
    tarp: Coverage
    tests: pd.DataFrame

    @classmethod
    def of(
        cls,
        truths: ArrayLike,
        samples: ArrayLike,
        names: tuple[str, ...] | None = None,
        y: pd.DataFrame | None = None,
    ) -> "Calibration":
        """Return all checks of posterior draws ``(n, m, dim)`` against truths ``(n, dim)``, with y by places too."""
        return cls(
            ranks=sbc_ranks(truths, samples),
            n_draws=np.shape(samples)[1],
            coverage=marginal_coverage(truths, samples),
            tarp=tarp(truths, samples),
            tests=check_calibration(truths, samples, names=names, y=y),
        )

    def __str__(self) -> str:
        tests = self.tests.to_dict("records")
        bad = [f"{t['parameter']} by {t['test']} (p = {t['adjusted']:.1g})" for t in tests if not t["passed"]]
        if bad:
            more = f" and {len(bad) - MOST_TOLD} more tests" if len(bad) > MOST_TOLD else ""
            return f"not calibrated: {', '.join(bad[:MOST_TOLD])}{more}; do not trust widths there"
        by_place = any(t["test"].startswith("ranks ") for t in tests)
        places = ": over all, in the middle and at the ends of y" if by_place else ""
        return f"calibrated, as far as {len(self.ranks)} observations tell{places}"
