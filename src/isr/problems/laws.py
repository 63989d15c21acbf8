"""Known laws: densities that affine couplings express exactly, and the ten functions of Kim et al. (2020).

A law is written as couplings act: ``z_i = u_i exp(s_i(u)) + t_i(u)``, variable after variable, where ``s_i`` and
``t_i`` look only at variables earlier in ``order``; with mixing, ``x = M u``. From that follow the sampler, the exact
density, the entropy (nats) and the true latents as equations. A latent is known up to sign and order.

The constants are such that 10⁴ rows determine each of them well within the tolerance of the comparison.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import sympy as sp
from jaxtyping import Float
from numpy.typing import ArrayLike

from isr.problems.comparison import TOLERANCE, Comparison, compare_laws, same_law

__all__ = ["FUNCTIONS", "LAWS", "Function", "Law", "compare_laws", "same_law"]

RandomState = int | np.random.Generator | None

_X = sp.symbols("x0:4", real=True)


@dataclass(frozen=True)
class Law:
    """A density given by its exact latents.

    Args:
        name: Of the law.
        log_scale: ``s_i`` for each variable.
        shift: ``t_i`` for each variable.
        order: In which order the variables follow from one another.
        primitives: A library, besides the constant and the identity, in which the law can be written.
        mixing: The matrix ``M`` for laws that need a learned linear layer, else ``None``.
        n_blocks: Coupling blocks that suffice, halves as in the model: the first ``dim // 2`` variables move first.

    Example:
        >>> law = LAWS["banana"]
        >>> law.dim, law.latent
        (2, (x0/2, -x0**2/5 + x1 + 4/5))
        >>> z, log_det = law.to_latent(law.from_latent(np.zeros((1, 2))))
        >>> z, law.log_prob(np.zeros((1, 2))).round(3), round(law.entropy, 3)
        (array([[0., 0.]]), array([-2.851]), 3.531)
    """

    name: str
    log_scale: tuple[sp.Expr, ...]
    shift: tuple[sp.Expr, ...]
    order: tuple[int, ...]
    primitives: tuple[str, ...]
    mixing: tuple[tuple[float, ...], ...] | None = None
    n_blocks: int = 1

    @property
    def dim(self) -> int:
        """Number of variables."""
        return len(self.order)

    @cached_property
    def latent(self) -> tuple[sp.Expr, ...]:
        """The true equations ``z_i(x0, x1, …)``."""
        raw: list[Any] = [
            u * sp.exp(s) + t for u, s, t in zip(self._u, self.log_scale, self.shift, strict=True)
        ]
        if self.mixing is None:
            return tuple(raw)
        unmixed = np.linalg.inv(self._matrix) @ np.asarray(self._u)
        table: dict[Any, Any] = dict(zip(self._u, unmixed, strict=True))
        return tuple(z.subs(table, simultaneous=True) for z in raw)

    @property
    def _u(self) -> tuple[sp.Symbol, ...]:
        return _X[: self.dim]

    @cached_property
    def _matrix(self) -> np.ndarray:
        return np.eye(self.dim) if self.mixing is None else np.asarray(self.mixing, dtype=float)

    @cached_property
    def _functions(self) -> list[tuple[Any, Any]]:
        pairs = zip(self.log_scale, self.shift, strict=True)
        return [(sp.lambdify(self._u, s), sp.lambdify(self._u, t)) for s, t in pairs]

    def from_latent(self, z: ArrayLike) -> Float[np.ndarray, "n dim"]:
        """Return the data of latents, one per row."""
        z = np.asarray(z, dtype=float)
        u = np.zeros_like(z)
        for i in self.order:
            s, t = (function(*u.T) for function in self._functions[i])
            u[:, i] = (z[:, i] - t) * np.exp(-s)
        return u @ self._matrix.T

    def to_latent(self, x: ArrayLike) -> tuple[Float[np.ndarray, "n dim"], Float[np.ndarray, " n"]]:
        """Return the latents of data, one per row, and the log determinant of the map."""
        u = np.linalg.solve(self._matrix, np.asarray(x, dtype=float).T).T
        pairs = [[np.broadcast_to(f(*u.T), len(u)) for f in functions] for functions in self._functions]
        s, t = np.moveaxis(np.array(pairs, dtype=float), 1, 0)
        return u * np.exp(s.T) + t.T, s.sum(axis=0) - np.linalg.slogdet(self._matrix)[1]

    def sample(self, n: int, random_state: RandomState = None) -> Float[np.ndarray, "n dim"]:
        """Return ``n`` independent draws, one per row.

        Example:
            >>> LAWS["funnel"].sample(4, random_state=0).shape
            (4, 2)
        """
        return self.from_latent(np.random.default_rng(random_state).standard_normal((n, self.dim)))

    def log_prob(self, x: ArrayLike) -> Float[np.ndarray, " n"]:
        """Return the exact log density of rows."""
        z, log_det = self.to_latent(x)
        return log_det - 0.5 * np.sum(z**2, axis=1) - 0.5 * self.dim * np.log(2 * np.pi)

    @cached_property
    def entropy(self) -> float:
        """Differential entropy in nats, by Gauss–Hermite quadrature of the log determinant."""
        nodes, weights = np.polynomial.hermite_e.hermegauss(12)
        grid = np.stack(np.meshgrid(*[nodes] * self.dim, indexing="ij"), axis=-1).reshape(-1, self.dim)
        weight = np.prod(np.meshgrid(*[weights / weights.sum()] * self.dim, indexing="ij"), axis=0).ravel()
        log_det = self.to_latent(self.from_latent(grid))[1]
        return float(0.5 * self.dim * (1 + np.log(2 * np.pi)) - weight @ log_det)

    def compare(
        self, found: Any, *, tolerance: float = TOLERANCE, symbols: Sequence[Any] | None = None
    ) -> Comparison:
        """Return whether found latents are this law, up to sign and order (see :func:`compare_laws`).

        With mixing, up to a rotation of the latents, which a standard normal cannot tell apart.

        Example:
            >>> x0, x1 = _X[:2]
            >>> LAWS["banana"].compare([0.501 * x0, 0.2 * x0**2 - 0.81 - x1]).same
            True
        """
        data = self.sample(1000, random_state=0)
        up_to = "sign" if self.mixing is None else "rotation"
        return compare_laws(found, self.latent, data, tolerance=tolerance, symbols=symbols, up_to=up_to)


def _laws() -> dict[str, Law]:
    x0, x1, x2, x3 = _X
    log = sp.log
    zero = sp.Integer(0)
    tilt = float(np.cos(np.pi / 6)), float(np.sin(np.pi / 6))
    rotation = ((tilt[0], -tilt[1]), (tilt[1], tilt[0]))
    bend = x0**2 / 5
    logistic = 1 / (1 + sp.exp(-2 * x0))
    laws = (
        Law("gaussian", (log(2), -log(3)), (sp.Integer(-2), sp.Integer(1)), (0, 1), ()),
        Law("banana", (-log(2), zero), (zero, sp.Rational(4, 5) - bend), (0, 1), ("square",)),
        Law("funnel", (zero, -x0 / 2), (zero, zero), (0, 1), ()),
        Law("sine_shear", (zero, log(5)), (zero, -5 * sp.sin(2 * x0)), (0, 1), ("sin",)),
        Law("sigmoid_shift", (-log(2), log(4)), (zero, -12 * logistic), (0, 1), ("sigmoid",)),
        Law(
            "decay_with_drift",
            (log(sp.Rational(3, 2)), log(5)),
            (-sp.Rational(3, 2), -20 * sp.exp(-3 * x0 / 2) - 10 * x0),
            (0, 1),
            ("exp",),
        ),
        Law("uneven_parabola", (zero, log(4) - x0 / 2), (zero, 2 - 2 * x0**2), (0, 1), ("square",)),
        Law("product_shear", (log(2), zero, zero), (-2 * x1 * x2, zero, zero), (1, 2, 0), ("product",)),
        Law(
            "rosenbrock_pairs",
            (zero, zero, log(2), log(2)),
            (zero, zero, -2 * x0**2, -2 * x1**2),
            (0, 1, 2, 3),
            ("square",),
        ),
        Law(
            "rosenbrock_branch",
            (log(4), zero, log(4), log(2)),
            (-(x2**2), zero, -2 * x1**2, -2 * x1),
            (1, 2, 0, 3),
            ("square",),
        ),
        Law(
            "rosenbrock_chain",
            (log(4), log(8), zero, log(8)),
            (-(x2**2), -2 * x3**2, zero, -4 * x0**2),
            (2, 0, 3, 1),
            ("square",),
            n_blocks=2,
        ),
        Law(
            "rotated_banana", (-log(2), zero), (zero, sp.Rational(4, 5) - bend), (0, 1), ("square",), rotation
        ),
    )
    return {law.name: law for law in laws}


LAWS: dict[str, Law] = _laws()
"""The laws by name."""


@dataclass(frozen=True)
class Function:
    """A target of plain symbolic regression, sampled on ``(-1, 1)`` and judged on ``(-2, 2)``.

    Args:
        name: Of the function.
        expression: The truth, in the symbols ``x0``, ``x1``, ``x2``.
        primitives: A library, besides the constant and the identity, in which it can be written.

    Example:
        >>> function = FUNCTIONS["product"]
        >>> function.dim, function.evaluate([[2.0, 3.0]]), function.test_set(5)[0].shape
        (2, array([6.]), (5, 2))
        >>> function.compare(function.expression).same
        True
    """

    name: str
    expression: sp.Expr
    primitives: tuple[str, ...]

    @property
    def dim(self) -> int:
        """Number of variables."""
        return len(self.expression.free_symbols)

    def evaluate(self, x: ArrayLike) -> Float[np.ndarray, " n"]:
        """Return the true value of rows."""
        return np.asarray(sp.lambdify(_X[: self.dim], self.expression)(*np.asarray(x, dtype=float).T))

    def sample(
        self, n: int = 256, *, noise: float = 0.0, random_state: RandomState = None
    ) -> tuple[Float[np.ndarray, "n dim"], Float[np.ndarray, " n"]]:
        """Return ``n`` training pairs, inputs uniform on ``(-1, 1)``.

        Example:
            >>> x, y = FUNCTIONS["product"].sample(random_state=0)
            >>> x.shape, bool(np.allclose(y, x[:, 0] * x[:, 1]))
            ((256, 2), True)
        """
        rng = np.random.default_rng(random_state)
        x = rng.uniform(-1, 1, (n, self.dim))
        return x, self.evaluate(x) + noise * rng.standard_normal(n)

    def test_set(
        self, n: int = 1000, random_state: RandomState = 1
    ) -> tuple[Float[np.ndarray, "n dim"], Float[np.ndarray, " n"]]:
        """Return ``n`` pairs to judge by, inputs uniform on ``(-2, 2)``: twice the range seen in training."""
        x = np.random.default_rng(random_state).uniform(-2, 2, (n, self.dim))
        return x, self.evaluate(x)

    def compare(
        self, found: Any, *, tolerance: float = TOLERANCE, symbols: Sequence[Any] | None = None
    ) -> Comparison:
        """Return whether a found equation is this function (see :func:`compare_laws`)."""
        data = self.test_set()[0]
        return compare_laws(
            found, self.expression, data, tolerance=tolerance, symbols=symbols, up_to="nothing"
        )


def _functions() -> dict[str, Function]:
    x, y, z, _ = _X
    wave = sp.sin(2 * sp.pi * x)
    table = (
        Function("linear", x, ()),
        Function("square", x**2, ("square",)),
        Function("cube", x**3, ("square", "product")),
        Function("sine", wave, ("sin2pi",)),
        Function("product", x * y, ("product",)),
        Function("sigmoid", 1 / (1 + sp.exp(-10 * x)), ("sigmoid",)),
        Function("product_and_linear", x * y / 2 + z / 2, ("product",)),
        Function("bell", sp.exp(-(x**2)), ("square", "exp")),
        Function("square_and_sine", x**2 + wave.subs(x, y), ("square", "sin2pi")),
        Function("square_and_linear", x**2 + y - 2 * z, ("square",)),
    )
    return {function.name: function for function in table}


FUNCTIONS: dict[str, Function] = _functions()
"""The ten functions of Kim et al. (2020) by name."""
