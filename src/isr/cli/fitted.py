"""The end of ``isr fit``: the model is saved, then its equations, front, scores and checks are shown."""

from __future__ import annotations

import shlex
import tempfile
import warnings
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from isr.cli.models import check_model, example
from isr.cli.output import heading, indented, print_json, say, table
from isr.cli.show import checks_as_data, describe, described, print_front, raise_if_failed

if TYPE_CHECKING:
    import pandas as pd

    from isr.estimators.rows import Part
    from isr.storage import Bundle

Rows = tuple["pd.DataFrame", "pd.DataFrame | None"]
# Longer equations are named, not printed; `isr show` prints them.
MOST_CONSTANTS = 150
N_CHECKED = 1000


def conclude(
    estimator: Any,
    rows: Rows,
    out: Path,
    data: Path,
    *,
    as_json: bool,
    provenance: Mapping[str, Any],
    overwrite: bool = True,
    flags: str = "",
) -> None:
    """Save a fitted estimator and print what was found; ``flags`` are how the data were read, for the hints.

    A file that appeared at ``out`` during the fit gives way, or not; where an `Inversion` fell back to a flow, the
    flow is saved.
    """
    verdict = getattr(estimator, "verdict_", None)
    estimator = getattr(estimator, "fallback_", None) or estimator
    facts = {**provenance, "data": data.name, "rows": len(rows[0])}
    bundle = _with_facts(estimator.to_bundle(), facts if verdict is None else {**facts, "verdict": verdict})
    wanted, out = out, _kept(bundle, out, overwrite)  # before anything that could fail or be interrupted
    scores, result = {}, None
    if not bundle.sections:
        from isr.storage import save

        scores = _scores(estimator, rows)
        bundle = _with_facts(bundle, {"scores": scores})
        save(bundle, out)
        x, y = (None if part is None else part.to_numpy()[:N_CHECKED] for part in rows)
        result = check_model(bundle, x, y)
    status = verdict if bundle.sections else str(estimator.status_)
    if as_json:
        checks = {} if result is None else {"scores": scores, "checks": checks_as_data(result)}
        print_json({"out": str(out), **described(bundle), "status": status, **checks})
    else:
        if verdict and not bundle.sections:
            heading("Verdict")
            indented(verdict)
        _print_equations(bundle, out)
        if result is not None:
            _print_scores(scores)
            heading("The equations against the model")
            indented(str(result))
        heading(f"Saved: {out}")
        if result is not None:
            indented(f"status: {status}")
        heading("Next")
        indented("\n".join(_next(bundle, out, f"{shlex.quote(str(data))}{flags}")))
    if result is not None:
        raise_if_failed(result)
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


def _scores(estimator: Any, rows: Rows) -> dict[str, float]:
    """Held-out scores of the chosen model, and of a normal law of x, linear in y: what a density should beat."""
    if rows[1] is not None and hasattr(estimator, "formulas_"):
        errors = estimator.fit_.front[estimator.chosen_].held_out_rows  # squared, in units of y's variance
        return {"held_out_r2": 1.0 - float(np.mean(errors)) / rows[1].shape[1]}
    from isr.estimators.rows import Pairs, prepare

    y = None if rows[1] is None else rows[1].to_numpy()
    noise = getattr(estimator, "noise_", None)
    split = prepare(Pairs(rows[0].to_numpy(), y=y, noise=noise), seed=estimator.seed_)
    losses = -estimator.flow_.log_prob(split.held_out.x, split.held_out.y)
    return {
        "held_out_nats": float(np.mean(losses)),
        "standard_error": float(np.std(losses) / np.sqrt(len(losses))),
        "normal_law_nats": _normal_law_nats(split.train, split.held_out),
    }


def _normal_law_nats(train: Part, new: Part) -> float:
    """Loss of new rows under a normal law around a linear regression of x on y; NaN where some columns follow."""
    from scipy.stats import multivariate_normal

    known, given = (
        np.column_stack([np.ones(len(part)), *([] if part.y is None else [part.y])]) for part in (train, new)
    )
    slopes = np.linalg.lstsq(known, train.x, rcond=None)[0]
    try:
        covariance: Any = np.cov((train.x - known @ slopes).T)
        law = multivariate_normal(cov=covariance)
    except np.linalg.LinAlgError:
        return float("nan")
    return -float(np.mean(law.logpdf(new.x - given @ slopes)))


def _print_equations(bundle: Bundle, out: Path) -> None:
    if bundle.sections or bundle.expressions.n_constants <= MOST_CONSTANTS:
        describe(bundle, "forward")
        return
    say(
        f"{bundle.kind}: {bundle.expressions.n_constants} numbers in its equations, those of standardisation "
        f"included: too long to print here; isr show {out} does"
    )
    print_front(bundle)


def _print_scores(scores: Mapping[str, float]) -> None:
    heading("Held-out rows")
    if "held_out_r2" in scores:
        indented(f"R² = {scores['held_out_r2']:.6g}")
        return
    law = scores["normal_law_nats"]
    named = {
        "this model": f"{scores['held_out_nats']:.4f} ± {scores['standard_error']:.4f}",
        "a normal law": f"{law:.4f}" if np.isfinite(law) else "none, since some columns follow from others",
    }
    table([{"-log density of x, nats per row": k, "lower is better": v} for k, v in named.items()])


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
