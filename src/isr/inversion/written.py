"""Laws in and out as text: those a user states, what a terminal shows, equations, and samplers as programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib import resources
from typing import Any

import numpy as np
import sympy
from jinja2 import Environment, StrictUndefined

from isr.equations.expressions import Expressions
from isr.equations.extract import function_program
from isr.equations.functions import NAMES
from isr.equations.program import Program, compose
from isr.inversion.law import Law
from isr.inversion.means import values_of
from isr.inversion.parts import Alone
from isr.inversion.prior import PriorLaw
from isr.inversion.proposal import Proposal
from isr.search.formula import Formula, parse, symbol
from isr.tables.names import quoted, symbol_names

LANGUAGES = {"python": "py", "c": "c", "javascript": "js"}
# A sampler draws between so many quantiles; those at the ends are the support's, or as far out as 1 in 10^8.
N_QUANTILES, FARTHEST = 513, 5.6
# Noise that a sampler knows.
KINDS = ("normal", "student", "two scales")


def read_laws(given: Any, x_names: Sequence[str], y_names: Sequence[str]) -> dict[str, Formula]:
    """Return the stated formula of each column of y that has one.

    Args:
        given: None, text of the only column, a list of texts, a mapping from column to text, or a function of one row
            of x in JAX that gives all columns.
        x_names: Identifiers of the variables of x.
        y_names: Names of the columns of y.

    Example:
        >>> read_laws("0.5*sin(a) + h", ["h", "a"], ["y"])
        {'y': h + 0.5*sin(a)}
        >>> import jax.numpy as jnp
        >>> read_laws(lambda x: jnp.stack([x[0] + 0.5 * jnp.sin(x[1])]), ["h", "a"], ["y"])
        {'y': h + 0.5*sin(a)}
    """
    if given is None:
        return {}
    if callable(given):
        return dict(zip(y_names, _of_function(given, x_names, y_names), strict=True))
    if isinstance(given, str):
        given = [given]
    if isinstance(given, Mapping):
        unknown = sorted(set(given) - set(y_names))
        if unknown:
            raise ValueError(
                f"law names {quoted(unknown)}, which are no columns of y; known: {quoted(y_names)}"
            )
    elif not isinstance(given, Sequence):
        raise ValueError(f"law must be text, a mapping from column to text, or a function, got {given!r}")
    elif len(given) != len(y_names):
        raise ValueError(
            f"law gives {len(given)} formulas for the {len(y_names)} columns of y: {quoted(y_names)}; "
            "give a mapping from column to text where only some are known"
        )
    else:
        given = dict(zip(y_names, given, strict=True))
    return {name: Formula(parse(str(text), x_names)) for name, text in given.items()}


def stated_laws(
    given: Any, x: np.ndarray, x_names: Sequence[str], y_names: Sequence[str]
) -> dict[str, Formula]:
    """Return what `read_laws` does, once every law is known to have a value at the rows of x."""
    laws = read_laws(given, x_names, y_names)
    for name, law in laws.items():
        with np.errstate(all="ignore"):
            n = int(np.sum(~np.isfinite(values_of(law, x, x_names))))
        if n:
            raise ValueError(
                f"the law {law.text()!r} of {name} has no finite value in {n} of {len(x)} rows of x"
            )
    return laws


def _of_function(function: Any, x_names: Sequence[str], y_names: Sequence[str]) -> list[Formula]:
    inputs = [symbol(name) for name in x_names]
    outputs = [sympy.Symbol(f"output_{i}", real=True) for i in range(len(y_names))]
    try:
        program = function_program(function, inputs, outputs, {})
    except Exception as error:
        raise ValueError(
            f"law could not be read: {error}; it must be a function of one row of x written in JAX, or text"
        ) from error
    composed = compose(program, max_operations=float("inf")).outputs
    if len(composed) != len(y_names):
        raise ValueError(f"law gives {len(composed)} values, but y has the columns {quoted(y_names)}")
    return [Formula(sympy.sympify(expression, strict=True)) for expression in composed]


def sections(law: Law, prior: PriorLaw, proposal: Proposal) -> list[tuple[str, str]]:
    """Return what was found under a heading each: the law of y, the law of x, and how draws are made."""
    return [("y given x", str(law)), ("x", str(prior)), ("x given y", str(proposal))]


def expressions(law: Law, x_names: Sequence[str], units: Mapping[str, str] | None = None) -> Expressions:
    """Return mean and standard deviation of each column as equations in x; those of log y under that name.

    Example:
        >>> from isr.inversion.law import Column, Group
        >>> column = Column("y", 0, Formula(parse("2.0*a", ["a"])), Formula(parse("0.1", [])))
        >>> expressions(Law(("a",), (column,), (Group((0,)),)), ["a"]).text().splitlines()
        ['y    = 2*a', 'y_sd = 0.1']
    """
    shown, values = [], []
    for column in law.columns:
        name = f"log_{column.name}" if column.transform == "log" else column.name
        shown += [name] if column.is_exact else [name, f"{name}_sd"]
        values += [column.mean.expression, *([] if column.is_exact else [abs(column.scale.expression)])]
    names = symbol_names([*x_names, *shown], taken=NAMES)
    inputs, outputs = (tuple(map(symbol, part)) for part in (names[: len(x_names)], names[len(x_names) :]))
    moved = dict(zip(map(symbol, law.x_names), inputs, strict=True))
    values = [value.xreplace(moved) for value in values]
    labels = dict(zip((s.name for s in (*inputs, *outputs)), (*x_names, *shown), strict=True))
    program = Program(inputs, (), (), tuple(values), sympy.S.Zero, output_symbols=outputs, labels=labels)
    return Expressions(program, None, tuple(x_names), tuple(shown), dict(units or {}))


def sampler_code(law: Law, prior: PriorLaw, language: str) -> str:
    """Return a program that draws from the posterior of any observation; it needs nothing but itself (Python: NumPy).

    Draws of the law of x are weighed by the law of y and resampled; the program gives the effective size with them.

    Args:
        law: The law of y.
        prior: The law of x, whose variables do not depend on each other.
        language: ``"c"``, ``"javascript"`` or ``"python"``.

    Example:
        >>> from isr.inversion.law import Column, Group
        >>> from isr.inversion.prior import of_prior
        >>> from isr.posterior.priors import parse_prior
        >>> column = Column("y", 0, Formula(parse("2.0*a", ["a"])), Formula(parse("0.1", [])))
        >>> law, prior = Law(("a",), (column,), (Group((0,)),), n_y=1), of_prior(parse_prior({"a": (0, 1)}), ["a"])
        >>> program = {}
        >>> exec(sampler_code(law, prior, "python"), program)
        >>> draws, effective_size = program["sample"]([1.0], 1000)
        >>> draws.shape, bool(abs(draws.mean() - 0.5) < 0.01), effective_size > 1000
        ((1000, 1), True, True)
    """
    if language not in LANGUAGES:
        raise ValueError(f"unknown language {language!r}; known: {', '.join(LANGUAGES)}")
    marginals = [part.marginal for part in prior.parts if isinstance(part, Alone)]
    if len(marginals) < len(prior.names):
        raise ValueError(
            "variables of x depend on each other; a sampler is written for independent ones only"
        )
    wrong = [c.name for c in law.columns if c.is_exact]
    tied = [g for g in law.groups if len(g.columns) > 1 or g.noise.kind not in KINDS]
    wrong += [law.columns[j].name for g in tied for j in g.columns]
    wrong += [c.name for c in law.columns if c.is_count]
    if wrong:
        raise ValueError(
            "no sampler is written for columns without noise, counts, correlated ones, or noise other than "
            f"{', '.join(KINDS)}: {', '.join(wrong)}"
        )
    renamed = tuple(
        replace(c, name=f"mean_{i}", transform="", scale=Formula(abs(c.scale.expression)))
        for i, c in enumerate(law.columns)
    )
    template = resources.files("isr.inversion").joinpath("templates", f"sampler.{LANGUAGES[language]}.j2")
    environment = Environment(undefined=StrictUndefined, keep_trailing_newline=True, trim_blocks=True)
    levels = np.linspace(-FARTHEST, FARTHEST, N_QUANTILES)
    by_column = sorted(
        zip((part.columns[0] for part in prior.parts), marginals, strict=True), key=lambda pair: pair[0]
    )
    return environment.from_string(template.read_text("utf-8")).render(
        law=str(law), prior=str(prior), x_names=list(prior.names), n_y=law.n_y,
        formulas=expressions(replace(law, columns=renamed), [f"x{i}" for i in range(len(prior.names))]).code(language),
        columns=[_column(law, j) for j in range(len(law.columns))],
        quantiles=[[repr(v) for v in marginal.from_normal(levels).tolist()] for _, marginal in by_column],
    )  # fmt: skip


def _column(law: Law, number: int) -> dict[str, object]:
    """What a sampler's template needs to know of a column."""
    noise, column = next(g.noise for g in law.groups if number in g.columns), law.columns[number]
    a, b = (repr(float(v)) for v in [*noise.parameters, 0.0, 0.0][:2])
    return {
        "index": column.index,
        "is_log": bool(column.transform),
        "kind": KINDS.index(noise.kind),
        "a": a,
        "b": b,
    }
