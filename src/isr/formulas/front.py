"""The accuracy-complexity front: the best model of every complexity, rules that choose among them, and its table."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

RULES = ("bic", "accuracy", "simple")


@dataclass(frozen=True)
class Point:
    """One model of the front, and how long and how good it is."""

    model: Any
    complexity: int
    n_constants: int  # learned numbers in use
    train_nats: float  # mean losses of rows trained on and held out
    held_out_nats: float
    held_out_rows: np.ndarray = field(default_factory=lambda: np.zeros(0))
    is_network: bool = False  # whether it is as it was trained, no formulas yet
    errors: np.ndarray | None = None  # standard error of each learned number, NaN where it is not fitted
    labels: dict[int, str] = field(default_factory=dict)  # learned numbers that were set to simple values


def pareto(points: Sequence[Point]) -> list[Point]:
    """Return the points that no simpler one beats on held-out rows, from simple to complex."""
    front: list[Point] = []
    for point in sorted(points, key=lambda p: (p.complexity, p.n_constants, p.held_out_nats)):
        best = front[-1].held_out_nats - 1e-6 if front else np.inf
        if point.held_out_nats < best:
            front.append(point)
    return front


def choose(front: Sequence[Point], rule: str = "bic", *, n_rows: int, complexity: int | None = None) -> int:
    """Return which point of ``front`` to use.

    ``"bic"``: lowest ``n * train nats + n_constants * log(n) / 2`` for n training rows (the default: an extra
    constant must earn its place). ``"accuracy"``: lowest held-out loss. ``"simple"``: the simplest point whose
    held-out loss lies within one standard error of the best, row by row. With ``complexity``, whatever the rule: the
    most accurate point no more complex than that.
    """
    if not front:
        raise ValueError("the front is empty: no model gave a finite held-out loss")
    if complexity is not None:
        fitting = [i for i, p in enumerate(front) if p.complexity <= complexity]
        if not fitting:
            raise ValueError(
                f"no model has complexity {complexity} or less; the simplest on the front has {front[0].complexity}"
            )
        return fitting[-1]
    if rule not in RULES:
        raise ValueError(f"unknown rule {rule!r}; known: {', '.join(RULES)}")
    if rule == "accuracy":
        return int(np.argmin([p.held_out_nats for p in front]))
    if rule == "bic":
        return int(np.argmin([n_rows * p.train_nats + 0.5 * np.log(n_rows) * p.n_constants for p in front]))
    best = front[int(np.argmin([p.held_out_nats for p in front]))]
    gaps = [point.held_out_rows - best.held_out_rows for point in front]
    return next(i for i, gap in enumerate(gaps) if np.mean(gap) <= np.std(gap) / np.sqrt(len(gap)))


# Of one model; the frame itself holds the equations whole.
MOST_LINES = 12
MOST_CHARACTERS = 120


class Front(pd.DataFrame):
    """A pandas frame with one row a model, from simple to complex; what is taken out of it is a plain frame.

    Example:
        >>> Front({"complexity": [3, 8], "nll": [2.0, 1.5], "chosen": [False, True], "equations": ["z = x", "z = x²"]})
           complexity  nll  chosen
        0           3  2.0   False
        1           8  1.5    True
        <BLANKLINE>
        equations of the chosen model:
          z = x²
    """

    def __repr__(self) -> str:
        if not {"chosen", "equations"} <= set(self):
            return super().__repr__()
        figures = repr(pd.DataFrame(self).drop(columns="equations"))
        chosen = [line for text in self.loc[self["chosen"], "equations"] for line in _lines(text)]
        if not chosen:
            return figures
        return "\n".join([figures, "", "equations of the chosen model:", *(f"  {line}" for line in chosen)])

    def _repr_html_(self) -> str | None:
        if not pd.get_option("display.notebook_repr_html"):
            return None
        frame = pd.DataFrame(self).rename(columns=lambda name: html.escape(str(name)))
        return frame.to_html(index=False, escape=False, formatters=[_cell] * frame.shape[1])


def _cell(value: Any) -> str:
    """A value as HTML; what a file holds may be anything."""
    if isinstance(value, float):
        return f"{value:.4f}"
    text = html.escape("\n".join(_lines(str(value))))
    return f'<pre style="margin:0;text-align:left">{text}</pre>' if "=" in text else text


def _lines(text: str) -> list[str]:
    lines = text.splitlines()
    shown = [line if len(line) <= MOST_CHARACTERS else f"{line[:MOST_CHARACTERS]} …" for line in lines]
    more = len(lines) - MOST_LINES
    return shown if more <= 0 else [*shown[:MOST_LINES], f"… and {more} more lines"]
