"""The page: what was gathered, put into the template as one self-contained HTML file."""

from __future__ import annotations

import base64
import functools
import hashlib
import html
import os
from collections.abc import Mapping, Sequence
from importlib import resources
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, StrictUndefined

from isr import __version__
from isr.bijections.flow import Flow
from isr.bijections.formula import Formulas
from isr.equations import Expressions, extract
from isr.equations.typeset import MOST_TERMS, composed_listings, listings, n_terms
from isr.inversion.law import Law
from isr.inversion.record import SavedLaws
from isr.report.explorer import explorer_payload, middle_row, packed, script_json
from isr.report.figures import (
    Figure,
    calibration_figures,
    fit_figure,
    front_figure,
    marginal_figures,
    residual_figures,
    trajectory_figures,
)
from isr.report.gather import ReportData, gather
from isr.storage import Bundle
from isr.tables.whole_files import write_whole

# Two columns of equations have room for so many characters each.
HALF_WIDTH = 46
# Draws of the posterior that stands beside a law.
N_DRAWS = 2000
# What the model as code may take of the page, which has to stay below 3 MB with everything else in it.
MOST_CODE = 2_000_000
# In the order they are read in: later ones use what earlier ones define.
SCRIPTS = ("base", "page", "statistics", "likeness", "sampler", "corner", "arm", "explorer")


def write_report(model: Any, path: str | os.PathLike[str], **options: Any) -> Path:
    """Write a page about a model and return its path.

    Args:
        model: A fitted estimator, a `Bundle`, the path of a saved model, a `Flow`, or a `ReportData`.
        path: The HTML file, written whole or not at all; one that is there is replaced.
        **options: Those of `gather`, such as ``data=(x, y)``; none with a `ReportData`, which holds them already.

    Example:
        >>> import jax, isr, tempfile, pathlib
        >>> flow = isr.build_flow(jax.random.key(0), 2)
        >>> path = write_report(flow, pathlib.Path(tempfile.mkdtemp()) / "report.html", checks=False)
        >>> "<math" in path.read_text("utf-8")
        True
    """
    if isinstance(model, ReportData) and options:
        raise TypeError(
            f"a ReportData holds everything already, got {', '.join(options)}; change it with dataclasses.replace"
        )
    page = render(model if isinstance(model, ReportData) else gather(model, **options))
    write_whole(path, lambda hidden: hidden.write_text(page, encoding="utf-8"))
    return Path(path)


def render(data: ReportData) -> str:
    """Return the page of a report as HTML.

    Example:
        >>> from isr.bijections.affine import Standardise
        >>> render(ReportData(Bundle(Flow(Standardise((2.0,), (0.5,))), ("depth",)), "Depths"))[:15]
        '<!doctype html>'
    """
    bundle, expressions = data.bundle, _expressions(data.bundle, data.bundle.model)
    explorer = None
    if isinstance(bundle.model, Flow) and expressions is not None:
        explorer = explorer_payload(data, bundle.model, expressions)
        if _size(explorer["source"]) > MOST_CODE:
            explorer = None
    sources = _sources(expressions, bundle)
    sources = fitting(sources, MOST_CODE - (_size(explorer["source"]) if explorer else 0))
    shown = [] if expressions is None else listings(expressions, bundle.printed_errors)
    front, found = _front(bundle), data.calibration
    drawn = (_labels(data, "x"), data.x, data.samples) if data.samples is not None else None
    context: dict[str, Any] = {
        "data": data,
        "bundle": bundle,
        "expressions": expressions,
        "point": None if bundle.chosen is None else bundle.points[bundle.chosen],
        "version": __version__,
        "lead": _lead(bundle.model),
        "variables": _variables(data),
        "law": _law(data),
        "listings": shown,
        "columns": 2 if max((item.width for item in shown), default=0) <= HALF_WIDTH else 1,
        "composed": [] if expressions is None else composed_listings(expressions),
        "errors": {} if expressions is None else bundle.printed_errors,
        "sources": list(sources),
        "explorer": explorer,
        "front": front,
        "marginals": marginal_figures(*drawn) if drawn else [],
        "fits": _fits(data),
        "calibration": None if found is None else calibration_figures(found, bundle.x_names),
        "tests": [] if found is None else found.tests.to_dict("records"),
    }
    payload = {
        "sources": sources,
        "explorer": explorer,
        "front": front and [packed(text) for text in front["equations"]],
        "worker": _asset("worker.js") if explorer else "",
    }
    script = "(() => {\n'use strict';\n" + "\n".join(_asset(f"{name}.js") for name in SCRIPTS) + "})();\n"
    return _template().render(
        **context, sections=_sections(context), style=_asset("style.css"), script=script,
        payload=script_json(payload), policy=_policy(script),
    )  # fmt: skip


