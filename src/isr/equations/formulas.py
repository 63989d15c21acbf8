"""The formulas of a regressor as equations: text, LaTeX, and code with one function an output."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import sympy
from jaxtyping import Float
from sympy.printing.numpy import JaxPrinter, NumPyPrinter

from isr.bijections.formula import Formulas, complexity
from isr.bijections.sigmoid import written_out
from isr.equations.code.support import comment
from isr.equations.evaluate import evaluate
from isr.equations.extract import function_program
from isr.equations.print.latex import latex
from isr.equations.print.mathml import mathml
from isr.equations.print.text import legend, text
from isr.equations.program import Program
from isr.tables.names import symbol_names


@dataclass(frozen=True)
class FormulaExpressions:
    """The equations of a regressor, ``y = f(x)``; they have no inverse and no density.

    Args:
        formulas: The model.
        x_names: Display names of its inputs.
        y_names: Display names of its outputs.
        units: Unit of a variable, by display name.

    Example:
        >>> import jax.numpy as jnp
        >>> law = Formulas(jnp.array([2.0]), (("mul", ("constant", 0), ("pow", ("input", 0), 2)),), 1, 1)
        >>> equations = formula_expressions(law, ["length"], ["area"], {"length": "m"})
        >>> print(equations.text())
        # length in m
        area = 2*length**2
        >>> equations.evaluate(np.array([[3.0]])), equations.complexity, equations.n_constants
        (array([[18.]]), 5, 1)
        >>> equations.program.outputs, "align*" in equations.latex(), equations.mathml()[:5]
        ((2*length**2,), True, '<math')
        >>> "return 2*Math.pow(length, 2);" in equations.code("javascript")
        True
    """

    formulas: Formulas
    x_names: tuple[str, ...]
    y_names: tuple[str, ...]
    units: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def program(self) -> Program:
        """The formulas as a program without intermediates."""
        names = symbol_names([*self.x_names, *self.y_names])
        symbols = [sympy.Symbol(name, real=True) for name in names]
        inputs, outputs = symbols[: len(self.x_names)], symbols[len(self.x_names) :]
        return function_program(
            self.formulas, inputs, outputs, dict(zip(names, (*self.x_names, *self.y_names), strict=True))
        )

    @property
    def complexity(self) -> int:
        """What the formulas cost: 1 a constant or input, each operation its primitive's cost."""
        return sum(complexity(tree) for tree in self.formulas.trees)

    @property
    def n_constants(self) -> int:
        """How many learned numbers stand in the formulas."""
        return len(self.formulas.constants)

    def evaluate(self, rows: Float[np.ndarray, "n inputs"]) -> Float[np.ndarray, "n outputs"]:
        """Return the outputs for rows of x, from the equations alone."""
        return evaluate(self.program, rows)[0]

    def text(self, *, digits: int | None = 4, unicode: bool = False) -> str:
        """Return the formulas as text, one line an output; without ``unicode`` SymPy can read each line."""
        return text(self.program, digits=digits, unicode=unicode, log_det=False, units=self.units)

    def latex(self, *, digits: int = 4) -> str:
        """Return the formulas as a LaTeX ``align*`` environment."""
        return latex(self.program, digits=digits, log_det=False, units=self.units)

    def mathml(self, *, digits: int = 4) -> str:
        """Return the formulas as a MathML element that browsers show."""
        return mathml(self.program, digits=digits, log_det=False)

    def __repr__(self) -> str:
        return self.text()

    def _repr_latex_(self) -> str:
        return self.latex()

    def _repr_html_(self) -> str:
        from isr.equations.print.listing import formula_listing, units_html

        return formula_listing(self).section + units_html(self.units)

    def code(self, language: str) -> str:
        """Return the formulas as source: ``"python"`` (NumPy), ``"jax"``, ``"c"`` (C99) or ``"javascript"``."""
        if language not in _SHAPES:
            raise ValueError(f"no code for language {language!r}; known: {', '.join(_SHAPES)}")
        arguments = [s.name for s in self.program.inputs]
        functions = [
            _SHAPES[language](symbol.name, arguments, written_out(value))
            for symbol, value in zip(self.program.output_symbols, self.program.outputs, strict=True)
        ]
        sign = "#" if language in ("python", "jax") else "//"
        remarks = [f"{sign} {comment(remark)}" for remark in legend(self.program, self.units)]
        return "\n".join([*remarks, _HEADERS[language], *functions])


def formula_expressions(
    formulas: Formulas,
    x_names: Sequence[str] = (),
    y_names: Sequence[str] = (),
    units: Mapping[str, str] | None = None,
) -> FormulaExpressions:
    """Return the equations of a regressor.

    Args:
        formulas: The model.
        x_names: Of its inputs; x1, x2, … when left out.
        y_names: Of its outputs; y or y1, y2, … when left out.
        units: Unit of a variable, by name.

    Example:
        >>> import jax.numpy as jnp
        >>> law = Formulas(jnp.array([2.0]), (("mul", ("constant", 0), ("pow", ("input", 0), 2)),), 1, 1)
        >>> print(formula_expressions(law, ["length"], ["area"]).text())
        area = 2*length**2
    """
    inputs = tuple(x_names) or tuple(f"x{i + 1}" for i in range(formulas.n_inputs))
    outputs = tuple(y_names) or output_names(formulas.n_outputs, inputs)
    return FormulaExpressions(formulas, inputs, outputs, dict(units or {}))


def output_names(n: int, taken: Sequence[str] = ()) -> tuple[str, ...]:
    """Return names for ``n`` outputs that have none: y, or y1, y2, …, and none that an input has.

    Example:
        >>> output_names(2), output_names(1, ["x", "y"])
        (('y1', 'y2'), ('y_out',))
    """
    names = ("y",) if n == 1 else tuple(f"y{i + 1}" for i in range(n))
    while set(names) & set(taken):
        names = tuple(f"{name}_out" for name in names)
    return names


def _number(value: float) -> sympy.Expr:
    return sympy.Integer(int(value)) if value.is_integer() else sympy.Float(value)


def _python(name: str, arguments: Sequence[str], value: sympy.Expr) -> str:
    body = NumPyPrinter({"fully_qualified_modules": True}).doprint(value)
    return f"\ndef {name}({', '.join(arguments)}):\n    return {body}\n"


def _jax(name: str, arguments: Sequence[str], value: sympy.Expr) -> str:
    body = JaxPrinter({"fully_qualified_modules": True}).doprint(value)
    return f"\ndef {name}({', '.join(arguments)}):\n    return {body}\n"


def _c(name: str, arguments: Sequence[str], value: sympy.Expr) -> str:
    body = sympy.ccode(value, standard="c99")
    return f"double {name}({', '.join(f'double {a}' for a in arguments)})\n{{\n    return {body};\n}}\n"


def _javascript(name: str, arguments: Sequence[str], value: sympy.Expr) -> str:
    return f"export function {name}({', '.join(arguments)}) {{\n  return {sympy.jscode(value)};\n}}\n"


_SHAPES = {"python": _python, "c": _c, "javascript": _javascript, "jax": _jax}
_HEADERS = {
    "python": "import numpy\n",
    "c": "#include <math.h>\n",
    "javascript": "// One function an output.\n",
    "jax": "import jax\nimport jax.numpy\n",
}
