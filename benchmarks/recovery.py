"""Was the formula found? Two answers: SRBench's, which forgives a constant, and a stricter one, which forgives 2 %.

*Symbolic solution* (SRBench, La Cava et al. 2021): with constants rounded to three decimals, what was found less the
truth, or what was found over the truth, is a constant. *Strict*: what was found is the truth with each of its
constants changed by at most 2 %; or the truth is what was found, with each of its constants so changed. "Is" means
the same numbers at fresh points within the range, and as well outside of it, where an imitation departs.

Numbers decide first: constants of one form are fitted to the values of the other one. SymPy is asked only where they
say no, in a process of its own and for a limited time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import sympy as sp

from formulas import Formula
from template import STRETCHES, Template, Values, agree, scale
from worker import Ended, Worker

TOLERANCE = 0.02
DECIMALS, LEAST = 3, 1e-4  # how SRBench rounds constants, and what it takes for zero
N_POINTS, SEED = 400, 90_001
MOST_OPERATIONS = 600
NEAR = 0.999
Expression = Any


@dataclass(frozen=True)
class Verdict:
    """Whether a formula was found.

    Args:
        symbolic: By SRBench's rule.
        strict: With every constant within 2 %.
        reason: Why not strictly, in words; empty where it was.
    """

    symbolic: bool
    strict: bool
    reason: str = ""


def judge(
    found: Expression, truth: Formula, *, worker: Worker | None = None, seconds: float = 10.0
) -> Verdict:
    """Return whether ``found`` is ``truth``.

    Args:
        found: In the symbols of the formula.
        truth: The formula.
        worker: Simplifies where numbers say no; without one, numbers alone decide.
        seconds: How long it may take.

    Example:
        >>> x0 = sp.Symbol("x0", real=True)
        >>> line = Formula("line", 2 * x0, ((1.0, 5.0),), ((0.0, 6.0),))
        >>> judge(1.99 * x0, line), judge(2 * x0 + 1, line).symbolic
        (Verdict(symbolic=True, strict=True, reason=''), True)
    """
    if found.has(sp.zoo, sp.nan, sp.oo, sp.I):
        return Verdict(False, False, "not finite")
    if found.count_ops() > MOST_OPERATIONS:
        return Verdict(False, False, f"{found.count_ops()} operations, too long to compare")
    near, far = points(truth)
    found = without_idle_guards(found, truth, near)
    mine = Values.of(found, truth.symbols, near, far)
    true = Values.of(truth.expression, truth.symbols, near, far)
    if not np.isfinite(mine.near).all():
        return Verdict(False, False, "not finite in the range")
    if np.ptp(mine.near) == 0 < np.ptp(true.near):
        return Verdict(False, False, "a constant")
    if agree(mine, true):
        return Verdict(True, True)
    forms = [(Template(truth.expression, truth.symbols), mine), (Template(found, truth.symbols), true)]
    changes = [form.changes(near, far, goal) for form, goal in forms]
    least = min((np.abs(change).max(initial=0.0) for change in changes if change is not None), default=np.inf)
    strict = bool(least <= TOLERANCE)
    reason = "" if strict else "another form" if np.isinf(least) else f"a constant is off by {least:.2g}"
    symbolic = is_up_to_constant(mine, true) or (
        correlation(mine, true) > NEAR
        and (
            any(rounds(form, near, far, goal) for form, goal in forms)
            or _simplifies(found, truth, worker, seconds)
        )
    )
    return Verdict(bool(symbolic), strict, reason)


def points(truth: Formula) -> tuple[np.ndarray, np.ndarray]:
    """Return fresh inputs in the range, those of a trajectory included, and inputs beyond it, of the same sign."""
    near = truth.rows(N_POINTS, SEED, test=True)[0]
    low, high = np.array(truth.ranges).T
    draw = np.random.default_rng(SEED)
    far = []
    for stretch in STRETCHES:
        more = stretch * (high - low)
        least = np.where(low >= 0, low / (1 + 2 * stretch), low - more)
        most = np.where(high <= 0, high / (1 + 2 * stretch), high + more)
        far.append(draw.uniform(least, most, (N_POINTS, len(low))))
    return near, np.concatenate(far)


def without_idle_guards(found: Expression, truth: Formula, near: np.ndarray) -> Expression:
    """Return ``found`` without those ``Min``, ``Max`` and ``Abs`` that never act in the range."""

    def values(part: Expression) -> np.ndarray:
        return Values.of(part, truth.symbols, near, near[:0]).near

    def chosen(guard: Expression) -> Expression:
        options = [*guard.args, -guard.args[0]] if isinstance(guard, sp.Abs) else guard.args
        decides = (
            part for part in options if part.free_symbols and np.array_equal(values(part), values(guard))
        )
        return next(decides, guard)

    return found.replace(lambda part: isinstance(part, sp.Max | sp.Min | sp.Abs), chosen)


def is_up_to_constant(mine: Values, true: Values) -> bool:
    """Return whether values differ by a constant, or by a constant factor other than zero."""
    with np.errstate(all="ignore"):
        shift = np.median(mine.near - true.near)
        weight = 1 / scale(true.near)
        factor = np.sum(mine.near * true.near * weight**2) / np.sum((true.near * weight) ** 2)
        shifted = Values(mine.near - shift, mine.far - shift)
        scaled = Values(mine.near / factor, mine.far / factor)
    return agree(shifted, true) or (factor != 0 and agree(scaled, true))


def correlation(mine: Values, true: Values) -> float:
    """Return the squared correlation of values in the range."""
    return float(np.corrcoef(mine.near, true.near)[0, 1] ** 2)


def rounds(form: Template, near: np.ndarray, far: np.ndarray, goal: Values) -> bool:
    """Return whether a form meets values with constants changed by rounding alone, but for a term or a factor."""
    for free in ("term", "factor"):
        change = form.changes(near, far, goal, free=free)
        if change is not None and np.abs(change * form.constants).max(initial=0.0) <= 0.5 * 10.0**-DECIMALS:
            return True
    return False


def _simplifies(found: Expression, truth: Formula, worker: Worker | None, seconds: float) -> bool:
    if worker is None:
        return False
    positive = {
        symbol: sp.Symbol(symbol.name, real=True, positive=low >= 0 or None)
        for symbol, (low, _) in zip(truth.symbols, truth.ranges, strict=True)
    }
    given = [expression.xreplace(positive) for expression in (found, truth.expression)]
    try:
        return worker.call(simplifies_to_constant, *given, seconds=seconds)
    except (Ended, RuntimeError):  # SymPy gave up, and numbers have said no
        return False


def simplifies_to_constant(found: Expression, truth: Expression) -> bool:
    """Return whether difference or ratio simplify to a constant, constants rounded as SRBench rounds them."""
    model = rounded(sp.simplify(rounded(found)))
    difference = rounded(sp.simplify(truth - model))
    if not difference.free_symbols:
        return True
    ratio = rounded(sp.simplify(model / truth))
    return not ratio.free_symbols and ratio != 0


def rounded(expression: Expression) -> Expression:
    """Return an expression with its decimal numbers rounded.

    Example:
        >>> x0 = sp.Symbol("x0")
        >>> rounded(0.33333 * x0 + 0.00002)
        0.333*x0
    """
    return expression.xreplace(
        {
            number: sp.Integer(0) if abs(number) < LEAST else sp.Float(round(float(number), DECIMALS))
            for number in expression.atoms(sp.Float)
        }
    )