def _sources(expressions: Expressions | None, bundle: Bundle) -> dict[str, str]:
    """The equations of a model to copy, by language."""
    if expressions is None:
        return {}
    sources = {"Python": expressions.code("python"), "C": expressions.code("c")}
    if expressions.inverse is None:
        return {"LaTeX": expressions.latex(errors=bundle.printed_errors), **sources}
    if n_terms(expressions.forward) > MOST_TERMS:
        return sources
    both = "\n\n".join(f"% {way}\n{expressions.latex(way)}" for way in expressions.directions)
    return {"LaTeX": f"{both}\n", **sources}


def fitting(texts: Mapping[str, str], room: int) -> dict[str, dict[str, str]]:
    """Return the texts, packed, as many as fit into so many characters."""
    kept = {}
    for name, text in texts.items():
        pack = packed(text)
        if _size(pack) <= room:
            kept[name] = pack
            room -= _size(pack)
    return kept


def _size(pack: Mapping[str, str]) -> int:
    return sum(map(len, pack.values()))


def _asset(name: str) -> str:
    return resources.files("isr.report").joinpath("assets", name).read_text(encoding="utf-8")


@functools.cache
def _template() -> Any:
    return Environment(autoescape=True, undefined=StrictUndefined).from_string(_asset("page.html.j2"))


