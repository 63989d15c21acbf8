"""Source of a law of motion that stands alone: rates, first values, and an integrator that tells its error."""

from __future__ import annotations

import re
from importlib import resources
from typing import Any

from jinja2 import Environment, StrictUndefined
from sympy.printing import ccode, jscode, pycode

# Of each language: what prints an expression, the end of its templates' names, how a number is declared and a line is
# ended, and how a comment begins.
LANGUAGES: dict[str, tuple[Any, str, str, str, str]] = {
    "python": (pycode, "py", "", "", "# "),
    "c": (ccode, "c", "const double ", ";", " * "),
    "javascript": (jscode, "js", "const ", ";", "// "),
}


def source(law: Any, language: str) -> str:
    """Return source of a `MotionLaw` in ``"python"``, ``"c"`` or ``"javascript"``."""
    language = {"py": "python", "js": "javascript"}.get(language.lower(), language.lower())
    if language not in LANGUAGES:
        raise ValueError(
            f"unknown language {language!r}; a law of motion is written in {', '.join(LANGUAGES)}"
        )
    write, extension, declare, end, comment = LANGUAGES[language]
    places = {c.name: f"y[{i}]" for i, c in enumerate(law.channels)}
    places |= {n: f"x[{j}]" for j, n in enumerate(law.x_names)}

    def written(goals: dict[str, Any]) -> list[str]:
        used = {str(s) for e in goals.values() for s in e.free_symbols}
        lines = [f"{declare}{n} = {place}" for n, place in places.items() if n in used]
        lines += [f"{goal} = {write(e).replace('math.', '')}" for goal, e in goals.items()]
        return [f"    {line}{end}" for line in lines]

    rates = {f"dy[{i}]": c.rate.expression for i, c in enumerate(law.channels)}
    starts = {f"y[{i}]": c.start.expression for i, c in enumerate(law.channels) if c.start}
    about = [comment + re.sub(r"[^ -~]", "?", line).replace("*/", "* /") for line in law.lines()]
    template = (
        resources.files("isr.motion").joinpath("templates", f"motion.{extension}.j2").read_text("utf-8")
    )
    environment = Environment(undefined=StrictUndefined, keep_trailing_newline=True, trim_blocks=True)
    return environment.from_string(template).render(
        about=about, rates=written(rates), first=written(starts), n=len(law.channels), steps=law.steps,
        logs=", ".join("1" if c.log else "0" for c in law.channels),
    )  # fmt: skip
