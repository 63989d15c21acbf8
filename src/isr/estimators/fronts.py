"""The front as a pandas frame."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from isr.pruning.front import Point

if TYPE_CHECKING:
    import pandas as pd


def front_frame(front: list[Point], chosen: int, equations: Callable[[Any], str]) -> pd.DataFrame:
    """Return one row a point: complexity, held-out and training loss in nats, constants, chosen, equations."""
    import pandas as pd

    return pd.DataFrame(
        {
            "complexity": [p.complexity for p in front],
            "nll": [p.held_out_nats for p in front],
            "nll_train": [p.train_nats for p in front],
            "n_parameters": [p.n_constants for p in front],
            "chosen": [i == chosen for i in range(len(front))],
            "equations": [equations(p.model) for p in front],
        }
    )
