"""Equations as LaTeX, as MathML, which browsers show without any script, and as the listings of a page made of it."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import sympy
from sympy.printing.latex import LatexPrinter
from sympy.printing.mathml import MathMLPresentationPrinter

from isr.equations.program import Assignment, ExpressionTooLarge, Program, compose
from isr.equations.text import GREEK, SIGNS, Readable, broken, label_of, rows_of

if TYPE_CHECKING:
    from isr.equations.expressions import Expressions

LATEX_WIDTH = 90
_ESCAPES = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "#": r"\#", "%": r"\%",
    "_": r"\_", "^": r"\^{}", "~": r"\~{}", "<": r"\textless{}", ">": r"\textgreater{}",
}  # fmt: skip


class TexPrinter(Readable, LatexPrinter):
    """LaTeX, with names that cannot do harm."""

    names: ClassVar[dict[str, str]] = {
        "min": r"\min", "max": r"\max", "clip": r"\operatorname{clip}", "Phi": r"\Phi", "MixtureQuantile": "Q",
        "atan2": r"\operatorname{atan2}",
    }  # fmt: skip

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments, ln_notation=True, inv_trig_style="full", mul_symbol=r" \, ")

    def _number(self, mantissa: str, power: str) -> str:
        shown = {"": "", "1": "", "-1": "- "}.get(mantissa, rf"{mantissa} \cdot ")
        return f"{shown}10^{{{power}}}" if power else mantissa

    def _print_Symbol(self, expr: sympy.Symbol, style: str = "plain") -> str:
        label = label_of(expr.name, self.labels)
        if label.verbatim:
            return rf"\text{{{_escaped(label.base)}}}"
        below = f"_{{{','.join(map(_word, label.below))}}}" if label.below else ""
        return _word(label.base) + below + (f"^{{{label.above}}}" if label.above else "")

    def _function(self, name: str, arguments: Sequence[str], power: str | None) -> str:
        inner = rf"\left({', '.join(arguments)}\right)"
        if name == "PhiInverse":
            return rf"\left(\Phi^{{-1}}{inner}\right)^{{{power}}}" if power else rf"\Phi^{{-1}}{inner}"
        return self.names[name] + (f"^{{{power}}}" if power else "") + inner

    def _print_Mul(self, expr: Any) -> str:
        """Factors side by side; words with a little room, and a dot between several, which would read as a phrase."""
        printed = super()._print_Mul(expr)
        if self.has_words(expr):
            return printed.replace(r" \, ", r" \cdot ")
        return printed if re.search(r"\\(mathrm|text)\{", printed) else printed.replace(r" \, ", " ")

    def _print_MixtureQuantile(self, expr: Any, exp: str | None = None) -> str:
        u, *parts = [self._print(argument) for argument in expr.args]
        k = len(parts) // 3
        groups = (", ".join(parts[i * k : (i + 1) * k]) for i in range(3))
        return self._function("MixtureQuantile", ["; ".join((u, *groups))], exp)


def latex(
    program: Program,
    *,
    digits: int = 4,
    log_det: bool = True,
    units: Mapping[str, str] | None = None,
    errors: Mapping[float, float] | None = None,
) -> str:
    """Return a program as a LaTeX ``align*`` environment, long sums over several lines, units in comments; ``errors``
    as in `number_text`.
    """
    printer = TexPrinter(digits, errors, program.labels)
    equations = []
    for target, value, _ in rows_of(program, log_det):
        left = r"\ln \left| \det J \right|" if target is None else printer.doprint(target)
        first, *others = broken(value, printer, LATEX_WIDTH, _printed_width)
        more = [line if line.startswith("-") else f"+ {line}" for line in others]
        equations.append(" \\\\\n&\\quad {} ".join([f"{left} &= {first}", *more]))
    # Escaped though a comment: a page that typesets in the browser may not know comments.
    remarks = (_escaped(f"{name} in {unit}").split() for name, unit in (units or {}).items())
    first, *others = equations
    return aligned(["".join(f"% {' '.join(words)}\n" for words in remarks) + first, *others])


def aligned(rows: Iterable[str]) -> str:
    """Return rows of LaTeX, each with its ``&``, as an ``align*`` environment."""
    return "\\begin{align*}\n" + " \\\\\n".join(rows) + "\n\\end{align*}"


def name_latex(name: str) -> str:
    """Return the name of a variable, which may be any text, as LaTeX."""
    return TexPrinter(4, None, {"name": name}).doprint(sympy.Symbol("name"))


def _word(word: str) -> str:
    """Letters and words as LaTeX has them: Greek by name, words upright, what is foreign as text."""

    def piece(text: str) -> str:
        if text in GREEK:
            return "o" if text == "ο" else rf"\{GREEK[text]}"
        return text if len(text) == 1 or text.isdigit() else rf"\mathrm{{{text}}}"

    pieces = re.findall(r"[A-Za-z]+|\d+|.", word)
    if not all(p.isascii() or p in GREEK for p in pieces):
        return rf"\text{{{_escaped(word)}}}"
    return " ".join(map(piece, pieces))


def _escaped(text: str) -> str:
    return "".join(_ESCAPES.get(c, c) for c in text)


def _printed_width(source: str) -> int:
    source = re.sub(r"\\(left|right|quad|mathrm|text|operatorname|frac|,)(?![a-z])", "", source)
    return len(re.sub(r"\\[a-z]+", "ab", source).translate({ord(c): None for c in "{}^_ "}))


class MathMLPrinter(Readable, MathMLPresentationPrinter):
    """Presentation MathML; what could be markup in a name is escaped."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments, ln_notation=True, mul_symbol=_INVISIBLE_TIMES)
        self._held: dict[sympy.Dummy, Any] = {}

    def _element(self, tag: str, *children: Any) -> Any:
        element = self.dom.createElement(tag)
        for child in children:
            # SymPy writes text nodes as they are, so what could be markup is escaped here.
            node = self.dom.createTextNode(html.escape(child)) if isinstance(child, str) else child
            element.appendChild(node)
        return element

    def _number(self, mantissa: str, power: str) -> Any:
        number = self._element("mn", mantissa)
        if not power:
            return number
        ten = self._element("msup", self._element("mn", "10"), self._element("mn", power))
        return ten if mantissa == "1" else self._element("mrow", number, self._element("mo", "·"), ten)

    def _print_Symbol(self, expr: sympy.Symbol, style: str = "plain") -> Any:
        label = label_of(expr.name, self.labels)
        base = self._element("mtext" if label.verbatim else "mi", label.base)
        below = [self._element("mtext", ",".join(label.below))] if label.below else []
        above = [self._element("mtext", label.above)] if label.above else []
        tag = f"m{'sub' if below else ''}{'sup' if above else ''}"
        return self._element(tag, base, *below, *above) if below or above else base

    def _function(self, name: str, arguments: Sequence[Any], power: Any = None) -> Any:
        function = self._element("mi", name.replace("PhiInverse", "Φ").replace("Phi", "Φ"))
        if name == "PhiInverse":
            function = self._element("msup", function, self._element("mn", "-1"))
        inner: list[Any] = []
        for argument in arguments:
            inner += [self._element("mo", ","), argument] if inner else [argument]
        return self._element("mrow", function, self._bracket("("), *inner, self._bracket(")"))

    def _bracket(self, character: str) -> Any:
        bracket = self._element("mo", character)
        bracket.setAttribute("stretchy", "false")
        return bracket

    def _print_Mul(self, expr: Any) -> Any:
        """Powers of e stay beside a fraction, as in LaTeX, and do not go below it."""
        before = self._settings["mul_symbol"]
        self._settings["mul_symbol"] = "·" if self.has_words(expr) else before
        held = {a: sympy.Dummy("zzz") for a in expr.args if isinstance(a, sympy.exp)}
        self._held |= {symbol: power for power, symbol in held.items()}
        printed = super()._print_Mul(expr.func(*(held.get(a, a) for a in expr.args), evaluate=False))
        self._settings["mul_symbol"] = before
        return printed

    def _print_Dummy(self, expr: sympy.Dummy) -> Any:
        return self._print(self._held[expr])

    def _print_Piecewise(self, expr: Any) -> Any:
        rows = []
        for value, condition in expr.args:
            word = self._element("mtext", "otherwise" if condition is sympy.true else "if\u00a0")
            cell = [word] if condition is sympy.true else [word, self._print(condition)]
            cells = self._element("mtd", self._print(value)), self._element("mtd", *cell)
            rows.append(self._element("mtr", *cells))
        return self._element("mrow", self._element("mo", "{"), self._element("mtable", *rows))

    def _print_Relational(self, expr: Any) -> Any:
        sign = self._element("mo", SIGNS.get(expr.rel_op, expr.rel_op))
        return self._element("mrow", self._print(expr.lhs), sign, self._print(expr.rhs))

    def doprint(self, expr: sympy.Expr) -> str:
        # Only a browser knows the names of most entities.
        named = r"&(?!(?:lt|gt|amp|quot);)[A-Za-z]+;"
        markup = re.sub(named, lambda m: html.unescape(m[0]), super().doprint(expr))
        for plain, typeset in _TYPESET.items():
            markup = markup.replace(plain, typeset)
        return markup


