"""The equations of a model as they stand in a report: listings, sources to copy, errors of printed constants."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from isr.equations import Expressions
from isr.equations.typeset import (
    MOST_TERMS,
    Listing,
    composed_listings,
    listings,
    n_terms,
)

# Two columns of equations have room for so many characters each.
HALF_WIDTH = 46


@dataclass(frozen=True)
class Equations:
    """A model's equations as shown, and without intermediates; sources by name; errors of printed constants."""

    listings: tuple[Listing, ...] = ()
    composed: tuple[Listing, ...] = ()
    sources: Mapping[str, str] = field(default_factory=dict)
    complexity: int | None = None
    n_constants: int | None = None
    errors: Mapping[float, float] = field(default_factory=dict)

    @property
    def columns(self) -> int:
        """How many listings fit side by side."""
        return 2 if max((item.width for item in self.listings), default=0) <= HALF_WIDTH else 1


def equations_of(expressions: Expressions, known: Mapping[float, float]) -> Equations:
    """Return the equations of a model with sources to copy; ``known`` are standard errors of printed constants."""
    sources = {"Python": expressions.code("python"), "C": expressions.code("c")}
    if expressions.inverse is None:
        sources = {"LaTeX": expressions.latex(errors=known), **sources}
    elif n_terms(expressions.forward) <= MOST_TERMS:
        both = "\n\n".join(f"% {way}\n{expressions.latex(way)}" for way in expressions.directions)
        sources = {"LaTeX": f"{both}\n", **sources}
    return Equations(
        tuple(listings(expressions, known)), tuple(composed_listings(expressions)), sources, expressions.complexity,
        expressions.n_constants, known,
    )  # fmt: skip
