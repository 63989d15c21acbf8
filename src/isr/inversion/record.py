"""Laws as plain data, for files: formulas are text that is parsed again, never run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import equinox as eqx
import numpy as np

from isr.equations.expressions import Expressions
from isr.inversion.law import Column, Group, Law
from isr.inversion.marginals import Marginal
from isr.inversion.noise import Noise
from isr.inversion.parts import Alone, Given, Joint, NormalMixture, Part, Tied
from isr.inversion.posterior import LawPosterior
from isr.inversion.prior import PriorLaw, of_prior
from isr.inversion.proposal import Proposal, find_proposal
from isr.inversion.rivals import Doubt
from isr.inversion.written import expressions, sections
from isr.motion.law import MotionLaw
from isr.motion.record import of_motion, to_motion
from isr.posterior.outliers import Extent
from isr.posterior.priors import parse_prior
from isr.search.formula import Formula, parse


class SavedLaws(eqx.Module):
    """The law of y given x and the law of x as a file holds them: what `of_law` and `of_prior_law` made.

    Example:
        >>> from isr.posterior.priors import parse_prior
        >>> column = Column("y", 0, Formula(parse("a**2", ["a"])), Formula(parse("0.1", [])))
        >>> law = Law(("a",), (column,), (Group((0,)),))
        >>> saved = SavedLaws(of_law(law), of_prior_law(of_prior(parse_prior({"a": (0, 1)}), ["a"])))
        >>> saved.to_law(), saved.to_prior(["a"]), saved.n_inputs, saved.n_outputs
        (y = a**2 ± 0.1, a ~ uniform(0, 1), 1, 0)
        >>> saved.expressions(["a"], {}).n_constants, saved.sections(["a"])[0]
        (1, ('y given x', 'y = a**2 ± 0.1'))
        >>> saved.posterior([[0.5]], ["a"], ["y"])
        Posterior of a given y = 0.5
    """

    law: dict[str, Any]
    prior: list[Any]

    @property
    def n_outputs(self) -> int:
        """How many columns y has."""
        return int(self.law["n_y"])

    @property
    def n_inputs(self) -> int:
        """How many variables x has."""
        return len(self.law["x_names"])

    def to_law(self) -> Any:
        """Return the law of y given x."""
        return to_law(self.law)

    def refuse_unreadable(self) -> None:
        """Raise unless every formula and every law can be read, and the laws of x are of each variable once."""
        names = self.to_law().x_names
        n = len(names)
        self._functions()
        parts = [_to_part(part) for part in self.prior if part["kind"] != "function"]
        columns = sorted(column for part in parts for column in part.columns)
        if columns != list(range(n)) and len(parts) == len(self.prior):
            raise ValueError(f"its laws of x are of the columns {columns}, not of each of {n} variables once")
        self.to_doubt()
        for part in parts:
            drawn = np.asarray(part.sample(2, np.random.default_rng(0)))
            if drawn.shape != (2, len(part.columns)) or np.isnan(drawn).any():
                raise ValueError(f"a law of x gives no numbers for the columns {list(part.columns)}")

    def _functions(self) -> str:
        """What the laws of x are called that are known as functions alone."""
        return ", ".join(part["text"] for part in self.prior if part["kind"] == "function")

    def to_prior(self, names: Sequence[str], prior: Any = None) -> PriorLaw:
        """Return the law of x, or the one given; a prior known as a function alone is in no file."""
        if prior is not None:
            return of_prior(parse_prior(prior), names)
        what = self._functions()
        if what:
            raise ValueError(
                f"the prior {what} is no distribution that a file can hold; give it again as prior=..."
            )
        return PriorLaw(tuple(names), tuple(_to_part(part) for part in self.prior))

    def expressions(self, x_names: Sequence[str], units: Mapping[str, str]) -> Expressions:
        """Return the law of y as equations."""
        return expressions(self.to_law(), x_names, units)

    def sections(self, x_names: Sequence[str]) -> list[tuple[str, str]]:
        """Return what was found as text, under a heading each."""
        try:
            return sections(*self.read(x_names)[:3])
        except ValueError as error:
            return [("y given x", str(self.to_law())), ("x", str(error))]

    def posterior(
        self,
        y_star: Any,
        x_names: Sequence[str],
        y_names: Sequence[str],
        *,
        units: Mapping[str, str] | None = None,
        prior: Any = None,
        extent: Any = None,
        known: tuple[Any, PriorLaw, Proposal, Doubt | None] | None = None,
    ) -> LawPosterior:
        """Return the posterior of x given an observation, or several of the same x as rows."""
        law, own, proposal, doubt = known or self.read(x_names, prior)
        seen = Extent.from_dict(extent) if isinstance(extent, Mapping) else None
        about: dict[str, Any] = {"units": units, "extent": seen, "proposal": proposal, "doubt": doubt}
        return LawPosterior(law, own, y_star, x_names, y_names, **about)

    def read(self, x_names: Sequence[str], prior: Any = None) -> tuple[Any, PriorLaw, Proposal, Doubt | None]:
        """Return the law of y, the law of x, or the one given, how draws are made, and what rows leave open."""
        law, own, doubt = self.to_law(), self.to_prior(x_names, prior), self.to_doubt()
        return law, own, find_proposal(law, own), doubt

    def to_doubt(self) -> Doubt | None:
        """Return what the rows leave open; None where nothing is known of it."""
        record = self.law.get("open")
        if record is None:
            return None
        rivals = tuple((str(text), to_law(law)) for text, law in record["rivals"])
        constants, draws = (np.asarray(record[k], dtype=float) for k in ("constants", "draws"))
        law = self.to_law()
        noisy = law.part([g for g in law.groups if not any(law.columns[j].is_exact for j in g.columns)])
        return Doubt(noisy, rivals, tuple(constants.tolist()), draws.reshape(len(draws), len(constants)))


def of_laws(law: Law | MotionLaw, prior: PriorLaw, doubt: Doubt | None = None) -> SavedLaws:
    """Return what a file holds of the law of y, the law of x, and what rows leave open of both."""
    record = of_law(law)
    if doubt is not None:
        record["open"] = {
            "rivals": [[text, of_law(rival)] for text, rival in doubt.rivals],
            "constants": list(doubt.constants), "draws": doubt.draws.tolist(),
        }  # fmt: skip
    return SavedLaws(record, of_prior_law(prior))


def of_law(law: Law | MotionLaw) -> dict[str, Any]:
    """Return a law as plain data."""
    if isinstance(law, MotionLaw):
        return of_motion(law)
    columns = [
        {
            "name": c.name, "index": c.index, "mean": c.mean.text(None), "scale": c.scale.text(None),
            "errors": [_errors(c.mean), _errors(c.scale)], "transform": c.transform,
        }
        for c in law.columns
    ]  # fmt: skip
    groups = [
        {
            "columns": list(g.columns), "noise": g.noise.kind, "parameters": list(g.noise.parameters),
            "correlation": None if g.correlation is None else g.correlation.text(None),
            "matrix": [list(row) for row in g.matrix],
        }
        for g in law.groups
    ]  # fmt: skip
    known = {"x_names": list(law.x_names), "dropped": list(law.dropped), "n_y": law.n_y}
    return {**known, "columns": columns, "groups": groups}


def _errors(formula: Formula) -> list[float]:
    """Standard errors of its constants; 0 where there is none, since JSON knows no NaN."""
    return np.nan_to_num(np.asarray(formula.errors, dtype=float)).tolist()


def to_law(record: Mapping[str, Any]) -> Any:
    """Return the law that `of_law` took apart."""
    if "channels" in record:
        return to_motion(record)
    names = [str(name) for name in record["x_names"]]

    def formula(text: str, errors: Sequence[float] = ()) -> Formula:
        return Formula(parse(text, names), tuple(float(e) for e in errors))

    columns, groups = [], []
    for c in record["columns"]:
        of_mean, of_scale = c.get("errors", ((), ()))
        mean, scale = formula(c["mean"], of_mean), formula(c["scale"], of_scale)
        columns.append(Column(str(c["name"]), int(c["index"]), mean, scale, str(c["transform"])))
    for g in record["groups"]:
        noise = Noise(str(g["noise"]), tuple(float(v) for v in g["parameters"]))
        correlation = None if g["correlation"] is None else formula(g["correlation"])
        matrix = tuple(tuple(float(v) for v in row) for row in g["matrix"])
        groups.append(Group(tuple(int(j) for j in g["columns"]), noise, correlation, matrix))
    return Law(tuple(names), tuple(columns), tuple(groups), tuple(record["dropped"]), int(record["n_y"]))


def of_prior_law(prior: PriorLaw) -> list[dict[str, Any]]:
    """Return a law of x as plain data; of a function only what it is called."""
    return [_of_part(part) for part in prior.parts]


def _of_part(part: Part) -> dict[str, Any]:
    if isinstance(part, Alone):
        m = part.marginal
        known = {"kind": "alone", "column": part.column, "family": m.kind}
        return {**known, "parameters": list(m.parameters), "p_value": m.p_value}
    columns = list(part.columns)
    if isinstance(part, Tied):
        alone = [_of_part(Alone(j, m)) for j, m in zip(part.columns, part.marginals, strict=True)]
        return {
            "kind": "tied",
            "columns": columns,
            "alone": alone,
            "correlations": part.correlations.tolist(),
        }
    if isinstance(part, Given):
        return {"kind": "given", "first": [_of_part(part.first)], "law": of_law(part.law), "columns": columns}
    assert isinstance(part, Joint)
    if isinstance(part.prior, NormalMixture):
        mixture = part.prior
        numbers = {k: getattr(mixture, k).tolist() for k in ("weights", "means", "covariances")}
        return {"kind": "mixture", "columns": columns, **numbers}
    return {"kind": "function", "columns": columns, "text": part.prior.description}


def _to_part(record: Mapping[str, Any]) -> Part:
    if record["kind"] == "alone":
        numbers = tuple(float(v) for v in record["parameters"])
        return Alone(
            int(record["column"]), Marginal(str(record["family"]), numbers, float(record["p_value"]))
        )
    columns = tuple(int(c) for c in record["columns"])
    if record["kind"] == "tied":
        marginals = tuple(_to_part(one).marginal for one in record["alone"])  # type: ignore[attr-defined]
        return Tied(columns, marginals, np.asarray(record["correlations"], dtype=float))
    if record["kind"] == "mixture":
        arrays = (np.asarray(record[k], dtype=float) for k in ("weights", "means", "covariances"))
        return Joint(columns, NormalMixture(*arrays))
    first = _to_part(record["first"][0])
    return Given(first, to_law(record["law"]), columns)  # type: ignore[arg-type]
