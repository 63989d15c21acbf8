"""The report: a model as one self-contained HTML page with a live explorer of its posterior.

The page opens without a network. Its equations run in the browser, so that an observation can be moved by hand.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from isr.report.gather import Calibration, ReportData, gather
from isr.report.page import render

__all__ = ["Calibration", "ReportData", "gather", "render", "write_report"]


def write_report(model: Any, path: str | os.PathLike[str], *, overwrite: bool = True, **options: Any) -> Path:
    """Write a page about a model and return its path.

    Args:
        model: A fitted estimator, a `Bundle`, the path of a saved model, a `Flow`, or a `ReportData`.
        path: The HTML file.
        overwrite: Whether an existing file may be replaced.
        **options: Those of `gather`, such as ``data=(x, y)``; none with a `ReportData`, which holds them already.

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
    if isinstance(model, ReportData) and options:
        raise TypeError(
            f"a ReportData holds everything already, got {', '.join(options)}; change it with dataclasses.replace"
        )
    contents = model if isinstance(model, ReportData) else gather(model, **options)
    target.write_text(render(contents), encoding="utf-8")
    return target
