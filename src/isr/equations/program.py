"""Program: a map written as equations, one named intermediate after the other, or composed into one closed form.

The program is the block form of an expression. It grows in proportion to the model, where the composed closed form may
swell exponentially, and every other form (text, LaTeX, code) is made from it. Functions that equations hold as one
piece stand first: the normal distribution function, its quantile, and the sigmoid.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, cast

import sympy
from mpmath import mp


class _Whole(sympy.Function):
    """A function of one real number, worked out by mpmath."""

    nargs = 1
    is_real = True
    _value: Callable[[Any], Any]

    def _eval_evalf(self, prec: int) -> sympy.Float:
        argument: Any = self.args[0]
        with mp.workprec(prec + 10):
            return sympy.Float(type(self)._value(argument._to_mpmath(prec + 10)), precision=prec)


class Phi(_Whole):
    """The standard normal distribution function.

    Example:
        >>> x = sympy.Symbol("x", real=True)
        >>> round(float(Phi(sympy.Float(1.0)).evalf()), 4)
        0.8413
        >>> Phi(x).diff(x)
        sqrt(2)*exp(-x**2/2)/(2*sqrt(pi))
    """

    _value = staticmethod(mp.ncdf)

    def fdiff(self, argindex: int = 1) -> sympy.Expr:
        """Return the derivative, for SymPy's ``diff``."""
        u: Any = self.args[0]
        return sympy.exp(-(u**2) / 2) / sympy.sqrt(2 * sympy.pi)

    def _latex(self, printer, exp=None) -> str:
        power = f"^{{{exp}}}" if exp else ""
        return rf"\Phi{power}\left({printer._print(self.args[0])}\right)"


class PhiInverse(_Whole):
    """The standard normal quantile.

    Example:
        >>> PhiInverse(Phi(sympy.Symbol("x", real=True)))
        PhiInverse(Phi(x))
        >>> round(float(PhiInverse(sympy.Float(0.975)).evalf()), 3)
        1.96
    """

    _value = staticmethod(lambda p: mp.sqrt(2) * mp.erfinv(2 * p - 1))

    def fdiff(self, argindex: int = 1) -> sympy.Expr:
        """Return the derivative, for SymPy's ``diff``."""
        return sympy.sqrt(2 * sympy.pi) * sympy.exp(self**2 / 2)

    def _latex(self, printer, exp=None) -> str:
        inner = rf"\Phi^{{-1}}\left({printer._print(self.args[0])}\right)"
        return rf"\left({inner}\right)^{{{exp}}}" if exp else inner


class Probit(sympy.Function):
    """The standard normal quantile of p, told what p lacks to 1 as well, so that no tail loses digits.

    Example:
        >>> p = sympy.Symbol("p", real=True)
        >>> Probit(p, 1 - p).written, round(float(Probit(sympy.Float(0.975), 0.025).evalf()), 3)
        (PhiInverse(p), 1.96)
    """

    nargs = 2
    is_real = True

    @property
    def written(self) -> sympy.Expr:
        """The form for readers."""
        return cast(Any, PhiInverse(self.args[0]))

    def _eval_evalf(self, prec: int) -> sympy.Float:
        p, q = (cast(Any, argument).evalf(30) for argument in self.args)
        return cast(Any, PhiInverse(p) if p < q else -cast(Any, PhiInverse(q)))._eval_evalf(prec)

    def _latex(self, printer, exp=None) -> str:
        return printer._print(self.written ** (exp or 1))

    def _sympystr(self, printer) -> str:
        return printer._print(self.written)


class MixtureQuantile(sympy.Function):
    """The x that a mixture of k normal laws takes to the normal number u: ``sum_k r_k Phi((x - m_k)/s_k) = Phi(u)``.

    Its arguments are u, then all ``r``, all ``m`` and all ``s``.

    Example:
        >>> round(float(MixtureQuantile(sympy.Float(0.5), 0.5, 0.5, 1.0, 1.0, 2.0, 2.0).evalf()), 6)
        2.0
    """

    is_real = True

    def _eval_evalf(self, prec: int) -> sympy.Float:
        with mp.workprec(prec + 10):
            u, *parts = (argument._to_mpmath(prec + 10) for argument in cast(Any, self.args))
            k = len(parts) // 3
            laws = list(zip(parts[:k], parts[k : 2 * k], parts[2 * k :], strict=True))
            ends = [m + s * u for _, m, s in laws]
            sign = 1 if u < 0 else -1

            def gap(x: Any) -> Any:
                return mp.fsum(r * mp.ncdf(sign * (x - m) / s) for r, m, s in laws) - mp.ncdf(sign * u)

            if max(ends) == min(ends):
                return sympy.Float(ends[0], precision=prec)
            root = mp.findroot(gap, (min(ends), max(ends)), solver="anderson", verify=False)
            return sympy.Float(root, precision=prec)

    def _latex(self, printer, exp=None) -> str:
        u, *parts = [printer._print(argument) for argument in self.args]
        k = len(parts) // 3
        inner = "; ".join(", ".join(parts[i * k : (i + 1) * k]) for i in range(3))
        return rf"Q\left({u}; {inner}\right)" + (f"^{{{exp}}}" if exp else "")


