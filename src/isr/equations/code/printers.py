"""Printers that write one SymPy expression as code in each language, numbers to their last digit.

Besides the language's own functions the text calls only the runtime functions named ``isr_...`` (normal
distribution, square, cube, ...) that ``code_support`` holds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import sympy
from sympy.printing.c import C99CodePrinter
from sympy.printing.codeprinter import CodePrinter, PrintMethodNotImplementedError
from sympy.printing.jscode import JavascriptCodePrinter
from sympy.printing.numpy import JaxPrinter, NumPyPrinter

from isr.equations import functions
from isr.equations.code.linear import LinearForms, linear_forms, weighed
from isr.equations.program import Program

# Sums are written in groups of this many terms: compilers recurse once a term, and 10,000 terms are too deep.
_TERMS_IN_A_GROUP = 64
_LARGEST_INTEGER = 2**31 - 1
Phi: Any = functions.Phi
PhiInverse: Any = functions.PhiInverse
_SQRT2 = sympy.Float(math.sqrt(2.0))


def number(value: float) -> str:
    """Return the shortest text that reads back as exactly ``value``."""
    if not math.isfinite(value):
        raise ValueError(
            f"the equations hold the constant {value}, which no program should run on; "
            "check the model's numbers, one of them is not finite"
        )
    return repr(float(value))


def _sum(texts: list[str]) -> str:
    return texts[0] + "".join(f" - {text[1:]}" if text[0] == "-" else f" + {text}" for text in texts[1:])


class _Shared(CodePrinter):
    """What all languages have in common: exact numbers, given names, powers by multiplication."""

    names: Mapping[sympy.Symbol, str]
    forms: Mapping[sympy.Expr, LinearForms]
    square, cube, sigmoid = "isr_square", "isr_cube", "isr_sigmoid"

    def take_pending(self) -> tuple[str, ...]:
        """Return equations that the text printed since the last call relies on."""
        return ()

    def _print_Float(self, expr: Any) -> str:
        return number(float(expr))

    def _print_Rational(self, expr: Any) -> str:
        return number(float(expr))

    def _print_Integer(self, expr: Any) -> str:
        return str(int(expr)) if abs(int(expr)) <= _LARGEST_INTEGER else number(float(expr))

    def _print_NumberSymbol(self, expr: Any) -> str:
        return number(float(expr))

    def _not_finite(self, expr: Any) -> str:
        raise ValueError(
            f"the equations hold the constant {expr}, which no program should run on; "
            "check the model's numbers, one of them is not finite or not real"
        )

    _print_Half = _print_Rational
    _print_Pi = _print_Exp1 = _print_GoldenRatio = _print_EulerGamma = _print_Catalan = _print_NumberSymbol
    _print_NaN = _print_Infinity = _print_NegativeInfinity = _print_ComplexInfinity = _not_finite
    _print_ImaginaryUnit = _not_finite  # type: ignore[assignment]

    def _print_Symbol(self, expr: Any) -> str:
        return self.names[expr]

    def _print_Dummy(self, expr: Any) -> str:
        return self.names[expr]

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
        sign = "-" if coefficient < 0 else ""
        if abs(coefficient) != 1.0 or not above:
            above.insert(0, number(abs(coefficient)))
        denominator = f"/({'*'.join(below)})" if len(below) > 1 else f"/{below[0]}" if below else ""
        return f"{sign}{'*'.join(above)}{denominator}"

    def _print_Pow(self, expr: Any, rational: bool = False) -> str:
        base, power = expr.as_base_exp()
        if power.is_negative:
            return f"({self._one}/{self._print_denominator(base**-power)})"
        if power == sympy.S.Half:
            return self._print_sqrt(base)
        if power in (2, 3):
            if base.is_Symbol:
                return "(" + "*".join([self._print(base)] * int(power)) + ")"
            return f"{self.square if power == 2 else self.cube}({self._print(base)})"
        return self._print_power(base, power)

    def _print_exp(self, expr: Any) -> str:
        return self._call("exp", expr)

    _one = "1.0"

    def _print_denominator(self, expr: Any) -> str:
        text = self._print(expr)
        atomic = expr.is_Symbol or expr.is_Function or expr.is_Pow or expr.is_NumberSymbol
        return text if atomic else f"({text})"

    def _call(self, name: str, expr: Any) -> str:
        return f"{self._function(name)}({', '.join(self._print(a) for a in expr.args)})"

    def _function(self, name: str) -> str:
        return name

    def _print_sqrt(self, base: Any) -> str:
        return f"{self._function('sqrt')}({self._print(base)})"

    def _print_power(self, base: Any, power: Any) -> str:
        return f"{self._function('pow')}({self._print(base)}, {self._print(power)})"

    def _print_Phi(self, expr: Any) -> str:
        return f"isr_phi({self._print(expr.args[0])})"

    def _print_PhiInverse(self, expr: Any) -> str:
        return f"isr_phi_inverse({self._print(expr.args[0])})"

    def _print_sigmoid(self, expr: Any) -> str:
        return f"{self.sigmoid}({self._print(expr.args[0])})"

    def _print_erf(self, expr: Any) -> str:
        return f"({self._print(2 * Phi(_SQRT2 * expr.args[0]) - 1)})"

    def _print_erfc(self, expr: Any) -> str:
        return f"({self._print(2 * Phi(-_SQRT2 * expr.args[0]))})"

    def _print_erfinv(self, expr: Any) -> str:
        return f"({self._print(PhiInverse((expr.args[0] + 1) / 2) / _SQRT2)})"

    def _print_Mod(self, expr: Any) -> str:
        a, b = expr.args
        return f"({self._print(a - b * sympy.floor(a / b))})"

    def _print_log1p(self, expr: Any) -> str:
        return self._call("log1p", expr)

    def _print_expm1(self, expr: Any) -> str:
        return self._call("expm1", expr)

    def _nested(self, name: str, arguments: Any) -> str:
        first, *rest = arguments
        return f"{name}({self._print(first)}, {self._nested(name, rest)})" if rest else self._print(first)

    def _print_Piecewise(self, expr: Any) -> str:
        text = self._missing
        for value, condition in reversed(expr.args):
            chosen = self._print(value)
            text = chosen if condition == sympy.true else self._choose(self._print(condition), chosen, text)
        return text

    _missing = "NAN"

    def _choose(self, condition: str, chosen: str, other: str) -> str:
        return f"(({condition}) ? ({chosen}) : ({other}))"


class CPrinter(_Shared, C99CodePrinter):
    """C99 with ``double`` throughout."""

    def _print_Max(self, expr: Any) -> str:
        return self._nested("isr_max", expr.args)

    def _print_Min(self, expr: Any) -> str:
        return self._nested("isr_min", expr.args)

    def _print_sign(self, expr: Any) -> str:
        return f"isr_sign({self._print(expr.args[0])})"


class JavascriptPrinter(_Shared, JavascriptCodePrinter):
    """ECMAScript 2015."""

    _missing = "NaN"

    def _function(self, name: str) -> str:
        return f"Math.{name}"

    def _print_Max(self, expr: Any) -> str:
        return f"Math.max({', '.join(self._print(a) for a in expr.args)})"

    def _print_Min(self, expr: Any) -> str:
        return f"Math.min({', '.join(self._print(a) for a in expr.args)})"

    def _print_sign(self, expr: Any) -> str:
        return f"Math.sign({self._print(expr.args[0])})"

    def _print_Relational(self, expr: Any) -> str:
        operator = {"==": "===", "!=": "!=="}.get(expr.rel_op, expr.rel_op)
        return f"{self._print(expr.lhs)} {operator} {self._print(expr.rhs)}"


class _ArrayPrinter(_Shared):
    """NumPy and JAX share their function names."""

    module = "np"
    _one = "1"
    _missing = "np.nan"

    def _module_format(self, name: str, register: bool = True) -> str:
        return f"{self.module}.{name.rsplit('.', 1)[-1]}"

    def _function(self, name: str) -> str:
        return f"{self.module}.{name}"

    def _print_power(self, base: Any, power: Any) -> str:
        # NumPy refuses to raise integers to negative ones, so a power is always a float.
        exponent = number(float(power)) if power.is_Number else self._print(power)
        return f"{self.module}.power({self._print(base)}, {exponent})"

    def _print_Max(self, expr: Any) -> str:
        return self._nested(f"{self.module}.maximum", expr.args)

    def _print_Min(self, expr: Any) -> str:
        return self._nested(f"{self.module}.minimum", expr.args)

    def _print_sign(self, expr: Any) -> str:
        return f"{self.module}.sign({self._print(expr.args[0])})"

    def _choose(self, condition: str, chosen: str, other: str) -> str:
        return f"{self.module}.where({condition}, {chosen}, {other})"

    def _print_Relational(self, expr: Any) -> str:
        return f"({self._print(expr.lhs)} {expr.rel_op} {self._print(expr.rhs)})"

    def _print_And(self, expr: Any) -> str:
        return "(" + " & ".join(self._print(a) for a in expr.args) + ")"

    def _print_Or(self, expr: Any) -> str:
        return "(" + " | ".join(self._print(a) for a in expr.args) + ")"

    def _print_Not(self, expr: Any) -> str:
        return f"~({self._print(expr.args[0])})"


class PythonPrinter(_ArrayPrinter, NumPyPrinter):
    """Python on NumPy arrays called ``np``."""


class JaxTextPrinter(_ArrayPrinter, JaxPrinter):
    """Python on JAX arrays called ``jnp``; sums over the same variables become rows of matrix products."""

    module = "jnp"
    sigmoid = "jax.nn.sigmoid"  # its derivative stays finite where that of the written form does not
    _missing = "jnp.nan"

    def __init__(self, settings: dict[str, Any] | None = None) -> None:
        super().__init__(settings)
        self.forms: Mapping[sympy.Expr, LinearForms] = {}
        self._products: dict[sympy.Expr, str] = {}
        self._pending: list[str] = []

    def _print_Add(self, expr: Any, order: str | None = None) -> str:
        if expr not in self.forms:
            return super()._print_Add(expr, order)
        if expr not in self._products:
            self._write_product(self.forms[expr])
        rest = [self._print(term) for term in expr.args if weighed(term) is None]
        return _sum([self._products[expr], *rest])

    def _write_product(self, forms: LinearForms) -> None:
        name = f"isr_sums_{len(self._products) + 1}"
        variables = ", ".join(self._print(symbol) for symbol in forms.symbols)
        rows = ",\n        ".join(f"[{', '.join(map(number, row))}]" for row in forms.rows.values())
        self._pending.append(
            f"{name} = jnp.array([\n        {rows},\n    ]) @ isr_barrier(jnp.stack([{variables}]))"
        )
        self._products |= {total: f"{name}[{i}]" for i, total in enumerate(forms.rows)}

    def take_pending(self) -> tuple[str, ...]:
        """Return the products that the text printed since the last call relies on."""
        pending, self._pending = tuple(self._pending), []
        return pending


def write(printer: _Shared, expression: sympy.Expr, language: str) -> str:
    """Return ``expression`` as text of ``printer``'s language, or say which function that language lacks."""
    try:
        return printer._print(expression)
    except PrintMethodNotImplementedError as error:
        functions = ", ".join(sorted({type(f).__name__ for f in expression.atoms(sympy.Function)}))
        raise ValueError(
            f"{language} code has no form for one of the functions {functions}; "
            "build the primitive's symbol form from elementary functions"
        ) from error


def printer_for(language: str, program: Program, names: Mapping[sympy.Symbol, str]) -> _Shared:
    """Return the printer of a language for a program, with the text that stands for each symbol."""
    classes = {"c": CPrinter, "javascript": JavascriptPrinter, "python": PythonPrinter, "jax": JaxTextPrinter}
    printer = classes[language]({"order": "none"})
    printer.names = names
    printer.forms = linear_forms(program) if language == "jax" else {}
    return printer
