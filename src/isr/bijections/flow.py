"""Flow: a bijection with a normal latent, giving density and samples, with or without a condition.

Rows in, rows out: the methods take arrays ``(n, dim)`` and return NumPy arrays, in double precision unless single is
asked for. Inside, the batch is the last axis, which is what makes it fast.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray
from scipy.special import logsumexp

from isr.bijections.affine import LOG_SQRT_2PI, Bounded
from isr.bijections.bijection import (
    AbstractBijection,
    Chain,
    Columns,
    Mapped,
    MappedColumns,
    Vector,
)
from isr.bijections.coupling import ConditionMap
from isr.bijections.parameters import cast
from isr.bijections.programs import Accelerated, accelerate, compiled
from isr.bijections.shapes import Edges
from isr.tables.memory import draw_count

CHUNK = 16_384
Rows = np.ndarray
Precision = Literal["double", "single"]
_TYPES = {"double": np.float64, "single": np.float32}
N_PAD_NODES = 32


class Flow(eqx.Module):
    """A density over x, given y where there is a condition, made of one bijection.

    Three forms, told apart by how y enters. *Flow*: ``f(x) = z``. *Conditional* (cISR): ``f(x; y) = z``, y is read
    by the subnetworks. *Joint* (ISR): ``f(x) = [y, z]``, the leading ``n_observed`` outputs are y, each with
    normal noise of standard deviation ``noise``.

    Args:
        bijection: Takes x (and its padding) to the latent.
        condition_map: Prepares y for the subnetworks; ``None`` in the unconditional and the joint form.
        noise: Standard deviation of each observed output, in y's own units; empty but in the joint form.
        n_padding: Zeros appended to x, because a coupling needs two variables at least.

    Example:
        >>> from isr.bijections.affine import Standardise
        >>> flow = Flow(Standardise((2.0,), (0.5,)))  # z = (x - 2) / 0.5
        >>> flow
        <flow of 1 variable: Standardise>
        >>> flow.forward([[2.5]])
        (array([[1.]]), array([0.69314718]))
        >>> flow.inverse([[1.0]])[0], flow.log_prob([[2.0]]).round(3)
        (array([[2.5]]), array([-0.226]))
        >>> flow.sample(jax.random.key(0), 3).shape, flow.draw([[1.0]])
        ((3, 1), array([[2.5]]))
        >>> flow.dim, flow.condition_dim, flow.n_observed, len(flow.steps), flow.accelerated().dim
        (1, 0, 0, 1, 1)
        >>> flow.contains([[1.0]])
        array([ True])
    """

    bijection: AbstractBijection
    condition_map: ConditionMap | None = None
    noise: tuple[float, ...] = eqx.field(static=True, default=())
    n_padding: int = eqx.field(static=True, default=0)

    def __check_init__(self) -> None:
        if self.condition_map is not None and self.noise:
            raise ValueError("y enters through the subnetworks or through the outputs, not both")
        if not all(np.isfinite(s) and s > 0 for s in self.noise):
            raise ValueError(f"the noise of an observed output must be positive, got {self.noise}")
        if len(self.noise) > self.dim:
            raise ValueError(f"{len(self.noise)} observed outputs do not fit into {self.dim} variables")
        if self.n_padding not in (0, 1):
            raise ValueError(f"n_padding must be 0 or 1, got {self.n_padding}")

    def __repr__(self) -> str:
        given = f" given {self.condition_dim}" if self.condition_map is not None else ""
        giving = f", {self.n_observed} outputs observed" if self.n_observed else ""
        kinds = ", ".join(type(step).__name__ for step in self.steps)
        return f"<flow of {self.dim} variable{'s' * (self.dim != 1)}{given}{giving}: {kinds}>"

    @property
    def steps(self) -> tuple[AbstractBijection, ...]:
        """The bijections one after the other."""
        return self.bijection.bijections if isinstance(self.bijection, Chain) else (self.bijection,)

    @property
    def dim(self) -> int:
        """Number of variables in x."""
        return self.bijection.dim - self.n_padding

    @property
    def n_observed(self) -> int:
        """Number of leading outputs that are y (joint form only)."""
        return len(self.noise)

    @property
    def condition_dim(self) -> int:
        """Number of variables in y, whichever way it enters."""
        return self.condition_map.standardise.dim if self.condition_map is not None else self.n_observed

    def accelerated(self) -> Flow:
        """Return the same flow for single precision, its blocks as C kernels where those can do it."""
        return replace(self, bijection=accelerate(self.bijection))

    def forward_one(self, x: Vector, y: Vector | None = None) -> Mapped:
        """Return latent and log-determinant for one x."""
        return self.latent_one(jnp.concatenate([x, jnp.zeros(self.n_padding, x.dtype)]), y)

    def inverse_one(self, z: Vector, y: Vector | None = None) -> Mapped:
        """Return x and the log-determinant of the inverse for one latent."""
        x, log_det = self.bijection.inverse_and_log_det(z, self._condition(y))
        return x[: self.dim], log_det

    def latent_one(self, padded: Vector, y: Vector | None = None) -> Mapped:
        """Return latent and log-determinant for one x with its padding appended."""
        return self.bijection.forward_and_log_det(padded, self._condition(y))

    def latent_columns(self, padded: Columns, y: Array | None = None) -> MappedColumns:
        """Return latents and log-determinants of columns of x with their padding; ``y`` is one or a column each."""
        return self.bijection.forward_columns(padded, self._condition(y))

    def joint_log_prob_columns(self, padded: Columns, y: Array | None = None) -> Float[Array, " n"]:
        """Return the log-density of every column of x with its padding."""
        latent, log_det = self.latent_columns(padded, y)
        mean, scale = self._base(y, latent)
        density = -jnp.sum(0.5 * ((latent - mean) / scale) ** 2 + jnp.log(scale) + LOG_SQRT_2PI, axis=0)
        return log_det + density

    def draw_columns(self, noise: Columns, y: Array | None = None) -> Columns:
        """Return the x that columns of standard-normal ``noise`` of the latent's width stand for."""
        mean, scale = self._base(y, noise)
        return self.inverse_columns(mean + scale * noise, y)[0]

    def forward_columns(self, x: Columns, y: Array | None = None) -> MappedColumns:
        """Return latents and log-determinants of columns of x."""
        padding = jnp.zeros((self.n_padding, x.shape[-1]), x.dtype)
        return self.latent_columns(jnp.concatenate([x, padding]), y)

    def inverse_columns(self, z: Columns, y: Array | None = None) -> MappedColumns:
        """Return x and log-determinants of the inverse for columns of latents."""
        x, log_det = self.bijection.inverse_columns(z, self._condition(y))
        return x[: self.dim], log_det

    def log_prob_columns(self, x: Columns, y: Array | None = None) -> Float[Array, " n"]:
        """Return the log-density of columns of x, the padding summed out."""
        if not self.n_padding:
            return self.joint_log_prob_columns(x, y)
        # The padding is a variable of its own; the quadrature of Gauss and Hermite sums it out.
        nodes, weights = np.polynomial.hermite_e.hermegauss(N_PAD_NODES)
        log_weights = jnp.asarray(np.log(weights) + 0.5 * nodes**2, x.dtype)
        nodes = jnp.asarray(nodes, x.dtype)
        padded = jnp.concatenate([jnp.repeat(x, len(nodes), axis=-1), jnp.tile(nodes, x.shape[-1])[None]])
        given = y if y is None or y.ndim == 1 else jnp.repeat(y, len(nodes), axis=-1)
        joint = self.joint_log_prob_columns(padded, given).reshape(-1, len(nodes))
        return jax.nn.logsumexp(joint + log_weights[None], axis=-1)

    def _condition(self, y: Array | None) -> Array | None:
        """What the couplings read of one y, or of a column each."""
        if self.condition_map is None or y is None:
            return None
        return self.condition_map(y) if y.ndim == 1 else jax.vmap(self.condition_map, -1, -1)(y)

    def _base(self, y: Array | None, like: Columns) -> tuple[Columns, Columns]:
        """Mean and scale of columns of latents, in rows that fit all columns or a column each."""
        mean, scale = jnp.zeros((len(like), 1), like.dtype), jnp.ones((len(like), 1), like.dtype)
        if not self.n_observed or y is None:
            return mean, scale
        given, n = y[:, None] if y.ndim == 1 else y, self.n_observed
        scale = scale.at[:n, 0].set(jnp.asarray(self.noise, like.dtype))
        return jnp.concatenate([given, jnp.zeros((len(like) - n, given.shape[1]), like.dtype)]), scale

    def forward(
        self, x: Rows, y: Rows | None = None, *, precision: Precision = "double"
    ) -> tuple[Rows, Rows]:
        """Return latents ``(n, dim)`` and log-determinants ``(n,)`` of rows of x."""
        return self._rows("forward_columns", x, y, precision, y_enters=self.condition_map is not None)

    def inverse(
        self, z: Rows, y: Rows | None = None, *, precision: Precision = "double"
    ) -> tuple[Rows, Rows]:
        """Return rows of x and the inverse's log-determinants for rows of latents."""
        return self._rows("inverse_columns", z, y, precision, y_enters=self.condition_map is not None)

    def log_prob(self, x: Rows, y: Rows | None = None, *, precision: Precision = "double") -> Rows:
        """Return the log-density (nats) of rows of x, given y where there is a condition."""
        densities = self._rows("log_prob_columns", x, y, precision, y_enters=self.condition_dim > 0)
        if any(isinstance(step, Bounded) for step in self.steps):
            densities = np.where(self.contains(x, y, kinds=Bounded), densities, densities.dtype.type(-np.inf))
        return densities

    def contains(self, x: Rows, y: Rows | None = None, *, kinds: Any = (Bounded, Edges)) -> np.ndarray:
        """Return whether rows of x are inside of all bounds and edges, by default, that its steps have."""
        x = _checked(x, self.dim, "x", np.float64)
        inside = np.ones(len(x), bool)
        for place, step in enumerate(self.steps):
            if isinstance(step, kinds):
                before = replace(self, bijection=Chain(self.steps[:place])) if place else None
                inside &= step.contains(x if before is None else before.forward(x, y)[0])
        return inside

    def sample(
        self, key: PRNGKeyArray, n: int, y: Rows | None = None, *, precision: Precision = "double"
    ) -> Rows:
        """Return ``n`` rows of x; ``y`` is one observation, or one for each row.

        The two precisions draw different random numbers.
        """
        n = draw_count(n, self.bijection.dim, least=0)
        wanted, size = _type_of(precision), (n, self.bijection.dim)
        if precision == "single":  # NumPy's numbers take half as long as JAX's
            bits = np.asarray(jax.random.key_data(key)).ravel()
            noise = np.random.Generator(np.random.SFC64(bits)).standard_normal(size, wanted)
        else:
            with jax.enable_x64(True):
                noise = np.asarray(jax.random.normal(key, size, wanted))
        return self.draw(noise, y, precision=precision)

    def draw(self, noise: Rows, y: Rows | None = None, *, precision: Precision = "double") -> Rows:
        """Return the rows of x that rows of standard-normal ``noise`` of the latent's width stand for."""
        return self._rows("draw_columns", noise, y, precision, y_enters=self.condition_dim > 0)

    def _rows(self, method: str, rows: Rows, y: Rows | None, precision: Precision, *, y_enters: bool) -> Any:
        wanted = _type_of(precision)
        of_latent = method in ("inverse_columns", "draw_columns")
        width = self.bijection.dim if of_latent else self.dim
        rows = _checked(rows, width, "the latent" if of_latent else "x", wanted)
        if y_enters:
            if y is None:
                raise ValueError(f"this flow is conditional: give y with {self.condition_dim} columns")
            y = _checked(y, self.condition_dim, "y", wanted)
            if len(y) not in (1, len(rows)):
                raise ValueError(f"y must hold one row or as many as x ({len(rows)}), got {len(y)}")
        elif y is not None and not self.condition_dim:
            raise ValueError("this flow has no condition, but y was given; leave y out")
        with jax.enable_x64(precision == "double"):
            # Shifts, scales and bounds as inputs of the program, so that flows of other data share it.
            flow = jax.tree.map(
                lambda v: np.asarray(v, wanted) if isinstance(v, float) else v, cast(self, wanted)
            )
            flow = flow.accelerated() if precision == "single" else flow
            return _in_chunks(compiled(_run, flow, method), flow, rows, y if y_enters else None)


