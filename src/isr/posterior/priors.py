"""Priors: what is known of x before measuring, in whichever form the user holds it.

Rows are draws and columns the variables; randomness comes as a seed or a NumPy generator.
"""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from isr.tables.bounds import Bounds, Pair, parse_bounds
from isr.tables.names import check_names, quoted

RandomState = int | np.random.Generator | None

_MAPPING = "give a mapping from name to (low, high) or to a frozen scipy.stats distribution"
_FORMS = (
    "a mapping from name to (low, high) or to a frozen scipy.stats distribution, an object with "
    "sample(n, random_state), or a function (n, rng) -> rows"
)


class Density(Protocol):
    """What a density offers: the log-density of rows of x."""

    def log_prob(self, rows: Any, /) -> Any:
        """Return the log-density of each row."""
        ...


@dataclass(frozen=True)
class _Marginal:
    """One variable of a mapping: its distribution, given that it lies between two ends."""

    distribution: Any
    low: float
    high: float
    text: str
    is_cut: bool = False

    def draw(self, n: int, rng: np.random.Generator) -> np.ndarray:
        if self.is_cut:
            start, mass, from_above = self._mass()
            quantile = self.distribution.isf if from_above else self.distribution.ppf
            values = quantile(start + mass * rng.uniform(size=n))
        else:
            values = self.distribution.rvs(size=n, random_state=rng)
        # Rounding can carry a draw past the end of its support, where a bounded model has no density.
        return np.clip(values, self.low, self.high)

    def log_prob(self, values: np.ndarray) -> np.ndarray:
        discrete = hasattr(self.distribution, "logpmf")
        found = self.distribution.logpmf(values) if discrete else self.distribution.logpdf(values)
        if not self.is_cut:
            return found
        inside = (values >= self.low) & (values <= self.high)
        return np.where(inside, found - np.log(self._mass()[1]), -np.inf)

    def _mass(self) -> tuple[float, float, bool]:
        """Probability before the interval and inside it, both counted from above in an upper tail to stay exact."""
        from_above = bool(self.distribution.cdf(self.low) > 0.5)
        ends = [self.low, self.high]
        start, end = self.distribution.sf(ends[::-1]) if from_above else self.distribution.cdf(ends)
        if not end > start:
            raise ValueError(
                f"{self.text} has no mass between {self.low:.6g} and {self.high:.6g}; widen the range"
            )
        return float(start), float(end - start), from_above


