"""``isr export``: the equations as source in another language."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

from isr.cli.models import open_model
from isr.cli.options import Complexity, Force, Json, ModelFile, asked
from isr.cli.output import print_json, refuse_existing, say, say_written, write_text


class Language(StrEnum):
    """What equations can be written in."""

    python = "python"
    c = "c"
    javascript = "javascript"
    jax = "jax"
    latex = "latex"


def export(
    model: ModelFile,
    lang: Annotated[Language, asked("Language of the source.")] = Language.python,
    out: Annotated[Path | None, asked("File to write; stdout when left out.", "FILE")] = None,
    complexity: Complexity = None,
    force: Force = False,
    json: Json = False,
) -> None:
    """Write a model as source that stands alone: both directions, density and sampling.

    A model of --method eql becomes one function per output.

    Example: isr export model.isr --lang c --out model.c
    """
    refuse_existing(out, force)
    equations = open_model(model, complexity).expressions
    if lang is Language.latex:
        source = "\n".join(f"% {way}\n{equations.latex(way)}\n" for way in equations.directions)
    else:
        source = equations.code(lang.value)
    if out is not None:
        write_text(out, source)
        about = f"{len(source.splitlines())} lines of {lang.value}"
        say_written(out, json, about, language=lang.value, source=None)
    elif json:
        print_json({"language": lang.value, "out": None, "source": source})
    else:
        say(source, nl=not source.endswith("\n"))
