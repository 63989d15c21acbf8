"""Samplers as code: programs that draw x from its law, weigh by the law of y and resample; C, JavaScript, Python."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from importlib import resources

import numpy as np
from jinja2 import Environment, StrictUndefined

from isr.inversion.law import Law
from isr.inversion.prior import Alone, PriorLaw
from isr.inversion.written import expressions
from isr.search.formula import Formula

LANGUAGES = {"python": "py", "c": "c", "javascript": "js"}
# A variable is drawn between so many quantiles; those at the ends are the support's, or as far out as 1 in 10^8.
N_QUANTILES = 513
FARTHEST = 5.6
KINDS = ("normal", "student", "two scales")


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
        >>> from isr.search.formula import parse
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
    if any(not isinstance(part, Alone) for part in prior.parts):
        raise ValueError(
            "variables of x depend on each other; a sampler is written for independent ones only"
        )
    wrong = [c.name for c in law.columns if c.is_exact]
    tied = [g for g in law.groups if len(g.columns) > 1 or g.noise.kind not in KINDS]
    wrong += [law.columns[j].name for g in tied for j in g.columns]
    if wrong:
        raise ValueError(
            f"no sampler is written for columns without noise, correlated ones or rings: {', '.join(wrong)}"
        )
    renamed = replace(
        law,
        columns=tuple(
            replace(c, name=f"mean_{i}", transform="", scale=Formula(abs(c.scale.expression)))
            for i, c in enumerate(law.columns)
        ),
    )
    template = resources.files("isr.inversion").joinpath("templates", f"sampler.{LANGUAGES[language]}.j2")
    environment = Environment(undefined=StrictUndefined, keep_trailing_newline=True, trim_blocks=True)
    return environment.from_string(template.read_text("utf-8")).render(
        law=str(law), prior=str(prior), x_names=list(prior.names), n_y=law.n_y,
        formulas=expressions(renamed, [f"x{i}" for i in range(len(prior.names))]).code(language),
        columns=[_column(law, j) for j in range(len(law.columns))], quantiles=_quantiles(prior),
    )  # fmt: skip


def _column(law: Law, number: int) -> dict[str, object]:
    noise = next(g.noise for g in law.groups if number in g.columns)
    column = law.columns[number]
    numbers = [*noise.parameters, 0.0, 0.0][:2]
    return {
        "index": column.index, "is_log": bool(column.transform), "kind": KINDS.index(noise.kind),
        "a": repr(float(numbers[0])), "b": repr(float(numbers[1])),
    }  # fmt: skip


def _quantiles(prior: PriorLaw) -> Sequence[Sequence[str]]:
    levels = np.linspace(-FARTHEST, FARTHEST, N_QUANTILES)
    found = []
    for column in range(len(prior.names)):
        part = next(p for p in prior.parts if column in p.columns)
        assert isinstance(part, Alone)
        values = part.marginal.from_normal(levels)
        found.append([repr(float(v)) for v in values])
    return found