class sigmoid(_Whole):
    """The logistic function ``1 / (1 + exp(-g))``.

    Written out, SymPy would split the exponential of a sum into factors, which overflow where the sigmoid does not.
    `written_out` gives the form that is printed.

    Example:
        >>> sigmoid(sympy.Float(0.0)).evalf()
        0.500000000000000
    """

    _value = staticmethod(lambda g: 1 / (1 + mp.exp(-g)))

    def fdiff(self, argindex: int = 1) -> sympy.Expr:
        """Return the derivative, for SymPy's ``diff``."""
        return self * (1 - self)

    def _eval_rewrite_as_exp(self, arg: Any, **options: Any) -> sympy.Expr:
        return 1 / (1 + sympy.exp(-arg))

    def _eval_rewrite_as_tanh(self, arg: Any, **options: Any) -> sympy.Expr:
        return (1 + sympy.tanh(arg / 2)) / 2


def written_out(expression: Any) -> Any:
    """Return an expression with every sigmoid as ``1 / (1 + exp(-g))``, its exponent in one piece.

    Example:
        >>> u = sympy.Symbol("u")
        >>> written_out(2 * sigmoid(1.5 * u - 0.5))
        2/(exp(0.5 - 1.5*u) + 1)
    """
    if not expression.has(sigmoid):
        return expression
    arguments = [written_out(a) for a in expression.args]
    if isinstance(expression, sigmoid):
        return 1 / (1 + sympy.exp(-arguments[0], evaluate=False))
    return expression.func(*arguments)


@dataclass(frozen=True)
class Assignment:
    """One equation ``target = value``.

    Args:
        target: The name given.
        value: An expression of inputs, conditions and earlier targets.
        part: Which part of the model it belongs to, such as ``"standardise"`` or ``"block 1"``.
        role: What it is in the paper's words (``"s1"``, ``"t1"``, ``"v1"``, ``"o2"``, ``"hidden"``, ``"guard"``, ...).

    Example:
        >>> x, v = sympy.symbols("x v", real=True)
        >>> Assignment(v, 2 * x).value
        2*x
    """

    target: sympy.Symbol
    value: sympy.Expr
    part: str = ""
    role: str = ""


@dataclass(frozen=True)
class Program:
    """One direction of a bijection with its log-determinant, as a list of equations.

    Args:
        inputs: The variables that go in, in order.
        conditions: The observations the equations read besides (conditional form), in order.
        assignments: The equations, each reading only what stands before it.
        outputs: What comes out, in order: expressions of inputs, conditions and targets.
        log_det: Natural logarithm of the absolute Jacobian determinant of this direction.
        bounds: For each output the limits it is held inside, ``None`` where open; empty when all are open.
        output_symbols: The names the outputs go by, one each; no equation reads them.
        labels: The user's own name of a symbol, where the symbol stands for one.

    Example:
        >>> x, v = sympy.symbols("x v", real=True)
        >>> program = Program((x,), (), (Assignment(v, 2 * x),), (v + 1,), sympy.log(2))
        >>> program.expressions, program.n_operations
        ((2*x, v + 1, log(2)), 3)
        >>> program.with_expressions((3 * x, v, sympy.log(3))).assignments[0].value
        3*x
    """

    inputs: tuple[sympy.Symbol, ...]
    conditions: tuple[sympy.Symbol, ...]
    assignments: tuple[Assignment, ...]
    outputs: tuple[sympy.Expr, ...]
    log_det: sympy.Expr
    bounds: tuple[tuple[float | None, float | None], ...] = ()
    output_symbols: tuple[sympy.Symbol, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)

    @property
    def n_operations(self) -> int:
        """How many operations the equations take in all."""
        return int(sum(sympy.count_ops(v) for v in self.expressions))

    @property
    def expressions(self) -> tuple[sympy.Expr, ...]:
        """Every right-hand side: assignments, outputs, log-determinant."""
        return (*(a.value for a in self.assignments), *self.outputs, self.log_det)

    def with_expressions(self, expressions: tuple[sympy.Expr, ...]) -> Program:
        """Return the same program with other right-hand sides, given in the order of ``expressions``."""
        n = len(self.assignments)
        return replace(
            self,
            assignments=tuple(
                replace(a, value=v) for a, v in zip(self.assignments, expressions[:n], strict=True)
            ),
            outputs=expressions[n:-1],
            log_det=expressions[-1],
        )

    def __str__(self) -> str:
        from isr.equations.print.text import text

        return text(self)

    def __repr__(self) -> str:
        names = ", ".join(symbol.name for symbol in (*self.inputs, *self.conditions))
        n = len(self.assignments) + len(self.outputs)
        return f"<Program of {names}: {n} equations; print them to read them>"

    def _repr_latex_(self) -> str:
        from isr.equations.print.latex import latex

        return latex(self)

    def _repr_html_(self) -> str:
        from isr.equations.print.mathml import listing

        return listing(self).section


