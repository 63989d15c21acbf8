"""``isr fit``: from a file of rows to a saved model."""

from __future__ import annotations

import hashlib
import shlex
import sys
import time
from contextlib import nullcontext
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from isr.cli.heartbeat import heartbeat
from isr.cli.options import Force, Json, Seed, names_in, number, numbers_in, pairs_in, priors_in
from isr.cli.output import refuse_existing, say
from isr.cli.rows import Dates, Decimal, Delimiter, Dropna, Encoding, read_pairs
from isr.tables.memory import refuse_small_address_space, refuse_too_large

if TYPE_CHECKING:
    import pandas as pd


LEAST_ADDRESS_SPACE = 4e9
"""Bytes that JAX takes to compile a fit of little data."""
BYTES_PER_NUMBER = 100
"""Of the data, while it is fitted to."""


class Method(StrEnum):
    """What can be fitted."""

    law = "law"
    formula = "formula"
    isr = "isr"
    cisr = "cisr"
    flow = "flow"
    eql = "eql"
    inn = "inn"
    cinn = "cinn"


WITHOUT_Y = (Method.flow,)
NETWORKS = (Method.inn, Method.cinn)
REGRESSIONS = (Method.eql, Method.formula)


Data = Annotated[Path, typer.Argument(help="Rows: CSV, Excel, Parquet or .npz.", show_default=False)]
Unknown = Annotated[
    str | None,
    typer.Option("--x", help="What is unknown: depth,speed or 'm*'; all other columns if left out."),
]
Measured = Annotated[
    str | None, typer.Option("--y", help="What is measured: p1,p2 or 'p*'; a density of x if left out.")
]
Out = Annotated[Path | None, typer.Option(help="Model file; named after the data if left out.")]
Form = Annotated[
    Method | None,
    typer.Option(
        help="law with --y (formula finds y alone), or cisr where --bounds or an option of networks is given; "
        "flow without --y."
    ),
]
Box = Annotated[
    list[str] | None, typer.Option(help="Box of x: depth=200:240,speed=1500: (an end may be open).")
]
Known = Annotated[
    list[str] | None,
    typer.Option(
        help="What is known of x before: 'depth=uniform(200,240),speed=normal(1500,20)'; from the rows if left out."
    ),
]
Noise = Annotated[
    str,
    typer.Option(help="Noise (sd) of y: a number, p1=0.1,p2=0.2, or auto. Networks add it: 0 if y has it."),
]
Units = Annotated[list[str] | None, typer.Option(help="For labels: depth=m,speed=m/s.")]
Blocks = Annotated[int | None, typer.Option(min=1, help="Coupling blocks.")]
Layers = Annotated[int | None, typer.Option(min=1, help="Hidden layers of a subnetwork.")]
Restarts = Annotated[int | None, typer.Option(min=1, help="Random starts, trained side by side.")]
Dense = Annotated[bool, typer.Option("--dense", help="Keep every weight: accurate, long equations.")]
Quick = Annotated[bool, typer.Option("--quick", help="A short look.")]
Thorough = Annotated[bool, typer.Option("--thorough", help="Train several times as long.")]
Primitives = Annotated[
    str | None,
    typer.Option(help="Functions that --method formula or eql may call: sin,exp,sqrt; all if left out."),
]
MaxTime = Annotated[float | None, typer.Option(min=0.1, help="Seconds after which the best so far is kept.")]
Checkpoint = Annotated[Path | None, typer.Option(help="File to resume an interrupted fit from.")]


def fit(
    data: Data,
    x: Unknown = None,
    y: Measured = None,
    out: Out = None,
    method: Form = None,
    bounds: Box = None,
    prior: Known = None,
    noise: Noise = "auto",
    units: Units = None,
    primitives: Primitives = None,
    blocks: Blocks = None,
    layers: Layers = None,
    restarts: Restarts = None,
    dense: Dense = False,
    quick: Quick = False,
    thorough: Thorough = False,
    max_time: MaxTime = None,
    checkpoint: Checkpoint = None,
    delimiter: Delimiter = None,
    decimal: Decimal = None,
    encoding: Encoding = None,
    dropna: Dropna = False,
    dates: Dates = False,
    seed: Seed = 0,
    force: Force = False,
    json: Json = False,
) -> None:
    """Learn equations from a file of rows and save them as a model.

    Ctrl-C ends the fit early and keeps the best model so far.

    Example: isr fit data.csv --x depth,speed --y p1,p2 --bounds depth=200:240 --out model.isr

    Example: isr fit samples.csv --out density.isr
    """
    begun = time.monotonic()
    refuse_small_address_space(LEAST_ADDRESS_SPACE)
    target = Path(f"{data.stem}.isr") if out is None else out
    refuse_existing(target, force)
    networks = {
        "--bounds": bounds, "--blocks": blocks, "--layers": layers, "--restarts": restarts, "--dense": dense,
        "--quick": quick, "--thorough": thorough, "--max-time": max_time, "--checkpoint": checkpoint,
    }  # fmt: skip
    given = [name for name, value in networks.items() if value]
    chosen = _method(method, y, given)
    if quick and thorough:
        raise ValueError("--quick and --thorough exclude each other; give one of them")
    from isr.tables.delimited import Layout

    rows = read_pairs(data, x, y, Layout(delimiter, decimal, encoding), dropna=dropna, dates=dates)
    refuse_too_large(
        BYTES_PER_NUMBER * sum(part.size for part in rows if part is not None), f"a fit to {len(rows[0]):,} rows",
        "fit to some of the rows, or to a folder of Parquet files from Python",
    )  # fmt: skip
    digest = hashlib.sha256(data.read_bytes()).hexdigest()  # the file may be gone when the fit is done
    training = {
        "effort": "quick" if quick else "thorough" if thorough else "normal", "n_restarts": restarts,
        "max_time": max_time, "checkpoint": checkpoint, **({"penalty": None} if dense else {}),
    }  # fmt: skip
    options = {
        "n_blocks": blocks, "n_layers": layers, "random_state": seed,
        "library": None if primitives is None else names_in(primitives),
        "units": _units(units, [name for part in rows if part is not None for name in part.columns]),
    }  # fmt: skip
    if prior is not None and chosen is not Method.law:
        raise ValueError(
            f"--prior means nothing with --method {chosen.value}; give the box of x with --bounds"
        )
    options["prior"] = priors_in(prior) if prior else None
    estimator = _estimator(chosen, options, training=training, bounds=_bounds(bounds), noise=noise)
    if not json:
        _announce(chosen, rows, data)
    has_bar = sys.stderr.isatty() and chosen is not Method.law
    with nullcontext() if json or has_bar else heartbeat(f"fitting {target.name}", most=max_time):
        estimator.fit(*(part for part in rows if part is not None))
    from isr.cli.fitted import conclude, conclude_laws

    is_program = Path(sys.argv[0]).stem in ("isr", "__main__")
    provenance = {
        "command": shlex.join(["isr", *sys.argv[1:]]) if is_program else "isr fit", "method": chosen.value,
        "seconds": round(time.monotonic() - begun, 1), "SHA-256 of the data file": digest,
    }  # fmt: skip
    end = conclude_laws if chosen is Method.law else conclude
    end(estimator, rows, target, data, as_json=json, overwrite=force, provenance=provenance)


