"""``isr fit``: from a file of rows to a saved model."""

from __future__ import annotations

import hashlib
import shlex
import sys
import time
from contextlib import nullcontext
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, ClassVar

import typer

from isr.cli.heartbeat import heartbeat
from isr.cli.options import (
    Force,
    Json,
    Seed,
    asked,
    bounds_in,
    names_in,
    noise_in,
    pairs_in,
    priors_in,
    with_groups,
)
from isr.cli.output import refuse_existing, say
from isr.cli.rows import Pairs, Reading, read_pairs
from isr.tables.memory import refuse_small_address_space

LEAST_ADDRESS_SPACE = 4e9
"""Bytes that JAX takes to compile a fit of little data."""


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


_SEARCHED = {"--primitives", "--max-time"}
_TRAINED = {"--layers", "--restarts", "--quick", "--thorough", "--max-time", "--checkpoint"}
_FLOW = {*_TRAINED, "--bounds", "--blocks", "--dense"}
OPTIONS_OF = {
    Method.law: {"--prior", "--noise"}, Method.formula: _SEARCHED, Method.eql: _TRAINED | {"--primitives"},
    Method.flow: _FLOW, **dict.fromkeys((Method.isr, Method.cisr, Method.inn, Method.cinn), _FLOW | {"--noise"}),
}  # fmt: skip
"""Which options mean something with a method, besides those that do with all."""


@dataclass(frozen=True)
class Knowledge:
    """What the user knows of the variables."""

    PANEL: ClassVar[str] = "What is known"

    prior: Annotated[
        list[str] | None,
        asked("Of x before: 'depth=uniform(200,240)', normal, lognormal; from the rows if left out.", "LIST"),
    ] = None
    noise: Annotated[
        str, asked("Of y (sd): 0.1, p1=0.1,p2=0.2, or auto. Networks add it: 0 if y has it.", "NUMBER")
    ] = "auto"
    units: Annotated[list[str] | None, asked("For labels: depth=m,speed=m/s.", "LIST")] = None
    primitives: Annotated[
        str | None, asked("Functions for --method formula or eql: sin,exp,sqrt; all if left out.", "LIST")
    ] = None


@dataclass(frozen=True)
class Networks:
    """How networks are built and trained."""

    PANEL: ClassVar[str] = "Networks and how they are trained"

    bounds: Annotated[
        list[str] | None, asked("Box of x: depth=200:240,speed=1500: (an end may be open).", "LIST")
    ] = None
    blocks: Annotated[int | None, asked("Coupling blocks.", "N", min=1)] = None
    layers: Annotated[int | None, asked("Hidden layers of a subnetwork.", "N", min=1)] = None
    restarts: Annotated[int | None, asked("Random starts, trained side by side.", "N", min=1)] = None
    dense: Annotated[bool, asked("Keep every weight: accurate, long equations.", None, "--dense")] = False
    quick: Annotated[bool, asked("A short look.", None, "--quick")] = False
    thorough: Annotated[bool, asked("Train several times as long.", None, "--thorough")] = False
    max_time: Annotated[
        float | None, asked("Seconds after which the best so far is kept.", "SECONDS", min=0.1)
    ] = None
    checkpoint: Annotated[Path | None, asked("File to resume an interrupted fit from.", "FILE")] = None

    def given(self) -> list[str]:
        """Return the options that the user gave."""
        return [f"--{name.replace('_', '-')}" for name, value in vars(self).items() if value]


RowsFile = Annotated[
    Path, typer.Argument(metavar="ROWS", help="CSV, text, Excel, Parquet or .npz.", show_default=False)
]


@with_groups
def fit(
    data: RowsFile,
    x: Annotated[
        str | None, asked("What is unknown: depth,speed or 'm*'; all others if left out.", "NAMES", "--x")
    ] = None,
    y: Annotated[
        str | None, asked("What is measured: p1,p2 or 'p*'; a density of x if left out.", "NAMES", "--y")
    ] = None,
    out: Annotated[Path | None, asked("Model file; named after the data if left out.", "FILE")] = None,
    method: Annotated[
        Method | None,
        asked(
            "law: y as formulas of x, and the posterior; formula: y alone; cisr, isr, flow, eql: the paper's "
            "equation networks; cinn, inn: plain ones. If left out: law; flow without --y; cisr with an option of "
            "networks.",
            "NAME",
        ),
    ] = None,
    *,
    knowledge: Knowledge,
    networks: Networks,
    reading: Reading,
    seed: Seed = 0,
    force: Force = False,
    json: Json = False,
) -> None:
    """Learn equations from a file of rows and save them as a model.

    Ctrl-C ends the training of networks early and keeps the best model so far; a search for laws is given up.

    Example: isr fit data.csv --x depth,speed --y p1,p2 --out model.isr

    Example: isr fit samples.csv --out density.isr
    """
    begun = time.monotonic()
    refuse_small_address_space(LEAST_ADDRESS_SPACE)
    target = out or Path(f"{data.stem}.isr")
    refuse_existing(target, force)
    chosen = _method(method, y, knowledge, networks)
    pairs = read_pairs(data, x, y, reading)
    digest = hashlib.sha256(data.read_bytes()).hexdigest()  # the file may be gone when the fit is done
    estimator = estimator_of(chosen, knowledge, networks, units=_units(knowledge.units, pairs), seed=seed)
    if not json:
        _announce(chosen, pairs, data, since=networks.given() if method is None else [])
    has_bar = sys.stderr.isatty() and chosen not in (Method.law, Method.formula)
    with nullcontext() if json or has_bar else heartbeat(f"fitting {target.name}", most=networks.max_time):
        estimator.fit(*(part for part in pairs[:2] if part is not None))
    from isr.cli.fitted import conclude

    provenance = {
        "command": _command(), "method": chosen.value, "seconds": round(time.monotonic() - begun, 1),
        "SHA-256 of the data file": digest, "since": pairs.since,
    }  # fmt: skip
    conclude(
        estimator, pairs[:2], target, data, as_json=json, overwrite=force, provenance=provenance,
        flags=reading.flags(),
    )  # fmt: skip


