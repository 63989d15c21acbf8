"""Which family of noise each group of residuals follows, and what that changes in the columns of a law."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import sympy

from isr.inversion import noise as noises
from isr.inversion.law import Column, Group, Law
from isr.inversion.means import scaled
from isr.search.formula import Formula

# A family that others share is refuted where a test has a smaller p-value.
REFUTED = 1e-4


def with_families(law: Law, x: np.ndarray, y: np.ndarray, is_stated: Callable[[Law, Group], bool]) -> Law:
    """Return the law with the family of noise of each group; groups of one size share it where it does for all."""
    w = law.whitened(x, y)
    chosen: dict[int, noises.Choice] = {}
    for size in {len(g.columns) for g in law.groups}:
        numbers = [i for i, g in enumerate(law.groups) if len(g.columns) == size and not is_stated(law, g)]
        if not numbers:
            continue
        together = noises.choose(np.concatenate([_unit(w[i]) for i in numbers], axis=1), ring=False)
        for i in numbers:
            own = noises.choose(_in_one_unit(law, w[i], i), ring=law.groups[i].correlation is None)
            fits = noises.p_value(together.noise, together.standardised(_unit(w[i]))) > REFUTED
            if own.noise.kind == together.noise.kind or (fits and own.noise.kind != "ring"):
                own = replace(own, noise=together.noise, shift=together.shift, scale=together.scale)
            chosen[i] = own
    chosen = {i: choice for i, choice in chosen.items() if choice.noise.kind != "normal"}
    if not chosen:
        return law
    columns, groups = list(law.columns), list(law.groups)
    for i, choice in chosen.items():
        groups[i] = replace(groups[i], noise=choice.noise)
        common = _common_scale(law, i) if choice.noise.kind == "ring" else None
        for k, j in enumerate(groups[i].columns):
            columns[j] = moved(columns[j], choice, k, common)
    return replace(law, columns=tuple(columns), groups=tuple(groups))


def _unit(w: np.ndarray) -> np.ndarray:
    return w / np.sqrt(np.mean(w * w, axis=1, keepdims=True))


def _common_scale(law: Law, number: int) -> float | None:
    """The scale that both columns of a pair have in common where neither changes with x."""
    scales = [law.columns[j].scale for j in law.groups[number].columns]
    if len(scales) != 2 or any(s.variables for s in scales):
        return None
    return float(np.sqrt(abs(float(scales[0].expression * scales[1].expression))))


def _in_one_unit(law: Law, w: np.ndarray, number: int) -> np.ndarray:
    """Residuals in one unit for both columns of a pair, for noise around a circle is round in the units of y."""
    common = _common_scale(law, number)
    if common is None or law.groups[number].correlation is not None:
        return w
    scales = [abs(float(law.columns[j].scale.expression)) for j in law.groups[number].columns]
    return w * np.array(scales)[:, None] / common


def moved(column: Column, choice: noises.Choice, k: int, common: float | None) -> Column:
    """Return a column with the centre and the scale that its family of noise gives it."""
    scale = column.scale.expression if common is None else sympy.Float(common)
    mean = column.mean.expression + sympy.Float(float(choice.shift[k])) * scale
    return replace(
        column,
        mean=Formula(mean) if choice.shift[k] else column.mean,
        scale=scaled(Formula(scale), float(choice.scale[k])),
    )
