"""Sources from equations: a plan for each direction, put into the template of a language.

Names and units stand in comments that cannot break out.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import sympy
from jinja2 import Environment, PackageLoader, StrictUndefined

from isr.bijections.affine import LOG_SQRT_2PI
from isr.bijections.flow import N_PAD_NODES
from isr.equations.code.languages import LANGUAGES, Language, number
from isr.equations.code.plan import plan
from isr.equations.text import legend, one_line

if TYPE_CHECKING:
    from isr.equations.expressions import Expressions

_LINE = 110
_HOSTILE = {"*/": "* /", "/*": "/ *", "</": "< /", "<!": "< !", "->": "- >", "??": "? ?"}
_ALIASES = {"c99": "c", "js": "javascript", "numpy": "python", "py": "python"}


def generate(equations: Expressions, language: str) -> str:
    """Return equations as source in another language, standing alone.

    Args:
        equations: What `isr.extract` gave.
        language: ``"python"`` (NumPy alone), ``"c"`` (C99), ``"javascript"`` (an ES module) or ``"jax"``; ``"py"``,
            ``"numpy"``, ``"c99"`` and ``"js"`` are the same.

    Example:
        >>> import jax, isr
        >>> source = generate(isr.extract(isr.build_flow(jax.random.key(0), 2)), "c")
        >>> "double isr_log_prob(const double *x, const double *y)" in source
        True
    """
    name = _ALIASES.get(str(language).lower(), str(language).lower())
    if name not in LANGUAGES:
        raise ValueError(f"no code for language {language!r}; known: {', '.join(LANGUAGES)}")
    parts = (_of_regressor if equations.inverse is None else _of_flow)(equations, LANGUAGES[name])
    return templates().get_template(LANGUAGES[name].template).render(about=_about(equations), **parts)


def _of_regressor(equations: Expressions, language: Language) -> dict[str, Any]:
    """What a template needs of a regressor: a plan for each output."""
    program, whole = equations.forward, replace(language, longest=None)
    single = (
        replace(program, outputs=(output,), output_symbols=(symbol,), bounds=(), log_det=sympy.S.Zero)
        for output, symbol in zip(program.outputs, program.output_symbols, strict=True)
    )
    return {"inverse": None, "functions": [plan(one, whole) for one in single]}


def _of_flow(equations: Expressions, language: Language) -> dict[str, Any]:
    """What a template needs of a flow: a plan for each direction, and how the latent is distributed."""
    forward, inverse = equations.forward_padded or equations.forward, equations.program("inverse")
    n_x, n_latent, noise = len(equations.x_names), len(inverse.inputs), equations.noise
    nodes, weights = np.polynomial.hermite_e.hermegauss(N_PAD_NODES)
    return {
        "forward": plan(forward, language),
        "inverse": plan(inverse, language, n_x),
        "n_x": n_x,
        "n_y": len(equations.y_names),
        "n_latent": n_latent,
        "x_names": equations.x_names,
        "y_names": equations.y_names,
        "noise": noise,
        "n_padding": equations.n_padding,
        # Whether the equations themselves read y.
        "conditional": bool(forward.conditions or inverse.conditions or (equations.y_names and not noise)),
        # Where x has no density: a box is closed, an end bounded alone is open.
        "outside": [
            (i, sign if None not in pair else f"{sign}=", end)
            for i, pair in enumerate(inverse.bounds)
            for sign, end in zip("<>", pair, strict=True)
            if end is not None
        ],
        # What the latent's log-density adds to -sum(standardised**2)/2.
        "base_constant": -float(sum(np.log(s) for s in noise) + n_latent * LOG_SQRT_2PI),
        "nodes": nodes.tolist(),
        "log_weights": (np.log(weights) + 0.5 * nodes**2).tolist(),
    }


def comment(text: str) -> str:
    """Return ``text`` as it may stand in a comment of any of the languages: one line that ends nothing.

    Example:
        >>> comment("a */ b")
        'a * / b'
    """
    line = one_line(text).replace("\\", "/").replace('"', "'")
    for hostile, tame in _HOSTILE.items():
        while hostile in line:
            line = line.replace(hostile, tame)
    return re.sub(" +", " ", line).strip()[:200]


def _about(equations: Expressions) -> list[str]:
    """The lines that open a generated source: what it is, and its variables."""
    origin = "Written by isr from a fitted model's equations; stands alone."
    noise, y_names, n_latent = equations.noise, equations.y_names, len(equations.forward.outputs)
    if equations.inverse is None:
        remarks = [f"  {comment(line)}" for line in legend(equations.forward, equations.units)]
        lines = ["Formulas y = f(x), one function per output.", origin]
        return [*lines, "", "Variables:", *remarks] if remarks else lines
    form = (
        "Joint map f(x) = [y, z]" if noise else "Conditional map f(x; y) = z" if y_names else "Map f(x) = z"
    )
    lines = [
        f"{form} with its inverse and the density of x{' given y' if y_names else ''}.",
        origin,
        "",
        "Variables:",
    ]
    for letter, names in (("x", equations.x_names), ("y", y_names)):
        for i, name in enumerate(names):
            unit = equations.units.get(name, "")
            line = f"  {letter}[{i}]  {comment(f'{name} ({unit})' if unit else name)}"
            told = (
                f", observed with normal noise of standard deviation {noise[i]!r}"
                if letter == "y" and noise
                else ""
            )
            lines.append(line + told)
    first = "the first is y" if len(noise) == 1 else f"the first {len(noise)} are y"
    rest = "" if n_latent == len(noise) else ", the rest is standard normal"
    lines.append(
        f"  the latent has {n_latent} entries: {first + rest if noise else 'each is standard normal'}"
    )
    if equations.n_padding:
        lines.append(
            "  the second one belongs to a padding of x by zero, which a coupling of one variable needs"
        )
    return lines


def wrapped(text: str, indent: int) -> str:
    """Return a long expression over several lines, broken before the signs of sums."""
    if len(text) <= _LINE or "\n" in text:
        return text
    lines = [""]
    for term in re.split(r" (?=[+-] )", text):
        if lines[-1] and len(lines[-1]) + len(term) >= _LINE:
            lines.append("")
        lines[-1] += f" {term}" if lines[-1] else term
    return f"\n{' ' * indent}".join(lines)


def _in_brackets(text: str) -> str:
    """A long expression over several lines, which Python reads as one inside brackets only."""
    lines = wrapped(text, 8)
    return lines if "\n" not in lines else f"(\n        {lines}\n    )"


def _text_list(names: Sequence[str]) -> str:
    """Names as a list of string literals that Python and JavaScript read alike, safe inside HTML."""
    return json.dumps(list(names)).replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


@functools.cache
def templates() -> Environment:
    environment = Environment(
        loader=PackageLoader("isr.equations.code"),
        undefined=StrictUndefined,
        autoescape=False,  # what users wrote passes `comment` or `text_list`
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    own = {"comment": comment, "number": number, "text_list": _text_list}
    environment.filters |= own | {"wrapped": wrapped, "in_brackets": _in_brackets}
    return environment
