"""Posteriors from saved models: what `isr.load` gives is all they need."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from isr.bijections.flow import Flow
from isr.posterior.extent import Extent
from isr.posterior.maximum import Density
from isr.posterior.outliers import TrainingRecord
from isr.posterior.posterior import Posterior
from isr.posterior.simulators import Simulator
from isr.tables.tables import Columns, read_row, read_table


class SavedModel(Protocol):
    """What is needed of a saved model; `isr.storage.Bundle` is one."""

    @property
    def flow(self) -> Flow:
        """The model as a flow."""
        ...

    @property
    def x_names(self) -> tuple[str, ...]:
        """Names of x, none where empty."""
        ...

    @property
    def y_names(self) -> tuple[str, ...]:
        """Names of y, none where empty."""
        ...

    @property
    def units(self) -> Mapping[str, str]:
        """Unit by name."""
        ...

    @property
    def metadata(self) -> Mapping[str, Any]:
        """What is known of its training."""
        ...


def from_bundle(
    bundle: SavedModel, y_star: Any, *, prior: Density | None = None, simulator: Simulator | None = None
) -> Posterior:
    """Return the posterior of a saved model, with a warning where the observation is unlike its training data.

    Args:
        bundle: What `isr.load` gave.
        y_star: One observation (values in order, or a mapping by name), or several of the same x as rows.
        prior: See `Posterior`.
        simulator: See `Posterior`.

    Example:
        >>> import isr
        >>> from isr.bijections.affine import Linear
        >>> from isr.storage import Bundle
        >>> flow = isr.Flow(Linear(np.array([[1.0, 1.0], [1.0, -1.0]])), noise=(0.1,))
        >>> from_bundle(Bundle(flow, ("mass", "charge"), ("force",)), {"force": 3.0})
        Posterior of mass, charge given force = 3
    """
    flow = bundle.flow
    y_names = bundle.y_names or tuple(f"y{i + 1}" for i in range(flow.condition_dim))
    columns = Columns(y_names, (None,) * len(y_names))
    several = np.ndim(y_star) == 2 and len(y_star) > 1
    read = read_table(y_star, like=columns, what="y").values if several else read_row(y_star, like=columns)
    training, extent = bundle.metadata.get("training"), bundle.metadata.get("extent")
    return Posterior(
        flow, read, x_names=bundle.x_names or None, y_names=y_names, units=bundle.units, prior=prior,
        simulator=simulator,
        training=TrainingRecord.from_dict(training) if isinstance(training, Mapping) else None,
        extent=Extent.from_dict(extent) if isinstance(extent, Mapping) else None,
    )  # fmt: skip
