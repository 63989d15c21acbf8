"""Targets of plain symbolic regression, by family: formulas with the inputs they are seen at.

``kim`` holds the functions of Kim et al. (2020), ``lectures`` ten formulas of Feynman's lectures in like ranges,
``feynman`` 63 with the ranges of Udrescu and Tegmark (2020), ``strogatz`` both equations of seven systems of two
variables along four trajectories each, ``arm`` the end point of the planar arm. The folder ``lists`` has the long
ones, one formula per line; any file ``name.txt`` there is a family of that name.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import sympy as sp

from isr.problems.comparison import compare_laws
from isr.problems.kinematics import LENGTHS, PRIOR_STD
from isr.problems.laws import FUNCTIONS as KIM

LISTS = Path(__file__).parent / "lists"
N_TIMES, STEP = 100, 0.1
_X = sp.symbols("x0:12", real=True)


@dataclass(frozen=True)
class Formula:
    """A formula with the ranges its inputs are drawn from.

    Args:
        name: Of the formula.
        expression: The truth, in ``x0``, ``x1``, ...
        ranges: Low and high for each input.
        wider: The same for the test, outside of what was seen.
        path: Inputs along trajectories, and as many between them for the test, where inputs are not drawn.
        spread: Standard deviation of normal inputs around 0, where they are not uniform.
    """

    name: str
    expression: sp.Expr
    ranges: tuple[tuple[float, float], ...]
    wider: tuple[tuple[float, float], ...]
    path: tuple[np.ndarray, np.ndarray] | None = None
    spread: tuple[float, ...] | None = None

    @property
    def symbols(self) -> tuple[sp.Symbol, ...]:
        """The inputs."""
        return _X[: len(self.ranges)]

    def rows(
        self, n: int, seed: int, *, wider: bool = False, test: bool = False
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return ``n`` inputs and their exact values; those of a trajectory are all of it, whatever ``n`` is.

        Args:
            n: How many.
            seed: Of the draw.
            wider: Whether to draw from the wider ranges.
            test: Whether to hand back those between the points of a trajectory, where there is one.
        """
        if self.path is not None and not wider:
            x = self.path[int(test)]
        elif self.spread is not None and not wider:
            x = np.random.default_rng(seed).normal(0.0, self.spread, (n, len(self.spread)))
        else:
            low, high = np.array(self.wider if wider else self.ranges).T
            x = np.random.default_rng(seed).uniform(low, high, (n, len(low)))
        return x, self.values(x)

    def values(self, x: np.ndarray) -> np.ndarray:
        """Return the exact values at rows of inputs."""
        with np.errstate(all="ignore"):  # a wider range may leave the domain
            return np.asarray(sp.lambdify(self.symbols, self.expression)(*x.T), dtype=float)

    def is_found(self, found: Any) -> tuple[bool, str]:
        """Return whether ``found`` is this formula, constants within 2 %, and if not why."""
        comparison = compare_laws(
            [found], [self.expression], self.rows(1000, 1)[0], symbols=self.symbols, up_to="nothing"
        )
        return bool(comparison.same), comparison.reason


@cache
def family(name: str) -> dict[str, Formula]:
    """Return the formulas of a family by name."""
    if name in _FAMILIES:
        return {formula.name: formula for formula in _FAMILIES[name]()}
    path = LISTS / f"{name}.txt"
    if not path.exists():
        known = sorted({*_FAMILIES, *(file.stem for file in LISTS.glob("*.txt"))})
        raise ValueError(f"unknown family {name!r}; known: {', '.join(known)}")
    return {formula.name: formula for formula in map(_listed, _lines(path))}


def _lines(path: Path) -> list[list[str]]:
    return [line.split("|") for line in path.read_text().splitlines() if line and not line.startswith("#")]


def _listed(line: list[str]) -> Formula:
    """Return the formula of ``name|formula|variable low high;...``."""
    name, text, inputs = line
    variables = [part.split() for part in inputs.split(";")]
    ranges = tuple((float(low), float(high)) for _, low, high in variables)
    return Formula(name, _parsed(text, [v[0] for v in variables]), ranges, _beyond(ranges))


def _parsed(text: str, names: list[str]) -> sp.Expr:
    return sp.sympify(text, locals=dict(zip(names, _X, strict=False)))  # type: ignore[call-overload]


def _beyond(ranges: tuple[tuple[float, float], ...]) -> tuple[tuple[float, float], ...]:
    """Return ranges a quarter wider to both sides, and of the same sign."""
    wider = []
    for low, high in ranges:
        more = (high - low) / 4
        wider.append((low / 2 if 0 <= low < 2 * more else low - more, high + more))
    return tuple(wider)


def _strogatz() -> list[Formula]:
    formulas = []
    for name, *texts, starts in _lines(LISTS / "strogatz.txt"):
        system = [_parsed(text, ["x", "y"]) for text in texts]
        path = _trajectories(system, [[float(v) for v in start.split()] for start in starts.split(";")])
        low, high = path[0].min(axis=0), path[0].max(axis=0)
        ranges = tuple((float(a), float(b)) for a, b in zip(low, high, strict=True))
        for i, expression in enumerate(system, start=1):
            formulas.append(Formula(f"{name}{i}", expression, ranges, _beyond(ranges), path))
    return formulas


def _trajectories(system: list[sp.Expr], starts: list[list[float]]) -> tuple[np.ndarray, np.ndarray]:
    """Return the points of all trajectories at multiples of `STEP`, and those halfway between."""
    from scipy.integrate import solve_ivp

    slope = sp.lambdify([_X[:2]], system)
    times = np.arange(2 * N_TIMES) * STEP / 2
    runs = [
        solve_ivp(lambda _, x: slope(x), (0, times[-1]), start, "LSODA", times, rtol=1e-10, atol=1e-12).y.T
        for start in starts
    ]
    return np.concatenate([run[::2] for run in runs]), np.concatenate([run[1::2] for run in runs])


def _arm() -> list[Formula]:
    """Return the end point of the arm, whose inputs follow its prior."""
    height, *angles = _X[:4]
    sums = [sp.Add(*angles[: i + 1]) for i in range(3)]
    lengths = [sp.Float(length) for length in LENGTHS]
    up = height + sum((a * sp.sin(s) for a, s in zip(lengths, sums, strict=True)), sp.Integer(0))
    along = sum((a * sp.cos(s) for a, s in zip(lengths, sums, strict=True)), sp.Integer(0))
    ranges = tuple((-2 * s, 2 * s) for s in PRIOR_STD)
    return [
        Formula(name, expression, ranges, _beyond(ranges), spread=PRIOR_STD)
        for name, expression in (("vertical", up), ("horizontal", along))
    ]


def _kim() -> list[Formula]:
    return [
        Formula(f.name, f.expression, ((-1.0, 1.0),) * f.dim, ((-2.0, 2.0),) * f.dim) for f in KIM.values()
    ]


def _lectures() -> list[Formula]:
    a, b, c, d = _X[:4]
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


_FAMILIES = {"kim": _kim, "lectures": _lectures, "strogatz": _strogatz, "arm": _arm}
FORMULAS: dict[str, dict[str, Formula]] = {"Kim": family("kim"), "Feynman": family("lectures")}
