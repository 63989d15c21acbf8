"""Targets: what is to be drawn from, in coordinates where the law of x is about standard normal.

A posterior falls into blocks of variables that neither the law of x nor that of y ties together; each block is a target
of its own, and one that no observation touches needs no weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from jaxtyping import Float

from isr.inversion.law import Law
from isr.inversion.prior import PriorLaw


class Target(Protocol):
    """What a proposal is made for."""

    dim: int
    columns: tuple[int, ...]

    def log_prob(self, u: Float[np.ndarray, "n dim"]) -> Float[np.ndarray, " n"]:
        """Return the log-density of coordinates, without its constant where `finish` knows better."""
        ...

    def finish(
        self, u: Float[np.ndarray, "n dim"], rng: np.random.Generator
    ) -> tuple[Float[np.ndarray, "n d_x"], Float[np.ndarray, " n"]]:
        """Return rows of x for coordinates, with their log-density over that of the coordinates."""
        ...


@dataclass(frozen=True, eq=False)
class Direct:
    """A block whose every variable is a coordinate.

    Args:
        law: The law of the columns of y that this block explains.
        prior: The law of x.
        columns: The variables of the block.
        y: Observations of the same x as rows.
    """

    law: Law
    prior: PriorLaw
    columns: tuple[int, ...]
    y: Float[np.ndarray, "k d_y"]

    @property
    def dim(self) -> int:
        """How many coordinates there are."""
        return len(self.columns)

    def log_prob(self, u: np.ndarray) -> np.ndarray:
        return self._evaluated(u)[1]

    def finish(self, u: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        return self._evaluated(u)

    def _evaluated(self, u: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        x, base = self.prior.rows(u, self.columns)
        total = base + self.law.log_prob(x, self.y)
        return x, np.where(np.isfinite(total), total, -np.inf)


def blocks(law: Law, prior: PriorLaw) -> list[tuple[tuple[int, ...], Law | None]]:
    """Return the variables of each block, sorted, with the part of the law that reads them; None where none does.

    Example:
        >>> from isr.search.formula import Formula, parse
        >>> from isr.inversion.law import Column, Group
        >>> from isr.inversion.prior import of_prior
        >>> from isr.posterior.priors import parse_prior
        >>> noise = Formula(parse("0.1", []))
        >>> columns = tuple(Column(f"y{i}", i, Formula(parse(f"x{i}", ["x0", "x1"])), noise) for i in (0, 1))
        >>> law = Law(("x0", "x1", "x2"), columns, (Group((0,)), Group((1,))))
        >>> prior = of_prior(parse_prior(dict.fromkeys(law.x_names, (0, 1))), law.x_names)
        >>> [(variables, part and part.columns[0].name) for variables, part in blocks(law, prior)]
        [((0,), 'y0'), ((1,), 'y1'), ((2,), None)]
    """
    n = len(law.x_names)
    ties = [set(part) for part in prior.blocks]
    reads = [_read_by(law, group) for group in law.groups]
    for variables in reads:
        touched = [tie for tie in ties if tie & variables]
        if touched:
            ties = [tie for tie in ties if not tie & variables] + [set().union(*touched)]
    found: list[tuple[tuple[int, ...], Law | None]] = []
    for tie in sorted(ties, key=min):
        groups = [g for g, variables in zip(law.groups, reads, strict=True) if variables & tie]
        found.append((tuple(sorted(tie)), part_of(law, groups) if groups else None))
    assert sum(len(variables) for variables, _ in found) == n
    return found


def _read_by(law: Law, group: object) -> set[int]:
    names = set()
    for j in group.columns:  # type: ignore[attr-defined]
        names |= {*law.columns[j].mean.variables, *law.columns[j].scale.variables}
    if group.correlation is not None:  # type: ignore[attr-defined]
        names |= set(group.correlation.variables)  # type: ignore[attr-defined]
    return {law.x_names.index(name) for name in names}


def part_of(law: Law, groups: Sequence[object]) -> Law:
    """Return the law of some groups of columns alone; its columns still know their place in y."""
    chosen = [j for g in groups for j in g.columns]  # type: ignore[attr-defined]
    place = {j: i for i, j in enumerate(chosen)}
    moved = tuple(replace(g, columns=tuple(place[j] for j in g.columns)) for g in groups)  # type: ignore[attr-defined,type-var]
    return Law(law.x_names, tuple(law.columns[j] for j in chosen), moved, law.dropped, law.n_y)  # type: ignore[arg-type]
