"""Names and units in generated sources: comments that cannot break out, and what stands at the top."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from isr.equations.print.text import legend

if TYPE_CHECKING:
    from isr.equations.expressions import Expressions

_HOSTILE = {"*/": "* /", "/*": "/ *", "</": "< /", "<!": "< !", "->": "- >", "??": "? ?"}


def comment(text: str) -> str:
    """Return ``text`` as it may stand in a comment of any of the languages: one line that ends nothing.

    Example:
        >>> comment("a */ b")
        'a * / b'
    """
    line = "".join(c if c.isprintable() else " " for c in text)
    line = line.replace("\\", "/").replace('"', "'")
    for hostile, tame in _HOSTILE.items():
        while hostile in line:
            line = line.replace(hostile, tame)
    return re.sub(" +", " ", line).strip()[:200]


def text_list(names: Sequence[str]) -> str:
    """Return names as a list of string literals that Python and JavaScript read alike, safe inside HTML."""
    return json.dumps(list(names)).replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def about(equations: Expressions) -> list[str]:
    """Return the lines that open a generated source: what it is, and its variables."""
    if equations.inverse is None:
        lines = ["Formulas y = f(x), one function per output.", _ORIGIN]
        remarks = [f"  {comment(line)}" for line in legend(equations.forward, equations.units)]
        return [*lines, "", "Variables:", *remarks] if remarks else lines
    if equations.noise:
        kind = "Joint map f(x) = [y, z] with its inverse and the density of x given y."
    elif equations.y_names:
        kind = "Conditional map f(x; y) = z with its inverse and the density of x given y."
    else:
        kind = "Map f(x) = z with its inverse and the density of x."
    lines = [kind, _ORIGIN, "", "Variables:"]
    lines += [f"  x[{i}]  {_named(equations, name)}" for i, name in enumerate(equations.x_names)]
    for i, name in enumerate(equations.y_names):
        sd = equations.noise[i] if equations.noise else None
        noise = "" if sd is None else f", observed with normal noise of standard deviation {sd!r}"
        lines.append(f"  y[{i}]  {_named(equations, name)}{noise}")
    lines.append(f"  the latent has {len(equations.inverse.inputs)} entries: {_latent(equations)}")
    if equations.n_padding:
        lines.append(
            "  the second one belongs to a padding of x by zero, which a coupling of one variable needs"
        )
    return lines


_ORIGIN = "Written by isr from a fitted model's equations; stands alone."


def _named(equations: Expressions, name: str) -> str:
    unit = equations.units.get(name, "")
    return comment(f"{name} ({unit})" if unit else name)


def _latent(equations: Expressions) -> str:
    n, n_latent = len(equations.noise), len(equations.forward.outputs)
    if not n:
        return "each is standard normal"
    leading = "the first is y" if n == 1 else f"the first {n} are y"
    return leading if n == n_latent else f"{leading}, the rest is standard normal"
