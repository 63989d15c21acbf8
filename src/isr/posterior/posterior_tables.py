"""Draws as tables: a pandas summary, ArviZ inference data, and HTML for notebooks."""

import html
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from isr.posterior.references import _arviz

if TYPE_CHECKING:
    import pandas as pd
    from arviz import InferenceData


def summary_table(draws: Float[np.ndarray, "n d"], names: Sequence[str], *, hdi: float) -> "pd.DataFrame":
    """Return one row a variable with mean, sd and the ends of the highest-density interval, named as in ArviZ.

    Args:
        draws: Finite draws, one a row.
        names: Of the columns.
        hdi: Content of the interval.
    """
    if not 0 < hdi < 1:
        raise ValueError(f"hdi must lie between 0 and 1, got {hdi}")
    arviz = _arviz()
    data = arviz.convert_to_dataset({name: column[None] for name, column in zip(names, draws.T, strict=True)})
    table = arviz.summary(data, kind="stats", hdi_prob=hdi, round_to="none")
    return table.loc[list(names)].rename_axis("parameter")


def inference_data(
    draws: Float[np.ndarray, "n d"],
    log_prob: Float[np.ndarray, " n"],
    y_star: Float[np.ndarray, "k d_y"],
    *,
    x_names: Sequence[str],
    y_names: Sequence[str],
    units: Mapping[str, str],
    n_chains: int,
) -> "InferenceData":
    """Return draws, their log-density (``sample_stats.lp``) and the observations as ArviZ inference data.

    Args:
        draws: One a row; their number is a multiple of ``n_chains``.
        log_prob: Of every draw.
        y_star: Observations as rows.
        x_names: Of the columns of ``draws``.
        y_names: Of the columns of ``y_star``.
        units: Unit by name, kept as an attribute of each variable.
        n_chains: Parts to divide the draws into.
    """
    shape = (n_chains, len(draws) // n_chains)
    data = _arviz().from_dict(
        posterior={name: column.reshape(shape) for name, column in zip(x_names, draws.T, strict=True)},
        sample_stats={"lp": log_prob.reshape(shape)},
        observed_data=dict(zip(y_names, y_star.T, strict=True)),
        dims={name: ["observation"] for name in y_names},
    )
    for group in (data.posterior, data.observed_data):
        for name in units.keys() & set(group.data_vars):
            group[name].attrs["units"] = units[name]
    return data


def observation_html(
    x_names: Sequence[str],
    y_names: Sequence[str],
    values: Sequence[str],
    *,
    units: Mapping[str, str],
    heading: str,
) -> str:
    """Return a small table of what was observed, with every name escaped."""
    rows = "".join(
        f"<tr><td>{html.escape(name)}</td><td>{value}</td><td>{html.escape(units.get(name, ''))}</td></tr>"
        for name, value in zip(y_names, values, strict=True)
    )
    sought = ", ".join(f"{name} ({units[name]})" if name in units else name for name in x_names)
    return (
        f"<div><p><b>Posterior</b> of {html.escape(sought)} given</p><table><thead><tr>"
        f"<th>observed</th><th>{heading}</th><th>unit</th></tr></thead><tbody>{rows}</tbody></table></div>"
    )
