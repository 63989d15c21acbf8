"""Is a found equation the true one? Symbolic comparison with a tolerance on constants.

Both sides are brought to a normal form: a sum of terms, each a constant times powers of variables and functions, with
``cos`` written as a shifted ``sin``, ``tanh`` and ``1 / (1 + exp)`` as a sigmoid, constants moved out of ``exp``, and
domain guards (``Min``, ``Max``) removed where the data never reach them. Laws that give the same numbers
to nine digits on the data and beyond are the same whatever their form. Else the rule is

* every term of the truth has one term of the same shape in what was found, its constants within ``tolerance``,
  relative, inside functions as well; additive constants may differ by ``tolerance`` of the largest term;
* what is left over must be a part of one of the truth's monomials (``x`` beside ``x²``, as a slightly shifted origin
  gives) and contribute at most ``tolerance`` of the spread; any other function left over is a different law;
* on the data both sides agree, root mean square, within five times the tolerance of the largest term.

Where a rotation is free, constants are weighed against the same term in all equations taken together, and what is left
over may be a part of a monomial of any of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import sympy as sp
from numpy.typing import ArrayLike

TOLERANCE = 0.02
_DUST = 1e-6
IDENTICAL = 1e-9
LEAST_ROWS = 50
FAR = 3.0
# SymPy's own annotations lose the type of an expression at every step.
Expression = Any
_TOO_LONG = 2000


@dataclass(frozen=True)
class Comparison:
    """What comparing two laws showed.

    ``reason`` is the first difference in words; ``order`` and ``signs`` tell which found equation stands beside each
    true one; ``error`` is the largest root-mean-square difference, relative to the largest term of the truth.
    """

    same: bool
    reason: str
    order: tuple[int, ...]
    signs: tuple[int, ...]
    error: float


def same_law(found: Any, truth: Any, x: ArrayLike, **options: Any) -> bool:
    """Return whether :func:`compare_laws` calls both the same.

    Example:
        >>> x0, x1 = sp.symbols("x0 x1")
        >>> data = np.random.default_rng(0).normal(size=(500, 2))
        >>> same_law([-x1 + 0.2 * x0**2, 1.01 * x0], [x0, x1 - x0**2 / 5], data)
        True
        >>> same_law([x0, x1 - 0.2 * x0**2 + 0.01 * sp.sin(x0)], [x0, x1 - x0**2 / 5], data)
        False
    """
    return compare_laws(found, truth, x, **options).same


def compare_laws(
    found: Any,
    truth: Any,
    x: ArrayLike,
    *,
    tolerance: float = TOLERANCE,
    symbols: Sequence[Any] | None = None,
    up_to: str = "sign",
) -> Comparison:
    """Return whether equations are the same law, and where they first differ.

    Args:
        found: Equations to judge, one or several.
        truth: The true ones, in the symbols ``x0``, ``x1``, …
        x: Data on which terms are weighed, ``(n, dim)``.
        tolerance: Allowed relative error of a constant.
        symbols: Variables of ``found`` in the order of the columns of ``x``; ``x0``, ``x1``, … where not given.
        up_to: What is left free: ``"nothing"``, ``"sign"`` (order and signs of the equations, as for latents) or
            ``"rotation"`` (any orthogonal mix of them, which a standard normal latent cannot tell apart).

    Example:
        >>> x0, x1 = sp.symbols("x0 x1")
        >>> data = np.random.default_rng(0).normal(size=(500, 2))
        >>> compare_laws([-x1, 1.01 * x0], [x0, x1], data).signs
        (1, -1)
    """
    if up_to not in ("nothing", "sign", "rotation"):
        raise ValueError(f"up_to must be 'nothing', 'sign' or 'rotation', got {up_to!r}")
    data = np.atleast_2d(np.asarray(x, dtype=float))
    # Where data are positive, roots and logarithms of products may be taken apart.
    names = [
        sp.Symbol(f"x{i}", real=True, positive=bool(np.all(c > 0)) or None) for i, c in enumerate(data.T)
    ]
    given = [sp.Symbol(f"x{i}") for i in range(data.shape[1])] if symbols is None else symbols
    f = [_rename(e, given, names) for e in _as_list(found)]
    t = [_rename(e, [sp.Symbol(s.name) for s in names], names) for e in _as_list(truth)]
    if len(f) != len(t):
        return Comparison(False, f"{len(f)} equations found, {len(t)} true", (), (), float("inf"))
    long = max(int(e.count_ops()) for e in f)
    if long > _TOO_LONG:
        return Comparison(
            False, f"an equation has {long} operations, too long to compare", (), (), float("inf")
        )
    f_values, t_values = (np.stack([_evaluate(e, names, data) for e in es]) for es in (f, t))
    if not np.isfinite(f_values).all():
        return Comparison(False, "a found equation is not finite on the data", (), (), float("inf"))
    order, signs, f, f_values = _align(f, f_values, t_values, up_to)
    if _are_identical(f, t, names, data):
        return Comparison(True, "", order, signs, 0.0)
    context = _Context(names, data, tolerance, shared=up_to == "rotation")
    return _judge(f, t, f_values, t_values, context, order, signs)


def _as_list(equations: Any) -> list[Expression]:
    several = equations if isinstance(equations, list | tuple | sp.MatrixBase) else [equations]
    return [sp.sympify(e, strict=True) for e in several]


def _rename(expr: Expression, given: Sequence[Any], names: Sequence[sp.Symbol]) -> Expression:
    """By name, so that assumptions on the symbols do not matter."""
    table = {str(g): n for g, n in zip(given, names, strict=True)}
    unknown = sorted(s.name for s in expr.free_symbols if s.name not in table)
    if unknown:
        raise ValueError(f"equation uses {', '.join(unknown)}, known variables are {', '.join(table)}")
    return expr.xreplace({s: table[s.name] for s in expr.free_symbols})


def _evaluate(expr: Expression, names: Sequence[sp.Symbol], data: np.ndarray) -> np.ndarray:
    function = sp.lambdify([*names], expr, ["numpy", "scipy"])
    with np.errstate(all="ignore"):
        return np.broadcast_to(np.asarray(function(*data.T), dtype=float), (len(data),))


def _are_identical(
    f: list[Expression], t: list[Expression], names: Sequence[sp.Symbol], data: np.ndarray
) -> bool:
    """Whether both give the same numbers to nine digits, on the data and farther out where both are finite.

    Forms that no normal form brings together (``log a + log b`` and ``log ab``) are told by this. Data near zero, where
    a function and its series are one, are also stretched until each column reaches `FAR`.
    """
    largest = np.abs(data).max(axis=0)
    stretch = FAR / np.where((largest > 0) & (largest < FAR), largest, FAR)
    for rows in (data, 1.5 * data, stretch * data):
        for one, other in zip(f, t, strict=True):
            found, true = _evaluate(one, names, rows), _evaluate(other, names, rows)
            both = np.isfinite(found) & np.isfinite(true)
            if both.sum() < min(len(rows), LEAST_ROWS):
                return False
            if np.abs(found - true)[both].max() > IDENTICAL * max(np.abs(true[both]).max(), 1e-300):
                return False
    return True


def _align(
    f: list[Expression], f_values: np.ndarray, t_values: np.ndarray, up_to: str
) -> tuple[tuple[int, ...], tuple[int, ...], list[Expression], np.ndarray]:
    """Reorder, flip or rotate what was found to lie as near the truth as it can."""
    n = len(f)
    if up_to == "nothing":
        return tuple(range(n)), (1,) * n, f, f_values
    if up_to == "rotation":
        left, _, right = np.linalg.svd(t_values @ f_values.T)
        mix = left @ right
        mixed = [sp.Add(*(float(m) * e for m, e in zip(row, f, strict=True))) for row in mix]
        return tuple(range(n)), (1,) * n, mixed, mix @ f_values
    from scipy.optimize import linear_sum_assignment

    centred_f = f_values - f_values.mean(axis=1, keepdims=True)
    centred_t = t_values - t_values.mean(axis=1, keepdims=True)
    product = centred_t @ centred_f.T
    norms = np.outer(np.linalg.norm(centred_t, axis=1), np.linalg.norm(centred_f, axis=1))
    correlation = product / np.maximum(norms, 1e-300)
    order = linear_sum_assignment(-np.abs(correlation))[1]
    signs = np.where(correlation[np.arange(n), order] < 0, -1, 1)
    aligned = [int(s) * f[i] for s, i in zip(signs, order, strict=True)]
    return tuple(order.tolist()), tuple(signs.tolist()), aligned, signs[:, None] * f_values[order]


@dataclass(frozen=True)
class _Context:
    names: Sequence[sp.Symbol]
    data: np.ndarray
    tolerance: float
    shared: bool

    def values(self, expr: Expression) -> np.ndarray:
        return _evaluate(_written_out(expr), self.names, self.data)

    def size(self, expr: Expression) -> float:
        return float(np.sqrt(np.mean(self.values(expr) ** 2)))


def _judge(
    f: list[Expression],
    t: list[Expression],
    f_values: np.ndarray,
    t_values: np.ndarray,
    context: _Context,
    order: tuple[int, ...],
    signs: tuple[int, ...],
) -> Comparison:
    spread = np.maximum(t_values.std(axis=1), 1e-300)
    truths = [_normal(e, context) for e in t]
    largest = [max(map(context.size, sp.Add.make_args(e))) for e in truths]
    error = float(np.max(np.sqrt(np.mean((f_values - t_values) ** 2, axis=1)) / np.maximum(largest, spread)))
    others = [term for e in truths for term in sp.Add.make_args(e)] if context.shared else []
    for i, (one, truth) in enumerate(zip(f, truths, strict=True)):
        scales = float(spread[i]), float(max(spread[i], largest[i]))
        reason = _difference(_normal(one, context), truth, context, scales, others)
        if reason:
            return Comparison(False, f"equation {i}: {reason}", order, signs, error)
    if error > 5 * context.tolerance:
        return Comparison(
            False, f"differs by {error:.2g} of its largest term on the data", order, signs, error
        )
    return Comparison(True, "", order, signs, error)


def _offset(expr: Expression) -> float:
    """The size of the numbers added in an argument, one at least."""
    return max(1.0, sum(abs(float(t)) for t in sp.Add.make_args(expr) if t.is_number))


def _difference(
    found: Expression,
    truth: Expression,
    context: _Context,
    scales: tuple[float, float],
    others: Sequence[Expression] = (),
) -> str:
    """The first difference between two normal forms in words, empty where there is none.

    ``scales`` are the spread of the whole and the size of its largest term.
    """
    scale, largest = scales
    if found.has(sp.zoo, sp.nan, sp.oo):
        return "not finite"
    left = [term for term in sp.Add.make_args(found) if context.size(term) > _DUST * scale]
    wanted = sp.Add.make_args(truth) if truth != 0 else ()
    offset = sum((float(t) for t in left if t.is_number), 0.0) - sum(
        (float(t) for t in wanted if t.is_number), 0.0
    )
    if abs(offset) > context.tolerance * largest:
        return f"the additive constant is off by {offset:.3g}"
    left = [term for term in left if not term.is_number]
    monomials = list(others)
    for term in (t for t in wanted if not t.is_number):
        reference = _norm(term, others) if others else abs(float(term.as_coeff_Mul()[0]))
        matches = [(_term_gap(other, term, context, reference), k) for k, other in enumerate(left)]
        gap, k = min(matches, default=(np.inf, -1))
        if gap > context.tolerance:
            return f"no term like {_short(term)}" + (
                f" (nearest {_short(left[k])})" if np.isfinite(gap) else ""
            )
        left.pop(k)
        monomials.append(term)
    for term in left:
        inner = any(_divides(term, monomial) for monomial in monomials)
        if not inner or context.size(term) > context.tolerance * scale:
            return f"left over: {_short(term)}"
    return ""


def _short(expr: Expression) -> str:
    return str(expr.evalf(4))[:80]


def _norm(term: Expression, others: Sequence[Expression]) -> float:
    """The constant of one term over all equations, as the length of a vector, which no rotation changes."""
    rest = term.as_coeff_Mul()[1]
    pairs = [other.as_coeff_Mul() for other in others]
    return float(np.linalg.norm([float(c) for c, r in pairs if r == rest]))


def _term_gap(found: Expression, truth: Expression, context: _Context, reference: float) -> float:
    """Difference of the constants of two terms of one shape over ``reference``, infinite for different shapes."""
    (cf, rest_f), (ct, rest_t) = found.as_coeff_Mul(), truth.as_coeff_Mul()
    factors_f, factors_t = _factors(rest_f), _factors(rest_t)
    if len(factors_f) != len(factors_t):
        return np.inf
    gap = abs(float(cf) - float(ct)) / reference
    for (base_f, power_f), (base_t, power_t) in zip(factors_f, factors_t, strict=True):
        if base_f.func != base_t.func or (base_t.is_Symbol and base_f != base_t):
            return np.inf
        if isinstance(base_t, sp.exp):
            base_f, base_t = sp.expand(base_f.args[0] * power_f), sp.expand(base_t.args[0] * power_t)
        elif power_f != power_t:
            return np.inf
        elif isinstance(base_t, sp.Function):
            base_f, base_t = base_f.args[0], base_t.args[0]
        if not base_t.is_Symbol and _difference(base_f, base_t, context, (1.0, _offset(base_t))):
            return np.inf
    return gap


def _factors(rest: Expression) -> list[tuple[Expression, Expression]]:
    pairs = []
    for factor in sp.Mul.make_args(rest):
        base, power = (factor, sp.Integer(1)) if isinstance(factor, sp.exp) else factor.as_base_exp()
        if base == 1:
            continue
        pairs.append((base, power))
    return sorted(
        pairs, key=lambda pair: (str(pair[0].func), str(pair[0]) if pair[0].is_Symbol else "", str(pair[1]))
    )


def _divides(term: Expression, monomial: Expression) -> bool:
    powers, limits = term.as_powers_dict(), monomial.as_powers_dict()
    symbols = [base for base in powers if not base.is_number]
    return all(base.is_Symbol and powers[base] <= limits.get(base, 0) for base in symbols)


# Kept whole so that it can be matched as one function.
_Sigmoid: Any = sp.Function("sigmoid")


def _written_out(expr: Expression) -> Expression:
    return expr.replace(_Sigmoid, lambda argument: 1 / (1 + sp.exp(-argument)))


def _normal(expr: Expression, context: _Context) -> Expression:
    if expr.is_Number or expr.is_NumberSymbol:
        return sp.Float(expr)
    if expr.is_Symbol:
        return expr
    arguments = [_normal(a, context) for a in expr.args]
    if all(a.is_number for a in arguments):
        return sp.Float(sp.N(expr.func(*arguments)))
    if isinstance(expr, sp.Max | sp.Min):
        return _without_guard(expr.func, arguments, context)
    if isinstance(expr, sp.cos):
        return _canonical_sine(sp.expand(arguments[0] + sp.Float(np.pi / 2)))
    if isinstance(expr, sp.sin):
        return _canonical_sine(arguments[0])
    if isinstance(expr, sp.tanh):
        return sp.expand(2 * _canonical_sigmoid(sp.expand(2 * arguments[0])) - 1)
    if isinstance(expr, sp.exp):
        constant, rest = arguments[0].as_coeff_Add()
        return sp.Float(sp.exp(constant)) * sp.exp(rest)
    if isinstance(expr, sp.Pow):
        return _normal_power(arguments[0], arguments[1])
    return _expand(expr.func(*arguments))


def _expand(expr: Expression) -> Expression:
    return sp.expand(expr, power_exp=False, power_base=False)


def _normal_power(base: Expression, power: Expression) -> Expression:
    if power.is_number and float(power).is_integer():
        power = sp.Integer(int(float(power)))
    if power.is_Integer and int(power) < 0:
        constant, rest = base.as_coeff_Add()
        coefficient, factor = rest.as_coeff_Mul()
        if constant != 0 and isinstance(factor, sp.exp) and coefficient / constant > 0:
            exponent: Expression = factor.args[0]
            argument = -exponent - sp.log(coefficient / constant)
            return _expand((_canonical_sigmoid(sp.expand(argument)) / constant) ** (-power))
        if not base.is_Add:
            return _expand(base**power)
        return base**power
    return _expand(base**power)


def _canonical_sigmoid(argument: Expression) -> Expression:
    if _leading(argument) < 0:
        return 1 - _Sigmoid(sp.expand(-argument))
    return _Sigmoid(argument)


def _canonical_sine(argument: Expression) -> Expression:
    sign = 1
    if _leading(argument) < 0:
        argument, sign = sp.expand(-argument), -1
    phase, rest = argument.as_coeff_Add()
    # The cut lies at -0.3 π, away from the phases that laws have: 0, ±π/2, ±π/4.
    turns = int(np.floor(float(phase) / np.pi + 0.3))
    sign *= -1 if turns % 2 else 1
    return sign * sp.sin(rest + sp.Float(float(phase) - turns * np.pi), evaluate=False)


def _leading(argument: Expression) -> float:
    terms = [t.as_coeff_Mul() for t in sp.Add.make_args(argument) if not t.is_number]
    return float(min(terms, key=lambda pair: (-int(pair[1].count_ops()), str(pair[1])))[0]) if terms else 1.0


def _without_guard(function: Any, arguments: list[Expression], context: _Context) -> Expression:
    """The one argument that decides on all data, or the guard itself."""
    guarded = function(*arguments)
    values = context.values(guarded)
    for argument in arguments:
        if not argument.is_number and np.allclose(context.values(argument), values, rtol=1e-12, atol=1e-12):
            return argument
    return guarded
