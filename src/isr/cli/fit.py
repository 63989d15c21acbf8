"""``isr fit``: from a file of rows to a saved model; its equations, front, scores and checks are shown at the end."""

from __future__ import annotations

import hashlib
import shlex
import sys
import tempfile
import time
import warnings
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import typer

from isr.cli.inputs import Pairs, Reading, example, read_pairs
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
)  # fmt: skip
from isr.cli.output import heartbeat, print_json, refuse_existing, say, section, table
from isr.cli.show import check_model, checks_as_data, describe, described, print_front
from isr.tables.memory import refuse_small_address_space

if TYPE_CHECKING:
    from isr.storage import Bundle

# Bytes that JAX takes to compile a fit of little data.
LEAST_ADDRESS_SPACE = 4e9
# Longer equations are named, not printed; `isr show` prints them.
MOST_CONSTANTS, N_CHECKED = 150, 1000

Method = StrEnum("Method", "law formula isr cisr flow eql inn cinn")
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
        since = f", since {networks.given()[0]} is given" if method is None and chosen is Method.cisr else ""
        shown = [f"x = {_listed(pairs.x)}", *([] if pairs.y is None else [f"y = {_listed(pairs.y)}"])]
        say(f"{data}: {len(pairs.x):,} rows; {'; '.join(shown)}; method {chosen.value}{since}", err=True)
    has_bar = sys.stderr.isatty() and chosen not in (Method.law, Method.formula)
    with nullcontext() if json or has_bar else heartbeat(f"fitting {target.name}", most=networks.max_time):
        estimator.fit(*(part for part in pairs[:2] if part is not None))
    is_program = Path(sys.argv[0]).stem in ("isr", "__main__")
    provenance = {
        "command": shlex.join(["isr", *sys.argv[1:]]) if is_program else "isr fit", "method": chosen.value,
        "seconds": round(time.monotonic() - begun, 1), "SHA-256 of the data file": digest, "since": pairs.since,
        "data": data.name, "rows": len(pairs.x),
    }  # fmt: skip
    rows = f"{shlex.quote(str(data))}{reading.flags()}"
    conclude(estimator, pairs, target, rows, as_json=json, provenance=provenance, overwrite=force)


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
    common |= {} if networks.layers is None else {"n_layers": networks.layers}
    if method is Method.eql:
        return EQLRegressor(**common)
    common |= {} if networks.blocks is None else {"n_blocks": networks.blocks}
    common["bounds"] = bounds_in(networks.bounds or [])
    if method is Method.flow:
        return SymbolicFlow(**common)
    common |= {"noise": noise_in(knowledge.noise)}
    common |= {"subnet": "mlp"} if method in (Method.inn, Method.cinn) else {}
    return (ISR if method in (Method.isr, Method.inn) else ConditionalISR)(**common)


def _listed(part: Any) -> str:
    names = list(part.columns)
    return ", ".join(names if len(names) <= 6 else [*names[:5], f"… ({len(names)} in all)"])


def conclude(
    estimator: Any,
    pairs: Pairs,
    out: Path,
    rows: str,
    *,
    as_json: bool,
    provenance: Mapping[str, Any],
    overwrite: bool = True,
) -> None:
    """Save a fitted estimator and print what was found; ``rows`` is how a command names the data, for the hints.

    A file that appeared at ``out`` during the fit gives way, or not; where an `Inversion` fell back to a flow, the
    flow is saved.
    """
    from isr.storage.shown import how_good

    bundle = _with_facts(estimator.to_bundle(), provenance)
    estimator = getattr(estimator, "fallback_", None) or estimator
    wanted, out = out, _kept(bundle, out, overwrite)  # before anything that could fail or be interrupted
    scores, result = {}, None
    if not bundle.sections:
        scores = _scores(estimator, pairs)
        bundle = _with_facts(bundle, {"scores": scores})
        _kept(bundle, out, True)
        x, y = (None if part is None else part.to_numpy()[:N_CHECKED] for part in pairs[:2])
        result = check_model(bundle, x, y)
    status = bundle.metadata["verdict" if bundle.sections else "status"]
    if as_json:
        checks = {} if result is None else {"scores": scores, "checks": checks_as_data(result)}
        print_json({"out": str(out), **described(bundle), "status": status, **checks})
    else:
        if bundle.sections or bundle.expressions.n_constants <= MOST_CONSTANTS:
            describe(bundle, "forward")
        else:
            say(
                f"{bundle.title}\nits equations are too long to print here; isr show {shlex.quote(str(out))} does"
            )
            section("How good they are", how_good(bundle))
            print_front(bundle)
        if result is not None:
            section("Held-out rows", _shown(scores))
            section("The equations against the model", str(result))
        section(f"Saved: {out}", "")
        section("Next", "\n".join(_next(bundle, out, rows)))
    if result is not None:
        result.raise_if_failed()
    if out != wanted:
        raise OSError(f"the model could not be saved as {wanted}; it is {out}")


