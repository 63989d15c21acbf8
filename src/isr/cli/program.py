"""The program: its commands, and what becomes of errors, warnings and interrupts."""

from __future__ import annotations

import io
import os
import sys
import warnings
from typing import Annotated

import typer

from isr import __version__
from isr.cli import bench, draw, experiments, export, fit, predict, report, show
from isr.cli.exits import CHECK_FAILED, FAULT, FIT_FAILED, INTERRUPTED, WRONG_INPUT, CheckFailedError

EXITS = (
    f"Exit codes: 0 done; {FAULT} a fault of isr itself; {WRONG_INPUT} a mistake in the command or the data; "
    f"{FIT_FAILED} the fit found no model; {CHECK_FAILED} equations and model disagree; {INTERRUPTED} interrupted."
)

app = typer.Typer(
    name="isr",
    help="Invertible symbolic regression: equations that run both ways, with their density.",
    epilog=EXITS,
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
)
for command in (
    fit.fit, show.show, draw.posterior, draw.sample, predict.predict, show.check, export.export, report.report,
    experiments.demo, experiments.reproduce, bench.bench,
):  # fmt: skip
    app.command()(command)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"isr {__version__}")
        raise typer.Exit


@app.callback()
def options(
    debug: Annotated[
        bool,
        typer.Option("--debug", help="Show the full traceback when a command fails; may stand anywhere."),
    ] = False,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and leave."
        ),
    ] = False,
) -> None:
    """Invertible symbolic regression: equations that run both ways, with their density.

    Begin with: isr fit data.csv --x depth,speed --y p1,p2 --out model.isr
    """
    # `main` takes --debug out of the arguments itself, since it must know even when a command never started.


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and leave with its exit code; an error becomes one line on stderr."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in arguments
    arguments = [a for a in arguments if a != "--debug"]
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a sign the terminal does not have must not end the command
    with warnings.catch_warnings():
        warnings.simplefilter("default", UserWarning)
        warnings.showwarning = _show_warning
        sys.exit(_run(arguments, debug))


def _run(arguments: list[str], debug: bool) -> int:
    try:
        code = app(args=arguments, prog_name="isr", standalone_mode=False) or 0
        sys.stdout.flush()  # short output may meet the closed pipe only here
        return code if code != INTERRUPTED else _say("interrupted", INTERRUPTED)
    except BrokenPipeError:
        return _without_reader()
    except SystemExit as leave:  # Click leaves by itself, with 1, where a pipe is closed
        if isinstance(leave.__context__, BrokenPipeError):
            return _without_reader()
        raise
    except (typer.Abort, KeyboardInterrupt):
        return _say("interrupted", INTERRUPTED)
    except Exception as error:
        if debug and not _is_usage(error):
            raise
        return _explain(error)


def _without_reader() -> int:
    """The reader (``head``, a pager) has what it wanted: no error, and nothing is flushed into the pipe at exit."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for descriptor in (1, 2):
        os.dup2(nowhere, descriptor)
    return 0


def _explain(error: Exception) -> int:
    if _is_usage(error):
        context = getattr(error, "ctx", None)
        see = f"; see {context.command_path} --help" if context is not None else ""
        sentence = error.format_message().rstrip(".").replace("Value error, ", "")  # type: ignore[attr-defined]
        return _say(f"{sentence}{see}", WRONG_INPUT) if sentence else WRONG_INPUT  # help alone was printed
    if isinstance(error, CheckFailedError):
        return _say(str(error), CHECK_FAILED)
    if isinstance(error, FloatingPointError):
        return _say(str(error), FIT_FAILED)
    if isinstance(error, ValueError | TypeError | OSError | ImportError):
        return _say(str(error) or type(error).__name__, WRONG_INPUT)
    return _say(
        f"unexpected {type(error).__name__}: {error}; this is a fault of isr: please report it with what the same "
        "command prints with --debug",
        FAULT,
    )


def _is_usage(error: Exception) -> bool:
    # Typer has its own copy of Click in newer versions, so the class itself is not at hand.
    return hasattr(error, "format_message")


def _say(sentence: str, code: int) -> int:
    typer.echo(f"error: {' '.join(sentence.split())}", err=True)
    return code


def _show_warning(message: Warning | str, category: type[Warning], *place: object, **more: object) -> None:
    typer.echo(f"warning: {' '.join(str(message).split())}", err=True)
