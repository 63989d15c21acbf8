"""``isr posterior``, ``sample`` and ``predict``: what a saved model says of x given y, and of y given x."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from isr.cli.inputs import Reading, example, observation, open_model, values_in
from isr.cli.options import Complexity, Force, Json, ModelFile, Seed, TableFile, asked, with_groups
from isr.cli.output import (
    TABLE_ENDINGS,
    hand_over,
    heartbeat,
    print_json,
    refuse_existing,
    say,
    section,
    table,
    write_frame,
)
from isr.tables.extras import need
from isr.tables.whole_files import write_whole

if TYPE_CHECKING:
    from isr.storage import Bundle

Draws = Annotated[int, asked("How many draws.", "N", "-n", "--n", min=1)]
Observation = Annotated[list[str] | None, asked("What was measured: p1=0.1,p2=0.3.", "VALUES", "--y")]
PICTURES = (".png", ".pdf", ".svg")


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

    def rows(self, bundle: Bundle, reading: Reading) -> list[Any]:
        """Return what each posterior is given: one row, or with --together all of them."""
        bundle.require("posterior")
        if bool(self.y) == (self.y_file is not None):
            raise ValueError(
                f"give one measurement with --y {example(bundle.y_names)}, or rows of them with --y-file; not both"
            )
        if self.y_file is None:
            return [observation(bundle, self.y or [])]
        rows = reading.columns(self.y_file, bundle.y_names, bundle).to_numpy()
        if self.together is None and len(rows) > 1:
            raise ValueError(
                f"{self.y_file} has {len(rows)} rows: add --together where all measure the same x, or --each for "
                "one x each"
            )
        return [rows] if self.together else list(rows)


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

    Several rows give one table, a line for each row and variable. A warning names y unlike the training data.

    Example: isr posterior model.isr --y p1=0.1,p2=0.3 -n 4000 --out draws.csv --plot draws.png
    """
    refuse_existing(out, force, (*TABLE_ENDINGS, ".nc"))
    refuse_existing(plot, force, PICTURES, "--plot")
    bundle = open_model(model, complexity)
    observed = measured.rows(bundle, reading)
    if len(observed) > 1:
        if plot is not None or (out is not None and out.suffix == ".nc"):
            raise ValueError(
                f"--plot and .nc files hold one posterior, but {measured.y_file} has {len(observed)} rows; "
                "give one row, or --together where all rows measure the same x"
            )
        _each(bundle, observed, n, hdi, seed, out, json)
        return
    post = bundle.posterior(observed[0])
    frame = post.frame(n, random_state=seed)
    if out is not None and out.suffix == ".nc":
        data = post.to_arviz(n, n_chains=4 if n % 4 == 0 else 1, random_state=seed)
        write_whole(out, lambda path: data.to_netcdf(str(path), engine="h5netcdf"))
    elif out is not None:
        write_frame(frame, out)
    if plot is not None:
        need("matplotlib").use("agg")  # a file is wanted, no window
        figure, form = post.plot(n, random_state=seed), plot.suffix[1:].lower()
        write_whole(plot, lambda path: figure.savefig(path, format=form, dpi=150, bbox_inches="tight"))
    summary = post.summary(frame.to_numpy(), hdi)
    if post.units:
        summary["unit"] = [post.units.get(name, "") for name in summary.index]
    _tell(post, summary.reset_index().to_dict("records"), n, json)
    for path in (out, plot) if not json else ():
        if path is not None:
            say(f"written: {path}")