def _with_facts(bundle: Bundle, facts: Mapping[str, Any]) -> Bundle:
    return replace(bundle, metadata={**bundle.metadata, **facts})


def _kept(bundle: Bundle, out: Path, overwrite: bool) -> Path:
    """Save a model and return where: among temporary files where its own place does not take it any more."""
    from isr.storage import save

    try:
        return save(bundle, out, overwrite=overwrite)
    except OSError as error:
        spare = Path(tempfile.mkdtemp(prefix="isr-")) / out.name
        save(bundle, spare)
        warnings.warn(f"{error}; the model was saved as {spare} instead", stacklevel=2)
        return spare


def _scores(estimator: Any, pairs: Pairs) -> dict[str, float]:
    """Held-out scores of the chosen model, and of a normal law of x, linear in y: what a density should beat."""
    import numpy as np

    if pairs.y is not None and hasattr(estimator, "formulas_"):
        errors = estimator.fit_.front[estimator.chosen_].held_out_rows  # squared, in units of y's variance
        return {"held_out_r2": 1.0 - float(np.mean(errors)) / pairs.y.shape[1]}
    from isr.estimators import rows
    from isr.estimators.normal_law import normal_law

    y = None if pairs.y is None else pairs.y.to_numpy()
    known = rows.FlowTask(pairs.x.to_numpy(), y=y, noise=getattr(estimator, "noise_", 0.0))
    split = rows.prepare(known, seed=estimator.seed_)
    losses = -estimator.flow_.log_prob(split.held_out.x, split.held_out.y)
    standard = {name: values.T for name, values in split.standard(split.held_out).items()}
    normal = split.width - float(
        np.mean(normal_law(split).log_prob(standard["x"][:, : split.dim], standard.get("y")))
    )
    error = float(np.std(losses) / np.sqrt(len(losses)))
    return {"held_out_nats": float(np.mean(losses)), "standard_error": error, "normal_law_nats": normal}


def _shown(scores: Mapping[str, float]) -> str:
    if "held_out_r2" in scores:
        return f"R² = {scores['held_out_r2']:.6g}"
    named = {
        "this model": f"{scores['held_out_nats']:.4f} ± {scores['standard_error']:.4f}",
        "a normal law": f"{scores['normal_law_nats']:.4f}",
    }
    return table([{"-log density of x, nats per row": k, "lower is better": v} for k, v in named.items()])


def _next(bundle: Bundle, out: Path, rows: str) -> list[str]:
    """Commands to go on with; ``rows`` is the file of data and how it is read, quoted for a shell."""
    model, training = shlex.quote(str(out)), bundle.metadata.get("training")
    other = "--latex" if bundle.sections else "--inverse"
    if "posterior" in bundle.abilities:
        names = bundle.y_names
        y = "--y-file measured.csv" if len(names) > 6 else f"--y {example(names)}"
        if len(names) <= 6 and isinstance(training, Mapping):
            y = f"--y {example(names, training['shift'])}"
        first = [f"isr show {model} {other}", f"isr posterior {model} {y}"]
    elif "sample" in bundle.abilities:
        first = [f"isr show {model} {other}", f"isr sample {model} -n 1000 --out samples.csv"]
    else:
        first = [f"isr show {model} --latex", f"isr predict {model} {rows}"]
    return [*first, f"isr report {model} --data {rows}", f"isr export {model} --lang c"]