@dataclass(frozen=True, repr=False, eq=False)
class Prior:
    """A prior in one form, whatever it was made from; made by `parse_prior`.

    Args:
        names: Names of the variables, None if unknown.
        bounds: ``(low, high)`` of each variable with None for an open end, None if no variable has bounds.
        description: The prior in words, the same in every session.
        draw: ``draw(n, generator)`` gives rows.
        density: Log-density of rows, None if unknown.
        parts: The law of each variable, where they are independent; empty where they are not.

    Example:
        >>> prior = parse_prior({"depth": (200.0, 240.0)})
        >>> prior.names, prior.bounds, prior.sample(3, random_state=0).shape
        (('depth',), ((200.0, 240.0),), (3, 1))
        >>> prior.log_prob([[210.0], [250.0]]).round(3), len(prior.marginals)
        (array([-3.689,   -inf]), 1)
    """

    names: tuple[str, ...] | None
    bounds: tuple[Pair, ...] | None
    description: str
    draw: Callable[[int, np.random.Generator], Any]
    density: Callable[[np.ndarray], Any] | None
    parts: tuple[_Marginal, ...] = ()

    def __repr__(self) -> str:
        return f"Prior({self.description})"

    @property
    def marginals(self) -> tuple[Any, ...]:
        """Frozen SciPy distribution of each variable, where they are independent and not cut; else empty."""
        return (
            () if any(part.is_cut for part in self.parts) else tuple(part.distribution for part in self.parts)
        )

    def sample(self, n: int, random_state: RandomState = None) -> Float[np.ndarray, "n dim"]:
        """Return ``n`` draws as rows."""
        rows = np.asarray(self.draw(n, np.random.default_rng(random_state)), dtype=float)
        rows = rows[:, None] if rows.ndim == 1 else rows
        width = f"{len(self.names)} columns" if self.names else "one column per variable"
        if rows.ndim != 2 or len(rows) != n or (self.names and rows.shape[1] != len(self.names)):
            raise ValueError(f"the prior drew an array of shape {rows.shape}; expected {n} rows with {width}")
        bad = rows[~np.isfinite(rows).all(axis=1)]
        if len(bad):
            raise ValueError(
                f"the prior drew NaN or infinite values; the first such row is {bad[0].tolist()}"
            )
        return rows

    def log_prob(self, rows: Any) -> Float[np.ndarray, " n"]:
        """Return the log-density (nats) of each row, ``-inf`` outside the support."""
        if self.density is None:
            raise ValueError(f"the density of the prior {self.description} is unknown; {_MAPPING}")
        x = np.asarray(rows, dtype=float)
        if x.ndim != 2 or (self.names and x.shape[1] != len(self.names)):
            columns = f"the {len(self.names)} columns {quoted(self.names)}" if self.names else "columns"
            raise ValueError(
                f"log_prob takes rows with {columns}, got shape {x.shape}; write a single row as [[...]]"
            )
        return np.asarray(self.density(x), dtype=float)

    def within(self, low: ArrayLike, high: ArrayLike) -> Prior:
        """Return this prior given that every variable lies between its ``low`` and ``high``; exact in any box.

        Only a prior given as a mapping can be cut.

        Example:
            >>> prior = parse_prior({"depth": (200, 240), "speed": (1500, 1600)}).within([210, 1400], [220, 1520])
            >>> prior
            Prior(depth ~ uniform(200, 240), speed ~ uniform(1500, 1600), within [210, 220] x [1500, 1520])
            >>> round(float(prior.log_prob([[215, 1510]])[0]), 4)
            -5.2983
        """
        if not self.parts:
            raise ValueError(f"the prior {self.description} cannot be cut to a box; {_MAPPING}")
        lows, highs = np.asarray(low, dtype=float), np.asarray(high, dtype=float)
        if self.bounds is not None:
            own = Bounds.from_pairs(self.bounds)
            lows, highs = np.maximum(lows, own.low), np.minimum(highs, own.high)
        box = Bounds(tuple(lows.tolist()), tuple(highs.tolist()))
        if not np.all(lows < highs):
            raise ValueError(f"the prior has no mass within {box}")
        ends = zip(self.parts, box.low, box.high, strict=True)
        parts = tuple(replace(part, low=a, high=b, is_cut=True) for part, a, b in ends)
        return _independent(self.names, box.pairs(), f"{self.description}, within {box}", parts)


def parse_prior(prior: Any) -> Prior:
    """Return the prior that was given, in one form.

    Args:
        prior: A mapping from name to ``(low, high)``, uniform, or to a frozen ``scipy.stats`` distribution, all
            independent. Or an object with ``sample(n, random_state)`` or ``rvs(size, random_state)``, and if it has
            them ``log_prob(rows)`` (or ``score_samples``, ``logpdf``), ``names`` and ``bounds``. Or a function
            ``(n, rng) -> rows``. A parameter called ``random_state`` receives an integer, any other a generator.

    Example:
        >>> from scipy import stats
        >>> prior = parse_prior({"depth": (200, 240), "speed": stats.gamma(9, scale=2)})
        >>> prior
        Prior(depth ~ uniform(200, 240), speed ~ gamma(9, scale=2))
        >>> prior.bounds
        ((200.0, 240.0), (0.0, None))
    """
    if isinstance(prior, Prior):
        return prior
    if isinstance(prior, Mapping):
        if not prior:
            raise ValueError('the prior is empty; give each variable a range, such as {"depth": (200, 240)}')
        names = check_names(prior, what="the prior")
        parts = tuple(_marginal(name, prior[name]) for name in names)
        bounds = parse_bounds([(part.low, part.high) for part in parts], names)
        text = ", ".join(f"{name} ~ {part.text}" for name, part in zip(names, parts, strict=True))
        return _independent(names, None if bounds is None else bounds.pairs(), text, parts)
    if inspect.isclass(prior):
        raise TypeError(
            f"the prior is the class {prior.__name__}, not an object; call it: {prior.__name__}(...)"
        )
    if callable(getattr(prior, "sample", None)):
        return _from_object(prior, _seeded(prior.sample))
    if callable(getattr(prior, "rvs", None)):
        # SciPy drops the axis of a single draw.
        return _from_object(prior, lambda n, rng: np.reshape(prior.rvs(size=n, random_state=rng), (n, -1)))
    if callable(prior):
        return _from_object(prior, _seeded(prior))
    raise TypeError(f"a prior must be {_FORMS}; got {type(prior).__name__}: {prior!r}")


