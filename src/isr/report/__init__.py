"""The report: a model as one self-contained HTML page with a live explorer of its posterior.

The page opens without a network. Its equations run in the browser, so that an observation can be moved by hand.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from isr.equations.check import CheckResult
from isr.report.contents import Calibration, FrontPoint, ReportData
from isr.report.gather import gather
from isr.report.page import render

__all__ = ["Calibration", "FrontPoint", "ReportData", "gather", "render", "write_report"]


def write_report(
    model: Any,
    path: str | os.PathLike[str],
    *,
    data: Any = None,
    title: str | None = None,
    calibration: Calibration | None = None,
    checks: CheckResult | bool = True,
    provenance: Mapping[str, Any] | None = None,
    scene: str | None = None,
    y_star: Sequence[float] | None = None,
    overwrite: bool = True,
) -> Path:
    """Write a page about a model and return its path.

    Args:
        model: A fitted estimator, a `Bundle`, the path of a saved model, a `Flow`, or a `ReportData`, which then holds
            everything that the options below would give.
        path: The HTML file.
        data: Rows to compare with: x, the pair ``(x, y)``, or a frame that holds the model's columns by name.
        title: Heading of the page.
        calibration: Results of calibration checks; see `Calibration.of`.
        checks: What `isr.check` found; True runs it now, False leaves it out.
        provenance: Further entries, such as ``{"command": "isr fit data.csv"}``.
        scene: ``"kinematics"`` draws the planar arm; models with the arm's names have it without asking.
        y_star: The observation the explorer starts with.
        overwrite: Whether an existing file may be replaced.

    Example:
        >>> import jax, isr, tempfile, pathlib
        >>> flow = isr.build_flow(jax.random.key(0), 2)
        >>> path = write_report(flow, pathlib.Path(tempfile.mkdtemp()) / "report.html", checks=False)
        >>> "<math" in path.read_text("utf-8")
        True
    """
    target = Path(path)
    if target.exists() and not overwrite:
        raise FileExistsError(f"{target} exists already; choose another name or pass overwrite=True")
    if not isinstance(model, ReportData):
        model = gather(
            model, data=data, title=title, calibration=calibration, checks=checks, provenance=provenance,
            scene=scene, y_star=y_star,
        )  # fmt: skip
    target.write_text(render(model), encoding="utf-8")
    return target
