"""``isr show``, ``check``, ``export`` and ``report``: a saved model's equations, and where they go."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from isr.cli.inputs import Reading, observation, open_model
from isr.cli.options import Complexity, Force, Json, ModelFile, asked, with_groups
from isr.cli.output import (
    heartbeat,
    print_json,
    refuse_existing,
    say,
    say_written,
    section,
    table,
    write_text,
)

if TYPE_CHECKING:
    from isr.equations.check import CheckResult
    from isr.storage import Bundle

# Entries of a model's metadata that are data, too long to print.
NOT_SHOWN = ("front", "training", "history", "constants")
MOST_CALIBRATED, N_DRAWS = 500, 99
Language = StrEnum("Language", "python c javascript jax latex")


def show(
    model: ModelFile,
    latex: Annotated[bool, asked("The equations alone, as LaTeX.", None, "--latex")] = False,
    text: Annotated[bool, asked("The equations alone, as text that SymPy reads.", None, "--text")] = False,
    inverse: Annotated[bool, asked("From the latent back to x.", None, "--inverse")] = False,
    complexity: Complexity = None,
    json: Json = False,
) -> None:
    """Print the equations of a saved model, its variables and its front.

    Example: isr show model.isr --inverse --latex
    """
    if latex + text + json > 1:
        raise ValueError("--latex, --text and --json exclude each other; give one of them")
    bundle = open_model(model, complexity)
    direction = "inverse" if inverse else "forward"
    if latex or text:
        equations = bundle.expressions
        say(equations.latex(direction, errors=bundle.printed_errors) if latex else equations.text(direction))
    elif json:
        print_json(described(bundle))
    else:
        describe(bundle, direction)


def describe(bundle: Bundle, direction: str) -> None:
    """Print what a model is, its equations in one direction and its front."""
    from isr.storage.shown import parts

    found = parts(bundle, direction)
    say(bundle.title)
    for title, text in found:
        section(title, text)
    print_front(bundle)


def print_front(bundle: Bundle, most: int = 12) -> None:
    """Print a front as a table; of a long one, models around the chosen one and both ends."""
    rows = front_of(bundle)
    if not rows:
        return
    chosen = next((i for i, row in enumerate(rows) if row["chosen"]), 0)
    nearest = sorted(range(len(rows)), key=lambda i: (i not in (0, len(rows) - 1), abs(i - chosen)))
    shown = [rows[i] for i in sorted(nearest[:most])]
    of_all = f", {len(shown)} of {len(rows)} models" if len(shown) < len(rows) else ""
    names = ("complexity", "learned constants", "held-out nats", "chosen")
    values = ((r["complexity"], r["n_parameters"], float(r["nll"]), r["chosen"]) for r in shown)
    lines = table([dict(zip(names, row, strict=True)) for row in values])
    section(f"Accuracy against complexity{of_all}", lines)


def front_of(bundle: Bundle) -> list[dict[str, Any]]:
    """Return complexity, loss, number of constants and choice of each model of the front, from simple to complex."""
    names = ("complexity", "nll", "n_parameters", "chosen")
    return [
        dict(zip(names, (p.complexity, p.held_out_nats, p.n_constants, i == bundle.chosen), strict=True))
        for i, p in enumerate(bundle.points)
    ]


def described(bundle: Bundle) -> dict[str, Any]:
    """Return a model's equations, variables and front as plain data."""
    about = {
        **({"laws": dict(bundle.sections)} if bundle.sections else {}),
        "kind": bundle.kind,
        "x": list(bundle.x_names),
        "y": list(bundle.y_names),
        "units": dict(bundle.units),
        "metadata": {k: v for k, v in bundle.metadata.items() if k not in NOT_SHOWN},
    }
    if bundle.motion is not None:
        return about
    equations = bundle.expressions
    return about | {
        "complexity": equations.complexity,
        "n_constants": equations.n_constants,
        "equations": {way: equations.text(way) for way in equations.directions},
        "latex": {way: equations.latex(way) for way in equations.directions},
        "constants": [{"value": value, "error": error} for value, error in bundle.printed_errors.items()],
        "front": front_of(bundle),
    }


@with_groups
def check(
    model: ModelFile,
    data: Annotated[
        Path | None, asked("Rows to check at instead of drawn ones: CSV, Excel, …", "ROWS")
    ] = None,
    *,
    reading: Reading,
    json: Json = False,
) -> None:
    """Check the equations of a saved model: against the model or law, the inverse, and autodiff.

    Leaves with exit code 4 where they disagree.

    Example: isr check model.isr --data rows.csv
    """
    bundle = open_model(model)
    x, y = None, None
    if data is not None:
        y_names = bundle.y_names if getattr(bundle.model, "condition_map", None) is not None else ()
        rows = reading.columns(data, [*bundle.x_names, *y_names], bundle)
        x, y = (rows[list(names)].to_numpy() if names else None for names in (bundle.x_names, y_names))
    result = check_model(bundle, x, y)
    if json:
        print_json(checks_as_data(result))
    else:
        say("\n".join(f"  {line}" for line in str(result).splitlines()))
    result.raise_if_failed()


