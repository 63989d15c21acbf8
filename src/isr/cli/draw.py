"""``isr posterior`` and ``isr sample``: draws from a saved model."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from isr.cli.models import example, observation, open_model
from isr.cli.options import Complexity, Force, Json, ModelFile, Seed, TableFile, asked, with_groups
from isr.cli.output import (
    TABLE_ENDINGS,
    hand_over,
    heading,
    print_json,
    refuse_ending,
    refuse_existing,
    say,
    table,
    write_frame,
)
from isr.cli.rows import Reading
from isr.tables.extras import need
from isr.tables.whole_files import write_whole

if TYPE_CHECKING:
    import pandas as pd

    from isr.posterior.posterior import Posterior
    from isr.storage import Bundle

Draws = Annotated[int, asked("How many draws.", "N", "-n", "--n", min=1)]
Observation = Annotated[list[str] | None, asked("What was measured: p1=0.1,p2=0.3.", "VALUES", "--y")]
PICTURES = (".png", ".pdf", ".svg")
# More posteriors than this come in one table; rows whose draws are made together.
MOST_HEADINGS, BATCH = 20, 50


@dataclass(frozen=True)
class Measured:
    """What was measured: one row in words, or rows in a file."""

    y: Observation = None
    y_file: Annotated[
        Path | None, asked("Measurements as rows, with --together or --each: CSV, Excel, …", "FILE")
    ] = None
    together: Annotated[
        bool | None,
        asked("The rows of --y-file measure the same x, or one x each.", None, "--together/--each"),
    ] = None


@with_groups
def posterior(
    model: ModelFile,
    measured: Measured,
    n: Draws = 4000,
    out: Annotated[
        Path | None, asked("File for the draws: .csv, .parquet, or .nc for ArviZ.", "FILE")
    ] = None,
    plot: Annotated[Path | None, asked("Pair plot: .png, .pdf or .svg.", "FILE")] = None,
    hdi: Annotated[float, asked("Content of the intervals.", "SHARE", min=0.01, max=0.999)] = 0.94,
    complexity: Complexity = None,
    *,
    reading: Reading,
    seed: Seed = 0,
    force: Force = False,
    json: Json = False,
) -> None:
    """Print what is known of x once y has been measured: mean, sd, interval and densest point (map).

    A warning says where a measurement is unlike the training data.

    Example: isr posterior model.isr --y p1=0.1,p2=0.3 -n 4000 --out draws.csv --plot draws.png
    """
    for path in (out, plot):
        refuse_existing(path, force)
    refuse_ending(out, (*TABLE_ENDINGS, ".nc"), "--out")
    refuse_ending(plot, PICTURES, "--plot")
    bundle = open_model(model, complexity)
    observed = _observed(bundle, measured, reading)
    if len(observed) > MOST_HEADINGS and out is None and plot is None:
        _tabulate(bundle, observed, n, hdi, seed, json)
        return
    if len(observed) > 1 and (plot is not None or (out is not None and out.suffix == ".nc")):
        raise ValueError(
            f"--plot and .nc files hold one posterior, but {measured.y_file} has {len(observed)} rows; "
            "give one row, or --together where all rows measure the same x"
        )
    posteriors = [bundle.posterior(y) for y in observed]
    draws = [p.frame(n, random_state=seed) for p in posteriors]
    if out is not None:
        _write(posteriors[0], draws, out, seed)
    if plot is not None:
        _plot(posteriors[0], plot, n, seed)
    summaries = [_summary(p, d, hdi) for p, d in zip(posteriors, draws, strict=True)]
    if json:
        print_json({"posteriors": [_as_data(p, s, n) for p, s in zip(posteriors, summaries, strict=True)]})
        return
    for one, rows in zip(posteriors, summaries, strict=True):
        _print(one, rows)
    for path in (out, plot):
        if path is not None:
            say(f"written: {path}")


@with_groups
def sample(
    model: ModelFile,
    n: Draws = 1000,
    y: Observation = None,
    out: TableFile = None,
    seed: Seed = 0,
    force: Force = False,
    json: Json = False,
) -> None:
    """Draw rows of x from a density, or given --y from a posterior.

    Example: isr sample model.isr -n 1000 --out rows.csv
    """
    import pandas as pd

    refuse_existing(out, force)
    refuse_ending(out, TABLE_ENDINGS, "--out")
    bundle = open_model(model)
    if y is not None:
        frame = bundle.posterior(observation(bundle, y)).frame(n, random_state=seed)
    elif "posterior" in bundle.abilities:
        raise ValueError(f"this {bundle.kind} draws x given y; add --y {example(bundle.y_names)}")
    else:
        bundle.require("sample")
        frame = pd.DataFrame(bundle.sample(n, seed=seed), columns=list(bundle.x_names))
    hand_over(frame, out, json)


def _observed(bundle: Bundle, measured: Measured, reading: Reading) -> list[Any]:
    """What each posterior is given: one row, or with --together all of them."""
    bundle.require("posterior")
    if bool(measured.y) == (measured.y_file is not None):
        raise ValueError(
            f"give one measurement with --y {example(bundle.y_names)}, or rows of them with --y-file; not both"
        )
    if measured.y_file is None:
        return [observation(bundle, measured.y or [])]
    rows = reading.columns(measured.y_file, bundle.y_names, bundle).to_numpy()
    if measured.together is None and len(rows) > 1:
        raise ValueError(
            f"{measured.y_file} has {len(rows)} rows: add --together where all measure the same x, or --each for "
            "one x each"
        )
    return [rows] if measured.together else list(rows)


def _tabulate(bundle: Bundle, rows: list[Any], n: int, hdi: float, seed: int, json: bool) -> None:
    """Print one tidy table of the posteriors of many rows: a line per row and variable, warnings counted."""
    import pandas as pd

    from isr.posterior.abstract import summary_table
    from isr.tables.workers import progress_bar

    frames = []
    with warnings.catch_warnings(record=True) as told, progress_bar(len(rows), "rows", None) as advance:
        warnings.simplefilter("always")
        for start in range(0, len(rows), BATCH):
            for i, draws in enumerate(_draws(bundle, rows[start : start + BATCH], n, seed), start + 1):
                found = summary_table(draws, bundle.x_names, hdi=hdi).reset_index()
                found.insert(0, "observation", i)
                frames.append(found)
                advance(1)
    if told:
        say(f"warning: {len(told)} of {len(rows)} rows, the first: {told[0].message}", err=True)
    whole = pd.concat(frames, ignore_index=True)
    print_json({"summary": whole.to_dict("list")}) if json else table(whole.to_dict("records"))


def _draws(bundle: Bundle, rows: list[Any], n: int, seed: int) -> Any:
    """Draws of x for each row: together where the model can, else one posterior after the other."""
    import numpy as np

    if "sample" not in bundle.abilities:
        return (bundle.posterior(row).sample(n, seed) for row in rows)
    return bundle.sample(len(rows) * n, np.repeat(rows, n, axis=0), seed=seed).reshape(len(rows), n, -1)


def _write(first: Posterior, draws: list[pd.DataFrame], out: Path, seed: int) -> None:
    import pandas as pd

    if out.suffix == ".nc":
        n = len(draws[0])
        data = first.to_arviz(n, n_chains=4 if n % 4 == 0 else 1, random_state=seed)
        write_whole(out, lambda path: data.to_netcdf(str(path), engine="h5netcdf"))
        return
    if len(draws) > 1:
        for i, frame in enumerate(draws):
            frame.insert(0, "observation", i + 1)
    write_frame(pd.concat(draws), out)


def _plot(posterior: Posterior, path: Path, n: int, seed: int) -> None:
    need("matplotlib").use("agg")  # a file is wanted, no window
    figure = posterior.plot(n, random_state=seed)
    form = path.suffix[1:].lower()
    write_whole(path, lambda target: figure.savefig(target, format=form, dpi=150, bbox_inches="tight"))


def _summary(posterior: Posterior, draws: pd.DataFrame, hdi: float) -> list[dict[str, Any]]:
    rows = posterior.summary(draws[list(posterior.x_names)].to_numpy(), hdi)
    if posterior.units:
        rows["unit"] = [posterior.units.get(name, "") for name in rows.index]
    return rows.reset_index().to_dict("records")


def _print(posterior: Posterior, rows: list[dict[str, Any]]) -> None:
    heading(str(posterior))
    table(rows)
    if posterior.map_note:
        say(f"no densest point (map): {posterior.map_note}")
    known = _of_law(posterior)
    if known:
        say(
            f"  draws worth {known['effective_size']:,.0f} independent ones, Pareto k {known['pareto_k']:.2f} (below "
            f"0.7 is good);\n  could the law have given this y: p = {known['predictive_p_value']:.2g}; "
            f"log evidence {known['log_evidence']:.4g}"
        )


def _as_data(posterior: Posterior, rows: list[dict[str, Any]], n: int) -> dict[str, Any]:
    like = getattr(posterior, "likeness", None)
    return {
        "y": dict(zip(posterior.y_names, posterior.y_star.mean(axis=0), strict=True)),
        "n_observations": posterior.n_observations,
        "n": n,
        "summary": rows,
        "map_note": posterior.map_note or None,
        "unlike_training_data": None if like is None else like.unusual,
        "p_value": None if like is None else like.p_value,
        "share_outside_training_rows": posterior.share_outside,
        **_of_law(posterior),
    }


def _of_law(posterior: Any) -> dict[str, float]:
    """What the posterior of a law knows of itself; empty for others."""
    if not hasattr(posterior, "pareto_k"):
        return {}
    return {
        "effective_size": posterior.effective_size, "pareto_k": posterior.pareto_k,
        "log_evidence": posterior.log_evidence, "predictive_p_value": posterior.predictive().p_value,
    }  # fmt: skip
