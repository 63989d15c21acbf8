"""How a training run went, and where it stands: its curves, and checkpoints in one file written atomically.

A resumed run continues with the same bits: the state of every member is kept, and every epoch's randomness is
drawn from the run's seed and the epoch's number alone.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load as load_tensors
from safetensors.numpy import save as save_tensors

from isr.bijections.parameters import on_device
from isr.tables.extras import need
from isr.tables.whole_files import write_whole
from isr.training.loop import State

if TYPE_CHECKING:
    import pandas as pd


@dataclass(repr=False)
class History:
    """Losses seen during training, epoch by epoch: the name of its phase, and the mean losses of each member."""

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
        for name, numbered in groupby(enumerate(self.phases), key=lambda pair: pair[1]):
            epochs = np.array([number for number, _ in numbered])
            curves = np.stack([self.held_out[number] for number in epochs])
            ax.plot(epochs + 1, curves, color="C0", alpha=0.25, lw=0.8)
            ax.plot(epochs + 1, np.nanmin(curves, axis=1), color="C1", lw=1.6)
            ax.axvline(epochs[0] + 1, color="0.8", lw=0.8, zorder=0)
            ax.annotate(name, (epochs[0] + 1, 1), xycoords=("data", "axes fraction"), fontsize=8,
                        xytext=(3, -10), textcoords="offset points", color="0.4")  # fmt: skip
        values = np.concatenate([h[np.isfinite(h)] for h in self.held_out]) if self.held_out else np.zeros(1)
        low, high = np.min(values), np.quantile(values, 0.98)
        ax.set(
            xlabel="epoch",
            ylabel="held-out loss (nats)",
            ylim=(low - 0.05 * (high - low + 1e-9), high + 1e-9),
        )
        return ax


class Progress(NamedTuple):
    """Where a run stands: the phase under way, how many epochs of it are done, and the state of every member."""

    phase: int
    epoch: int
    strengths: np.ndarray
    masks: np.ndarray
    state: State
    best: np.ndarray  # weights of each member with the least held-out loss of the phase so far
    average: np.ndarray  # mean of the weights at the ends of its last epochs


class CheckpointError(ValueError):
    """A checkpoint that cannot be resumed from."""


def fingerprint(*parts: Any) -> str:
    """Return a hash of settings and data, by which a checkpoint knows what it belongs to."""
    digest = hashlib.sha256()
    for part in parts:
        if isinstance(part, np.ndarray):
            digest.update(str((part.shape, part.dtype)).encode())
            digest.update(np.ascontiguousarray(part).tobytes())
        else:
            digest.update(repr(part).encode())
    return digest.hexdigest()


def write(path: Path, progress: Progress, history: History, mark: str) -> None:
    """Write a checkpoint in one step, with a checksum of all it holds."""
    arrays = {"strengths": progress.strengths, "masks": progress.masks}
    arrays |= {"best": progress.best, "average": progress.average}
    lists = {"train": history.train, "held_out": history.held_out, "state": jax.tree.leaves(progress.state)}
    arrays |= {f"{name}_{i}": row for name, rows in lists.items() for i, row in enumerate(rows)}
    body = save_tensors({name: np.ascontiguousarray(values) for name, values in arrays.items()})
    head = {"mark": mark, "phase": progress.phase, "epoch": progress.epoch, "phases": history.phases}
    line = json.dumps(head | {"sha256": _digest(head, body)}).encode() + b"\n"
    write_whole(path, lambda hidden: hidden.write_bytes(line + body))


def _digest(head: dict[str, Any], body: bytes) -> str:
    return hashlib.sha256(json.dumps(head, sort_keys=True).encode() + body).hexdigest()


def read(path: Path, mark: str, template: Any) -> tuple[Progress, History]:
    """Return what `write` kept; refuses a file of another run or a damaged one.

    ``template(members)`` gives the optimiser's tree for a number of members.
    """
    try:
        line, body = path.read_bytes().split(b"\n", 1)
        head = json.loads(line)
        is_whole = head.pop("sha256") == _digest(head, body)
        arrays = load_tensors(body) if is_whole else {}
    except (ValueError, KeyError, TypeError, AttributeError, SafetensorError) as error:
        raise CheckpointError(
            f"{path} is not a checkpoint of a fit ({error}); delete it to begin anew"
        ) from error
    if not is_whole:
        raise CheckpointError(f"the checkpoint {path} is damaged; delete it to begin anew")
    if head["mark"] != mark:
        raise CheckpointError(
            f"the checkpoint {path} belongs to a fit with other data or settings; "
            "give another path, or delete it to begin anew"
        )

    def rows(name: str, n: int) -> list[np.ndarray]:
        return [arrays[f"{name}_{i}"] for i in range(n)]

    tree = jax.tree.structure(template(len(arrays["strengths"])))
    state = jax.tree.unflatten(tree, [on_device(leaf) for leaf in rows("state", tree.num_leaves)])
    members, weights = (arrays["strengths"], arrays["masks"]), (arrays["best"], arrays["average"])
    progress, phases = Progress(head["phase"], head["epoch"], *members, state, *weights), list(head["phases"])
    return progress, History(phases, rows("train", len(phases)), rows("held_out", len(phases)))