@dataclass(frozen=True)
class Block:
    """The functions of one coupling block, named as in the paper's appendix, one expression for each component.

    ``v1 = u1 * exp(s1) + t1`` with ``s1`` and ``t1`` functions of u2; ``o2 = u2 * exp(s2) + t2`` with ``s2`` and
    ``t2`` functions of v1. The clamp and the guard are part of them.

    Attributes:
        number: Of the block, from 1.
        values: Expressions by role: u1, u2, v1, o2 and the parameters of both halves, such as s1 and t2.
    """

    number: int
    values: Mapping[str, tuple[sympy.Expr, ...]]

    def __getattr__(self, role: str) -> tuple[sympy.Expr, ...]:
        if role.startswith("_") or role not in self.values:
            raise AttributeError(f"a block has no {role!r}; it has {', '.join(self.values)}")
        return self.values[role]


def replaced(expression: sympy.Expr, table: Mapping[Any, Any]) -> sympy.Expr:
    """Return an expression with whatever ``table`` names exchanged."""
    return cast(sympy.Expr, expression.xreplace(dict(table)))


def without_dead_code(program: Program) -> Program:
    """Return the program without equations that nothing reads, and without copies of outputs.

    An intermediate that is read once, as an output itself, gives its value to that output.
    """
    kept, needed = [], set().union(*(e.free_symbols for e in (*program.outputs, program.log_det)))
    readers: dict[sympy.Basic, int] = {}
    for symbol in program.log_det.free_symbols:
        readers[symbol] = 2  # the log-determinant is no place for a long value
    for output in program.outputs:
        for symbol in output.free_symbols:
            readers[symbol] = readers.get(symbol, 0) + 1
    for assignment in reversed(program.assignments):
        if assignment.target in needed:
            kept.append(assignment)
            needed |= assignment.value.free_symbols
            for symbol in assignment.value.free_symbols:
                readers[symbol] = readers.get(symbol, 0) + 1
    values = {a.target: a.value for a in kept if readers[a.target] == 1 and a.target in program.outputs}
    return replace(
        program,
        assignments=tuple(a for a in reversed(kept) if a.target not in values),
        outputs=tuple(values.get(output, output) for output in program.outputs),
    )


class ExpressionTooLarge(ValueError):
    """The composed closed form would be too large to read."""


def compose(program: Program, *, max_operations: float = 1000) -> Program:
    """Return a program with every intermediate put in: outputs and log-determinant in inputs and conditions alone.
    What would take more operations than allowed is refused with `ExpressionTooLarge`.

    Example:
        >>> from isr.equations.program import Assignment
        >>> x, v = sympy.symbols("x v", real=True)
        >>> compose(Program((x,), (), (Assignment(v, 2 * x),), (v + 1,), sympy.log(2))).outputs
        (2*x + 1,)
    """
    size = composed_size(program)
    if size > max_operations:
        raise ExpressionTooLarge(
            f"the composed closed form would take about {_readable(size)} operations, more than the "
            f"{max_operations:,} allowed; read the block form instead (.forward, .inverse, .blocks), prune the model "
            f"to fewer terms, or raise max_operations"
        )
    values: dict[sympy.Basic, sympy.Expr] = {}
    for assignment in program.assignments:
        values[assignment.target] = replaced(assignment.value, values)
    return replace(
        program,
        assignments=(),
        outputs=tuple(written_out(replaced(e, values)) for e in program.outputs),
        log_det=written_out(replaced(program.log_det, values)),
    )


def composed_size(program: Program) -> int:
    """Return how many operations the composed outputs and log-determinant would take together."""
    sizes: dict[sympy.Basic, int] = {}
    for assignment in program.assignments:
        sizes[assignment.target] = _size(assignment.value, sizes)
    return sum(_size(e, sizes) for e in (*program.outputs, program.log_det))


def _size(expression: sympy.Expr, sizes: dict[sympy.Basic, int]) -> int:
    own = int(sympy.count_ops(expression))
    return own + sum(sizes.get(leaf, 0) for leaf in sympy.preorder_traversal(expression) if leaf.is_Symbol)


def _readable(size: int) -> str:
    return f"{size:,}" if size < 10**9 else f"{float(size):.1e}" if size < 10**300 else "10^300 or more"
