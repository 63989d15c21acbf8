"""``isr export``: the equations as source in another language."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from isr.cli.models import open_model, written
from isr.cli.options import Complexity, Force, Json, ModelFile
from isr.cli.output import print_json, refuse_existing
from isr.tables.whole_files import write_whole


class Language(StrEnum):
    """What equations can be written in."""

    python = "python"
    c = "c"
    javascript = "javascript"
    jax = "jax"
    latex = "latex"


def export(
    model: ModelFile,
    lang: Annotated[Language, typer.Option(help="Language of the source.")] = Language.python,
    out: Annotated[Path | None, typer.Option(help="File to write; stdout when left out.")] = None,
    complexity: Complexity = None,
    force: Force = False,
    json: Json = False,
) -> None:
    """Write a model as source that stands alone: both directions, density and sampling.

    A model of --method eql becomes one function an output.

    Example: isr export model.isr --lang c --out model.c
    """
    refuse_existing(out, force)
    source = _source(open_model(model, complexity), lang)
    if out is not None:
        write_whole(out, lambda path: path.write_text(source, encoding="utf-8"))
    if json:
        print_json(
            {"language": lang.value, "out": out and str(out), "source": source if out is None else None}
        )
    elif out is None:
        typer.echo(source, nl=not source.endswith("\n"))
    else:
        typer.echo(f"written: {out} ({len(source.splitlines())} lines of {lang.value})")


def _source(bundle, lang: Language) -> str:
    from isr.equations import Expressions

    equations = bundle.expressions
    if lang is not Language.latex:
        return equations.code(lang.value)
    if not isinstance(equations, Expressions):
        return written(equations, "forward", "latex") + "\n"
    parts = [f"% {way}\n{written(equations, way, 'latex')}\n" for way in ("forward", "inverse")]
    return "\n".join(parts)
