"""Targets of plain symbolic regression: the functions of Kim et al. (2020) and ten formulas of Feynman's lectures.

The formulas are of the kind collected by Udrescu and Tegmark (2020), with inputs from like ranges; constants that
only set units are left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import sympy as sp

from isr.problems.comparison import compare_laws
from isr.problems.laws import FUNCTIONS as KIM

_X = sp.symbols("x0:4", real=True)


@dataclass(frozen=True)
class Formula:
    """A formula with the ranges its inputs are drawn from.

    Args:
        name: Of the formula.
        expression: The truth, in ``x0``, ``x1``, ...
        ranges: Low and high for each input.
        wider: The same for the test, outside of what was seen.
    """

    name: str
    expression: sp.Expr
    ranges: tuple[tuple[float, float], ...]
    wider: tuple[tuple[float, float], ...]

    @property
    def symbols(self) -> tuple[sp.Symbol, ...]:
        """The inputs."""
        return _X[: len(self.ranges)]

    def rows(self, n: int, seed: int, *, wider: bool = False) -> tuple[np.ndarray, np.ndarray]:
        """Return ``n`` inputs and their exact values."""
        low, high = np.array(self.wider if wider else self.ranges).T
        x = np.random.default_rng(seed).uniform(low, high, (n, len(low)))
        return x, np.asarray(sp.lambdify(self.symbols, self.expression)(*x.T), dtype=float)

    def is_found(self, found: Any) -> tuple[bool, str]:
        """Return whether ``found`` is this formula, constants within 2 %, and if not why."""
        comparison = compare_laws(
            [found], [self.expression], self.rows(1000, 1)[0], symbols=self.symbols, up_to="nothing"
        )
        return bool(comparison.same), comparison.reason


def _kim() -> list[Formula]:
    return [
        Formula(f.name, f.expression, ((-1.0, 1.0),) * f.dim, ((-2.0, 2.0),) * f.dim) for f in KIM.values()
    ]


def _feynman() -> list[Formula]:
    a, b, c, d = _X
    seen, far = (1.0, 3.0), (1.0, 5.0)
    table = [
        ("I.6.2 normal density", sp.exp(-(a**2) / 2) / sp.sqrt(2 * sp.pi), 1),
        ("I.12.1 friction", a * b, 2),
        ("I.13.4 kinetic energy", a * (b**2 + c**2 + d**2) / 2, 4),
        ("I.14.3 potential energy", a * b * c, 3),
        ("I.14.4 spring energy", a * b**2 / 2, 2),
        ("I.18.12 torque", a * b * sp.sin(c), 3),
        ("I.25.13 voltage", a / b, 2),
        ("I.39.22 ideal gas", a * b / c, 3),
        ("II.3.24 flux", a / (4 * sp.pi * b**2), 2),
    ]
    formulas = [Formula(name, expression, (seen,) * n, (far,) * n) for name, expression, n in table]
    mass = Formula(
        "I.10.7 relativistic mass", a / sp.sqrt(1 - b**2 / c**2), (seen, (1.0, 2.0), (3.0, 10.0)),
        (far, (1.0, 2.5), (3.0, 12.0)),
    )  # fmt: skip
    return [*formulas, mass]


FORMULAS: dict[str, dict[str, Formula]] = {
    "Kim": {f.name: f for f in _kim()},
    "Feynman": {f.name: f for f in _feynman()},
}