def _policy(script: str) -> str:
    """Nothing is loaded from anywhere, and no script runs but this one, whatever a name in the data says."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return (
        f"default-src 'none'; script-src 'sha256-{digest}'; worker-src blob:; style-src 'unsafe-inline'; "
        "img-src data: blob:; base-uri 'none'; form-action 'none'"
    )


def _sections(context: dict[str, Any]) -> list[tuple[str, str]]:
    """Anchor and name of each section that has something to show."""
    data, explorer = context["data"], context["explorer"]
    sections = {
        "laws": ("Laws", data.laws),
        "equations": ("Equations", context["listings"]),
        "law": ("Law", context["law"]),
        "explorer": ("Posterior" if explorer and explorer["y"] else "Samples, live", explorer),
        "summary": ("Variables", True),
        "front": ("Front", context["front"]),
        "samples": ("Samples" if data.x is None else "Data and samples", context["marginals"]),
        "fits": ("Predictions", context["fits"]),
        "calibration": ("Calibration", context["calibration"] is not None),
        "checks": ("Checks", data.checks),
        "provenance": ("Provenance", data.provenance),
    }
    return [(anchor, name) for anchor, (name, shown) in sections.items() if shown]


def _expressions(bundle: Bundle, model: Any) -> Expressions | None:
    """The equations of a model, or of another one of its front; None of what has none."""
    if model is bundle.model and isinstance(model, SavedLaws):
        return bundle.expressions if isinstance(model.to_law(), Law) else None
    if not isinstance(model, Flow | Formulas):
        return None
    if model is bundle.model:
        return bundle.expressions
    return extract(model, bundle.x_names, bundle.y_names or None, bundle.units)


def _lead(model: Any) -> str:
    if isinstance(model, Formulas):
        return "Formulas for y, found from data."
    if isinstance(model, SavedLaws):
        return "What y is, given x; what is known of x; and the posterior of x that follows from both."
    if not isinstance(model, Flow):
        return ""
    if model.noise:
        return "A closed-form map from x to what is observed, y, and a latent z, with its inverse and its density."
    if model.condition_map is not None:
        return "For every observation y, a closed-form map between x and a standard normal latent z, and its density."
    return "A closed-form map between x and a standard normal latent z, with its inverse and its density."


def _law(data: ReportData) -> dict[str, Any] | None:
    """What was found out about the law of an `Inversion`; one that no equations of y stand for is given as lines."""
    bundle = data.bundle
    if not bundle.sections:
        return None
    found = dict(bundle.sections)
    has_equations = _expressions(bundle, bundle.model) is not None
    y = data.y_star or (None if data.y is None else middle_row(data.y))
    return {
        "verdict": found.pop("Verdict", ""),
        "lines": [] if has_equations else next(iter(found.values())).splitlines(),
        "prior": found.get("x", "").splitlines(),
        "solved": found.get("x given y", "").splitlines(),
        "posterior": None if y is None or "posterior" not in bundle.abilities else _posterior(data, y),
    }


def _posterior(data: ReportData, y: Sequence[float]) -> dict[str, Any]:
    """What a law says of x given one observation: a table, densities and whether the law explains it."""
    post = data.bundle.posterior(list(y))
    draws, checked = post.sample(N_DRAWS), post.predictive()
    shown = dict(zip(post.y_names, _labels(data, "y"), strict=True))
    rows = post.summary(draws).reset_index().to_dict("records")
    return {
        "given": [f"{n} = {v:.4g}" for n, v in zip(_labels(data, "y"), y, strict=True)],
        "rows": [{k: v if isinstance(v, str) else f"{v:.4g}" for k, v in row.items()} for row in rows],
        "p_value": checked.p_value,
        "outside": post.share_outside,
        "marginals": marginal_figures(_labels(data, "x"), data.x, draws, zoom=True),
        "predicted": marginal_figures(
            [shown.get(n, n) for n in checked.names], None, checked.y, seen=checked.seen
        ),
    }


def _labels(data: ReportData, letter: str) -> list[str]:
    names, units = getattr(data.bundle, f"{letter}_names"), data.bundle.units
    return [f"{n} ({units[n]})" if units.get(n) else n for n in names]


def _variables(data: ReportData) -> list[dict[str, str]]:
    bundle = data.bundle
    roles = ("x, to be inferred", "y, observed") if bundle.y_names else ("x", "")
    roles = ("x, input", "y, predicted") if isinstance(bundle.model, Formulas) else roles
    rows = []
    for names, role, table in zip((bundle.x_names, bundle.y_names), roles, (data.x, data.y), strict=True):
        ends = [] if table is None else np.quantile(table, [0.005, 0.995], axis=0).T
        for name, end in zip_longest(names, ends):
            shown = "" if end is None else "{:.4g} … {:.4g}".format(*end).replace("-", "−")
            rows.append({"name": name, "role": role, "unit": bundle.units.get(name, ""), "range": shown})
    return rows


def _front(bundle: Bundle) -> dict[str, Any] | None:
    """The models of the front and their figure, their equations as HTML, which is chosen and which shown first."""
    points, chosen = bundle.points, bundle.chosen
    if len(points) < 2:
        return None
    picked = len(points) - 1 if chosen is None else chosen
    equations = []
    for point in points:
        found = _expressions(bundle, point.model)
        loss = f"{point.held_out_nats:.4f}".replace("-", "−")
        parts = [f"<h3>Complexity {point.complexity:g}, loss {loss} nats</h3>"]
        for item in () if found is None else listings(found):
            parts.append(f'<p class="note">{html.escape(item.heading)}</p>')
            parts.append(f'<div class="equations" tabindex="0">{item.html}</div>')
            parts.append(f'<p class="note">{html.escape(item.note)}</p>')
        if found is None:
            parts.append('<p class="note">The equations of this model were not saved.</p>')
        equations.append("".join(parts))
    return {
        "points": points, "figure": front_figure(points, chosen, picked), "equations": equations, "chosen": chosen,
        "picked": picked, "shown": equations[picked],
    }  # fmt: skip


def _fits(data: ReportData) -> list[Figure]:
    if data.trajectories is not None:
        return trajectory_figures(data.bundle.y_names, *data.trajectories)
    if data.predicted is None or data.y is None:
        return []
    figures, x_names = [], _labels(data, "x")
    for name, observed, predicted in zip(_labels(data, "y")[:6], data.y.T, data.predicted.T, strict=False):
        known = np.isfinite(predicted)
        if data.x is not None and known.any():
            figures.append(fit_figure(name, observed[known], predicted[known]))
            figures += residual_figures(name, (observed - predicted)[known], x_names, data.x[known])
    return figures
