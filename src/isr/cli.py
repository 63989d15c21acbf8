"""The command line: ``isr --help``.

Nothing heavy is imported at the top, so help and completion answer at once; each command imports what it needs.
"""

from __future__ import annotations

import os
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from isr import __version__

app = typer.Typer(
    name="isr",
    help="Invertible symbolic regression: equations that run both ways, with their density.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
)

_USER_ERRORS = (ValueError, TypeError, OSError)
_EXIT_USER_ERROR = 2


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"isr {__version__}")
        raise typer.Exit


@app.callback()
def options(
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the full traceback when a command fails.")
    ] = False,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and leave."
        ),
    ] = False,
) -> None:
    """Invertible symbolic regression: equations that run both ways, with their density."""
    # `main` looks for --debug itself, since it must know even when a command never started.


@app.command()
def demo() -> None:
    """Build the exact Banana law as a model, print its equations both ways, sample it and check it."""
    from isr.demo import run

    run()


class Experiment(StrEnum):
    """What `isr reproduce` can run."""

    densities = "densities"
    laws = "laws"
    kinematics = "kinematics"
    posteriors = "posteriors"


@app.command()
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
    out: Annotated[Path, typer.Option(help="Folder for rows (JSON), tables and figures.")] = Path("results"),
) -> None:
    """Run an experiment of the paper again and write rows, tables and figures.

    Example: isr reproduce densities --quick --out /tmp/densities
    """
    from isr.reproduce import densities, kinematics, laws, posteriors

    names = [n.strip() for n in only.split(",") if n.strip()]
    known = {
        Experiment.densities: list(densities.MODELS),
        Experiment.laws: [*laws.LAWS, *laws.FUNCTIONS],
        Experiment.kinematics: list(kinematics.MODELS),
        Experiment.posteriors: list(posteriors.PROBLEMS),
    }[experiment]
    for name in names:
        if name not in known:
            raise ValueError(f"unknown case {name!r} of {experiment.value}; known: {', '.join(known)}")
    out.mkdir(parents=True, exist_ok=True)
    if experiment is Experiment.laws:
        laws.run(
            out, laws=[n for n in names or known if n in laws.LAWS],
            functions=[n for n in names or known if n in laws.FUNCTIONS],
            seeds=range(seeds or 5), function_seeds=range(function_seeds), quick=quick, say=typer.echo,
        )  # fmt: skip
    elif experiment is Experiment.densities:
        densities.run(out, names=names or known, seeds=range(seeds or 5), quick=quick, say=typer.echo)
    else:
        runner = kinematics if experiment is Experiment.kinematics else posteriors
        runner.run(out, names=names or known, seeds=range(seeds or 1), quick=quick, say=typer.echo)
    typer.echo(f"rows, tables and figures are in {out}")


def main(arguments: list[str] | None = None) -> None:
    """Run the command line; a mistake in the input becomes one line on stderr and exit code 2."""
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        app(args=arguments)
    except BrokenPipeError:
        # The reader (``head``, a pager) has gone; silence the flush at exit as well.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except _USER_ERRORS as error:
        if "--debug" in arguments:
            raise
        typer.echo(f"error: {_one_line(error)}", err=True)
        sys.exit(_EXIT_USER_ERROR)


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__


if __name__ == "__main__":
    main()
