"""Settling a law whose means and scales are found: noise of each group, all constants together, and its tests."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import sympy

from isr.inversion import families
from isr.inversion.law import Column, Group, Law
from isr.inversion.means import EXACT, Search, lack_of_fit, scaled
from isr.inversion.noise import Noise
from isr.inversion.refit import Refitted, refit, simplified
from isr.inversion.screen import Features, normal_scores
from isr.inversion.target import part_of
from isr.search.formula import Formula

REFUTED = 1e-4


@dataclass
class Task:
    """A search for the law of y: rows, names, what is known, and what there is to tell."""

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


def with_noise(task: Task, law: Law) -> Law:
    """The family of noise of each group; groups of one size share it where it does for all of them."""
    w = whitened(law, task.features.x, task.y)
    chosen: dict[int, families.Choice] = {}
    for size in {len(g.columns) for g in law.groups}:
        numbers = [
            i for i, g in enumerate(law.groups) if len(g.columns) == size and not is_stated(task, law, g)
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


def is_stated(task: Task, law: Law, group: Group) -> bool:
    """Whether the noise of a group was stated, or is none."""
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


def _ring_scale(law: Law, task: Task, number: int) -> float | None:
    """The scale that both columns of a pair have in common where neither changes with x."""
    scales = [law.columns[j].scale for j in law.groups[number].columns]
    if len(scales) != 2 or any(s.variables for s in scales):
        return None
    return float(np.sqrt(abs(float(scales[0].expression)) * abs(float(scales[1].expression))))


def _even_scaled(law: Law, task: Task, w: Sequence[np.ndarray], number: int) -> np.ndarray:
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


def refitted(task: Task, law: Law) -> Law:
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


def _with_arcs(task: Task, law: Law) -> Law:
    """Rings with their arcs once more, now that their centres are known better."""
    groups = []
    for group, w in zip(law.groups, whitened(law, task.features.x, task.y), strict=True):
        if group.noise.kind == "ring":
            start, arc = families._arc(np.arctan2(w[1], w[0]))
            group = replace(group, noise=Noise("ring", (group.noise.parameters[0], start, arc)))
        groups.append(group)
    return replace(law, groups=tuple(groups))


def tests_of(task: Task, law: Law) -> dict[str, float]:
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
        if not is_stated(task, law, group):
            found[f"noise of {names}"] = min(1.0, len(law.groups) * families.passes(group.noise, w))
    return found
