"""The languages that equations are written in: one printer of SymPy expressions, and a table of what each calls things.

Numbers are written to their last digit. Besides the language's own functions the text calls only the runtime functions
named ``isr_...``, which stand in the language's template.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import sympy
from sympy.printing.codeprinter import CodePrinter, PrintMethodNotImplementedError

from isr.equations.functions import Phi, PhiInverse

_COMMON = "exp log sqrt floor sin cos tan asin acos atan atan2 sinh cosh tanh asinh acosh atanh pow"
_NAMES = {name: name for name in _COMMON.split()}
_NAMES |= {"Log1p": "log1p", "Expm1": "expm1", "Abs": "abs", "ceiling": "ceil"}
_ARRAYS = {f: re.sub("^a(?=sin|cos|tan)", "arc", called) for f, called in _NAMES.items()}
_ARRAYS |= {"pow": "power", "Max": "maximum", "Min": "minimum", "sign": "sign", "LogAddExp": "logaddexp"}
_RUNTIME = {
    "Phi": "isr_phi", "PhiInverse": "isr_phi_inverse", "Probit": "isr_probit", "sigmoid": "isr_sigmoid",
    "Max": "isr_max", "Min": "isr_min", "sign": "isr_sign", "LogAddExp": "isr_log_add_exp",
}  # fmt: skip
_C_LOGIC = {"And": "&&", "Or": "||", "Not": "!"}


@dataclass(frozen=True)
class Language:
    """One language; the frame around its equations stands in a template.

    ``choose`` takes condition, first and second value, ``quantile`` u, the number of laws and their parts; operators
    are those that differ from C's. Functions are cut at ``longest`` characters, none may have a ``claimed`` name, and
    with ``products`` sums of the same variables are written as matrix products.
    """

    name: str
    template: str
    functions: Mapping[str, str]
    choose: str = "({0} ? ({1}) : ({2}))"
    quantile: str = "isr_mixture_quantile({0}, [{2}])"
    operators: Mapping[str, str] = field(default_factory=lambda: _C_LOGIC)
    missing: str = "NAN"
    longest: int | None = None
    claimed: tuple[str, ...] = ()
    products: bool = False


def _of(module: str, functions: Mapping[str, str]) -> dict[str, str]:
    return _RUNTIME | {name: f"{module}.{called}" for name, called in functions.items()}


def _arrays(module: str) -> dict[str, Any]:
    choose, operators = f"{module}.where({{0}}, {{1}}, {{2}})", {"And": "&", "Or": "|", "Not": "~"}
    return {"choose": choose, "operators": operators, "missing": f"{module}.nan"}


# V8 compiles no function beyond 60 kB of bytecode to machine code, which is about 120,000 characters of ours, and is
# quickest with short ones: a dense model of 5,400 constants draws 8 % faster from 6,000 characters than from 16,000.
LANGUAGES = {
    language.name: language
    for language in (
        Language(
            "c", "model.c.j2", _RUNTIME | _NAMES | {"Abs": "fabs", "loggamma": "lgamma"},
            quantile="isr_mixture_quantile({0}, {1}, (const double[]){{{2}}})",
            longest=16_000, claimed=("j0", "j1", "jn", "y0", "y1", "yn", "gamma"),
        ),
        Language(
            "javascript", "model.js.j2", _of("Math", _NAMES | {"Max": "max", "Min": "min", "sign": "sign"}),
            operators=_C_LOGIC | {"==": "===", "!=": "!=="}, missing="NaN", longest=6_000,
        ),
        # The derivative of jax.nn.sigmoid stays finite where that of the written form does not.
        Language(
            "jax", "model_jax.py.j2",
            _of("jnp", _ARRAYS) | {"sigmoid": "jax.nn.sigmoid", "loggamma": "jax.scipy.special.gammaln"},
            products=True, **_arrays("jnp"),
        ),
        Language("python", "model.py.j2", _of("np", _ARRAYS) | {"loggamma": "isr_lgamma"}, **_arrays("np")),
    )
}  # fmt: skip
"""The languages code can be written in, by name."""

# Sums are written in groups of this many terms: compilers recurse once per term, and 10,000 terms are too deep.
_TERMS_IN_A_GROUP = 64
_LARGEST_INTEGER = 2**31 - 1
_FEWEST_WEIGHED = 3


def number(value: float) -> str:
    """Return the shortest text that reads back as exactly ``value``."""
    if not math.isfinite(value):
        raise ValueError(
            f"the equations hold the constant {value}, which no program should run on; "
            "check the model's numbers, one of them is not finite or not real"
        )
    return repr(float(value))


class LanguagePrinter(CodePrinter):
    """Expressions as text of one language, symbols under the names given: exact numbers, powers by multiplication."""

    printmethod = "_code"  # not that of text, which functions that keep digits have

    def __init__(self, language: Language, names: Mapping[sympy.Symbol, str]) -> None:
        super().__init__({"order": "none"})
        self.chosen, self.names, self.language = language, names, language.name
        self.known_functions = dict(language.functions)
        self._groups: dict[tuple[sympy.Symbol, ...], list[Any]] = {}
        self._named: dict[tuple[sympy.Symbol, ...], str] = {}
        self._products: list[tuple[str, str]] = []

    def write(self, expression: sympy.Expr) -> str:
        """Return ``expression`` as text, or say which function the language lacks."""
        try:
            return self._print(expression)
        except PrintMethodNotImplementedError as error:
            known = ", ".join(sorted({type(f).__name__ for f in expression.atoms(sympy.Function)}))
            raise ValueError(
                f"{self.language} code has no form for one of the functions {known}; write it with elementary functions"
            ) from error

    def _print_Float(self, expr: Any) -> str:
        return number(float(expr) if expr.is_real else math.nan)

    def _print_Integer(self, expr: Any) -> str:
        return str(int(expr)) if abs(int(expr)) <= _LARGEST_INTEGER else number(float(expr))

    _print_Rational = _print_Half = _print_Pi = _print_Exp1 = _print_NumberSymbol = _print_Float
    _print_GoldenRatio = _print_EulerGamma = _print_Catalan = _print_Float
    _print_NaN = _print_Infinity = _print_NegativeInfinity = _print_ComplexInfinity = _print_Float
    _print_ImaginaryUnit = _print_Float  # type: ignore[assignment]

    def _print_Symbol(self, expr: Any) -> str:
        return self.names[expr]

    _print_Dummy = _print_Symbol

    def group_sums(self, expressions: Iterable[Any]) -> None:
        """Have sums that weigh the same variables computed by one matrix product, which `take_products` gives.

        Written out term by term, a dense layer takes XLA minutes to compile; as a product, seconds.
        """
        totals = (sorted(e.atoms(sympy.Add), key=sympy.default_sort_key) for e in expressions)
        for total in dict.fromkeys(itertools.chain.from_iterable(totals)):
            if len(weights := _weights(total)) >= _FEWEST_WEIGHED:
                self._groups.setdefault(tuple(weights), []).append(total)

    def take_products(self) -> list[tuple[str, str]]:
        """Return matrix products, as (name, text), that the text written since the last call reads."""
        taken, self._products = self._products, []
        return taken

    def _row(self, symbols: tuple[sympy.Symbol, ...], total: Any) -> str:
        if symbols not in self._named:
            self._named[symbols] = f"isr_sums_{len(self._named) + 1}"
            rows = (f"[{', '.join(map(number, _weights(t).values()))}]" for t in self._groups[symbols])
            values = ", ".join(map(self._print, symbols))
            text = ",\n        ".join(rows)
            text = f"isr_product([\n        {text},\n    ], [{values}])"
            self._products.append((self._named[symbols], text))
        return f"{self._named[symbols]}[{self._groups[symbols].index(total)}]"

    def _print_Add(self, expr: Any, order: str | None = None) -> str:
        weights = _weights(expr) if self._groups else {}
        texts = [self._row(tuple(weights), expr)] if tuple(weights) in self._groups else []
        texts += [self._print(term) for term in expr.args if not texts or _weighed(term) is None]
        if len(texts) <= _TERMS_IN_A_GROUP:
            return _sum(texts)
        groups = (texts[i : i + _TERMS_IN_A_GROUP] for i in range(0, len(texts), _TERMS_IN_A_GROUP))
        return " + ".join(f"({_sum(group)})" for group in groups)

    def _print_Mul(self, expr: Any) -> str:
        coefficient, above, below = 1.0, [], []
        for factor in expr.args:
            if factor.is_Number:
                coefficient *= float(factor)
            elif factor.is_Pow and factor.exp.is_number and factor.exp.is_negative:
                below.append(self._divisor(factor.base**-factor.exp))
            else:
                above.append(f"({self._print(factor)})" if factor.is_Add else self._print(factor))
        if abs(coefficient) != 1.0 or not above:
            above.insert(0, number(abs(coefficient)))
        divisor = f"/({'*'.join(below)})" if len(below) > 1 else f"/{below[0]}" if below else ""
        return f"{'-' if coefficient < 0 else ''}{'*'.join(above)}{divisor}"

    def _print_Pow(self, expr: Any, rational: bool = False) -> str:
        base, power = expr.as_base_exp()
        if power.is_negative:
            return f"(1.0/{self._divisor(base**-power)})"
        if power == sympy.S.Half:
            return self._call("sqrt", base)
        if power not in (
            2,
            3,
        ):  # NumPy refuses to raise integers to negative ones, so a power is always a float
            return self._call("pow", base, sympy.Float(power) if power.is_Number else power)
        if base.is_Symbol:
            return "(" + "*".join([self._print(base)] * int(power)) + ")"
        return f"{'isr_square' if power == 2 else 'isr_cube'}({self._print(base)})"

    def _divisor(self, expr: Any) -> str:
        is_one = expr.is_Symbol or expr.is_Function or expr.is_Pow or expr.is_NumberSymbol
        return self._print(expr) if is_one else f"({self._print(expr)})"

    def _call(self, name: str, *arguments: Any) -> str:
        return f"{self.known_functions[name]}({', '.join(map(self._print, arguments))})"

    def _print_MixtureQuantile(self, expr: Any) -> str:
        u, *parts = map(self._print, expr.args)
        return self.chosen.quantile.format(u, len(parts) // 3, ", ".join(parts))

    def _print_rewritten(self, expr: Any) -> str:
        return f"({self._print(_REWRITTEN[type(expr).__name__](*expr.args))})"

    _print_erf = _print_erfc = _print_erfinv = _print_Mod = _print_rewritten

    def _print_LatticeOp(self, expr: Any) -> str:
        name, (*others, last) = self.known_functions[type(expr).__name__], map(self._print, expr.args)
        for other in reversed(others):
            last = f"{name}({other}, {last})"
        return last

    _print_Max = _print_Min = _print_LatticeOp

    def _print_Piecewise(self, expr: Any) -> str:
        text = self.chosen.missing
        for value, condition in reversed(expr.args):
            shown, is_last = self._print(value), condition == sympy.true
            text = shown if is_last else self.chosen.choose.format(self._print(condition), shown, text)
        return text

    def _print_Relational(self, expr: Any) -> str:
        sign = self.chosen.operators.get(expr.rel_op, expr.rel_op)
        return f"({self._print(expr.lhs)} {sign} {self._print(expr.rhs)})"

    def _print_And(self, expr: Any) -> str:
        sign = self.chosen.operators[type(expr).__name__]
        return f"({f' {sign} '.join(map(self._print, expr.args))})"

    _print_Or = _print_And

    def _print_Not(self, expr: Any) -> str:
        return f"{self.chosen.operators['Not']}{self._print(expr.args[0])}"


def _weighed(term: Any) -> tuple[sympy.Symbol, float] | None:
    """Variable and weight of a term ``number * variable``, None for any other term."""
    number, variable = term.as_coeff_Mul()
    return (variable, float(number)) if variable.is_Symbol else None


def _weights(total: Any) -> dict[sympy.Symbol, float]:
    pairs = (pair for pair in map(_weighed, total.args) if pair is not None)
    return dict(sorted(pairs, key=lambda pair: pair[0].name))


_ROOT = sympy.Float(math.sqrt(2))
_REWRITTEN: dict[str, Any] = {
    "erf": lambda u: 2 * Phi(_ROOT * u) - 1,
    "erfc": lambda u: 2 * Phi(_ROOT * -u),
    "erfinv": lambda p: PhiInverse((p + 1) / 2) / _ROOT,
    "Mod": lambda a, b: a - b * sympy.floor(a / b),
}


def _sum(texts: list[str]) -> str:
    return texts[0] + "".join(f" - {text[1:]}" if text[0] == "-" else f" + {text}" for text in texts[1:])
