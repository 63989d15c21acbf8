"""Finding the law of y given x from rows: which columns say something of x, their means, scales, correlations, noise.

The order is what makes it work: screen, small libraries before any search, test before regressing a scale or a
correlation, share laws among columns, and one refit of all constants together at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import sympy
from jaxtyping import Float

from isr.inversion import families
from isr.inversion.correlations import find_groups
from isr.inversion.law import Column, Group, Law
from isr.inversion.means import EXACT, Mean, Search, find_mean, find_scale, lack_of_fit, scaled, values_of
from isr.inversion.noise import Noise
from isr.inversion.refit import Refitted, refit, simplified
from isr.inversion.screen import N_ROWS, Features, classes, depends, normal_scores
from isr.inversion.target import part_of
from isr.search.candidates import price
from isr.search.formula import Formula

# Stated noise is that of the rows where their residuals are at most so many times as large.
AS_STATED = 1.15
# A positive column may follow a law of its logarithm where it spans this ratio.
LEAST_RATIO = 4.0
REFUTED = 1e-4
# Fewer rows are told; columns with a larger correlation are the same in another unit.
FEW, COPY = 100, 1 - 1e-10


@dataclass(frozen=True, eq=False)
class Found:
    """The law, with the tests that it passed or not.

    Args:
        law: The law.
        tests: p-value by what was tested: what means, sizes and noise of each column leave.
        notes: What was done and what to know of it, a sentence each.
        n_rows: How many rows it rests on.
    """

    law: Law
    tests: Mapping[str, float]
    notes: tuple[str, ...] = ()
    n_rows: int = 0

    @property
    def passed(self) -> bool:
        """Whether no test refutes the law."""
        return all(p > REFUTED for p in self.tests.values())


@dataclass
class _Task:
    features: Features
    y: np.ndarray
    x_names: tuple[str, ...]
    y_names: tuple[str, ...]
    search: Search | None
    noise: np.ndarray | None
    stated: Mapping[str, Formula]
    say: Callable[[str], None]
    notes: list[str] = field(default_factory=list)
    frozen: list[float] = field(default_factory=list)


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
    rows = _different(x, y, notes)
    rows = np.random.default_rng(seed).permutation(rows)[:N_ROWS]
    task = _Task(
        Features(x[rows]), y[rows], tuple(x_names), tuple(y_names), search, noise, dict(stated or {}),
        say or (lambda line: None), notes,
    )  # fmt: skip
    kept = _without_copies(task, _screened(task))
    columns = _columns(task, kept)
    dropped = tuple(name for j, name in enumerate(y_names) if j not in kept)
    groups = tuple(Group((j,)) for j in range(len(columns)))
    law = Law(task.x_names, columns, groups, dropped, y.shape[1])
    task.frozen += [c for k in columns if k.name in task.stated for c in k.mean.constants]
    if noise is not None:
        task.frozen += [c for k in columns for c in k.scale.constants if c in set(noise.tolist())]
    if law.columns:
        law = _refitted(task, law)
        task.say("which residuals belong together")
        grouped = find_groups(law, task.features, task.y, search, task.frozen)
        if any(len(g.columns) > 1 for g in grouped.groups):
            law = _refitted(task, grouped)
        noisier = _with_noise(task, law)
        law = law if noisier is law else _refitted(task, noisier)
    return Found(law, _tests(task, law), tuple(task.notes), len(x))


def _different(x: np.ndarray, y: np.ndarray, notes: list[str]) -> np.ndarray:
    """Numbers of the rows that are used: each once where many of a continuous y are repeated."""
    n = len(x)
    if n < FEW:
        notes.append(f"it rests on {n} rows alone, too few to refute much")
    first = np.sort(np.unique(np.hstack([x, y]), axis=0, return_index=True)[1])
    if len(first) > 0.9 * n or len(np.unique(y, axis=0)) < 0.2 * len(first):
        return np.arange(n)
    notes.append(f"of {n} rows {len(first)} are different; each counts once")
    return first


def _without_copies(task: _Task, kept: Sequence[int]) -> list[int]:
    """Columns that are no other column in another unit; copies are named in a note."""
    found: list[int] = []
    for j in kept:
        same = [i for i in found if abs(np.corrcoef(task.y[:, i], task.y[:, j])[0, 1]) > COPY]
        if same:
            task.notes.append(f"{task.y_names[j]} says the same as {task.y_names[same[0]]} and is left out")
        else:
            found.append(j)
    return found


# Columns --------------------------------------------------------------------------------------------------------


def _screened(task: _Task) -> list[int]:
    """Columns that change with x; those that are constant, or say nothing, are left out."""
    n = task.y.shape[1]
    task.say(f"which of {n} columns change with x")
    return [
        j
        for j in range(n)
        if task.y_names[j] in task.stated
        or (np.ptp(task.y[:, j]) > 0 and depends(task.features, task.y[:, j], n))
    ]


def _columns(task: _Task, kept: Sequence[int]) -> tuple[Column, ...]:
    """The mean and scale of each column; columns that differ by noise alone share them."""
    given = {j: task.y[:, j] for j in kept}
    found: dict[int, tuple[Mean, str]] = {}
    for members in classes(task.features, [given[j] for j in kept]):
        numbers = [kept[i] for i in members]
        task.say(f"the law of {', '.join(task.y_names[j] for j in numbers)}")
        mean, transform = _mean(task, numbers)
        for j in numbers:
            own = np.log(given[j]) if transform else given[j]
            found[j] = (
                replace(mean, residual=own - values_of(mean.formula, task.features.x, task.x_names)),
                transform,
            )
    scales = _scales(task, found)
    columns = []
    for j in kept:
        formula, weight = scales[j]
        mean, transform = found[j]
        if weight is not None and task.y_names[j] not in task.stated:
            mean = _weighted(task, j, mean, transform, weight)
        columns.append(Column(task.y_names[j], j, mean.formula, formula, transform))
    return tuple(columns)


def _mean(task: _Task, numbers: Sequence[int]) -> tuple[Mean, str]:
    """The mean of columns that share it, of y or of its logarithm."""
    name = next((task.y_names[j] for j in numbers if task.y_names[j] in task.stated), None)
    y = np.mean(task.y[:, numbers], axis=1)
    if name is not None:
        formula = task.stated[name]
        residual = y - values_of(formula, task.features.x, task.x_names)
        return Mean(formula, residual, lack_of_fit(task.features, residual, y)), ""
    low, high = float(np.min(task.y[:, numbers])), float(np.max(task.y[:, numbers]))
    if low <= 0 or high < LEAST_RATIO * low:
        return find_mean(task.features, y, task.x_names, task.search), ""
    logs = np.mean(np.log(task.y[:, numbers]), axis=1)
    plain = find_mean(task.features, y, task.x_names, task.search)
    even = task.features.p_value(normal_scores(np.abs(plain.residual))) > 1e-3
    if np.std(plain.residual) <= EXACT * np.std(y) or (plain.passed and even):
        return plain, ""
    other = find_mean(task.features, logs, task.x_names, task.search)
    return (other, "log") if _log_is_better(task, plain, other, logs) else (plain, "")


def _log_is_better(task: _Task, plain: Mean, other: Mean, logs: np.ndarray) -> bool:
    """Whether a law of log y has the larger likelihood, each with the best scale of a few."""

    def deviance(mean: Mean) -> float:
        scale = find_scale(task.features, mean.residual[None], task.x_names, None, mean.formula)
        n = len(logs)
        penalty = 2 * price(mean.formula.expression, n) + 2 * price(scale.formula.expression, n)
        return 2 * float(np.sum(np.log(scale.values) + 0.5 * (mean.residual / scale.values) ** 2)) + penalty

    return (other.passed or not plain.passed) and deviance(other) + 2 * float(np.sum(logs)) < deviance(plain)


def _scales(
    task: _Task, found: Mapping[int, tuple[Mean, str]]
) -> dict[int, tuple[Formula, np.ndarray | None]]:
    """The scale of each column, as a formula and as weights of its rows where it changes with x."""
    scales: dict[int, tuple[Formula, np.ndarray | None]] = {}
    open_columns = []
    for j, (mean, transform) in found.items():
        spread = float(np.std(np.log(task.y[:, j]) if transform else task.y[:, j]))
        size = float(np.sqrt(np.mean(mean.residual**2)))
        stated = None if task.noise is None else float(task.noise[j])
        if stated is not None and (size <= AS_STATED * stated or size <= EXACT * spread):
            if EXACT * spread < size < stated / AS_STATED:
                task.notes.append(
                    f"rows of {task.y_names[j]} scatter by {size:.3g} around its law, less than the noise {stated:.3g} "
                    "that was stated, which is used"
                )
            scales[j] = Formula(sympy.Float(stated) if stated else sympy.Integer(0)), None
        elif size <= EXACT * spread:
            scales[j] = Formula(sympy.Integer(0)), None
        else:
            if stated is not None:
                task.notes.append(
                    f"rows of {task.y_names[j]} scatter by {size:.3g} around its law, more than the noise {stated:.3g} "
                    "that was stated; the larger one is used"
                )
            open_columns.append(j)
    logs = [np.log(np.abs(found[j][0].residual) + 1e-300) for j in open_columns]
    for members in classes(task.features, logs):
        numbers = [open_columns[i] for i in members]
        residuals = np.array([found[j][0].residual for j in numbers])
        scale = find_scale(task.features, residuals, task.x_names, task.search, found[numbers[0]][0].formula)
        weight = (
            1 / np.maximum(scale.values, 1e-3 * np.median(scale.values)) ** 2
            if scale.formula.variables
            else None
        )
        scales |= dict.fromkeys(numbers, (scale.formula, weight))
    return scales


def _weighted(task: _Task, j: int, mean: Mean, transform: str, weight: np.ndarray) -> Mean:
    """The mean once more, with rows weighted by their scale, where that still leaves something or is shorter."""
    y = np.log(task.y[:, j]) if transform else task.y[:, j]
    p_value = lack_of_fit(task.features, mean.residual, y, weight)
    again = find_mean(task.features, y, task.x_names, None if p_value > 1e-3 else task.search, weight)
    shorter = len(again.formula.constants) <= len(mean.formula.constants)
    return again if again.passed and (shorter or p_value <= 1e-3) else mean


# Noise and the refit --------------------------------------------------------------------------------------------


def _with_noise(task: _Task, law: Law) -> Law:
    """The family of noise of each group; groups of one size share it where it does for all of them."""
    w = whitened(law, task.features.x, task.y)
    chosen: dict[int, families.Choice] = {}
    for size in {len(g.columns) for g in law.groups}:
        numbers = [
            i for i, g in enumerate(law.groups) if len(g.columns) == size and not _is_stated(task, law, g)
        ]
        if not numbers:
            continue
        together = families.choose(np.concatenate([_unit(w[i]) for i in numbers], axis=1), ring=False)
        for i in numbers:
            own = families.choose(_even_scaled(law, task, w, i), ring=law.groups[i].correlation is None)
            fits = families.passes(together.noise, _standard(_unit(w[i]), together)) > REFUTED
            same = own.noise.kind == together.noise.kind or (fits and own.noise.kind != "ring")
            chosen[i] = replace(own, noise=together.noise, scale=together.scale) if same else own
    if all(choice.noise.kind == "normal" for choice in chosen.values()):
        return law
    columns = list(law.columns)
    groups = list(law.groups)
    for i, choice in chosen.items():
        if choice.noise.kind != "normal":
            groups[i] = replace(groups[i], noise=choice.noise)
            for k, j in enumerate(groups[i].columns):
                columns[j] = _moved(
                    columns[j], choice, k, _ring_scale(law, task, i) if choice.noise.kind == "ring" else None
                )
    return replace(law, columns=tuple(columns), groups=tuple(groups))


def _is_stated(task: _Task, law: Law, group: Group) -> bool:
    scales = [law.columns[j].scale for j in group.columns]
    return any(s.expression == 0 or any(c in task.frozen for c in s.constants) for s in scales)


def whitened(law: Law, x: np.ndarray, y: np.ndarray) -> list[np.ndarray]:
    """Return the uncorrelated residuals of each group, ``(columns, rows)``."""
    u = law.residuals(x, y)
    correlations = iter(law._function(x)[2 * len(law.columns) :])
    found = []
    for number, group in enumerate(law.groups):
        w = u[list(group.columns)]
        if group.correlation is not None:
            rho = np.asarray(next(correlations))
            w = np.stack([w[0], (w[1] - rho * w[0]) / np.sqrt(np.maximum(1 - rho * rho, 1e-300))])
        elif group.matrix:
            w = np.linalg.solve(law._choleskys[number], w)
        found.append(w)
    return found


def _unit(w: np.ndarray) -> np.ndarray:
    return w / np.sqrt(np.mean(w * w, axis=1, keepdims=True))


def _standard(w: np.ndarray, choice: families.Choice) -> np.ndarray:
    return (w - choice.shift[:, None]) / choice.scale[:, None]


def _ring_scale(law: Law, task: _Task, number: int) -> float | None:
    """The scale that both columns of a pair have in common where neither changes with x."""
    scales = [law.columns[j].scale for j in law.groups[number].columns]
    if len(scales) != 2 or any(s.variables for s in scales):
        return None
    return float(np.sqrt(abs(float(scales[0].expression)) * abs(float(scales[1].expression))))


def _even_scaled(law: Law, task: _Task, w: Sequence[np.ndarray], number: int) -> np.ndarray:
    """Residuals in one unit for both columns of a pair, for noise around a circle is round in the units of y."""
    common = _ring_scale(law, task, number)
    if common is None or law.groups[number].correlation is not None:
        return w[number]
    scales = np.array([[abs(float(law.columns[j].scale.expression))] for j in law.groups[number].columns])
    return w[number] * scales / common


def _moved(column: Column, choice: families.Choice, k: int, common: float | None) -> Column:
    """A column with the centre and the scale that its family of noise gives it."""
    scale = column.scale.expression if common is None else sympy.Float(common)
    mean = column.mean.expression
    if choice.shift[k]:
        mean = mean + sympy.Float(float(choice.shift[k])) * scale
    return replace(column, mean=Formula(mean), scale=scaled(Formula(scale), float(choice.scale[k])))


def _refitted(task: _Task, law: Law) -> Law:
    """All constants of noisy columns once more, together; shared and snapped where BIC gains."""
    noisy = [g for g in law.groups if not any(law.columns[j].is_exact for j in g.columns)]
    if not noisy:
        return law
    task.say("all constants together")
    part = part_of(law, noisy)
    try:
        fitted: Refitted = refit(part, task.features.x, task.y, frozen=task.frozen)
        fitted = simplified(fitted, task.features.x, task.y, frozen=task.frozen)
    except (np.linalg.LinAlgError, FloatingPointError) as error:
        task.notes.append(f"constants were not refitted together: {error}")
        return law
    fresh = iter(zip([j for g in noisy for j in g.columns], fitted.law.columns, strict=True))
    columns = list(law.columns)
    for j, column in fresh:
        columns[j] = _with_positive_scale(column)
    groups = iter(fitted.law.groups)
    moved = []
    for group in law.groups:
        same = group in noisy
        own = next(groups) if same else group
        moved.append(replace(own, columns=group.columns))
    found = replace(law, columns=tuple(columns), groups=tuple(moved))
    return _with_arcs(task, found)


def _with_positive_scale(column: Column) -> Column:
    scale = column.scale
    return (
        replace(column, scale=replace(scale, expression=abs(scale.expression)))
        if scale.expression.is_number
        else column
    )


def _with_arcs(task: _Task, law: Law) -> Law:
    """Rings with their arcs once more, now that their centres are known better."""
    groups = []
    for group, w in zip(law.groups, whitened(law, task.features.x, task.y), strict=True):
        if group.noise.kind == "ring":
            start, arc = families._arc(np.arctan2(w[1], w[0]))
            group = replace(group, noise=Noise("ring", (group.noise.parameters[0], start, arc)))
        groups.append(group)
    return replace(law, groups=tuple(groups))


def _tests(task: _Task, law: Law) -> dict[str, float]:
    """What the law leaves: trends of residuals and of their size with x, and residuals against their noise."""
    if not law.columns:
        return {}
    x = task.features.x
    found: dict[str, float] = {}
    u = law.residuals(x, task.y)
    n = len(law.columns)
    for column, row in zip(law.columns, u, strict=True):
        given = np.asarray(column.transformed(task.y[:, column.index]))
        rest = given - law.parts(x)[0][law.columns.index(column)]
        if column.is_exact or np.std(rest) <= EXACT * np.std(given):
            found[f"mean of {column.name}"] = (
                1.0
                if np.std(rest) <= 1e3 * EXACT * np.std(given)
                else lack_of_fit(task.features, rest, given)
            )
            continue
        found[f"mean of {column.name}"] = min(1.0, n * lack_of_fit(task.features, row, given / np.std(row)))
        size = task.features.p_value(normal_scores(np.abs(row)), trend=True)
        if not any(c in task.frozen for c in column.scale.constants):
            found[f"scale of {column.name}"] = min(1.0, n * size)
    for group, w in zip(law.groups, whitened(law, x, task.y), strict=True):
        names = ", ".join(law.columns[j].name for j in group.columns)
        if not _is_stated(task, law, group):
            found[f"noise of {names}"] = min(1.0, len(law.groups) * families.passes(group.noise, w))
    return found
