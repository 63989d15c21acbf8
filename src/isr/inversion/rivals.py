"""What rows leave open: other forms of a law that follow them as well, and constants within their errors.

Where a law rests on few rows, formulas that agree on most of them part at their edges, and no test refutes either. They
are kept beside the law; a posterior is weighed again by each, and where that moves it the posterior says so.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import sympy
from jaxtyping import Float
from scipy.special import logsumexp

from isr.inversion.law import Group, Law
from isr.inversion.refit import Refitted, constants_of, refit, with_floors
from isr.posterior.pareto import effective_size
from isr.search.candidates import price
from isr.search.formula import Formula, compiled, symbol

Forms = Mapping[str, Sequence[tuple[Formula | None, Formula | None]]]

# A rival is at most so many nats longer, rows and form together, and less likely, and this much of the noise apart.
SLACK, LESS_LIKELY, APART = 7.0, 4.0, 0.1
# Rivals of a column that are kept and that are refitted, and draws of the constants.
MOST, MOST_TRIED, N_DRAWS = 3, 8, 16
# A posterior is in doubt where a rival moves its mean by this share of its deviation, or its deviation by this share of
# itself, or where errors of constants do by the other share, root mean square.
MOVED, ROUGHEST = 0.2, 0.12
# Weights that rest on a smaller share of the draws have moved the posterior out of sight.
LEAST_SHARE, FAR = 0.02, 3.0
ROUGH = "for want of rows"


@dataclass(frozen=True, eq=False)
class Doubt:
    """Laws that rows do not tell from the one found.

    Args:
        law: The columns with noise of the law found.
        rivals: The same with another formula for the mean or the scale of a column, refitted, and that line as text.
        constants: Numbers of the law that may move.
        draws: As many of them as rows and errors allow, a row each.
    """

    law: Law
    rivals: tuple[tuple[str, Law], ...]
    constants: tuple[float, ...]
    draws: Float[np.ndarray, "m k"]

    def of(self, x: Float[np.ndarray, "n d"], y: Float[np.ndarray, "k d_y"]) -> str:
        """Return what moves the posterior of an observation, given draws of it, in words; empty if nothing does."""
        own = self.law.log_prob(x, y)
        for text, rival in self.rivals:
            size = _moved(x, rival.log_prob(x, y) - own)
            if size > MOVED:
                return f"{text} follows the rows as well, and would move a mean or a deviation by {_shown(size)} sd"
        size = self.roughness(x, y, own)
        if size > ROUGHEST:
            return f"{ROUGH}, the constants are uncertain, which may move a mean or a deviation by {_shown(size)} sd"
        return ""

    def roughness(self, x: np.ndarray, y: np.ndarray, own: np.ndarray) -> float:
        """Return how far errors of constants move a posterior, in sd."""
        each = [_moved(x, again - own) for again in self._redrawn(x, y)] if self.constants else []
        return float(np.sqrt(np.mean(np.square(each)))) if each else 0.0

    def apart(self, x: Float[np.ndarray, "n d"]) -> Float[np.ndarray, " n"]:
        """Return how far rivals are from the law at rows of x, in units of its noise."""
        means, scales = self.law.parts(x)
        found = [np.abs(rival.parts(x)[0] - means) / np.maximum(scales, 1e-300) for _, rival in self.rivals]
        return np.max(np.nan_to_num(found), axis=(0, 1)) if found else np.zeros(len(x))

    def _redrawn(self, x: np.ndarray, y: np.ndarray) -> Iterator[np.ndarray]:
        """The log-likelihood of rows of x under each draw of the constants, up to a number."""
        law, place = self.law, {c: i for i, c in enumerate(self.constants)}
        given = [[c.transformed(row[c.index]) for c in law.columns] for row in y]
        for draw in self.draws:
            values = self._function(np.column_stack([x, np.broadcast_to(draw, (len(x), len(draw)))]))
            noises = [[draw[place[v]] if v in place else v for v in g.noise.parameters] for g in law.groups]
            yield np.sum([law.log_density(values, row, np, noises) for row in given], axis=0)

    @cached_property
    def _function(self) -> Any:
        names = [f"constant_{i}" for i in range(len(self.constants))]
        table = {sympy.Float(c): symbol(name) for c, name in zip(self.constants, names, strict=True)}
        return compiled(
            [f.expression.xreplace(table) for f in self.law.all_formulas], [*self.law.x_names, *names]
        )


def _moved(x: np.ndarray, log_w: np.ndarray) -> float:
    """How far weights move mean and deviation of draws, in deviations; `FAR` where it is out of sight."""
    log_w = np.where(np.isfinite(log_w), log_w, -np.inf)
    if not np.any(log_w > -np.inf) or effective_size(log_w) < LEAST_SHARE * len(x):
        return FAR
    x = x[:, np.ptp(x, axis=0) > 1e-9 * np.max(np.abs(x), axis=0)]
    if x.shape[1] == 0:
        return 0.0
    w, sd = np.exp(log_w - logsumexp(log_w)), np.std(x, axis=0)
    mean = w @ x
    shift = np.abs(mean - np.mean(x, axis=0)) / sd
    width = np.abs(np.sqrt(w @ (x - mean) ** 2) / sd - 1)
    return float(min(np.max(np.maximum(shift, width)), FAR))


def _shown(size: float) -> str:
    return f"more than {FAR:g}" if size >= FAR else f"{size:.1g}"


@dataclass(frozen=True, eq=False)
class Rival:
    """A law with another formula for the mean or the scale of a column, refitted.

    Args:
        text: That column as text.
        law: The law.
        loss: How many nats less likely it is than the law it was made from.
        length: How many nats longer, rows and form together.
        apart: How far they part, at most, in units of the noise.
    """

    text: str
    law: Law
    loss: float
    length: float
    apart: float


def find_doubt(
    law: Law, fitted: Refitted | None, rivals: Sequence[Rival], frozen: Sequence[float] = ()
) -> Doubt | None:
    """Return what rows leave open of a law; None of one without noise.

    Args:
        law: The law found.
        fitted: Its last refit, for the errors of constants.
        rivals: Other laws, those that are as likely among them.
        frozen: Constants that are known.
    """
    noisy = _noisy(law)
    if not noisy.columns:
        return None
    near = [r for r in rivals if r.loss < LESS_LIKELY and r.length < SLACK and r.apart > APART]
    near = sorted({r.text: r for r in near}.values(), key=lambda r: r.length)[: MOST * len(noisy.columns)]
    constants = constants_of(fitted.law, frozen) if fitted is not None else []
    draws = np.zeros((0, len(constants)))
    if fitted is not None and len(constants):
        sd, rng = np.sqrt(np.maximum(np.diag(fitted.covariance), 1e-300)), np.random.default_rng(0)
        together = fitted.covariance / np.outer(sd, sd)
        unit = rng.multivariate_normal(
            np.zeros(len(sd)), together, N_DRAWS, check_valid="ignore", method="eigh"
        )
        draws = fitted.values + sd * unit
    return Doubt(noisy, tuple((r.text, _noisy(r.law)) for r in near), tuple(constants), draws)


def _noisy(law: Law) -> Law:
    """The columns with noise."""
    return law.part([g for g in law.groups if not any(law.columns[j].is_exact for j in g.columns)])


def find_rivals(
    law: Law,
    forms: Forms,
    x: Float[np.ndarray, "n d"],
    y: Float[np.ndarray, "n d_y"],
    frozen: Sequence[float] = (),
) -> list[Rival]:
    """Return the law with other formulas for mean and scale of columns, by name; None for that of the law.

    Scales that all but vanish are given a floor.
    """
    shared: dict[object, list[int]] = {}
    for j, column in enumerate(law.columns):
        if not column.is_exact:
            shared.setdefault((column.mean, column.scale, column.transform), []).append(j)
    return [rival for numbers in shared.values() for rival in _rivals(law, numbers, forms, x, y, frozen)]


def _rivals(
    law: Law, numbers: Sequence[int], forms: Forms, x: np.ndarray, y: np.ndarray, frozen: Sequence[float]
) -> Iterator[Rival]:
    """Rivals of columns that share their mean and scale, with those that belong to them."""
    column = law.columns[numbers[0]]
    groups = [g for g in law.groups if set(numbers) & set(g.columns)]
    own, members = law.part(groups), [j for g in groups for j in g.columns]
    places = [members.index(j) for j in numbers]
    place = places[0]
    mean, size = (part[numbers[0]] for part in law.parts(x))

    def likelihood(one: Law) -> float:
        return float(np.sum(one.log_prob(x, y, paired=True)))

    def cost(one: Law) -> float:
        return sum(price(f.expression, len(x)) for f in (one.columns[place].mean, one.columns[place].scale))

    known, shown = likelihood(own), {_form(_line(own, place))}
    for form, scale in forms.get(column.name, ())[:MOST_TRIED]:
        columns = list(own.columns)
        for k in places:
            new = replace(columns[k], mean=form or column.mean, scale=scale or column.scale)
            if column.is_count:
                new = replace(new, scale=Formula(sympy.sqrt(sympy.Max(new.mean.expression, 0))))
            columns[k] = new
        tried = replace(own, columns=tuple(columns))
        try:
            fitted = refit((not column.is_count and with_floors(tried, x)) or tried, x, y, frozen=frozen).law
        except (np.linalg.LinAlgError, FloatingPointError):
            continue
        text, loss = _line(fitted, place), known - likelihood(fitted)
        if _form(text) in shown or not np.isfinite(loss):
            continue
        shown.add(_form(text))
        other, width = (part[place] for part in fitted.parts(x))
        with np.errstate(all="ignore"):
            apart = float(np.max(np.maximum(np.abs(other - mean) / size, np.abs(np.log(width / size)))))
        moved = dict(zip(members, fitted.columns, strict=True))
        new_groups = {
            g.columns: replace(f, columns=g.columns) for g, f in zip(groups, fitted.groups, strict=True)
        }
        whole = replace(
            law,
            columns=tuple(moved.get(j, c) for j, c in enumerate(law.columns)),
            groups=tuple(new_groups.get(g.columns, g) for g in law.groups),
        )
        yield Rival(text, whole, loss, loss + cost(fitted) - cost(own), apart)


def _form(line: str) -> str:
    """A column as text without its coefficients: errors of constants are weighed apart."""
    line = re.sub(r"\d+\.\d+(\(\d+\))?(e[+-]?\d+)?|\d+(\(\d+\)|e-)\d*", "#", line)
    return re.sub(r"(?<!\*)(#|\b\d+)\*(?!\*)", "", line)


def _line(law: Law, number: int) -> str:
    """A column as text."""
    return replace(law, columns=(law.columns[number],), groups=(Group((0,)),)).lines()[0]