_INVISIBLE_TIMES = "\u2062"
# A true minus, an ordinary e, and a little room between factors, where words would run into numbers.
_TYPESET = {
    "<mo>-</mo>": "<mo>&#8722;</mo>",
    "<mn>-": "<mn>&#8722;",
    "<mi>ⅇ</mi>": "<mi>e</mi>",
    "<mo>&#8290;</mo>": '<mo>&#8290;</mo><mspace width="0.17em"></mspace>',
}
_DETERMINANT = (
    '<mrow><mi>ln</mi><mo form="prefix" stretchy="false">|</mo><mi>det</mi><mspace width="0.17em"></mspace>'
    '<mi>J</mi><mo form="postfix" stretchy="false">|</mo></mrow>'
)


def mathml(
    program: Program,
    *,
    digits: int = 4,
    errors: Mapping[float, float] | None = None,
    width: int | None = None,
    log_det: bool = True,
) -> str:
    """Return a program as one ``<math>`` element, one equation per row; a sum wider than about ``width`` characters
    goes on in the next row.

    ``errors`` gives the standard error of a constant by its absolute value; it is shown as ``0.794(12)``.
    """
    printer = MathMLPrinter(digits, errors, program.labels)
    left, right = ' style="text-align:right"', ' style="text-align:left"'
    rows = []
    for target, value, _ in rows_of(program, log_det):
        name = _DETERMINANT if target is None else printer.doprint(target)
        first, *others = broken(value, printer, width, lambda m: len(_plain(m).replace(_INVISIBLE_TIMES, "")))
        rows.append(f"<mtd{left}>{name}</mtd><mtd><mo>=</mo></mtd><mtd{right}>{first}</mtd>")
        for line in others:
            plus = "" if _plain(line)[:1] in ("-", "−") else "<mo>+</mo>"
            rows.append(f"<mtd></mtd><mtd></mtd><mtd{right}><mrow>{plus}{line}</mrow></mtd>")
    table = "".join(f"<mtr>{row}</mtr>" for row in rows)
    opening = '<math xmlns="http://www.w3.org/1998/Math/MathML" display="block"><mtable displaystyle="true">'
    return f"{opening}{table}</mtable></math>"


