"""``isr demo`` and ``isr reproduce``: what comes with the package, run again."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from isr.cli.options import Force, Json
from isr.cli.output import print_json, refuse_existing
from isr.cli.show import checks_as_data


def demo(
    out: Annotated[Path, typer.Option(help="Folder for the page and the model.")] = Path("demo"),
    force: Force = False,
    json: Json = False,
) -> None:
    """Show on an example what the package does, and write a page about it.

    Example: isr demo --out /tmp/arm
    """
    for name in ("report.html", "arm.isr"):
        if (out / name).exists():
            refuse_existing(out / name, force)
    from isr.demo import run

    result = run(lambda text: typer.echo(text, err=json), folder=out)
    if json:
        print_json({**checks_as_data(result), "out": str(out)})


class Experiment(StrEnum):
    """What `isr reproduce` can run."""

    densities = "densities"
    laws = "laws"
    kinematics = "kinematics"
    posteriors = "posteriors"
    geoacoustics = "geoacoustics"


def reproduce(
    experiment: Annotated[Experiment, typer.Argument(help="Which of the paper's experiments.")],
    quick: Annotated[bool, typer.Option("--quick", help="A short look, not for the record.")] = False,
    seeds: Annotated[
        int | None, typer.Option(min=1, help="How many seeds: 5 for densities and laws, else 1.")
    ] = None,
    function_seeds: Annotated[
        int, typer.Option(min=1, help="How many seeds for each regression function of laws.")
    ] = 20,
    only: Annotated[
        str, typer.Option(help="Comma-separated names of the cases to run; all when left out.")
    ] = "",
    task: Annotated[int, typer.Option(min=1, max=2, help="Which task of geoacoustics.")] = 1,
    out: Annotated[Path, typer.Option(help="Folder for rows (JSON), tables and figures.")] = Path("results"),
    json: Json = False,
) -> None:
    """Run an experiment of the paper again and write rows, tables and figures.

    Rows are added to those in the folder; tables and figures are drawn anew from all of them.

    Example: isr reproduce densities --quick --out /tmp/densities
    """
    from isr.paper import densities, geoacoustics, kinematics, laws, posteriors

    names = [n.strip() for n in only.split(",") if n.strip()]
    known = {
        Experiment.densities: list(densities.MODELS),
        Experiment.laws: [*laws.LAWS, *laws.FUNCTIONS],
        Experiment.kinematics: list(kinematics.MODELS),
        Experiment.posteriors: list(posteriors.PROBLEMS),
        Experiment.geoacoustics: list(geoacoustics.STAGES),
    }[experiment]
    for name in names:
        if name not in known:
            raise ValueError(f"unknown case {name!r} of {experiment.value}; known: {', '.join(known)}")
    out.mkdir(parents=True, exist_ok=True)

    def say(text: object) -> None:
        typer.echo(text, err=json)

    if experiment is Experiment.laws:
        laws.run(
            out, laws=[n for n in names or known if n in laws.LAWS],
            functions=[n for n in names or known if n in laws.FUNCTIONS],
            seeds=range(seeds or 5), function_seeds=range(function_seeds), quick=quick, say=say,
        )  # fmt: skip
    elif experiment is Experiment.densities:
        densities.run(out, names=names or known, seeds=range(seeds or 5), quick=quick, say=say)
    elif experiment is Experiment.geoacoustics:
        geoacoustics.run(out, task=task, names=names or known, seeds=range(seeds or 1), quick=quick, say=say)
    else:
        runner = kinematics if experiment is Experiment.kinematics else posteriors
        runner.run(out, names=names or known, seeds=range(seeds or 1), quick=quick, say=say)
    if json:
        print_json(
            {"out": str(out), "files": sorted(str(p.relative_to(out)) for p in out.rglob("*") if p.is_file())}
        )
    else:
        typer.echo(f"rows, tables and figures are in {out}")
