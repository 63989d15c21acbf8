"""One SymPy expression as text of each language, numbers to their last digit.

Besides the language's own functions the text calls only the runtime functions named ``isr_...``, which stand in the
language's template.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import sympy
from sympy.printing.c import C99CodePrinter
from sympy.printing.codeprinter import CodePrinter, PrintMethodNotImplementedError
from sympy.printing.jscode import JavascriptCodePrinter
from sympy.printing.numpy import JaxPrinter, NumPyPrinter

from isr.equations import program as programs
from isr.equations.program import Program

# A sum of fewer weighed variables is as quick term by term.
_FEWEST_TERMS = 3


@dataclass(frozen=True)
class LinearForms:
    """Sums that weigh the same variables, side by side, the weights of each in the order of the variables: one
    matrix product gives them all.
    """

    symbols: tuple[sympy.Symbol, ...]
    rows: dict[sympy.Expr, list[float]]


def linear_forms(program: Program) -> dict[sympy.Expr, LinearForms]:
    """Return the group each sum of a program belongs to, for sums worth a matrix product.

    Written out term by term, a dense layer takes XLA minutes to compile; as a product, seconds.
    """
    groups: dict[tuple[sympy.Symbol, ...], LinearForms] = {}
    for expression in program.expressions:
        for total in sorted(expression.atoms(sympy.Add), key=sympy.default_sort_key):
            weights = dict(pair for pair in map(weighed, total.args) if pair is not None)
            if len(weights) >= _FEWEST_TERMS:
                symbols = tuple(sorted(weights, key=lambda s: s.name))
                row = [weights[s] for s in symbols]
                groups.setdefault(symbols, LinearForms(symbols, {})).rows[total] = row
    return {total: forms for forms in groups.values() for total in forms.rows}


def weighed(term: Any) -> tuple[sympy.Symbol, float] | None:
    """Return variable and weight of a term ``number * variable``, ``None`` for any other term."""
    if term.is_Symbol:
        return term, 1.0
    if term.is_Mul and len(term.args) == 2 and term.args[0].is_Number and term.args[1].is_Symbol:
        return term.args[1], float(term.args[0])
    return None


# Sums are written in groups of this many terms: compilers recurse once per term, and 10,000 terms are too deep.
_TERMS_IN_A_GROUP = 64
_LARGEST_INTEGER = 2**31 - 1
_SQRT2 = sympy.Float(math.sqrt(2.0))
Phi: Any = programs.Phi
PhiInverse: Any = programs.PhiInverse


def number(value: float) -> str:
    """Return the shortest text that reads back as exactly ``value``."""
    if not math.isfinite(value):
        raise _not_finite(value)
    return repr(float(value))


def _not_finite(value: Any) -> ValueError:
    return ValueError(
        f"the equations hold the constant {value}, which no program should run on; "
        "check the model's numbers, one of them is not finite or not real"
    )


def _sum(texts: list[str]) -> str:
    return texts[0] + "".join(f" - {text[1:]}" if text[0] == "-" else f" + {text}" for text in texts[1:])


class LanguagePrinter(CodePrinter):
    """What all languages have in common: exact numbers, given names, powers by multiplication.

    ``own`` says what SymPy's functions are called, where the language has another name for them.
    """

    language: str
    names: Mapping[sympy.Symbol, str]
    one, missing = "1.0", "NAN"
    own: ClassVar[dict[str, str]] = {
        "Phi": "isr_phi", "PhiInverse": "isr_phi_inverse", "sigmoid": "isr_sigmoid", "sign": "isr_sign",
        "Max": "isr_max", "Min": "isr_min",
    }  # fmt: skip

    def __init__(self, program: Program, names: Mapping[sympy.Symbol, str]) -> None:
        super().__init__({"order": "none"})
        self.names = names

    def write(self, expression: sympy.Expr) -> str:
        """Return ``expression`` as text, or say which function the language lacks."""
        try:
            return self._print(expression)
        except PrintMethodNotImplementedError as error:
            known = ", ".join(sorted({type(f).__name__ for f in expression.atoms(sympy.Function)}))
            raise ValueError(
                f"{self.language} code has no form for one of the functions {known}; "
                "build the primitive's symbol form from elementary functions"
            ) from error

    def take_products(self) -> list[tuple[str, str]]:
        """Return matrix products, as (name, text), that the text written since the last call reads."""
        return []

    def _print_Float(self, expr: Any) -> str:
        return number(float(expr))

    def _print_Integer(self, expr: Any) -> str:
        return str(int(expr)) if abs(int(expr)) <= _LARGEST_INTEGER else number(float(expr))

    def _print_without_value(self, expr: Any) -> str:
        raise _not_finite(expr)

    _print_Rational = _print_Half = _print_Pi = _print_Exp1 = _print_NumberSymbol = _print_Float
    _print_GoldenRatio = _print_EulerGamma = _print_Catalan = _print_Float
    _print_NaN = _print_Infinity = _print_NegativeInfinity = _print_ComplexInfinity = _print_without_value
    _print_ImaginaryUnit = _print_without_value  # type: ignore[assignment]

    def _print_Symbol(self, expr: Any) -> str:
        return self.names[expr]

    _print_Dummy = _print_Symbol

    def _print_Add(self, expr: Any, order: str | None = None) -> str:
        texts = [self._print(term) for term in expr.args]
        if len(texts) <= _TERMS_IN_A_GROUP:
            return _sum(texts)
        groups = (texts[i : i + _TERMS_IN_A_GROUP] for i in range(0, len(texts), _TERMS_IN_A_GROUP))
        return " + ".join(f"({_sum(group)})" for group in groups)

    def _print_Mul(self, expr: Any) -> str:
        # SymPy's own form is a hundred times slower, and a dense model has tens of thousands of products.
        coefficient, above, below = 1.0, [], []
        for factor in expr.args:
            if factor.is_Number:
                coefficient *= float(factor)
            elif factor.is_Pow and factor.exp.is_number and factor.exp.is_negative:
                below.append(self._print_denominator(factor.base**-factor.exp))
            else:
                above.append(f"({self._print(factor)})" if factor.is_Add else self._print(factor))
        if abs(coefficient) != 1.0 or not above:
            above.insert(0, number(abs(coefficient)))
        denominator = f"/({'*'.join(below)})" if len(below) > 1 else f"/{below[0]}" if below else ""
        return f"{'-' if coefficient < 0 else ''}{'*'.join(above)}{denominator}"

    def _print_Pow(self, expr: Any, rational: bool = False) -> str:
        base, power = expr.as_base_exp()
        if power.is_negative:
            return f"({self.one}/{self._print_denominator(base**-power)})"
        if power == sympy.S.Half:
            return self._call("sqrt", base)
        if power not in (2, 3):
            return self._print_power(base, power)
        if base.is_Symbol:
            return "(" + "*".join([self._print(base)] * int(power)) + ")"
        return f"{'isr_square' if power == 2 else 'isr_cube'}({self._print(base)})"

    def _print_power(self, base: Any, power: Any) -> str:
        return self._call("pow", base, power)

    def _print_denominator(self, expr: Any) -> str:
        text = self._print(expr)
        return (
            text if expr.is_Symbol or expr.is_Function or expr.is_Pow or expr.is_NumberSymbol else f"({text})"
        )

    def _call(self, name: str, *arguments: Any) -> str:
        return f"{self._function(name)}({', '.join(map(self._print, arguments))})"

    def _function(self, name: str) -> str:
        return name

    def _print_standard(self, expr: Any) -> str:
        return self._call(type(expr).__name__, *expr.args)

    def _print_own(self, expr: Any) -> str:
        return f"{self.own[type(expr).__name__]}({self._print(expr.args[0])})"

    def _print_Probit(self, expr: Any) -> str:
        return f"isr_probit({', '.join(map(self._print, expr.args))})"

    def _print_MixtureQuantile(self, expr: Any) -> str:
        u, *parts = map(self._print, expr.args)
        return f"isr_mixture_quantile({u}, [{', '.join(parts)}])"

    _print_exp = _print_log1p = _print_expm1 = _print_standard
    _print_Phi = _print_PhiInverse = _print_sigmoid = _print_sign = _print_own

    def _print_erf(self, expr: Any) -> str:
        return f"({self._print(2 * Phi(_SQRT2 * expr.args[0]) - 1)})"

    def _print_erfc(self, expr: Any) -> str:
        return f"({self._print(2 * Phi(-_SQRT2 * expr.args[0]))})"

    def _print_erfinv(self, expr: Any) -> str:
        return f"({self._print(PhiInverse((expr.args[0] + 1) / 2) / _SQRT2)})"

    def _print_Mod(self, expr: Any) -> str:
        a, b = expr.args
        return f"({self._print(a - b * sympy.floor(a / b))})"

    def _print_LatticeOp(self, expr: Any) -> str:
        return self._nested(self.own[type(expr).__name__], *expr.args)

    _print_Max = _print_Min = _print_LatticeOp

    def _nested(self, name: str, first: Any, *rest: Any) -> str:
        return f"{name}({self._print(first)}, {self._nested(name, *rest)})" if rest else self._print(first)

    def _print_Piecewise(self, expr: Any) -> str:
        text = self.missing
        for value, condition in reversed(expr.args):
            chosen = self._print(value)
            text = chosen if condition == sympy.true else self._choose(self._print(condition), chosen, text)
        return text

    def _choose(self, condition: str, chosen: str, other: str) -> str:
        return f"(({condition}) ? ({chosen}) : ({other}))"


class CPrinter(LanguagePrinter, C99CodePrinter):
    """C99 with ``double`` throughout."""

    def _print_MixtureQuantile(self, expr: Any) -> str:
        u, *parts = map(self._print, expr.args)
        return f"isr_mixture_quantile({u}, {len(parts) // 3}, (const double[]){{{', '.join(parts)}}})"


class JavascriptPrinter(LanguagePrinter, JavascriptCodePrinter):
    """ECMAScript 2015."""

    missing = "NaN"
    own = LanguagePrinter.own | {"Max": "Math.max", "Min": "Math.min", "sign": "Math.sign"}

    def _function(self, name: str) -> str:
        return f"Math.{name}"

    def _print_Relational(self, expr: Any) -> str:
        operator = {"==": "===", "!=": "!=="}.get(expr.rel_op, expr.rel_op)
        return f"{self._print(expr.lhs)} {operator} {self._print(expr.rhs)}"


class ArrayPrinter(LanguagePrinter):
    """What NumPy and JAX have in common."""

    module, one = "np", "1"

    def _module_format(self, name: str, register: bool = True) -> str:
        return self._function(name.rsplit(".", 1)[-1])

    def _function(self, name: str) -> str:
        return f"{self.module}.{name}"

    def _print_power(self, base: Any, power: Any) -> str:
        # NumPy refuses to raise integers to negative ones, so a power is always a float.
        exponent = number(float(power)) if power.is_Number else self._print(power)
        return f"{self.module}.power({self._print(base)}, {exponent})"

    def _choose(self, condition: str, chosen: str, other: str) -> str:
        return f"{self.module}.where({condition}, {chosen}, {other})"

    def _print_Relational(self, expr: Any) -> str:
        return f"({self._print(expr.lhs)} {expr.rel_op} {self._print(expr.rhs)})"

    def _print_And(self, expr: Any) -> str:
        return f"({' & '.join(map(self._print, expr.args))})"

    def _print_Or(self, expr: Any) -> str:
        return f"({' | '.join(map(self._print, expr.args))})"

    def _print_Not(self, expr: Any) -> str:
        return f"~({self._print(expr.args[0])})"


class PythonPrinter(ArrayPrinter, NumPyPrinter):
    """Python on NumPy arrays called ``np``."""

    missing = "np.nan"
    own = LanguagePrinter.own | {"Max": "np.maximum", "Min": "np.minimum", "sign": "np.sign"}


class JaxTextPrinter(ArrayPrinter, JaxPrinter):
    """Python on JAX arrays called ``jnp``; sums over the same variables become rows of matrix products."""

    language, module, missing = "JAX", "jnp", "jnp.nan"
    # The derivative of jax.nn.sigmoid stays finite where that of the written form does not.
    own = LanguagePrinter.own | {
        "Max": "jnp.maximum", "Min": "jnp.minimum", "sign": "jnp.sign", "sigmoid": "jax.nn.sigmoid",
    }  # fmt: skip

    def __init__(self, program: Program, names: Mapping[sympy.Symbol, str]) -> None:
        super().__init__(program, names)
        self.forms = linear_forms(program)
        self.sums: dict[sympy.Expr, str] = {}
        self.products: list[tuple[str, str]] = []

    def _print_Add(self, expr: Any, order: str | None = None) -> str:
        if expr not in self.forms:
            return super()._print_Add(expr, order)
        if expr not in self.sums:
            self._write_product(self.forms[expr])
        rest = [self._print(term) for term in expr.args if weighed(term) is None]
        return _sum([self.sums[expr], *rest])

    def _write_product(self, forms: LinearForms) -> None:
        name = f"isr_sums_{len(self.sums) + 1}"
        rows = ",\n        ".join(f"[{', '.join(map(number, row))}]" for row in forms.rows.values())
        values = ", ".join(map(self._print, forms.symbols))
        self.products.append((name, f"isr_product([\n        {rows},\n    ], [{values}])"))
        self.sums |= {total: f"{name}[{i}]" for i, total in enumerate(forms.rows)}

    def take_products(self) -> list[tuple[str, str]]:
        taken, self.products = self.products, []
        return taken
