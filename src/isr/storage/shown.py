"""What a model says and draws of itself, the same of one that was fitted and of one that was loaded."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from isr.tables.names import visible
from isr.tables.tables import read_table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from isr.storage.bundle import Bundle

WAYS = {"forward": "from x to the latent", "inverse": "from the latent to x"}
N_DRAWN = 1000


def parts(bundle: Bundle, direction: str = "forward") -> list[tuple[str, str]]:
    """Return what was found as text, under a heading each: laws, or equations and how good they are."""
    if bundle.sections:
        return bundle.sections
    equations, errors = bundle.expressions, bundle.printed_errors
    lines = [equations.text(direction, unicode=True, errors=errors)]
    lines += ["(digits in parentheses: standard error of the last ones)"] if errors else []
    heading = "Equations" if equations.inverse is None else f"Equations, {WAYS[direction]}"
    return [(heading, "\n".join(lines)), ("How good they are", how_good(bundle))]


def how_good(bundle: Bundle) -> str:
    """Return how long the equations of a model are, how well it does, and how its fit ended."""
    equations, points = bundle.expressions, bundle.points
    n = equations.n_constants
    said = [f"complexity {equations.complexity}, {n} number{'s' * (n != 1)} in the equations"]
    if bundle.chosen is not None:
        said[0] += f"; held-out loss {points[bundle.chosen].held_out_nats:.4f} nats per row"
    known = {"the fit": "status", "instead of a law": "verdict"}
    said += [f"{what}: {bundle.metadata[name]}" for what, name in known.items() if name in bundle.metadata]
    return "\n".join(said)


def sections(bundle: Bundle) -> list[tuple[str, str]]:
    """Return verdict and laws as text, under a heading each, with what the symbols in them stand for."""
    model: Any = bundle.model
    symbols = zip(model.law["x_names"], bundle.x_names, strict=False)
    others = {str(symbol): name for symbol, name in symbols if symbol != name}

    def explained(text: str) -> str:
        told = [f"{s} is {name}" for s, name in others.items() if re.search(rf"\b{re.escape(s)}\b", text)]
        return f"{text}\nwhere {visible(', '.join(told))}" if told else text

    found = [(title, explained(text)) for title, text in model.sections(bundle.x_names)]
    return [("Verdict", str(bundle.metadata.get("verdict", ""))), *found]


def plot(bundle: Bundle, x: Any, y: Any, more: tuple[Any, ...]) -> Figure:
    """Return a figure of a model, see `Bundle.plot`."""
    from isr.posterior.plots import fit_plot, pair_plot, trajectory_plot

    if hasattr(bundle.model, "followed"):
        if y is None:
            raise ValueError(
                "a law of motion is drawn over trajectories: give times and values, plot(times, values)"
            )
        return trajectory_plot(bundle.y_names, *bundle.model.followed(x, y, *more))
    rows, given = _rows(bundle, x, "x"), _rows(bundle, y, "y")
    if rows is not None and given is not None and len(rows) != len(given):
        raise ValueError(f"x has {len(rows)} rows and y has {len(given)}; they must be pairs")
    if rows is not None and given is not None and "predict" in bundle.abilities:
        names = [
            f"{n} ({bundle.units[n]})" if n in bundle.units else n for n in (*bundle.x_names, *bundle.y_names)
        ]
        n = len(bundle.x_names)
        return fit_plot(rows, given, bundle.predict(rows), names[:n], names[n:])
    drawn, names = _drawn(bundle, rows, given)
    grey = None if rows is None or len(names) > rows.shape[1] else rows
    return pair_plot(
        drawn[np.isfinite(drawn).all(axis=1)], names, units=bundle.units, prior=grey,
        title="draws of the model" if grey is None else "rows in grey, draws of the model in blue",
    )  # fmt: skip


def _rows(bundle: Bundle, values: Any, letter: str) -> np.ndarray | None:
    if values is None:
        return None
    if getattr(values, "ndim", 2) == 1:
        values = np.asarray(values)[:, None]
    return read_table(values, like=bundle.columns(letter), what=letter).values


def _drawn(bundle: Bundle, x: np.ndarray | None, y: np.ndarray | None) -> tuple[np.ndarray, tuple[str, ...]]:
    """Rows that the model draws by itself, or predicts, and their names."""
    if bundle.abilities == ("predict",):
        if x is None:
            raise ValueError(f"this {bundle.title} knows no law of x: give rows, plot(x) or plot(x, y)")
        return np.hstack([x, bundle.predict(x)]), (*bundle.x_names, *bundle.y_names)
    if "sample" not in bundle.abilities:
        laws, rng = bundle.model, np.random.default_rng(0)
        x = laws.to_prior(bundle.x_names).sample(N_DRAWN, rng) if x is None else x
        y = laws.to_law().sample(x, rng)
        return np.hstack([x, y]), (*bundle.x_names, *(c.name for c in laws.to_law().columns))
    if bundle.flow.condition_dim and y is None:
        raise ValueError(
            f"this {bundle.title} draws x for a given y: give rows, plot(x, y), or draw one posterior, "
            "posterior(y).plot()"
        )
    n = next((len(rows) for rows in (x, y) if rows is not None), N_DRAWN)
    return bundle.flow.sample(jax.random.key(0), n, y), bundle.x_names
