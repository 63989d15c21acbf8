"""The command line: ``isr --help``.

Nothing heavy is imported at the top, so help and completion answer at once; each command imports what it needs.
"""

from __future__ import annotations

import os
import sys
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
