"""Which laws are possible: those of allowed functions, and where units are known those whose units can match.

A decimal number in a law may have any unit; whole numbers, fractions and π have none.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import sympy

from isr.search.evaluate import symbol
from isr.search.formula import parse

Dimension = dict[Any, Any]
"""Powers of base dimensions; None stands for any dimension."""


class MismatchError(ValueError):
    """Units that cannot match."""


def dimension_of(unit: str) -> Dimension:
    """Return the dimension of a unit; what no library knows is a dimension of its own.

    Example:
        >>> dimension_of("N") == dimension_of("kg*m/s^2"), dimension_of(""), dimension_of("widget")
        (True, {}, {'widget': 1})
    """
    from sympy.physics import units
    from sympy.physics.units.systems.si import dimsys_SI

    text = re.sub(r"\s+", "*", unit.replace("·", "*").strip()) or "1"
    try:
        powers = parse(text, re.findall(r"[^\W\d]\w*", text)).as_powers_dict()
    except ValueError:  # no arithmetic of names: a unit of its own
        return {unit: 1}
    parts: list[tuple[Dimension, Any]] = []
    for base, power in powers.items():
        known = getattr(units, str(base), None)
        if isinstance(known, units.Quantity):
            parts.append((dimsys_SI.get_dimensional_dependencies(known.dimension), power))
        elif not base.is_number:
            parts.append(({str(base): 1}, power))
    return _product(parts)


def judge_of(
    names: Sequence[str], functions: frozenset[str], units: Mapping[str, str] | None, every: frozenset[str]
) -> Callable[[sympy.Expr], bool]:
    """Return what tells whether a law is allowed."""
    known = {symbol(n): dimension_of(units[n]) if units and n in units else None for n in names}
    goal = dimension_of(units["y"]) if units and "y" in units else None

    def allowed(law: sympy.Expr) -> bool:
        if functions != every and not _calls_only(law, functions):
            return False
        if not units:
            return True
        try:
            _same([_dimension(law, known), goal])
        except MismatchError:
            return False
        return True

    return allowed


def _calls_only(law: Any, functions: frozenset[str]) -> bool:
    if law.is_Pow:
        is_sigmoid = "sigmoid" in functions and law.exp == -1 and law.base.is_Add and law.base.has(sympy.exp)
        needs = "sqrt" if not law.exp.is_Integer else "reciprocal" if law.exp < 0 else ""
        if is_sigmoid:
            return all(
                _calls_only(a.args[0] if isinstance(a, sympy.exp) else a, functions) for a in law.base.args
            )
        return (not needs or needs in functions) and _calls_only(law.base, functions)
    if law.is_Function and type(law).__name__.lower() not in functions:
        return False
    return all(_calls_only(a, functions) for a in law.args)


def _dimension(e: Any, known: Mapping[Any, Dimension | None]) -> Dimension | None:
    if e in known:
        return known[e]
    if e.is_Float:
        return None
    if e.is_number and not e.has(sympy.Float):
        return {}
    if e.is_Add:
        return _same([_dimension(a, known) for a in e.args])
    if e.is_Mul:
        parts = [_dimension(a, known) for a in e.args]
        return None if any(p is None for p in parts) else _product([(p, 1) for p in parts])
    if e.is_Pow:
        base = _dimension(e.base, known)
        return None if base is None else _product([(base, e.exp)])
    arguments = [_dimension(a, known) for a in e.args]
    if isinstance(e, sympy.Abs):
        return arguments[0]
    _same([*arguments, {}])
    return {}


def _same(parts: Sequence[Dimension | None]) -> Dimension | None:
    stated = [p for p in parts if p is not None]
    if any(p != stated[0] for p in stated):
        raise MismatchError(f"{stated} are added")
    return stated[0] if stated else None


def _product(parts: Sequence[tuple[Any, Any]]) -> Dimension:
    total: Dimension = {}
    for dimension, power in parts:
        for base, own in dimension.items():
            total[base] = sympy.nsimplify(total.get(base, 0) + own * power, rational=True)
    return {base: power for base, power in total.items() if power != 0}
