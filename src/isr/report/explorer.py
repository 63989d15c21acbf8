"""What the live explorer of a page needs: the model as JavaScript, ranges for its controls, rows to start from."""

from __future__ import annotations

import base64
import json
import math
import re
import zlib
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from isr.bijections.flow import Flow
from isr.equations import Expressions
from isr.posterior.maximum import bounds_of, reach, slack
from isr.report.gather import ReportData

# Shorter texts stay readable in the page's source.
LONG = 40_000


def script_json(value: Any) -> str:
    """Return JSON that is safe inside a ``<script>`` element, whatever the texts in it say."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def packed(text: str) -> dict[str, str]:
    """Return a text as the page's ``unpack`` reads it: as it is, or deflated when long."""
    if len(text) < LONG:
        return {"text": text}
    return {"deflate": base64.b64encode(zlib.compress(text.encode(), 9)).decode()}


def rounded(values: np.ndarray, digits: int = 6) -> list[Any]:
    """Return an array as nested lists of so many significant digits; what is not finite becomes None."""

    array = np.asarray(values, dtype=float)
    if array.ndim > 1:
        return [rounded(row, digits) for row in array]
    return [float(f"{value:.{digits}g}") if math.isfinite(value) else None for value in array]


EXPORTED = r"^export (?=const |function |class )"
N_DRAWS = 5000
N_TYPICAL = 2000
MOST_ROWS = 200
# The arm of `isr.problems.kinematics`, which this layer may not import; a test compares them.
ARM_LENGTHS = (0.5, 0.5, 1.0)
ARM_TARGET = (0.0, 1.5)
ARM_X, ARM_Y = ("height", "angle1", "angle2", "angle3"), ("vertical", "horizontal")


def explorer_payload(data: ReportData, flow: Flow, expressions: Expressions) -> dict[str, Any]:
    """Return the explorer's data: a posterior where the model reads an observation, else samples and latents."""
    y_rows = _typical_y(data, flow)
    x_rows = _typical_x(data, flow, y_rows)
    scene = scene_of(expressions)
    payload = {
        "kind": "samples" if y_rows is None else "posterior",
        "n": N_DRAWS,
        "x": _variables(expressions.x_names, data.bundle.units, x_rows),
        "y": [] if y_rows is None else _variables(expressions.y_names, data.bundle.units, y_rows),
        "nLatent": flow.bijection.dim,
        "search": {  # as `isr.posterior.maximum` seeks the densest point
            "names": list(expressions.x_names),
            "bounds": bounds_of(flow).pairs(),
            "radius": reach(flow.bijection.dim),
            "slack": slack(flow.bijection.dim),
        },
        # An ES module as a plain script, which every browser takes as a worker.
        "source": packed(re.sub(EXPORTED, "", expressions.code("javascript"), flags=re.MULTILINE)),
        "scene": scene,
        "training": None
        if data.training is None
        else {
            **{
                n: rounded(getattr(data.training, n), 12)
                for n in ("shift", "scale", "low", "high", "directions")
            },
            "residualScale": float(data.training.residual_scale),
            "references": rounded(data.training.references, 7),
            "largest": rounded(data.training.scores.max(axis=0), 9),
        },
        "rows": None,
    }
    if y_rows is not None:
        target = scene and [ARM_TARGET[scene["y"].index(column)] for column in (0, 1)]
        start = data.y_star or target or middle_row(y_rows)
        for variable, value in zip(payload["y"], start, strict=True):
            variable["value"] = float(value)
            variable["low"], variable["high"] = min(variable["low"], value), max(variable["high"], value)
    if data.x is not None:
        some = slice(0, MOST_ROWS)
        payload["rows"] = {"x": rounded(data.x[some], 8), "prior": [rounded(c, 4) for c in data.x[:1500].T]}
        if data.y is not None:
            payload["rows"]["y"] = rounded(data.y[some], 8)
    return payload


def scene_of(expressions: Expressions) -> dict[str, Any] | None:
    """Return the arm to draw where the names are those of the arm."""
    x, y = list(expressions.x_names), list(expressions.y_names)
    if (sorted(x), sorted(y)) != (sorted(ARM_X), sorted(ARM_Y)):
        return None
    return {"lengths": list(ARM_LENGTHS), "x": [x.index(n) for n in ARM_X], "y": [y.index(n) for n in ARM_Y]}


def _typical_y(data: ReportData, flow: Flow) -> np.ndarray | None:
    if not flow.condition_dim:
        return None
    if data.y is not None:
        return data.y
    normal = np.random.default_rng(0).normal(size=(N_TYPICAL, flow.condition_dim))
    known = data.training  # a bare flow has none
    return normal if known is None else np.clip(known.shift + known.scale * normal, known.low, known.high)


def _typical_x(data: ReportData, flow: Flow, y_rows: np.ndarray | None) -> np.ndarray:
    drawn = data.samples
    if drawn is None:
        given = None if y_rows is None else y_rows[:N_TYPICAL]
        drawn = flow.sample(jax.random.key(0), N_TYPICAL if given is None else len(given), given)
    rows = drawn if data.x is None else np.concatenate([data.x, drawn])
    finite = np.isfinite(rows).all(axis=1)
    return rows[finite] if finite.any() else np.zeros((2, flow.dim))


def _variables(names: Sequence[str], units: Any, rows: np.ndarray) -> list[dict[str, Any]]:
    low, high = np.quantile(rows, [0.003, 0.997], axis=0)
    room = np.where(high > low, 0.06 * (high - low), 0.5)
    return [
        {"name": name, "unit": units.get(name, ""), "low": float(a), "high": float(b)}
        for name, a, b in zip(names, low - room, high + room, strict=True)
    ]


def middle_row(rows: np.ndarray) -> tuple[float, ...]:
    """The row nearest the middle: a typical observation, where the middle itself may be impossible."""
    spread = rows.std(axis=0)
    distance = np.sum(((rows - np.median(rows, axis=0)) / np.where(spread > 0, spread, 1.0)) ** 2, axis=1)
    return tuple(rows[int(np.argmin(distance))].tolist())
