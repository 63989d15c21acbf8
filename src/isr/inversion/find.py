"""Finding the law of y given x from rows: which columns say something of x, their means, scales, correlations, noise.

The order is what makes it work: screen, small libraries before any search, test before regressing a scale or a
correlation, share laws among columns, and one refit of all constants together at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import sympy
from jaxtyping import Float

from isr.inversion.correlations import find_groups
from isr.inversion.law import Column, Group, Law
from isr.inversion.means import EXACT, Mean, Search, find_mean, find_scale, lack_of_fit, values_of
from isr.inversion.screen import N_ROWS, Features, classes, depends, normal_scores
from isr.inversion.settle import REFUTED, Task, refitted, tests_of, with_noise
from isr.search.candidates import price
from isr.search.formula import Formula

# Stated noise is that of the rows where their residuals are at most so many times as large.
AS_STATED = 1.15
# A positive column may follow a law of its logarithm where it spans this ratio.
LEAST_RATIO = 4.0
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
    task = Task(
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
        law = refitted(task, law)
        task.say("which residuals belong together")
        grouped = find_groups(law, task.features, task.y, search, task.frozen)
        if any(len(g.columns) > 1 for g in grouped.groups):
            law = refitted(task, grouped)
        noisier = with_noise(task, law)
        law = law if noisier is law else refitted(task, noisier)
    return Found(law, tests_of(task, law), tuple(task.notes), len(x))


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


def _without_copies(task: Task, kept: Sequence[int]) -> list[int]:
    """Columns that are no other column in another unit; copies are named in a note."""
    found: list[int] = []
    for j in kept:
        same = [i for i in found if abs(np.corrcoef(task.y[:, i], task.y[:, j])[0, 1]) > COPY]
        if same:
            task.notes.append(f"{task.y_names[j]} says the same as {task.y_names[same[0]]} and is left out")
        else:
            found.append(j)
    return found


def _screened(task: Task) -> list[int]:
    """Columns that change with x; those that are constant, or say nothing, are left out."""
    n = task.y.shape[1]
    task.say(f"which of {n} columns change with x")
    return [
        j
        for j in range(n)
        if task.y_names[j] in task.stated
        or (np.ptp(task.y[:, j]) > 0 and depends(task.features, task.y[:, j], n))
    ]


def _columns(task: Task, kept: Sequence[int]) -> tuple[Column, ...]:
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


def _mean(task: Task, numbers: Sequence[int]) -> tuple[Mean, str]:
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


def _log_is_better(task: Task, plain: Mean, other: Mean, logs: np.ndarray) -> bool:
    """Whether a law of log y has the larger likelihood, each with the best scale of a few."""

    def deviance(mean: Mean) -> float:
        scale = find_scale(task.features, mean.residual[None], task.x_names, None, mean.formula)
        n = len(logs)
        penalty = 2 * price(mean.formula.expression, n) + 2 * price(scale.formula.expression, n)
        return 2 * float(np.sum(np.log(scale.values) + 0.5 * (mean.residual / scale.values) ** 2)) + penalty

    return (other.passed or not plain.passed) and deviance(other) + 2 * float(np.sum(logs)) < deviance(plain)


def _scales(
    task: Task, found: Mapping[int, tuple[Mean, str]]
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


def _weighted(task: Task, j: int, mean: Mean, transform: str, weight: np.ndarray) -> Mean:
    """The mean once more, with rows weighted by their scale, where that still leaves something or is shorter."""
    y = np.log(task.y[:, j]) if transform else task.y[:, j]
    p_value = lack_of_fit(task.features, mean.residual, y, weight)
    again = find_mean(task.features, y, task.x_names, None if p_value > 1e-3 else task.search, weight)
    shorter = len(again.formula.constants) <= len(mean.formula.constants)
    return again if again.passed and (shorter or p_value <= 1e-3) else mean