def _method(method: Method | None, y: str | None, networks: list[str]) -> Method:
    if method is None:
        return Method.flow if y is None else Method.cisr if networks else Method.law
    idle = [n for n in networks if not (method is Method.formula and n == "--max-time")]
    if method in (Method.law, Method.formula) and idle:
        raise ValueError(
            f"{idle[0]} means nothing with --method {method.value}; leave it out, or use --method cisr"
        )
    if method in WITHOUT_Y and y is not None:
        raise ValueError("--method flow learns the density of x alone; leave --y out, or use --method cisr")
    if method not in WITHOUT_Y and y is None:
        raise ValueError(
            f"--method {method.value} needs to know what is measured: add --y with columns of the data"
        )
    return method


def _bounds(texts: list[str] | None) -> dict[str, tuple[float | None, float | None]] | None:
    found = {}
    for name, text in pairs_in(texts or [], "--bounds", "depth=200:240").items():
        low, colon, high = text.partition(":")
        if not colon:
            raise ValueError(f"--bounds cannot read {name}={text}; write it as --bounds {name}=200:240")
        ends = (low.strip() or None, high.strip() or None)
        found[name] = tuple(None if e is None else number(e, "--bounds", name) for e in ends)
    return found or None


def _units(texts: list[str] | None, names: list[str]) -> dict[str, str] | None:
    from isr.tables.names import did_you_mean

    units = pairs_in(texts or [], "--units", "depth=m,speed=m/s")
    for name in units:
        if name not in names:
            raise ValueError(
                f"--units names {name!r}, which is neither in x nor in y{did_you_mean(name, names)}"
            )
    return units or None


def _noise(text: str) -> Any:
    if text.strip() == "auto":
        return "auto"
    if "=" in text:
        return numbers_in([text], "--noise", "p1=0.1,p2=0.2")
    return number(text, "--noise", "y")


def _estimator(
    method: Method, options: dict[str, Any], *, training: dict[str, Any], bounds: Any, noise: str
) -> Any:
    from isr.estimators.eql_regressor import EQLRegressor
    from isr.estimators.inverse import ISR, ConditionalISR
    from isr.estimators.inversion import Inversion
    from isr.estimators.law_regressor import LawRegressor
    from isr.estimators.settings import Training
    from isr.estimators.symbolic_flow import SymbolicFlow

    is_regression = method in REGRESSIONS
    observed = method is not Method.flow and not is_regression
    refused = {
        "--noise": noise != "auto" and not observed,
        "--bounds": bounds is not None and is_regression,
        "--primitives": options.get("library") is not None and not is_regression,
        "--blocks": options.get("n_blocks") is not None and is_regression,
        "--dense": "penalty" in training and is_regression,
    }
    for option, wrong in refused.items():
        if wrong:
            raise ValueError(f"{option} means nothing with --method {method.value}; leave it out")
    options = {name: value for name, value in options.items() if value is not None}
    if method is Method.law:
        return Inversion(noise=_noise(noise), **options)
    if method is Method.formula:
        return LawRegressor(**options, max_time=training["max_time"] or 60.0)
    options["training"] = Training(**training)
    if is_regression:
        return EQLRegressor(**options)
    options["bounds"] = bounds
    if method is Method.flow:
        return SymbolicFlow(**options)
    options |= {"noise": _noise(noise)} | ({"subnet": "mlp"} if method in NETWORKS else {})
    return (ISR if method in (Method.isr, Method.inn) else ConditionalISR)(**options)


def _announce(method: Method, rows: tuple[pd.DataFrame, pd.DataFrame | None], path: Path) -> None:
    x, y = rows
    given = "" if y is None else f"; y = {_listed(list(y.columns))}"
    say(f"{path}: {len(x):,} rows; x = {_listed(list(x.columns))}{given}; method {method.value}", err=True)


def _listed(names: list[str]) -> str:
    return ", ".join(names if len(names) <= 6 else [*names[:5], f"… ({len(names)} in all)"])