def _independent(names: Any, bounds: Any, text: str, parts: tuple[_Marginal, ...]) -> Prior:
    def draw(n: int, rng: np.random.Generator) -> np.ndarray:
        return np.column_stack([part.draw(n, rng) for part in parts])

    def log_prob(rows: np.ndarray) -> np.ndarray:
        return np.sum([m.log_prob(column) for m, column in zip(parts, rows.T, strict=True)], axis=0)

    return Prior(names, bounds, text, draw, log_prob, parts)


def _marginal(name: str, given: Any) -> _Marginal:
    from scipy import stats

    if isinstance(given, stats.rv_continuous | stats.rv_discrete):
        raise TypeError(
            f"the prior of {name!r} is the distribution family {given.name}; "
            f"freeze it with its parameters: stats.{given.name}(...)"
        )
    if isinstance(given, stats.distributions.rv_frozen):
        low, high = given.support()
        if np.any(np.isnan([low, high])):
            raise ValueError(f"the prior of {name!r} has parameters that {given.dist.name} does not allow")
        if np.shape(low) != ():
            raise ValueError(
                f"the prior of {name!r} has arrays as parameters; give every variable its own distribution"
            )
        # Values with mass sit on the ends of a discrete support; half a step beyond, a bounded model can reach them.
        margin = 0.5 if hasattr(given, "logpmf") else 0.0
        arguments = [*map(repr, given.args), *(f"{key}={value!r}" for key, value in given.kwds.items())]
        text = f"{given.dist.name}({', '.join(arguments)})"
        return _Marginal(given, float(low) - margin, float(high) + margin, text)
    try:
        low, high = (float(end) for end in given)
    except (TypeError, ValueError):
        raise TypeError(
            f"the prior of {name!r} must be (low, high) or a frozen scipy.stats distribution, got {given!r}; "
            "a variable that is known belongs into the simulator"
        ) from None
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise ValueError(f"a uniform prior needs finite low < high, got {(low, high)} for {name!r}")
    return _Marginal(stats.uniform(low, high - low), low, high, f"uniform({low:.17g}, {high:.17g})")


def _from_object(prior: Any, draw: Callable[[int, np.random.Generator], Any]) -> Prior:
    names, given = getattr(prior, "names", None), getattr(prior, "bounds", None)
    names = None if names is None else check_names(names, what="the prior")
    if names is None and isinstance(given, Mapping):
        raise ValueError(
            f"the prior has bounds by name, {quoted(list(given))}, but no names; give it names, in the order of the "
            "columns it draws"
        )
    bounds = None if given is None else parse_bounds(given, names or [f"x{i + 1}" for i in range(len(given))])
    densities = (getattr(prior, name, None) for name in ("log_prob", "score_samples", "logpdf"))
    # An address in memory is another one in the next session.
    description = getattr(prior, "__qualname__", None) or re.sub(r" at 0x[0-9a-fA-F]+", "", repr(prior))
    density = next(filter(callable, densities), None)
    return Prior(names, None if bounds is None else bounds.pairs(), description, draw, density)


def _seeded(draw: Callable[..., Any]) -> Callable[[int, np.random.Generator], Any]:
    try:
        parameters = inspect.signature(draw).parameters
    except (TypeError, ValueError):
        return draw
    if "random_state" not in parameters:
        return draw
    return lambda n, rng: draw(n, random_state=int(rng.integers(2**31)))
