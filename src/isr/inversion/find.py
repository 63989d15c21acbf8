"""Finding the law of y given x from rows: which columns say something of x, their means, scales, correlations, noise.

The order is what makes it work: screen, small libraries before any search, test before regressing a scale or a
correlation, share laws among columns, and one refit of all constants together at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import sympy
from jaxtyping import Float

from isr.inversion import noise as noises
from isr.inversion.columns import MeanFinder, as_count
from isr.inversion.correlations import find_groups
from isr.inversion.curve import interpolations
from isr.inversion.families import REFUTED, moved, with_families
from isr.inversion.law import Column, Group, Law
from isr.inversion.means import (
    EXACT,
    Mean,
    Scale,
    Search,
    find_mean,
    find_scale,
    lack_of_fit,
    relatives,
    values_of,
)
from isr.inversion.refit import Refitted, refit, simplified, with_floors
from isr.inversion.rivals import Doubt, Rival, find_doubt, find_rivals
from isr.inversion.screen import (
    N_ROWS,
    Features,
    classes,
    depends,
    different_rows,
    is_coarse,
    normal_scores,
    what_is_coarse,
)
from isr.search.formula import Formula
from isr.search.rows import Data
from isr.search.tidy import tidied

# Stated noise is that of the rows where their residuals are at most so many times as large.
AS_STATED = 1.15
# Rows on which a shorter form must have the same values.
N_TIDIED = 400
# The mean of another column, moved, may be that of one if it leaves no larger squares than this many times its own.
AS_LIKELY = 1.2
# A rival that is so many nats shorter, rows and form together, takes the place of the law, so often at most.
SHORTER, MOST_SETTLED = 1.0, 3
# Columns with a larger correlation are the same in another unit.
COPY = 1 - 1e-10


@dataclass(frozen=True, eq=False)
class Found:
    """The law, p-values by what was tested, notes on what to know of it, a sentence each, and what rows leave open."""

    law: Law
    tests: Mapping[str, float]
    notes: tuple[str, ...] = ()
    doubt: Doubt | None = None

    @property
    def passed(self) -> bool:
        """Whether no test refutes the law."""
        return all(p > REFUTED for p in self.tests.values())


def find_law(
    x: Float[np.ndarray, "n d"],
    y: Float[np.ndarray, "n d_y"],
    x_names: Sequence[str],
    y_names: Sequence[str],
    *,
    search: Search | None = None,
    noise: Float[np.ndarray, " d_y"] | None = None,
    stated: Mapping[str, Formula] | None = None,
    say: Callable[[str], None] | None = None,
    seed: int = 0,
) -> Found:
    """Return the law of y given x.

    Args:
        x: Rows of x.
        y: Rows of y.
        x_names: Identifiers of the variables of x.
        y_names: Names of the columns of y.
        search: What to ask for formulas where polynomials fail.
        noise: Standard deviation of the noise that an observation has, by column; None to find it.
        stated: Formulas of means that are known, by name of the column.
        say: Takes a line on what is being done.
        seed: Of the choice of rows, where there are too many.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> x = rng.uniform(0, 2, size=(1000, 2))
        >>> y = np.column_stack([x[:, 0] * x[:, 1] + 0.1 * rng.normal(size=1000), rng.normal(size=1000)])
        >>> found = find_law(x, y, ["a", "b"], ["force", "weather"])
        >>> print(found.law)
        force = a*b ± 0.09...
        say nothing of x: weather
        >>> found.passed
        True
    """
    notes: list[str] = []
    rows = np.random.default_rng(seed).permutation(different_rows(x, y, notes))[:N_ROWS]
    task = _Task(
        Features(x[rows]), y[rows], tuple(x_names), tuple(y_names), search, noise, dict(stated or {}),
        say or (lambda line: None), notes,
    )  # fmt: skip
    columns, kept = task.columns()
    dropped = tuple(name for j, name in enumerate(y_names) if j not in kept and j not in task.copies)
    law = Law(task.x_names, columns, tuple(Group((j,)) for j in range(len(columns))), dropped, y.shape[1])
    task.frozen += [c for k in columns if k.name in task.stated for c in k.mean.constants]
    if noise is not None:
        task.frozen += [c for k in columns for c in k.scale.constants if c in set(noise.tolist())]
    law = task.joint(law) if law.columns else law
    doubt = None
    if search is not None:
        law, rivals = task.settled(law)
        law = task.tidied(law)
        notes += interpolations(law, task.features.x, task.y, list(task.stated))
        doubt = find_doubt(law, task.fitted, rivals, task.frozen)
    return Found(law, task.tests(law), tuple(dict.fromkeys(task.notes)), doubt)


@dataclass
class _Task:
    """A search for the law of y: rows, names, what is known, and what there is to tell."""

    features: Features
    y: np.ndarray
    x_names: tuple[str, ...]
    y_names: tuple[str, ...]
    search: Search | None
    noise: np.ndarray | None
    stated: Mapping[str, Formula]
    say: Callable[[str], None]
    notes: list[str]
    frozen: list[float] = field(default_factory=list)
    forms: dict[str, list[tuple[Formula | None, Formula | None]]] = field(default_factory=dict)
    coarse: set[int] = field(default_factory=set)
    copies: set[int] = field(default_factory=set)
    fitted: Refitted | None = None

    @cached_property
    def means(self) -> MeanFinder:
        """What finds the mean of a column, and knows those found."""
        return MeanFinder(self.features, self.x_names, self.search)

    def columns(self) -> tuple[tuple[Column, ...], list[int]]:
        """The law of each column that says something of x, and their numbers; those that differ by noise share it."""
        kept = self._kept()
        found: dict[int, tuple[Mean, str]] = {}
        for members in classes(self.features, [self.y[:, j] for j in kept]):
            numbers = [kept[i] for i in members]
            self.say(f"the law of {', '.join(self.y_names[j] for j in numbers)}")
            mean, transform = self._mean(numbers)
            self.means.known[transform].append(mean.formula)
            values = values_of(mean.formula, self.features.x, self.x_names)
            for j in numbers:
                found[j] = replace(mean, residual=self._transformed(j, transform) - values), transform
        scales, columns = dict[int, Scale](), []
        # Means that rows with little noise have fixed show the scale better.
        for search in (None, self.search):
            unsettled = [j for j in kept if j not in scales or not scales[j].passed]
            scales |= self._scales({j: found[j] for j in unsettled}, search)
            for j in unsettled:
                if scales[j].formula.variables and self.y_names[j] not in self.stated:
                    found[j] = self._weighted(j, *found[j], scales[j].values), found[j][1]
        for j in kept:
            mean, transform = found[j]
            column = Column(self.y_names[j], j, mean.formula, scales[j].formula, transform)
            self.forms.setdefault(column.name, []).extend((form, None) for form in mean.rivals)
            may_count = self.noise is None and not transform
            columns.append(as_count(column, self.features.x, self.y, self.x_names) if may_count else column)
        return tuple(columns), kept

    def _kept(self) -> list[int]:
        """Columns that change with x and are no other column in another unit; copies are named in a note."""
        n, found = self.y.shape[1], list[int]()
        self.say(f"which columns of y, {n} in all, change with x")
        for j, (name, column) in enumerate(zip(self.y_names, self.y.T, strict=True)):
            if name not in self.stated and (np.ptp(column) == 0 or not depends(self.features, column, n)):
                continue
            same = [i for i in found if abs(np.corrcoef(self.y[:, i], column)[0, 1]) > COPY]
            if same:
                self.copies.add(j)
                self.notes.append(f"{name} says the same as {self.y_names[same[0]]} and is left out")
            else:
                found.append(j)
        return found

    def _transformed(self, columns: int | Sequence[int], transform: str) -> np.ndarray:
        return np.log(self.y[:, columns]) if transform else self.y[:, columns]

    def _mean(self, numbers: Sequence[int]) -> tuple[Mean, str]:
        """The mean of columns that share it, of y or of its logarithm."""
        features, y = self.features, np.mean(self.y[:, numbers], axis=1)
        for name in (self.y_names[j] for j in numbers):
            if name in self.stated:
                residual = y - values_of(self.stated[name], features.x, self.x_names)
                return Mean(self.stated[name], residual, lack_of_fit(features, residual, y)), ""
        if (coarse := self._coarse(numbers)) is not None:
            self.coarse |= set(numbers)
            return coarse, ""
        return self.means.of(self.y[:, numbers])

    def _coarse(self, numbers: Sequence[int]) -> Mean | None:
        """A plain mean of a column that an instrument rounds or cuts off, which a note says; None of any other."""
        column = self.y[:, numbers[0]]
        if len(numbers) > 1 or not is_coarse(column):
            return None
        plain = find_mean(self.features, column, self.x_names, None)
        said = what_is_coarse(self.features.x, column, plain.residual)
        if said:
            self.notes.append(f"{self.y_names[numbers[0]]} {said}")
        return plain if said else None

    def _scales(self, found: Mapping[int, tuple[Mean, str]], search: Search | None) -> dict[int, Scale]:
        """The scale of each column; those whose residuals have the same size everywhere share it."""
        scales: dict[int, Scale] = {}
        for j, (mean, transform) in found.items():
            known = self._known_scale(j, mean, float(np.std(self._transformed(j, transform))))
            if known is None and j in self.coarse:
                known = sympy.Float(float(np.sqrt(np.mean(mean.residual**2))))
            if known is not None:
                scales[j] = Scale(Formula(known), np.full(len(mean.residual), float(known)), 1.0)
        left = [j for j in found if j not in scales]
        logs = [np.log(np.abs(found[j][0].residual) + 1e-300) for j in left]
        for members in classes(self.features, logs):
            numbers = [left[i] for i in members]
            residuals = np.array([found[j][0].residual for j in numbers])
            own = found[numbers[0]][0].formula
            scale = find_scale(self.features, residuals, self.x_names, search, own)
            scales |= dict.fromkeys(numbers, scale)
            for j in numbers:
                self.forms[self.y_names[j]] = [(None, form) for form in scale.rivals[:3]]
        return scales

    def _known_scale(self, j: int, mean: Mean, spread: float) -> sympy.Expr | None:
        """The scale of a column where it was stated, or is rounding; None where it has to be found."""
        size = float(np.sqrt(np.mean(mean.residual**2)))
        is_exact = size <= EXACT * spread
        if self.noise is None:
            return sympy.Integer(0) if is_exact else None
        stated = float(self.noise[j])
        seen = f"rows of {self.y_names[j]} scatter by {size:.3g} around its law"
        if size > AS_STATED * stated and not is_exact:
            self.notes.append(f"{seen}, more than the noise {stated:.3g} that was stated; the larger is used")
            return None
        if size < stated / AS_STATED and not is_exact:
            self.notes.append(f"{seen}, less than the noise {stated:.3g} that was stated, which is used")
        return sympy.Float(stated) if stated else sympy.Integer(0)

    def _weighted(self, j: int, mean: Mean, transform: str, scale: np.ndarray) -> Mean:
        """The mean once more, with rows weighted by their scale, where that still leaves something or is shorter."""
        y, weight = self._transformed(j, transform), 1 / np.maximum(scale, 1e-3 * np.median(scale)) ** 2
        fits = lack_of_fit(self.features, mean.residual, y, weight) > 1e-3
        again = find_mean(self.features, y, self.x_names, None if fits else self.search, weight)
        shorter = len(again.formula.constants) <= len(mean.formula.constants)
        return again if again.passed and (shorter or not fits) else mean

    def is_stated(self, law: Law, group: Group) -> bool:
        """Return whether the noise of a group was stated, is none, or that of a count."""
        scales = [law.columns[j].scale for j in group.columns]
        return law.columns[group.columns[0]].is_count or any(
            s.expression == 0 or any(c in self.frozen for c in s.constants) for s in scales
        )

    def joint(self, law: Law) -> Law:
        """The law with columns that depend on each other in groups, and the kind of noise each group has."""
        law = self.refitted(law)
        self.say("which residuals belong together")
        grouped = find_groups(law, self.features, self.y, self.search, self.frozen)
        if any(len(g.columns) > 1 for g in grouped.groups):
            law = self.refitted(grouped)
        noisier = with_families(law, self.features.x, self.y, self.is_stated)
        return law if noisier is law else self.refitted(noisier)

    def refitted(self, law: Law) -> Law:
        """The law with all constants of noisy columns fitted together; shared and snapped where BIC gains."""
        noisy = [g for g in law.groups if not any(law.columns[j].is_exact for j in g.columns)]
        if not noisy:
            return law
        self.say("all constants together")
        x, columns, groups = self.features.x, list(law.columns), list(law.groups)
        try:
            fitted = refit(law.part(noisy), x, self.y, frozen=self.frozen)
            if (floored := with_floors(fitted.law, x)) is not None:
                tried = refit(floored, x, self.y, frozen=self.frozen)
                fitted = tried if tried.bic < fitted.bic else fitted
            fitted = self.fitted = simplified(fitted, x, self.y, frozen=self.frozen)
        except (np.linalg.LinAlgError, FloatingPointError) as error:
            self.notes.append(f"constants were not refitted together: {error}")
            return law
        for j, column in zip([j for g in noisy for j in g.columns], fitted.law.columns, strict=True):
            e = column.scale.expression
            columns[j] = replace(column, scale=replace(column.scale, expression=abs(e) if e.is_number else e))
        for old, new in zip(noisy, fitted.law.groups, strict=True):
            groups[groups.index(old)] = replace(new, columns=old.columns)
        law = replace(law, columns=tuple(columns), groups=tuple(groups))
        for i, w in enumerate(law.whitened(x, self.y)):
            if groups[i].noise.kind == "ring":
                ring = noises.settled_ring(groups[i].noise, w)
                groups[i] = replace(groups[i], noise=ring.noise)
                for k, j in enumerate(groups[i].columns):
                    columns[j] = moved(columns[j], ring, k, None)
        return replace(law, columns=tuple(columns), groups=tuple(groups))

    def tidied(self, law: Law) -> Law:
        """The law with each mean in the shortest form that has the same constants and values."""
        x, columns = self.features.x[:N_TIDIED], list(law.columns)
        for j, column in enumerate(columns):
            if column.name in self.stated:
                continue
            data = Data.of(self.x_names, x, values_of(column.mean, x, self.x_names))
            short = Formula(tidied(column.mean.expression, data))
            known = dict(zip(column.mean.constants, column.mean.errors, strict=False))
            if set(short.constants) == set(column.mean.constants):
                errors = tuple(known[c] for c in short.constants if known)
                columns[j] = replace(column, mean=replace(short, errors=errors))
        return replace(law, columns=tuple(columns))

    def tests(self, law: Law) -> dict[str, float]:
        """What the law leaves: trends of residuals and of their size with x, and residuals against their noise."""
        if not law.columns:
            return {}
        x, n, found = self.features.x, len(law.columns), dict[str, float]()
        means = law.parts(x)[0]
        for column, row, mean in zip(law.columns, law.residuals(x, self.y), means, strict=True):
            given = np.asarray(column.transformed(self.y[:, column.index]))
            rest, spread = given - mean, float(np.std(given))
            name = f"mean of {column.name}"
            if column.is_exact or np.std(rest) <= EXACT * spread:
                is_rounding = np.std(rest) <= 1e3 * EXACT * spread
                found[name] = 1.0 if is_rounding else lack_of_fit(self.features, rest, given)
                continue
            found[name] = min(1.0, n * lack_of_fit(self.features, row, given / np.std(row)))
            if not any(c in self.frozen for c in column.scale.constants):
                size = self.features.p_value(normal_scores(np.abs(row)), trend=True)
                found[f"scale of {column.name}"] = min(1.0, n * size)
        for group, w in zip(law.groups, law.whitened(x, self.y), strict=True):
            if not self.is_stated(law, group) or law.columns[group.columns[0]].is_count:
                names = ", ".join(law.columns[j].name for j in group.columns)
                found[f"noise of {names}"] = min(1.0, len(law.groups) * noises.p_value(group.noise, w))
        return found

    def _add_relatives(self, law: Law) -> None:
        """Means of other columns, moved to what each column is like, among the forms that it may have."""
        x = self.features.x
        for column, mean, size in zip(law.columns, *law.parts(x), strict=True):
            others = {c.mean for c in law.columns if c.transform == column.transform} - {column.mean}
            if column.is_exact or column.is_count or column.name in self.stated or not others:
                continue
            y = np.asarray(column.transformed(self.y[:, column.index]))
            for form in relatives(sorted(others, key=str), x, y, self.x_names, 1 / size**2):
                gap = y - values_of(form, x, self.x_names)
                if np.mean((gap / size) ** 2) < AS_LIKELY * np.mean(((y - mean) / size) ** 2):
                    self.forms[column.name] = [(form, None), *self.forms.get(column.name, [])]

    def settled(self, law: Law) -> tuple[Law, list[Rival]]:
        """The law, or a rival that is shorter now that all constants are refitted; and what rivals that one has."""
        for _ in range(MOST_SETTLED):
            self.say("which other laws follow the rows as well")
            self._add_relatives(law)
            rivals = find_rivals(law, self.forms, self.features.x, self.y, self.frozen)
            best = min(rivals, key=lambda rival: rival.length, default=None)
            if best is None or best.length > -SHORTER:
                break
            for old, new in zip(law.columns, best.law.columns, strict=True):
                if (old.mean, old.scale) != (new.mean, new.scale):
                    self.forms.setdefault(old.name, []).append((old.mean, old.scale))
            law = self.joint(replace(best.law, groups=tuple(Group((j,)) for j in range(len(law.columns)))))
        return law, rivals
