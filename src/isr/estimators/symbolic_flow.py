"""SymbolicFlow: a density learned as equations, with the interface of scikit-learn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

import jax
import numpy as np
from sklearn.base import DensityMixin, TransformerMixin
from sklearn.utils.validation import validate_data

from isr.bijections.coupling import AbstractTransformer
from isr.bijections.flow import Precision
from isr.estimators.flow_model import FlowModel
from isr.estimators.settings import Training, explains_wrong_options, seed_of
from isr.estimators.streams import Stream
from isr.tables.arrays import without_times
from isr.tables.sources import open_rows
from isr.tables.tables import read_table

CLAMP = 5.0


@explains_wrong_options
@dataclass(eq=False, repr=False)
class SymbolicFlow(TransformerMixin, DensityMixin, FlowModel):
    """Learns ``f(x) = z`` with z standard normal: a density whose equations run both ways.

    Args:
        n_blocks: Coupling blocks.
        n_layers: Hidden layers of a subnetwork.
        library: Library of functions with multiplicities; the paper's when None.
        subnet: ``"eql"`` for equations, ``"mlp"`` for the INN baseline.
        transformer: What a coupling does to each variable; affine when None.
        mixing: Between blocks: a fixed ``"permutation"``, a learned ``"linear"`` map, or ``"none"``.
        charts: Closed-form charts to apply first, such as ``("polar",)``; ``"auto"`` lets the fit choose among none,
            polar coordinates and a split of two modes.
        bounds: Box that x lies in: mapping or list of ``(low, high)``, None for an open end.
        units: Unit of a variable, by name.
        training: How it is trained, an `isr.Training`; its effort alone (``"quick"``) will do.
        random_state: Seed.

    Attributes:
        flow_: The model.
        expressions_: Its equations.
        front_: Accuracy against complexity, a pandas frame.
        errors_: Standard errors of the constants.
        history_: Training curves.
        status_: How the fit ended.
        round_trip_error_: How far rows come back from where they were, forward and then inverse.

    Example:
        >>> import numpy as np
        >>> from isr.estimators.settings import Effort
        >>> training = Training(Effort(40, 0, 0), n_restarts=1, penalty=None)
        >>> x = np.random.default_rng(0).normal([0, 3], 0.3, size=(200, 2))
        >>> flow = SymbolicFlow(n_layers=1, training=training).fit(x)
        >>> flow.sample(5).shape
        (5, 2)
        >>> flow.score_samples(x).shape, flow.score(x) > -3, flow.transform(x).shape
        ((200,), True, (200, 2))
        >>> bool(np.allclose(flow.inverse_transform(flow.transform(x)), x)), flow.round_trip_error_ < 1e-9
        (True, True)
        >>> flow.get_feature_names_out().tolist(), flow.expressions_.x_names
        (['z1', 'z2'], ('x1', 'x2'))
        >>> int(flow.front_["chosen"].sum()), flow.choose(rule="accuracy").chosen_ < len(flow.front_), flow.errors_.ndim
        (1, True, 1)
        >>> flow.to_bundle(), flow.flow_.dim
        (<saved SymbolicFlow of x1, x2>, 2)
    """

    _: KW_ONLY
    transformer: AbstractTransformer | None = None

    _usual_training: ClassVar[Training] = Training(n_restarts=8, batch_size=64, backward=0.0)
    _no_training: ClassVar[tuple[str, ...]] = ("loss",)

    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn the density of the rows of X; y is ignored."""
        values: Any = validate_data(self, without_times(X), dtype=np.float64, ensure_min_samples=4)
        return self._fit_rows(values, getattr(self, "feature_names_in_", None))

    def fit_file(self, source: Any, x: Sequence[str] | Sequence[int] | None = None) -> Self:
        """Learn the density of rows that stay on disk, more than memory holds.

        Args:
            source: Path of a Parquet file or a ``.npy`` array; or an array that slices (``numpy.memmap``, Zarr, HDF5).
            x: Columns: names of a Parquet file, numbers of an array; all when None.
        """
        rows = open_rows(source, x)
        stream = Stream.over(rows, None, seed=seed_of(self.random_state), bounds=self.bounds)
        if isinstance(source, str | Path) and Path(source).suffix != ".npy":
            self.feature_names_in_ = np.array(rows.names, dtype=object)
        self.n_features_in_ = len(rows.names)
        return self._fit_rows(stream.sample()[0], rows.names, stream)

    def _fit_rows(self, x: np.ndarray, names: Sequence[str] | None, stream: Stream | None = None) -> Self:
        self._fit(read_table(x, names=names, units=self.units, bounds=self.bounds), stream)
        return self

    def _shape(self) -> dict[str, Any]:
        return {"clamp": CLAMP, "skip": True, "transformer": self.transformer}

    def score_samples(self, X: Any, *, precision: Precision = "double") -> np.ndarray:
        """Return the log-density (nats) of each row, in ``"double"`` or the faster ``"single"`` precision."""
        return self.flow_.log_prob(self._checked(X), precision=precision)

    def score(self, X: Any, y: Any = None) -> float:
        """Return the mean log-density (nats) of the rows."""
        return float(np.mean(self.score_samples(X)))

    def sample(
        self, n_samples: int = 1, random_state: int | None = 0, *, precision: Precision = "double"
    ) -> np.ndarray:
        """Return rows drawn from the learned density; ``"single"`` precision takes half the time, with six digits."""
        return self.flow_.sample(jax.random.key(seed_of(random_state)), int(n_samples), precision=precision)

    def transform(self, X: Any) -> np.ndarray:
        """Return the latents z of rows."""
        return self.flow_.forward(self._checked(X))[0]

    def inverse_transform(self, X: Any) -> np.ndarray:
        """Return the rows that latents stand for."""
        return self.flow_.inverse(np.asarray(X, dtype=float))[0]

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """Return the latents' names."""
        return np.array([f"z{i + 1}" for i in range(self.flow_.bijection.dim)], dtype=object)

    def _checked(self, X: Any) -> np.ndarray:
        values: Any = validate_data(self, without_times(X), dtype=np.float64, reset=False)
        return values

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.non_deterministic = False
        tags.transformer_tags.preserves_dtype = []
        return tags
