"""Saved models as the commands use them: opened, at a chosen complexity, with equations of either kind."""

from __future__ import annotations

from dataclasses import replace
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

from isr.tables.names import did_you_mean

if TYPE_CHECKING:
    from isr.equations import Expressions
    from isr.equations.check import CheckResult
    from isr.equations.formulas import FormulaExpressions
    from isr.storage import Bundle

FRONT = ("complexity", "nll", "n_parameters", "chosen")


def open_model(path: Path, complexity: int | None = None) -> Bundle:
    """Return a saved model; with ``complexity``, the best of its front no more complex than that."""
    from isr.storage import load

    if not path.exists():
        near = [p.name for p in path.parent.glob("*.isr")] if path.parent.is_dir() else []
        raise FileNotFoundError(f"there is no file {path}{did_you_mean(path.name, near)}; isr fit makes one")
    bundle = _named(load(path))
    return bundle if complexity is None else _at_complexity(bundle, complexity, path)


def with_density(bundle: Bundle, path: Path) -> Bundle:
    """Return the model, unless it consists of formulas, which have no density."""
    from isr.bijections.flow import Flow

    if not isinstance(bundle.model, Flow):
        raise ValueError(
            f"this {bundle.kind or 'model'} gives {', '.join(bundle.y_names)} from {', '.join(bundle.x_names)} and has "
            f"no density to draw from; isr predict {path} uses it"
        )
    return bundle


def observation(bundle: Bundle, texts: list[str]) -> list[float]:
    """Return what the user gave as ``--y p1=0.1,p2=0.3``, one number for every observed variable, in order."""
    from isr.cli.options import numbers_in

    names = bundle.y_names
    example = ",".join(f"{name}=0.1" for name in names[:4]) + (",…" if len(names) > 4 else "")
    values = numbers_in(texts, "--y", example)
    for name in values:
        if name not in names:
            raise ValueError(
                f"--y names {name!r}, which this model does not observe{did_you_mean(name, list(names))}; "
                f"write --y {example}"
            )
    missing = [name for name in names if name not in values]
    if missing:
        raise ValueError(f"--y has no value for {', '.join(map(repr, missing))}; write --y {example}")
    return [values[name] for name in names]


def _named(bundle: Bundle) -> Bundle:
    """The model with a name for every variable, x1, x2, … where the file has none."""
    from isr.bijections.flow import Flow
    from isr.equations.formulas import output_names

    model: Any = bundle.model
    n_x, n_y = (
        (model.dim, model.condition_dim) if isinstance(model, Flow) else (model.n_inputs, model.n_outputs)
    )
    x_names = bundle.x_names or tuple(f"x{i + 1}" for i in range(n_x))
    y = tuple(f"y{i + 1}" for i in range(n_y)) if isinstance(model, Flow) else output_names(n_y, x_names)
    return replace(bundle, x_names=x_names, y_names=bundle.y_names or y)


def _at_complexity(bundle: Bundle, complexity: int, path: Path) -> Bundle:
    rows = front_of(bundle)
    fitting = [i for i, row in enumerate(rows) if row["complexity"] <= complexity]
    if not fitting:
        simplest = f"; the simplest on its front has {rows[0]['complexity']}" if rows else ""
        raise ValueError(f"{path} holds no model of complexity {complexity} or less{simplest}")
    index = fitting[-1]
    if rows[index]["chosen"]:
        return bundle
    model = bundle.others.get(f"front {index}")
    if model is None:
        raise ValueError(
            f"{path} does not hold the model of complexity {rows[index]['complexity']}, only its figures; "
            "fit again to save the whole front"
        )
    front = dict(bundle.metadata["front"])
    front["chosen"] = [i == index for i in range(len(rows))]
    # The errors of constants are those of the model that was chosen before.
    kept = {name: value for name, value in bundle.metadata.items() if name != "constants"}
    return replace(bundle, model=model, metadata={**kept, "front": front})


def front_of(bundle: Bundle) -> list[dict[str, Any]]:
    """Return the points of a model's front, from simple to complex; empty where the file has none, or half of one."""
    columns = bundle.metadata.get("front")
    if not isinstance(columns, dict):
        return []
    values: list[Any] = [columns.get(name) for name in FRONT]
    if not all(isinstance(column, list | tuple) for column in values):
        return []
    rows: list[Any] = list(zip_longest(*values))
    if not all(isinstance(value, int | float) for row in rows for value in row):
        return []
    return [dict(zip(FRONT, row, strict=True)) for row in rows]


def written(equations: Expressions | FormulaExpressions, direction: str, form: str = "text") -> str:
    """Return equations of one direction as text for the eye, plain text or LaTeX."""
    from isr.equations import Expressions

    flow = isinstance(equations, Expressions)
    if not flow and direction == "inverse":
        raise ValueError(
            "a regressor's formulas have no inverse; leave --inverse out, or fit with --method isr"
        )
    where = (direction,) if flow else ()
    if form == "latex":
        return equations.latex(*where)  # type: ignore[call-arg]
    return equations.text(*where, unicode=form == "pretty")  # type: ignore[call-arg]


def errors_of(bundle: Bundle) -> dict[float, float]:
    """Return the standard error of each printed constant that has one, by its absolute value, the largest first."""
    if bundle.errors is None:
        return {}
    from isr.equations import Expressions
    from isr.report.equations import flow_errors, formula_errors

    model: Any = bundle.model
    equations = bundle.expressions
    if isinstance(equations, Expressions):
        known = flow_errors(equations, model, bundle.errors)
    else:
        known = formula_errors(model, bundle.x_names, bundle.y_names, bundle.errors)
    return dict(sorted(known.items(), reverse=True))


def predict_rows(bundle: Bundle, rows: Any) -> Any:
    """Return y for rows of x, from a regressor or the surrogate of an ISR model."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    from isr.bijections.formula import Formulas

    if isinstance(bundle.model, Formulas):
        with jax.enable_x64(True):
            outputs = jax.vmap(bundle.model, in_axes=-1, out_axes=-1)(jnp.asarray(np.asarray(rows, float).T))
            return np.asarray(outputs[0]).T
    if not bundle.flow.n_observed:
        raise ValueError(
            f"a {bundle.kind} predicts no y from x; isr predict works with models of --method isr, inn and eql, "
            "and isr posterior or isr sample with this one"
        )
    return bundle.flow.forward(rows)[0][:, : bundle.flow.n_observed]


def check_model(bundle: Bundle, rows: Any = None, y: Any = None) -> CheckResult:
    """Return how well equations and model agree, both ways where there are two."""
    import numpy as np

    from isr.equations.check import CheckResult, CheckRow, check
    from isr.equations.formulas import FormulaExpressions

    equations = bundle.expressions
    if not isinstance(equations, FormulaExpressions):
        return check(
            bundle.flow, equations, rows=rows, y=y if bundle.flow.condition_map is not None else None
        )
    x = np.random.default_rng(0).normal(size=(1000, len(equations.x_names))) if rows is None else rows
    found, expected = equations.evaluate(x), predict_rows(bundle, x)
    both = np.isfinite(expected) & np.isfinite(found)
    scale = np.abs(expected) + np.std(expected[both.all(axis=1)], axis=0) + 1e-300
    same = both | (np.isfinite(expected) == np.isfinite(found))
    error = float(np.max(np.where(both, np.abs(found - expected) / scale, 0.0))) if same.all() else np.inf
    return CheckResult((CheckRow("formulas = model", error, 1e-9, len(x)),))
