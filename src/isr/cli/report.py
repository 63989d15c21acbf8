"""``isr report``: a saved model as one HTML page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from isr.cli.models import observation, open_model
from isr.cli.options import Force, Json, ModelFile, asked, with_groups
from isr.cli.output import refuse_existing, say, say_written, write_text
from isr.cli.rows import Reading

if TYPE_CHECKING:
    from isr.storage import Bundle

MOST_CALIBRATED = 500
N_DRAWS = 99


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
    found, verdict = _calibration(bundle, frame) if calibrate else (None, "")
    if verdict and not json:
        say(verdict)
    from isr.report import gather, render

    page = render(
        gather(
            bundle, data=frame, title=title, calibration=found,
            provenance={"calibration": verdict} if verdict else None,
            y_star=None if y is None else observation(bundle, y),
        )
    )  # fmt: skip
    write_text(target, page)
    n_bytes = len(page.encode())
    say_written(
        target, json, f"{n_bytes / 1e6:.1f} MB; open it in a browser, no network needed", bytes=n_bytes
    )


def _calibration(bundle: Bundle, frame: Any) -> Any:
    """Return the checks of posterior draws for up to so many rows, with the noise of training, and what they say."""
    import numpy as np

    from isr.posterior.calibration import regional_verdict
    from isr.report import Calibration

    if frame is None:
        raise ValueError(
            "--calibrate needs rows to judge by: add --data with fresh rows drawn from the prior"
        )
    bundle.require("posterior")
    rows = frame.head(MOST_CALIBRATED)
    x, y = rows[list(bundle.x_names)].to_numpy(), rows[list(bundle.y_names)].to_numpy()
    noise = np.asarray(bundle.metadata.get("noise", 0.0), dtype=float)
    y = y + noise * np.random.default_rng(0).normal(size=y.shape)
    if "sample" in bundle.abilities:
        drawn = bundle.sample(len(x) * N_DRAWS, np.repeat(y, N_DRAWS, axis=0)).reshape(len(x), N_DRAWS, -1)
    else:
        drawn = np.stack([bundle.posterior(row)._draw(N_DRAWS, i)[0] for i, row in enumerate(y)])
    return Calibration.of(x, drawn, bundle.x_names), regional_verdict(
        x, drawn, y, bundle.x_names, bundle.y_names
    )