class Ensemble(Flow):
    """A mixture: density and draws are those of all members, equations and latents those of the first.

    Args:
        others: The other members.
        shares: The weight of each member, the first one's first; they sum to one.

    Example:
        >>> from isr.bijections.affine import Standardise
        >>> members = Flow(Standardise((0.0,), (1.0,))), Flow(Standardise((9.0,), (1.0,)))
        >>> both = Ensemble.of(members, [0.75, 0.25])
        >>> both.log_prob([[0.0]]).round(3), bool(1 < both.sample(jax.random.key(0), 400).mean() < 3.5)
        (array([-1.207]), True)
        >>> len(both.members)
        2
    """

    others: tuple[Flow, ...] = ()
    shares: tuple[float, ...] = eqx.field(static=True, default=(1.0,))

    def __check_init__(self) -> None:
        if len(self.shares) != 1 + len(self.others) or not np.isclose(sum(self.shares), 1):
            raise ValueError(f"an ensemble of {1 + len(self.others)} needs as many shares, got {self.shares}")

    @classmethod
    def of(cls, members: tuple[Flow, ...], shares: object) -> Ensemble:
        """Return the mixture of members, the best first."""
        first, weights = members[0], np.asarray(shares, float)
        parts = (first.bijection, first.condition_map, first.noise, first.n_padding)
        return cls(*parts, tuple(members[1:]), tuple((weights / weights.sum()).tolist()))

    @property
    def members(self) -> tuple[Flow, ...]:
        """All flows, the best first."""
        return Flow(self.bijection, self.condition_map, self.noise, self.n_padding), *self.others

    def log_prob(self, x: Rows, y: Rows | None = None, *, precision: Precision = "double") -> Rows:
        """Return the log-density (nats) of rows of x, given y where there is a condition."""
        each = [member.log_prob(x, y, precision=precision) for member in self.members]
        with np.errstate(divide="ignore"):
            total = logsumexp(np.asarray(each, float), axis=0, b=np.asarray(self.shares)[:, None])
        return total.astype(each[0].dtype)

    def sample(
        self, key: PRNGKeyArray, n: int, y: Rows | None = None, *, precision: Precision = "double"
    ) -> Rows:
        """Return ``n`` rows of x; ``y`` is one observation, or one for each row."""
        rng = np.random.default_rng(np.asarray(jax.random.key_data(key)).ravel())
        n = draw_count(n, self.dim, least=0)
        member_of = rng.choice(len(self.shares), size=n, p=self.shares)
        rows = np.full((n, self.dim), np.nan, _type_of(precision))
        keys = jax.random.split(key, len(self.shares))
        for number, (member, k) in enumerate(zip(self.members, keys, strict=True)):
            chosen = np.flatnonzero(member_of == number)
            given = y if y is None or len(y) == 1 else np.asarray(y)[chosen]
            if len(chosen) or not n:
                rows[chosen] = member.sample(k, len(chosen), given, precision=precision)
        return rows