def _tell(post: Any, rows: list[dict[str, Any]], n: int, json: bool) -> None:
    """Print one posterior; that of a law knows more of itself."""
    law: dict[str, float] = {}
    if hasattr(post, "pareto_k"):
        law = {name: getattr(post, name) for name in ("effective_size", "pareto_k", "log_evidence")}
        law["predictive_p_value"] = post.predictive().p_value
    if json:
        like = getattr(post, "likeness", None)
        found = {
            "y": dict(zip(post.y_names, post.y_star.mean(axis=0), strict=True)),
            "n_observations": post.n_observations,
            "n": n,
            "summary": rows,
            "map_note": post.map_note or None,
            "unlike_training_data": None if like is None else like.unusual,
            "p_value": None if like is None else like.p_value,
            "share_outside_training_rows": post.share_outside,
            **law,
        }
        print_json({"posteriors": [found]})
        return
    section(str(post), table(rows))
    if post.map_note:
        say(f"no densest point (map): {post.map_note}")
    if law:
        say(
            f"  draws worth {law['effective_size']:,.0f} independent ones, Pareto k {law['pareto_k']:.2f} (below "
            f"0.7 is good);\n  could the law have given this y: p = {law['predictive_p_value']:.2g}; "
            f"log evidence {law['log_evidence']:.4g}"
        )


def _each(
    bundle: Bundle, rows: list[Any], n: int, hdi: float, seed: int, out: Path | None, json: bool
) -> None:
    """One tidy table of the posteriors of several rows: a line per row and variable, warnings counted."""
    import numpy as np
    import pandas as pd

    from isr.posterior.abstract import summary_table

    with heartbeat(f"{len(rows):,} posteriors"), warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        drawn = bundle.draws(np.array(rows), n, seed=seed)
    if told:
        say(f"warning: {len(told)} times, the first: {told[0].message}", err=True)
    numbers = range(1, len(rows) + 1)
    if out is not None:
        frame = pd.DataFrame(drawn.reshape(len(rows) * n, -1), columns=list(bundle.x_names))
        frame.insert(0, "observation", np.repeat(numbers, n))
        write_frame(frame, out)
    found = [summary_table(one, bundle.x_names, hdi=hdi).reset_index() for one in drawn]
    for number, one in zip(numbers, found, strict=True):
        one.insert(0, "observation", number)
    whole = pd.concat(found, ignore_index=True)
    print_json({"summary": whole.to_dict("list")}) if json else say(table(whole.to_dict("records")))
    if out is not None and not json:
        say(f"written: {out}")


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

    refuse_existing(out, force, TABLE_ENDINGS)
    bundle = open_model(model)
    if y is not None:
        frame = bundle.posterior(observation(bundle, y)).frame(n, random_state=seed)
    elif "posterior" in bundle.abilities:
        raise ValueError(f"this {bundle.kind} draws x given y; add --y {example(bundle.y_names)}")
    else:
        frame = pd.DataFrame(bundle.sample(n, seed=seed), columns=list(bundle.x_names))
    hand_over(frame, out, json)


@with_groups
def predict(
    model: ModelFile,
    data: Annotated[
        Path | None,
        typer.Argument(metavar="ROWS", help="Rows of x: CSV, Excel, Parquet or .npz.", show_default=False),
    ] = None,
    x: Annotated[
        list[str] | None, asked("One row instead of a file: depth=200,speed=1500.", "VALUES", "--x")
    ] = None,
    out: TableFile = None,
    *,
    reading: Reading,
    force: Force = False,
    json: Json = False,
) -> None:
    """Print or write y for rows of x, for models of --method law, formula, isr, inn and eql.

    Example: isr predict model.isr new.csv --out predicted.csv
    """
    import numpy as np
    import pandas as pd

    refuse_existing(out, force, TABLE_ENDINGS)
    bundle = open_model(model)
    bundle.require("predict")
    if x is not None and data is None:
        rows: Any = np.array([values_in(x, "--x", bundle.x_names)])
    elif data is not None and x is None:
        rows = reading.columns(data, bundle.x_names, bundle)
    else:
        raise ValueError(f"give rows of x as a file, or one row with --x {example(bundle.x_names)}; not both")
    predicted = bundle.predict(rows)
    hand_over(pd.DataFrame(predicted, columns=list(bundle.y_names)), out, json)
