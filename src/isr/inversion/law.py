"""Law: what y is, given x: a formula for the mean of each column, one for its scale, and the noise around it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import ModuleType
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy import stats
from scipy.special import ndtri

from isr.equations.program import n_constants
from isr.inversion.noise import Noise, special_of
from isr.search.formula import Formula, compiled

# A scale that a formula lets vanish is this small, so that logarithms stay finite.
LEAST_SCALE = 1e-150


@dataclass(frozen=True)
class Column:
    """The law of one column of y: ``transform(y) = mean(x) + |scale(x)| * residual``.

    Args:
        name: What the column is called.
        index: Which column of y it is.
        mean: Formula of the mean.
        scale: Formula of the scale, whose sign means nothing; the number 0 where y is exact; the root of the mean
            of a count.
        transform: ``""``; ``"log"`` where the law is one of log y; ``"count"`` where y is a Poisson number.
    """

    name: str
    index: int
    mean: Formula
    scale: Formula
    transform: str = ""

    @property
    def is_exact(self) -> bool:
        """Whether y has no noise at all."""
        return self.scale.expression == 0

    @property
    def is_count(self) -> bool:
        """Whether y is a Poisson number with this mean."""
        return self.transform == "count"

    def transformed(self, y: Any) -> Any:
        """Return y, or its logarithm where the law is one of log y; NaN where that does not exist."""
        if self.transform != "log":
            return y
        with np.errstate(all="ignore"):
            return np.log(np.where(np.asarray(y) > 0, y, np.nan))


@dataclass(frozen=True)
class Group:
    """Columns of a law whose residuals belong together, and the noise of these once they are uncorrelated.

    Two columns may have a formula for their correlation, more columns constant correlations, as rows of ``matrix``.
    """

    columns: tuple[int, ...]
    noise: Noise = field(default_factory=Noise)
    correlation: Formula | None = None
    matrix: tuple[tuple[float, ...], ...] = ()


@dataclass(frozen=True, eq=False)
class Law:
    """The law of y given x.

    Args:
        x_names: Identifiers of the variables of x, as formulas name them.
        columns: One law per column of y that depends on x.
        groups: Which columns have residuals that belong together; every column is in one group.
        dropped: Names of columns of y that say nothing of x.
        n_y: How many columns y has, dropped ones included.

    Example:
        >>> from isr.search.formula import parse
        >>> mean, scale = Formula(parse("0.5*sin(a) + h", ["h", "a"])), Formula(parse("0.1", []))
        >>> law = Law(("h", "a"), (Column("y", 0, mean, scale),), (Group((0,)),))
        >>> print(law)
        y = h + 0.5*sin(a) ± 0.1
        >>> law.log_prob(np.array([[0.0, 0.0]]), np.array([[0.1]])).round(3), law.n_constants
        (array([0.884]), 2)
        >>> law.sample(np.zeros((3, 2)), np.random.default_rng(0)).shape, law.means(np.zeros((3, 2))).shape
        ((3, 1), (3, 1))
    """

    x_names: tuple[str, ...]
    columns: tuple[Column, ...]
    groups: tuple[Group, ...]
    dropped: tuple[str, ...] = ()
    n_y: int = 0

    def __post_init__(self) -> None:
        grouped = sorted(j for group in self.groups for j in group.columns)
        if grouped != list(range(len(self.columns))):
            raise ValueError(
                f"groups hold the columns {grouped}; each of {len(self.columns)} must be in one group"
            )

    # Numbers --------------------------------------------------------------------------------------------------

    @property
    def all_formulas(self) -> list[Formula]:
        """Means of all columns, then scales, then correlations of the groups that have one."""
        correlations = [g.correlation for g in self.groups if g.correlation is not None]
        return [*(c.mean for c in self.columns), *(c.scale for c in self.columns), *correlations]

    @cached_property
    def _function(self) -> Any:
        return compiled([f.expression for f in self.all_formulas], self.x_names)

    @cached_property
    def _choleskys(self) -> dict[int, np.ndarray]:
        return {i: np.linalg.cholesky(np.asarray(g.matrix)) for i, g in enumerate(self.groups) if g.matrix}

    def log_prob(
        self, x: Float[np.ndarray, "n d"], y: Float[np.ndarray, "k d_y"], *, paired: bool = False
    ) -> Float[np.ndarray, " n"]:
        """Return the log-density of y for each row of x: of all rows of y together, or paired, of that beside it."""
        values = self._function(x)
        y = np.asarray(y, dtype=float)
        jacobian = self._log_jacobian(y)
        if paired:
            given = [c.transformed(y[:, c.index]) for c in self.columns]
            return np.broadcast_to(self.log_density(values, given) + jacobian, len(x)).astype(float)
        total = np.zeros(len(x))
        for row, extra in zip(y, jacobian, strict=True):
            total = (
                total + self.log_density(values, [c.transformed(row[c.index]) for c in self.columns]) + extra
            )
        return total

    def log_density(
        self,
        values: Sequence[Any],
        given: Sequence[Any],
        xp: ModuleType = np,
        noises: Sequence[Sequence[Any]] | None = None,
    ) -> Any:
        """Return the log-density of transformed observations from the values of all formulas, in NumPy or JAX.

        ``noises`` are numbers for the noise of each group in place of its own.
        """
        n = len(self.columns)
        correlations = iter(values[2 * n :])
        total: Any = 0.0
        with np.errstate(all="ignore"):
            scales = [xp.maximum(xp.abs(s), LEAST_SCALE) for s in values[n : 2 * n]]
            residuals = [(g - m) / s for g, m, s in zip(given, values[:n], scales, strict=True)]
            for number, group in enumerate(self.groups):
                j = group.columns[0]
                if self.columns[j].is_count:
                    mean = xp.where(values[j] > 0, values[j], np.nan)
                    total = total + given[j] * xp.log(mean) - mean - special_of(xp).gammaln(given[j] + 1)
                    continue
                w = xp.stack(xp.broadcast_arrays(*(xp.asarray(residuals[j]) for j in group.columns)))
                w, log_det = self._whitened(number, w, correlations, xp)
                total = total + log_det
                own = group.noise.parameters if noises is None else noises[number]
                total = total + group.noise.family.log_density(w, own, xp)
            return total - sum(xp.log(s) for c, s in zip(self.columns, scales, strict=True) if not c.is_count)

    def _whitened(
        self, number: int, w: Any, correlations: Iterator[Any], xp: ModuleType = np
    ) -> tuple[Any, Any]:
        """Residuals of a group without their correlation, and the log of what that does to a volume."""
        group = self.groups[number]
        if group.correlation is not None:
            rho = next(correlations)
            left = xp.sqrt(xp.maximum(1 - rho * rho, 1e-300))
            return xp.stack(xp.broadcast_arrays(w[0], (w[1] - rho * w[0]) / left)), -xp.log(left)
        if group.matrix:
            lower = self._choleskys[number]
            plain = np.linalg.inv(lower) @ w.reshape(w.shape[0], -1)
            return plain.reshape(w.shape), -float(np.sum(np.log(np.diag(lower))))
        return w, 0.0

    def _log_jacobian(self, y: np.ndarray) -> np.ndarray:
        logs = [np.log(np.maximum(y[:, c.index], 1e-300)) for c in self.columns if c.transform == "log"]
        return -np.sum(logs, axis=0) if logs else np.zeros(len(y))

    def parts(self, x: Float[np.ndarray, "n d"]) -> tuple[np.ndarray, np.ndarray]:
        """Return means and scales of transformed columns at rows of x, each ``(columns, n)``."""
        values, n = self._function(x), len(self.columns)
        stacked = [np.broadcast_to(np.asarray(v, dtype=float), len(x)) for v in values[: 2 * n]]
        return np.array(stacked[:n]), np.abs(np.array(stacked[n:]))

    def means(self, x: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n c"]:
        """Return the centre of each column that the law knows, in the units of y."""
        means = self.parts(x)[0]
        return np.column_stack(
            [np.exp(m) if c.transform == "log" else m for c, m in zip(self.columns, means, strict=True)]
        )

    def predict(self, x: Float[np.ndarray, "n d"], n_y: int) -> Float[np.ndarray, "n n_y"]:
        """Return the centre of all columns of y, NaN in those that the law says nothing of."""
        found = np.full((len(x), n_y), np.nan)
        found[:, [c.index for c in self.columns]] = self.means(x)
        return found

    def residuals(
        self, x: Float[np.ndarray, "n d"], y: Float[np.ndarray, "n d_y"]
    ) -> Float[np.ndarray, "columns n"]:
        """Return (y - mean) / scale of each column, row by row, correlations still in them.

        Of a count it is the normal number with the same odds, drawn among those that the count stands for.
        """
        means, scales = self.parts(x)
        given = np.array([c.transformed(y[:, c.index]) for c in self.columns])
        found = (given - means) / np.maximum(scales, LEAST_SCALE)
        for j in (j for j, column in enumerate(self.columns) if column.is_count):
            low, high = (stats.poisson.cdf(given[j] - step, means[j]) for step in (1, 0))
            shares = low + (high - low) * np.random.default_rng(j).uniform(size=len(x))
            found[j] = ndtri(np.clip(shares, 1e-12, 1 - 1e-12))
        return found

    def whitened(
        self, x: Float[np.ndarray, "n d"], y: Float[np.ndarray, "n d_y"]
    ) -> list[Float[np.ndarray, "columns n"]]:
        """Return the uncorrelated residuals of each group, row by row."""
        u, correlations = self.residuals(x, y), iter(self._function(x)[2 * len(self.columns) :])
        return [self._whitened(i, u[list(g.columns)], correlations)[0] for i, g in enumerate(self.groups)]

    def sample(self, x: Float[np.ndarray, "n d"], rng: np.random.Generator) -> Float[np.ndarray, "n c"]:
        """Return a row of the columns that the law knows for each row of x, with noise."""
        values, n, c = self._function(x), len(x), len(self.columns)
        correlations = iter(values[2 * c :])
        means, scales = self.parts(x)
        w = np.empty((c, n))
        for number, group in enumerate(self.groups):
            drawn = group.noise.sample(len(group.columns), n, rng)
            if group.correlation is not None:
                rho = next(correlations)
                drawn = np.stack(
                    [drawn[0], rho * drawn[0] + np.sqrt(np.maximum(1 - rho * rho, 0)) * drawn[1]]
                )
            elif group.matrix:
                drawn = self._choleskys[number] @ drawn
            w[list(group.columns)] = drawn
        y = means + scales * w
        for j, column in enumerate(self.columns):
            if column.is_count:
                y[j] = rng.poisson(np.maximum(means[j], 0.0))
            elif column.transform:
                y[j] = np.exp(y[j])
        return y.T

    def part(self, groups: Sequence[Group]) -> Law:
        """Return the law of some groups of columns alone; its columns still know their place in y."""
        chosen = [j for g in groups for j in g.columns]
        place = {j: i for i, j in enumerate(chosen)}
        moved = tuple(replace(g, columns=tuple(place[j] for j in g.columns)) for g in groups)
        return replace(self, columns=tuple(self.columns[j] for j in chosen), groups=moved)

    # Words ----------------------------------------------------------------------------------------------------

    @property
    def n_constants(self) -> int:
        """How many numbers a reader meets: those of its formulas, each formula once, and those of the noise."""
        noises = {g.noise for g in self.groups}
        matrix = {v for g in self.groups for row in g.matrix for v in row if v != 1}
        own = sum(len(noise.parameters) for noise in noises) + len(matrix)
        shown = {c.mean.expression for c in self.columns} | {
            c.scale.expression for c in self.columns if not c.is_count
        }
        shown |= {g.correlation.expression for g in self.groups if g.correlation is not None}
        return own + sum(map(n_constants, shown))

    def lines(self, digits: int = 4) -> list[str]:
        """Return the law as lines of text; columns that share a law share a line."""
        together: dict[tuple[str, str, str], list[str]] = {}
        for column in self.columns:
            key = (column.transform, column.mean.text(digits), column.scale.text(digits))
            together.setdefault(key, []).append(column.name)
        lines = []
        for (transform, mean, scale), names in together.items():
            if transform == "count":
                lines.append(f"{', '.join(names)} ~ Poisson({mean})")
                continue
            left = ", ".join(f"{transform} {name}" if transform else name for name in names)
            lines.append(f"{left} = {mean}" + ("" if scale == "0" else f" ± {scale}"))
        return lines + self._noise_lines(digits)

    def _noise_lines(self, digits: int) -> list[str]:
        lines: dict[str, list[str]] = {}
        for group in self.groups:
            names = " and ".join(self.columns[j].name for j in group.columns)
            if group.correlation is not None:
                lines.setdefault(f"correlation {group.correlation.text(digits)}", []).append(names)
            elif group.matrix:
                rows = "; ".join(" ".join(f"{v:.{digits}g}" for v in row) for row in group.matrix)
                lines.setdefault(f"correlations [{rows}]", []).append(names)
            if group.noise.kind != "normal":
                lines.setdefault(f"noise {group.noise!r}", []).append(names)
        return [f"{', '.join(names)}: {what}" for what, names in lines.items()]

    def __str__(self) -> str:
        more = [f"say nothing of x: {', '.join(self.dropped)}"] if self.dropped else []
        return "\n".join([*self.lines(), *more])

    def __repr__(self) -> str:
        return str(self)

    def _repr_latex_(self) -> str:
        return self.latex()

    def _repr_html_(self) -> str:
        from isr.equations.expressions import as_html

        return as_html("", [("", str(self))])

    def latex(self, digits: int = 4) -> str:
        """Return the law as a LaTeX ``align*`` environment, constants with their standard errors."""
        from isr.equations.typeset import TexPrinter, aligned, name_latex

        def written(formula: Formula) -> str:
            return TexPrinter(digits, formula.known_errors).doprint(formula.expression)

        rows = []
        for column in self.columns:
            name = name_latex(column.name)
            left = rf"\log {name}" if column.transform == "log" else name
            if column.is_count:
                rows.append(rf"{name} &\sim \mathrm{{Poisson}}\left({written(column.mean)}\right)")
                continue
            spread = "" if column.is_exact else rf" \pm {written(column.scale)}"
            rows.append(f"{left} &= {written(column.mean)}{spread}")
        return aligned(rows)
