"""What a report shows, gathered from an estimator, a saved model or a flow: the page is made from nothing else."""

from __future__ import annotations

import datetime
import hashlib
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jaxtyping import Float

from isr import __version__
from isr.bijections.flow import Flow
from isr.equations import check, extract
from isr.equations.check import CheckResult
from isr.motion.record import SavedMotion
from isr.native import status
from isr.posterior.calibration import Calibration
from isr.posterior.outliers import TrainingRecord
from isr.storage import Bundle, load
from isr.tables.arrays import checked_rows


@dataclass(frozen=True)
class ReportData:
    """Everything a report is made of. Only the model is needed; what is left out has no section.

    Args:
        bundle: The model, with its names, units, front, history and errors of constants.
        title: Heading of the page.
        x: Rows of data.
        y: Their observations.
        samples: Rows drawn from the model, given the rows of ``y`` where it reads one.
        predicted: Values of a regressor for the rows of ``x``.
        calibration: Results of calibration checks.
        checks: What `isr.check` found.
        provenance: Where the model comes from, shown as it is.
        y_star: The observation the explorer starts with.
        training: What the training observations were like; the explorer warns where an observation is not.
        laws: What an `Inversion` found, text under a heading each, shown first.
        trajectories: Of a law of motion: times, what was measured, and the law begun where it follows that best.

    Example:
        >>> from isr.bijections.affine import Standardise
        >>> ReportData(Bundle(Flow(Standardise((2.0,), (0.5,))), ("depth",)), "Depths").title
        'Depths'
    """

    bundle: Bundle
    title: str = "Report"
    x: Float[np.ndarray, "rows x"] | None = None
    y: Float[np.ndarray, "rows y"] | None = None
    samples: Float[np.ndarray, "rows x"] | None = None
    predicted: Float[np.ndarray, "rows y"] | None = None
    calibration: Calibration | None = None
    checks: CheckResult | None = None
    provenance: Mapping[str, str] = field(default_factory=dict)
    y_star: tuple[float, ...] | None = None
    training: TrainingRecord | None = None
    laws: tuple[tuple[str, str], ...] = ()
    trajectories: tuple[np.ndarray, np.ndarray, np.ndarray] | None = None


N_SAMPLES = 2000
# What a file says about itself beyond its figures is shown; longer entries are data, not provenance.
LONGEST_ENTRY = 200


def gather(
    model: Any,
    *,
    data: Any = None,
    title: str | None = None,
    calibration: Calibration | None = None,
    checks: CheckResult | bool = True,
    provenance: Mapping[str, Any] | None = None,
    y_star: Sequence[float] | None = None,
    laws: Sequence[tuple[str, str]] = (),
) -> ReportData:
    """Return what a report about ``model`` shows.

    Args:
        model: A fitted estimator, a `Bundle`, the path of a saved model, or a `Flow`.
        data: Rows to compare with: x, the pair ``(x, y)``, or a frame that holds the model's columns by name; of a law
            of motion ``(times, values)`` or ``(times, values, x)``.
        title: Heading of the page.
        calibration: Results of calibration checks; see `Calibration.of`.
        checks: What `isr.check` found; True runs it now, False leaves it out.
        provenance: Further entries, such as ``{"command": "isr fit data.csv"}``.
        y_star: The observation the explorer starts with.
        laws: Headings and texts to show first, such as ``Bundle.sections`` of an `Inversion`.

    Example:
        >>> from isr.bijections.affine import Standardise
        >>> data = gather(Flow(Standardise((2.0,), (0.5,))), data=[[1.5], [2.5]], title="Depths", checks=False)
        >>> data.title, data.bundle.x_names, data.provenance["rows of data"]
        ('Depths', ('x1',), '2')
    """
    if isinstance(model, str | os.PathLike):
        model = load(Path(model))
    bundle = Bundle.of(model, "report on")
    flow = bundle.model if isinstance(bundle.model, Flow) else None
    followed = None
    if isinstance(bundle.model, SavedMotion):
        data, followed = None, data and bundle.model.followed(*data)
    x, y = _finite(flow, *_rows(data, bundle.x_names, bundle.y_names), y_star)
    if checks is True and flow is not None:
        known = x is not None and (flow.condition_map is None or y is not None)
        rows = {"rows": x[:1000], "y": None if y is None else y[:1000]} if known else {}
        checks = check(flow, extract(flow), **rows)
    return ReportData(
        bundle=bundle,
        title=title or bundle.title,
        x=x,
        y=y,
        samples=_samples(flow, x, y),
        predicted=bundle.predict(x) if flow is None and x is not None and y is not None else None,
        calibration=calibration,
        checks=None if isinstance(checks, bool) else checks,
        provenance=_provenance(bundle, x, y, provenance or {}),
        y_star=None if y_star is None else tuple(float(v) for v in y_star),
        training=_training(bundle, flow, y),
        laws=tuple(laws),
        trajectories=followed,
    )


