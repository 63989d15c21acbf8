"""History: the curves of a training run, one row per epoch and member."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from isr.tables.extras import need

if TYPE_CHECKING:
    import pandas as pd


@dataclass(repr=False)
class History:
    """Losses seen during training.

    Args:
        phases: Name of the phase of each epoch.
        train: One array per epoch: mean training loss of each member.
        held_out: The same on held-out rows.
    """

    phases: list[str] = field(default_factory=list)
    train: list[np.ndarray] = field(default_factory=list)
    held_out: list[np.ndarray] = field(default_factory=list)

    def __repr__(self) -> str:
        epochs = ", ".join(f"{name} {self.phases.count(name)}" for name in dict.fromkeys(self.phases))
        best = min((float(np.nanmin(held)) for held in self.held_out), default=np.nan)
        return f"<history of {len(self.phases)} epochs ({epochs}), best held-out loss {best:.4g}>"

    def add(self, phase: str, train: np.ndarray, held_out: np.ndarray) -> None:
        """Record one epoch."""
        self.phases.append(phase)
        self.train.append(np.asarray(train, dtype=float))
        self.held_out.append(np.asarray(held_out, dtype=float))

    def frame(self) -> pd.DataFrame:
        """Return one row per epoch: phase, best and median losses over the members."""
        import pandas as pd

        columns = {
            "epoch": range(1, len(self.phases) + 1), "phase": self.phases,
            "train": [np.nanmin(losses) for losses in self.train],
            "held_out": [np.nanmin(losses) for losses in self.held_out],
            "held_out_median": [float(np.nanmedian(losses)) for losses in self.held_out],
            "n_members": [len(losses) for losses in self.train],
        }  # fmt: skip
        return pd.DataFrame(columns)

    def plot(self, ax: Any = None) -> Any:
        """Draw the curves, one line per member, and return the axes."""
        plt = need("matplotlib.pyplot")

        ax = ax if ax is not None else plt.subplots(figsize=(6, 3.5))[1]
        begin = 0
        while begin < len(self.phases):
            end = begin
            while end < len(self.phases) and self.phases[end] == self.phases[begin]:
                end += 1
            curves = np.stack(self.held_out[begin:end])
            epochs = np.arange(begin + 1, end + 1)
            ax.plot(epochs, curves, color="C0", alpha=0.25, lw=0.8)
            ax.plot(epochs, np.nanmin(curves, axis=1), color="C1", lw=1.6)
            ax.axvline(begin + 1, color="0.8", lw=0.8, zorder=0)
            ax.annotate(self.phases[begin], (begin + 1, 1), xycoords=("data", "axes fraction"), fontsize=8,
                        xytext=(3, -10), textcoords="offset points", color="0.4")  # fmt: skip
            begin = end
        values = np.concatenate([h[np.isfinite(h)] for h in self.held_out]) if self.held_out else np.zeros(1)
        low, high = np.min(values), np.quantile(values, 0.98)
        ax.set(
            xlabel="epoch",
            ylabel="held-out loss (nats)",
            ylim=(low - 0.05 * (high - low + 1e-9), high + 1e-9),
        )
        return ax