def _type_of(precision: str) -> type[np.floating]:
    if precision not in _TYPES:
        raise ValueError(f"precision must be 'double' or 'single', got {precision!r}")
    return _TYPES[precision]


def _checked(rows: Rows, width: int, what: str, wanted: type[np.floating]) -> Rows:
    rows = np.asarray(rows, dtype=wanted)
    if rows.ndim == 1:
        rows = rows[None, :] if rows.shape[0] == width and width > 1 else rows.reshape(-1, 1)
    if rows.ndim != 2 or rows.shape[1] != width:
        raise ValueError(f"{what} must have {width} columns, got an array of shape {rows.shape}")
    if np.isnan(rows).any():
        bad = np.unique(np.argwhere(np.isnan(rows))[:, 1]).tolist()
        raise ValueError(f"{what} holds NaN in column(s) {bad}; remove or fill those rows first")
    return rows


def _run(
    method: str, flow: Flow, rows: Float[Array, "n width"], y: Float[Array, "m condition"] | None
) -> Any:
    condition = None if y is None else y[0] if y.shape[0] == 1 else y.T
    return jax.tree.map(jnp.transpose, getattr(flow, method)(rows.T, condition))


def _in_chunks(function: Callable, flow: Flow, rows: Rows, y: Rows | None) -> Any:
    """Run ``function`` over rows in pieces of few distinct lengths: bounded memory, few compilations."""

    def filled(piece: Rows) -> Rows:
        last = piece[-1:] if len(piece) else np.zeros((1, piece.shape[1]), piece.dtype)
        return np.concatenate([piece, np.repeat(last, length - len(piece), axis=0)])

    n, results = len(rows), []
    # The native library keeps its own tiles in the cache, and longer pieces are fewer calls.
    is_native = any(isinstance(step, Accelerated) for step in flow.steps)
    longest = 4 * CHUNK if is_native and n >= 16 * CHUNK else CHUNK
    length = min(longest, 4 ** max(2, math.ceil(math.log(max(n, 1), 4))))
    for start in range(0, max(n, 1), length):
        here = slice(start, start + length)
        given = y if y is None or len(y) == 1 else filled(y[here])
        results.append(function(flow, filled(rows[here]), given))
    # Calls return before their work is done, so pieces run side by side where there are cores; here is the wait.
    return jax.tree.map(lambda *parts: np.concatenate(parts)[:n], *results)
