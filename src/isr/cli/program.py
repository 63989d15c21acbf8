"""The program: its commands, and what becomes of errors, warnings and interrupts."""

from __future__ import annotations

import io
import os
import sys
import warnings
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from isr import __version__
from isr.cli import draw, experiments, fit, show
from isr.cli.options import asked
from isr.tables.names import visible

FAULT, WRONG_INPUT, FIT_FAILED, CHECK_FAILED, INTERRUPTED = 1, 2, 3, 4, 130
EXITS = (
    f"Exit codes: 0 done; {FAULT} a fault of isr itself; {WRONG_INPUT} a mistake in the command or the data; "
    f"{FIT_FAILED} the fit found no model; {CHECK_FAILED} equations and model disagree; {INTERRUPTED} interrupted."
)


# What an error means, by the name of its class; whatever is not listed is a fault of isr.
MEANINGS = {
    "CheckFailed": CHECK_FAILED, "FloatingPointError": FIT_FAILED, "ValueError": WRONG_INPUT, "TypeError": WRONG_INPUT,
    "OSError": WRONG_INPUT, "ImportError": WRONG_INPUT, "MemoryError": WRONG_INPUT,
}  # fmt: skip


class _PlainFlags:
    """Shows flags in help as flags, without a type behind them."""

    def get_params(self, ctx: Any) -> list[Any]:
        parameters = super().get_params(ctx)  # type: ignore[misc]
        for parameter in parameters:
            if getattr(parameter, "is_flag", False):
                parameter.metavar = ""
        return parameters


class PlainCommand(_PlainFlags, TyperCommand):
    """A command."""


class PlainGroup(_PlainFlags, TyperGroup):
    """The program itself."""


app = typer.Typer(
    name="isr", cls=PlainGroup, epilog=EXITS, no_args_is_help=True, add_completion=True,
    pretty_exceptions_enable=False,
)  # fmt: skip
for command in (
    fit.fit, show.show, draw.posterior, draw.sample, draw.predict, show.check, show.export, show.report,
    experiments.demo, experiments.reproduce,
):  # fmt: skip
    app.command(cls=PlainCommand)(command)
app.command(cls=PlainCommand, context_settings={"ignore_unknown_options": True, "allow_extra_args": True})(
    experiments.bench
)

LONGEST_SENTENCE = 4000


def _print_version(wanted: bool) -> None:
    if wanted:
        from isr.native import status

        typer.echo(f"isr {__version__} ({status()})")
        raise typer.Exit


@app.callback()
def options(
    debug: Annotated[
        bool, asked("Show the full traceback of an error; may stand anywhere.", None, "--debug")
    ] = False,
    version: Annotated[
        bool, asked("Print the version and leave.", None, "--version", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Invertible symbolic regression: equations that run both ways, with their density.

    Begin with: isr demo, or isr fit data.csv --x depth,speed --y p1,p2 --out model.isr
    """
    # `main` takes --debug out of the arguments itself, since it must know even when a command never started.


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and leave with its exit code; an error becomes one line on stderr."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in arguments
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a sign the terminal does not have must not end the command
    with warnings.catch_warnings():
        warnings.simplefilter("default", UserWarning)
        warnings.simplefilter("ignore", RuntimeWarning)  # of NumPy's arithmetic; what follows from it is told
        warnings.showwarning = lambda message, *_place, **_more: _say("warning", str(message))
        sys.exit(_run([a for a in arguments if a != "--debug"], debug))


def _run(arguments: list[str], debug: bool) -> int:
    try:
        code = app(args=arguments, prog_name="isr", standalone_mode=False) or 0
        sys.stdout.flush()  # short output may meet the closed pipe only here
    except BrokenPipeError:
        return _without_reader()
    except SystemExit as leave:  # Click leaves by itself, with 1, where a pipe is closed
        if isinstance(leave.__context__, BrokenPipeError):
            return _without_reader()
        raise
    except (typer.Abort, KeyboardInterrupt):
        code = INTERRUPTED
    except Exception as error:
        # Typer has its own copy of Click in newer versions, so the class of usage errors is not at hand.
        is_usage = hasattr(error, "format_message")
        if debug and not is_usage:
            raise
        return _explain_usage(error) if is_usage else _explain(error)
    if code == INTERRUPTED:
        _say("error", "interrupted")
    return code


def _without_reader() -> int:
    """The reader (``head``, a pager) has what it wanted: no error, and nothing is flushed into the pipe at exit."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for descriptor in (1, 2):
        os.dup2(nowhere, descriptor)
    return 0


def _explain_usage(error: Exception) -> int:
    context = getattr(error, "ctx", None)
    see = f"; see {context.command_path} --help" if context is not None else ""
    sentence = error.format_message().rstrip(".").replace("Value error, ", "")  # type: ignore[attr-defined]
    if sentence:  # else help alone was printed
        _say("error", f"{sentence}{see}")
    return WRONG_INPUT


def meaning(error: Exception) -> int:
    """Return the exit code of an error."""
    return next((MEANINGS[kind.__name__] for kind in type(error).__mro__ if kind.__name__ in MEANINGS), FAULT)


def _explain(error: Exception) -> int:
    code = meaning(error)
    sentence = str(error) or type(error).__name__
    if isinstance(error, OSError) and sentence.startswith("[Errno"):
        sentence = f"{error.strerror}{f': {error.filename}' if error.filename else ''}"
    if isinstance(error, MemoryError):
        sentence = f"there is not enough memory ({error}); ask for less at a time, or raise the limit"
    if code == FAULT:
        sentence = (
            f"unexpected {type(error).__name__}: {error}; this is a fault of isr: please report it with what the same "
            "command prints with --debug"
        )
    _say("error", sentence)
    return code


def _say(what: str, sentence: str) -> None:
    line = visible(" ".join(sentence.split()))
    typer.echo(
        f"{what}: {line if len(line) <= LONGEST_SENTENCE else f'{line[:LONGEST_SENTENCE]} …'}", err=True
    )