def _rows(
    data: Any, x_names: Sequence[str], y_names: Sequence[str]
) -> tuple[np.ndarray | None, np.ndarray | None]:
    if data is None:
        return None, None
    if isinstance(data, tuple) and len(data) == 2:
        return _table(data[0]), None if data[1] is None else _table(data[1])
    columns = [str(c) for c in getattr(data, "columns", ())]
    if columns and set(x_names) <= set(columns):
        named: Any = data.set_axis(columns, axis=1)  # type: ignore[union-attr]
        has_y = bool(y_names) and set(y_names) <= set(columns)
        return _table(named[list(x_names)]), _table(named[list(y_names)]) if has_y else None
    return _table(data), None


def _table(values: Any) -> np.ndarray:
    array = np.asarray(checked_rows(values, what="the data"), dtype=float)
    return array.reshape(-1, 1) if array.ndim == 1 else array


def _finite(flow: Flow | None, x: Any, y: Any, y_star: Any) -> tuple[Any, Any]:
    """The rows, known to fit the model, without those of infinities or no numbers, which no figure can show."""
    if x is not None and y is not None and len(x) != len(y):
        raise ValueError(f"x has {len(x)} rows and y has {len(y)}; they must be pairs")
    for what, rows in (("x", x), ("y", y)):
        width = flow and {"x": flow.dim, "y": flow.condition_dim}[what]
        if flow is not None and rows is not None and rows.shape[1] != width:
            raise ValueError(
                f"the model has {width} variables in {what}, but the data have {rows.shape[1]} columns there"
            )
    if flow is not None and y_star is not None and len(y_star) != flow.condition_dim:
        raise ValueError(f"y_star must have {flow.condition_dim} entries, got {len(y_star)}")
    tables = [t for t in (x, y) if t is not None]
    kept = np.all([np.isfinite(t).all(axis=1) for t in tables], axis=0)
    x, y = (None if t is None else t[kept] for t in (x, y))
    return x, y


def _samples(flow: Flow | None, x: np.ndarray | None, y: np.ndarray | None) -> np.ndarray | None:
    if flow is None or (flow.condition_dim and y is None):
        return None
    n = min(N_SAMPLES, N_SAMPLES if x is None else len(x))
    return flow.sample(jax.random.key(0), n, y[:n] if flow.condition_dim and y is not None else None)


def _training(bundle: Bundle, flow: Flow | None, y: np.ndarray | None) -> TrainingRecord | None:
    """The record that came with the model; without one, the data given stand for those it was trained on."""
    if flow is None or not flow.condition_dim:
        return None
    saved = bundle.metadata.get("training")
    if isinstance(saved, Mapping):
        return TrainingRecord.from_dict(saved)
    return None if y is None or len(y) < 20 else TrainingRecord.of(y)


def _provenance(
    bundle: Bundle, x: np.ndarray | None, y: np.ndarray | None, further: Mapping[str, Any]
) -> dict[str, str]:
    entries: dict[str, Any] = {
        "isr": __version__,
        **{package: metadata.version(package) for package in ("jax", "equinox", "sympy", "numpy")},
        "Python": platform.python_version(),
        "fits on this machine": status(),
        "written": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "made by": bundle.kind,
    }
    for name, value in bundle.metadata.items():
        parts = value if isinstance(value, tuple | list | np.ndarray) else [value]
        plain = all(isinstance(part, str | int | float | np.number) for part in parts)
        if (
            plain
            and len(str(value)) <= LONGEST_ENTRY
            and name not in ("front", "history", "status", "equations")
        ):
            entries[name] = value
    if x is not None:
        rows = x.tobytes() + (b"" if y is None else y.tobytes())
        entries |= {"rows of data": f"{len(x):,}", "SHA-256 of the data": hashlib.sha256(rows).hexdigest()}
    texts = {str(name): str(value) for name, value in {**entries, **further}.items()}
    return {name: text for name, text in texts.items() if text not in ("", "()", "[]")}