def _plain(markup: str) -> str:
    return html.unescape(re.sub(r"<[^>]*>", "", markup))


# Longer than this nobody reads; the sources hold the rest.
MOST_EQUATIONS = 40
MOST_TERMS = 1500
# A composed form of more operations is no easier to read than the equations it replaces.
MOST_COMPOSED = 120
PAGE_WIDTH = 84
HEADINGS = {"forward": "Forward", "inverse": "Inverse"}
_ELLIPSIS = sympy.Symbol("⋮")


@dataclass(frozen=True)
class Listing:
    """Equations under one heading, as MathML, and what the reader should know about them."""

    heading: str
    html: str
    note: str = ""

    @property
    def width(self) -> int:
        """About how many characters the longest line has."""
        return max(len(re.sub(r"<[^>]*>|&#8290;", "", row)) for row in self.html.split("</mtr>"))


def listings(expressions: Expressions, errors: Mapping[float, float] | None = None) -> list[Listing]:
    """Return the equations of a model, each direction under its heading; ``errors`` as in `mathml`."""
    if expressions.inverse is None:
        return [listing(expressions.forward, "y from x", errors=errors, log_det=False)]
    latent, given = "z", " given y" if expressions.y_names else ""
    if expressions.noise:
        latent, given = "y, z", ""
    headings = f"Forward: x to {latent}{given}", f"Inverse: {latent} to x{given}"
    programs = expressions.forward, expressions.inverse
    return [listing(p, heading, errors=errors) for p, heading in zip(programs, headings, strict=True)]


def composed_listings(expressions: Expressions) -> list[Listing]:
    """Return each direction of a model without intermediates, where that is short."""
    found, log_det = [], expressions.inverse is not None
    for way in expressions.directions:
        program = expressions.program(way)
        if program.assignments:
            with suppress(ExpressionTooLarge):
                composed = compose(program, max_operations=MOST_COMPOSED)
                found.append(listing(composed, f"{HEADINGS[way]}, in one piece", log_det=log_det))
    return found


def listing(
    program: Program, heading: str = "", *, errors: Mapping[float, float] | None = None, log_det: bool = True
) -> Listing:
    """Return the equations of one direction under a heading; ``errors`` as in `mathml`."""
    n, shown, note = len(program.assignments), program.assignments, ""
    few = n_terms(program) <= MOST_TERMS
    if n > MOST_EQUATIONS or not few:
        shown = shown[: MOST_EQUATIONS if few else MOST_EQUATIONS // 4]
        note = (
            f"{n - len(shown):,} more equations are left out here; the Python and C sources hold all of them."
        )
        program = replace(program, assignments=(*shown, Assignment(_ELLIPSIS, _ELLIPSIS)))
    return Listing(heading, mathml(program, errors=errors, width=PAGE_WIDTH, log_det=log_det), note)


def n_terms(program: Program) -> int:
    """Return how many numbers stand in the intermediates of a program."""
    return sum(len(a.value.atoms(sympy.Number)) for a in program.assignments)
