"""What a report shows, gathered in one record: the page is made from it and from nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import ArrayLike

from isr.equations.check import CheckResult
from isr.posterior.calibration import Coverage, Tarp, check_calibration, marginal_coverage, sbc_ranks, tarp
from isr.posterior.outliers import TrainingRecord

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class FrontPoint:
    """One model along the accuracy-complexity front.

    Args:
        complexity: Cost of its equations.
        loss: Held-out loss, in nats per row.
        n_constants: Learned numbers in use.
        chosen: Whether it is the model of this report.
        model: The model itself, where it is at hand; its equations are shown.
        text: Its equations as text, where only that is known.

    Example:
        >>> FrontPoint(14, 3.53, 3, chosen=True, text="z = x/2").text
        'z = x/2'
    """

    complexity: float
    loss: float
    n_constants: int
    chosen: bool = False
    model: Any = None
    text: str = ""


@dataclass(frozen=True)
class Calibration:
    """Results of the calibration checks of `isr.posterior.calibration`; what is left out is not shown.

    Args:
        ranks: From ``sbc_ranks``, a column per parameter.
        n_draws: Posterior draws behind every rank.
        coverage: From ``marginal_coverage`` or ``joint_coverage``.
        tarp: From ``tarp``.
        tests: From ``check_calibration``, a row per test.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> shift = rng.normal(size=(60, 1, 1))
        >>> truths, samples = (shift + rng.normal(size=(60, 1, 1)))[:, 0], shift + rng.normal(size=(60, 99, 1))
        >>> Calibration.of(truths, samples).n_draws
        99
    """

    ranks: Int[np.ndarray, "n dim"] | None = None
    n_draws: int = 0
    coverage: Coverage | None = None
    tarp: Tarp | None = None
    tests: pd.DataFrame | None = None

    @classmethod
    def of(cls, truths: ArrayLike, samples: ArrayLike, names: tuple[str, ...] | None = None) -> Calibration:
        """Return all checks of posterior draws ``(n, m, dim)`` against truths ``(n, dim)``."""
        return cls(
            ranks=sbc_ranks(truths, samples),
            n_draws=np.shape(samples)[1],
            coverage=marginal_coverage(truths, samples),
            tarp=tarp(truths, samples),
            tests=check_calibration(truths, samples, names=names),
        )


@dataclass(frozen=True)
class ReportData:
    """Everything a report is made of. Only the model is needed; what is left out has no section.

    Args:
        model: A `Flow`, or the `Formulas` of a regressor.
        title: Heading of the page.
        kind: What made the model, such as ``"ConditionalISR"``.
        x_names: Names of x; x1, x2, ... where empty.
        y_names: Names of y; y1, y2, ... where empty.
        units: Unit of a variable, by name.
        status: How the fit ended.
        errors: Standard error of each learned number, in the order of `isr.bijections.parameters.flatten`, NaN where
            there is none.
        labels: Learned numbers that were set to simple values, by index.
        front: Models along the accuracy-complexity front, from simple to complex.
        history: A row per epoch with columns epoch, phase, train, held_out and held_out_median.
        x: Rows of data.
        y: Their observations.
        samples: Rows drawn from the model, given the rows of ``y`` where it reads one.
        predicted: Values of a regressor for the rows of ``x``.
        calibration: Results of calibration checks.
        checks: What `isr.check` found.
        provenance: Where the model comes from, shown as it is.
        scene: ``"kinematics"`` draws the arm of `isr.problems.kinematics`.
        y_star: The observation the explorer starts with.
        training: What the training observations were like; the explorer warns where an observation is not.

    Example:
        >>> from isr.bijections.affine import Standardise
        >>> from isr.bijections.flow import Flow
        >>> ReportData(Flow(Standardise((2.0,), (0.5,))), title="Depths", x_names=("depth",)).title
        'Depths'
    """

    model: Any
    title: str = "Report"
    kind: str = ""
    x_names: tuple[str, ...] = ()
    y_names: tuple[str, ...] = ()
    units: Mapping[str, str] = field(default_factory=dict)
    status: str = ""
    errors: Float[np.ndarray, " n"] | None = None
    labels: Mapping[int, str] = field(default_factory=dict)
    front: tuple[FrontPoint, ...] = ()
    history: pd.DataFrame | None = None
    x: Float[np.ndarray, "rows x"] | None = None
    y: Float[np.ndarray, "rows y"] | None = None
    samples: Float[np.ndarray, "rows x"] | None = None
    predicted: Float[np.ndarray, "rows y"] | None = None
    calibration: Calibration | None = None
    checks: CheckResult | None = None
    provenance: Mapping[str, str] = field(default_factory=dict)
    scene: str | None = None
    y_star: tuple[float, ...] | None = None
    training: TrainingRecord | None = None