def check_model(bundle: Bundle, rows: Any = None, y: Any = None) -> CheckResult:
    """Return how well equations and model agree, both ways where there are two."""
    from isr.equations.check import check

    model: Any = bundle.model
    if bundle.sections:
        return _check_law(bundle, rows)
    return check(model, bundle.expressions, rows=rows, y=y if getattr(model, "condition_map", None) else None)


def _check_law(bundle: Bundle, rows: Any) -> CheckResult:
    """How well the equations of a law give its means and deviations, at rows drawn from the law of x."""
    import numpy as np

    from isr.equations.check import CheckResult, CheckRow, relative_error

    model: Any = bundle.model
    expressions, law = bundle.expressions, model.to_law()
    if rows is None:
        rows = model.to_prior(bundle.x_names).sample(1000, np.random.default_rng(0))
    parts = [
        part
        for c, *both in zip(law.columns, *law.parts(rows), strict=True)
        for part in both[: 2 - c.is_exact]
    ]
    error = relative_error(expressions.evaluate("forward", rows)[0], np.stack(parts, axis=1))
    return CheckResult((CheckRow("equations = law", error, 1e-9, len(rows)),))


def checks_as_data(result: CheckResult) -> dict[str, Any]:
    """Return a check as plain data."""
    rows = [
        {"comparison": r.name, "error": r.error, "tolerance": r.tolerance, "n": r.n, "passed": r.passed}
        for r in result.rows
    ]
    return {"passed": result.passed, "rows": rows}


def export(
    model: ModelFile,
    lang: Annotated[Language, asked("python, c, javascript, jax or latex.", "NAME")] = Language.python,
    out: Annotated[Path | None, asked("File to write; stdout when left out.", "FILE")] = None,
    complexity: Complexity = None,
    force: Force = False,
    json: Json = False,
) -> None:
    """Write a model as source that stands alone: both directions, density and sampling.

    A model of --method law, formula or eql becomes one function per output.

    Example: isr export model.isr --lang c --out model.c
    """
    refuse_existing(out, force)
    bundle = open_model(model, complexity)
    if lang is Language.latex:
        equations = bundle.expressions
        source = "\n".join(f"% {way}\n{equations.latex(way)}\n" for way in equations.directions)
    else:
        source = bundle.code(lang.value)
    if out is not None:
        write_text(out, source)
        about = f"{len(source.splitlines())} lines of {lang.value}"
        say_written(out, json, about, language=lang.value, source=None)
    elif json:
        print_json({"language": lang.value, "out": None, "source": source})
    else:
        say(source, nl=not source.endswith("\n"))


@with_groups
def report(
    model: ModelFile,
    out: Annotated[Path | None, asked("HTML file; named after the model when left out.", "FILE")] = None,
    data: Annotated[
        Path | None, asked("Rows to compare with: CSV, Excel, …; columns named as in the model.", "ROWS")
    ] = None,
    y: Annotated[
        list[str] | None, asked("The observation the page starts with: p1=0.1,p2=0.3.", "VALUES", "--y")
    ] = None,
    calibrate: Annotated[
        bool,
        asked("Judge the posterior on the rows of --data, fresh ones from the prior.", None, "--calibrate"),
    ] = False,
    title: Annotated[str | None, asked("Heading of the page.", "TEXT")] = None,
    *,
    reading: Reading,
    force: Force = False,
    json: Json = False,
) -> None:
    """Write one self-contained HTML page with equations, front, checks and a live posterior explorer.

    Example: isr report model.isr --data data.csv --out report.html
    """
    target = Path(f"{model.stem}.html") if out is None else out
    refuse_existing(target, force)
    bundle = open_model(model)
    frame = None if data is None else reading.columns(data, [*bundle.x_names, *bundle.y_names], bundle)
    found = _calibration(bundle, frame) if calibrate else None
    if found is not None and not json:
        say(str(found))
    from isr.report import gather, render

    page = render(
        gather(
            bundle, data=frame, title=title, calibration=found,
            provenance=None if found is None else {"calibration": str(found)},
            y_star=None if y is None else observation(bundle, y),
        )
    )  # fmt: skip
    write_text(target, page)
    n_bytes = len(page.encode())
    about = f"{n_bytes / 1e6:.1f} MB; open it in a browser, no network needed"
    say_written(target, json, about, bytes=n_bytes)


def _calibration(bundle: Bundle, frame: Any) -> Any:
    """The checks of posterior draws for some rows, with the noise of training."""
    import numpy as np
    import pandas as pd

    from isr.posterior.calibration import Calibration

    if frame is None:
        raise ValueError(
            "--calibrate needs rows to judge by: add --data with fresh rows drawn from the prior"
        )
    rows = frame.head(MOST_CALIBRATED)
    x, y = rows[list(bundle.x_names)].to_numpy(), rows[list(bundle.y_names)].to_numpy()
    noise = np.asarray(bundle.metadata.get("noise", 0.0), dtype=float)
    y = y + noise * np.random.default_rng(0).normal(size=y.shape)
    with heartbeat(f"{len(x)} posteriors"):
        draws = bundle.draws(y, N_DRAWS)
    return Calibration.of(x, draws, bundle.x_names, pd.DataFrame(y, columns=bundle.y_names))
