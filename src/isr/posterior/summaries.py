"""Draws summarised: a pandas table, ArviZ inference data, and what was observed as HTML for notebooks."""

import html
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from isr.tables.extras import need

if TYPE_CHECKING:
    import pandas as pd
    from arviz import InferenceData


def summary_table(draws: Float[np.ndarray, "n d"], names: Sequence[str], *, hdi: float) -> "pd.DataFrame":
    """Return mean, sd and the ends of the highest-density interval of finite draws, by variable, named as in ArviZ.

    Example:
        >>> summary_table(np.arange(101.0)[:, None], ["depth"], hdi=0.9).round(2)
                   mean    sd  hdi_5%  hdi_95%
        parameter
        depth      50.0  29.3     0.0     90.0
    """
    import pandas as pd

    if not 0 < hdi < 1:
        raise ValueError(f"hdi must lie between 0 and 1, got {hdi}")
    low, high = _shortest_interval(draws, hdi)
    columns = {
        "mean": draws.mean(axis=0),
        "sd": draws.std(axis=0, ddof=min(1, len(draws) - 1)),
        f"hdi_{50 * (1 - hdi):g}%": low,
        f"hdi_{100 - 50 * (1 - hdi):g}%": high,
    }
    return pd.DataFrame(columns, index=pd.Index(list(names), name="parameter"))


def _shortest_interval(draws: np.ndarray, content: float) -> tuple[np.ndarray, np.ndarray]:
    ordered = np.sort(draws, axis=0)
    reach = int(np.floor(content * len(draws)))
    start = np.argmin(ordered[reach:] - ordered[: len(draws) - reach], axis=0)
    column = np.arange(draws.shape[1])
    return ordered[start, column], ordered[start + reach, column]


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
    """Return draws in ``n_chains`` parts, their log-density (``sample_stats.lp``) and the observations, with units."""
    shape = (n_chains, len(draws) // n_chains)
    data = need("arviz").from_dict(
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