def _command() -> str:
    is_program = Path(sys.argv[0]).stem in ("isr", "__main__")
    return shlex.join(["isr", *sys.argv[1:]]) if is_program else "isr fit"


def _method(method: Method | None, y: str | None, knowledge: Knowledge, networks: Networks) -> Method:
    """The method that was named, or that the options ask for; options that mean nothing to it are refused."""
    given = networks.given()
    if method is None:
        method = Method.flow if y is None else Method.cisr if given else Method.law
    given += [f"--{name}" for name in ("prior", "primitives") if getattr(knowledge, name)]
    given += ["--noise"] if knowledge.noise != "auto" else []
    idle = next((option for option in given if option not in OPTIONS_OF[method]), None)
    if idle == "--prior":
        raise ValueError(
            f"--prior means nothing with --method {method.value}; give the box of x with --bounds"
        )
    if idle is not None:
        other = ", or use --method cisr" if idle in OPTIONS_OF[Method.cisr] and y is not None else ""
        raise ValueError(f"{idle} means nothing with --method {method.value}; leave it out{other}")
    if networks.quick and networks.thorough:
        raise ValueError("--quick and --thorough exclude each other; give one of them")
    if method is Method.flow and y is not None:
        raise ValueError("--method flow learns the density of x alone; leave --y out, or use --method cisr")
    if method is not Method.flow and y is None:
        raise ValueError(
            f"--method {method.value} needs to know what is measured: add --y with columns of the data"
        )
    return method


def _units(texts: list[str] | None, pairs: Pairs) -> dict[str, str] | None:
    from isr.tables.names import did_you_mean

    given = pairs_in(texts or [], "--units", "depth=m,speed=m/s")
    names = [name for part in pairs[:2] if part is not None for name in part.columns]
    for name in given:
        if name not in names:
            raise ValueError(
                f"--units names {name!r}, which is neither in x nor in y{did_you_mean(name, names)}"
            )
    return {**pairs.units, **given} or None


def estimator_of(
    method: Method, knowledge: Knowledge, networks: Networks, *, units: dict[str, str] | None, seed: int
) -> Any:
    """Return the estimator, not yet fitted, that a method and its options ask for."""
    from isr.estimators.eql_regressor import EQLRegressor
    from isr.estimators.inverse import ISR, ConditionalISR
    from isr.estimators.inversion import Inversion
    from isr.estimators.law_regressor import LawRegressor
    from isr.estimators.settings import Training
    from isr.estimators.symbolic_flow import SymbolicFlow

    common: dict[str, Any] = {"units": units, "random_state": seed}
    if knowledge.primitives is not None:
        common["library"] = names_in(knowledge.primitives)
    if method is Method.law:
        return Inversion(noise=noise_in(knowledge.noise), prior=priors_in(knowledge.prior or []), **common)
    if method is Method.formula:
        return LawRegressor(**common, max_time=networks.max_time or 60.0)
    common["training"] = Training(
        "quick" if networks.quick else "thorough" if networks.thorough else "normal",
        n_restarts=networks.restarts, max_time=networks.max_time, checkpoint=networks.checkpoint,
        **({"penalty": None} if networks.dense else {}),
    )  # fmt: skip
    if networks.layers is not None:
        common["n_layers"] = networks.layers
    if method is Method.eql:
        return EQLRegressor(**common)
    common["bounds"] = bounds_in(networks.bounds or [])
    if networks.blocks is not None:
        common["n_blocks"] = networks.blocks
    if method is Method.flow:
        return SymbolicFlow(**common)
    common |= {"noise": noise_in(knowledge.noise)}
    common |= {"subnet": "mlp"} if method in (Method.inn, Method.cinn) else {}
    return (ISR if method in (Method.isr, Method.inn) else ConditionalISR)(**common)


def _announce(method: Method, pairs: Pairs, path: Path, since: list[str]) -> None:
    given = "" if pairs.y is None else f"; y = {_listed(list(pairs.y.columns))}"
    why = f", since {since[0]} is given" if since and method is Method.cisr else ""
    x = _listed(list(pairs.x.columns))
    say(f"{path}: {len(pairs.x):,} rows; x = {x}{given}; method {method.value}{why}", err=True)


def _listed(names: list[str]) -> str:
    return ", ".join(names if len(names) <= 6 else [*names[:5], f"… ({len(names)} in all)"])
