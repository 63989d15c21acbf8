"""Coupling: transform each half of the variables by functions of the other.

Direction, everywhere: *forward* takes data x to latent z, *inverse* brings it back. A transformer is the monotone map
of one variable; to add one, write its two directions and name its parameters; equations, exports and files follow from
that. Its clamp and the guard of the subnetworks' inputs are part of the formula.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.ad_checkpoint import checkpoint_name
from jaxtyping import Array, Float

from isr.bijections.affine import Spread, Standardise
from isr.bijections.bijection import AbstractBijection, Columns, MappedColumns, told
from isr.bijections.formula import Formulas
from isr.bijections.networks import EQL, MLP
from isr.bijections.primitives import soft_clamp

Numbers = Float[Array, " *n"]


class AbstractTransformer(eqx.Module):
    """A monotone map ``v = T(u; parameters)`` of each variable by itself."""

    names: ClassVar[tuple[str, ...]]
    """What equations call the parameters, in the order in which the subnetworks give them."""
    shifts: ClassVar[tuple[str, ...]] = ()
    """Those that only move a variable; some restarts of a fit may use these alone."""

    @abstractmethod
    def constrained(self, *raw: Numbers) -> tuple[Numbers, ...]:
        """Return the parameters that what the subnetworks give stands for, such as a clamped log-scale."""

    @abstractmethod
    def forward(self, u: Numbers, *parameters: Numbers) -> tuple[Numbers, Numbers]:
        """Return the image of ``u`` and the logarithm of the slope there."""

    @abstractmethod
    def inverse(self, v: Numbers, *parameters: Numbers) -> tuple[Numbers, Numbers]:
        """Return the preimage of ``v`` and the logarithm of the inverse's slope there."""

    def unclamped(self, *raw: Any) -> tuple[AbstractTransformer, tuple[Any, ...]]:
        """Return a transformer without clamps and what near zero serves it as parameters; ``raw`` are formulas."""
        return self, raw

    def from_raw_units(self, shift: float, scale: float, *raw: Any) -> tuple[tuple[Any, ...], float] | None:
        """Return the parameters for ``x`` where ``raw`` are for ``u = (x - shift) / scale``, and what to take off x.

        None where a scale cannot join the parameters.
        """
        return None


class Affine(AbstractTransformer):
    """Maps ``u`` to ``u * exp(s) + t``.

    Args:
        clamp: Holds ``s`` inside ``±clamp``, by ``clamp * 2/pi * atan(s / clamp)``; ``None`` leaves it free.
    """

    clamp: float | None = eqx.field(static=True, default=None)

    names: ClassVar[tuple[str, ...]] = ("s", "t")
    shifts: ClassVar[tuple[str, ...]] = ("t",)

    def __check_init__(self) -> None:
        if self.clamp is not None and not self.clamp > 0:
            raise ValueError(f"clamp must be a positive number or None, got {self.clamp!r}")

    def constrained(self, *raw: Numbers) -> tuple[Numbers, ...]:
        s, t = raw
        return (s if self.clamp is None else soft_clamp(s, self.clamp)), t

    def forward(self, u: Numbers, *parameters: Numbers) -> tuple[Numbers, Numbers]:
        s, t = parameters
        return u * jnp.exp(s) + t, s

    def inverse(self, v: Numbers, *parameters: Numbers) -> tuple[Numbers, Numbers]:
        s, t = parameters
        return (v - t) * jnp.exp(-s), -s

    def unclamped(self, *raw: Any) -> tuple[Affine, tuple[Any, ...]]:
        s, t = raw
        if self.clamp is None:
            return self, raw
        if s.is_number:
            return Affine(), (s * 0 + self.clamp * 2 / np.pi * np.arctan(float(s) / self.clamp), t)
        # Near zero the clamp is the factor 2/pi; the refit of the constants mends what is left.
        return Affine(), (s * (2 / np.pi), t)

    def from_raw_units(self, shift: float, scale: float, *raw: Any) -> tuple[tuple[Any, ...], float]:
        s, t = raw
        s = s - float(np.log(scale))
        if s.is_number:  # the shift joins the formula's own constant
            return (s, t - shift * float(np.exp(float(s)))), 0.0
        return (s, t), shift


TRANSFORMERS: dict[str, type[AbstractTransformer]] = {"Affine": Affine}
"""Every transformer that a file may hold, by the name of its class."""


def register_transformer(transformer: type[AbstractTransformer]) -> type[AbstractTransformer]:
    """Let files hold a transformer of your own; use it as a decorator of the class.

    Example:
        >>> @register_transformer
        ... class Shift(AbstractTransformer):
        ...     names = ("t",)
        ...
        ...     def constrained(self, t):
        ...         return (t,)
        ...
        ...     def forward(self, u, t):
        ...         return u + t, jnp.zeros_like(u)
        ...
        ...     def inverse(self, v, t):
        ...         return v - t, jnp.zeros_like(v)
        >>> del TRANSFORMERS["Shift"]
    """
    name = transformer.__name__
    if not (isinstance(transformer, type) and issubclass(transformer, AbstractTransformer)):
        raise TypeError(f"a transformer is a class made from AbstractTransformer, got {transformer!r}")
    if not getattr(transformer, "names", ()):
        raise ValueError(f"{name} must say what its parameters are called, such as names = ('s', 't')")
    if TRANSFORMERS.get(name, transformer).__module__ != transformer.__module__:
        raise ValueError(f"a transformer called {name!r} exists already; choose another name")
    TRANSFORMERS[name] = transformer
    return transformer


class ConditionMap(eqx.Module):
    """Standardises the condition and, where there is a conditioning network, feeds it through.

    Args:
        standardise: Fixed shift and scale of the condition, or of what its skewed columns become.
        network: Gives the features the couplings read; ``None`` passes the standardised condition on.
        guard: Bound of the network's inputs; ``None`` leaves them free.
    """

    standardise: Standardise | Spread
    network: EQL | MLP | None
    guard: float | None = eqx.field(static=True)

    @property
    def n_features(self) -> int:
        """How many numbers the subnetworks read."""
        return self.standardise.dim if self.network is None else self.network.n_outputs

    def __call__(self, y: Float[Array, " condition"]) -> Float[Array, " features"]:
        with jax.named_scope("condition"):
            return self.features(checkpoint_name(self.standardise.forward_and_log_det(y)[0], "c"))

    def features(self, standardised: Float[Array, " condition"]) -> Float[Array, " features"]:
        """Return what the couplings read, from a condition that is standardised already."""
        if self.network is None:
            return standardised
        if self.guard is not None:
            standardised = checkpoint_name(jnp.clip(standardised, -self.guard, self.guard), "gc")
        return checkpoint_name(self.network(standardised)[0], "f")


Subnetwork = EQL | MLP | Formulas


class Coupling(AbstractBijection):
    """Maps ``(u1, u2)`` to ``(v1, o2)``, two couplings one after the other.

    ``v1 = T(u1; first(u2))`` and ``o2 = T(u2; second(v1))``, where ``T`` is the transformer and every input of a
    subnetwork is held inside ``±guard``. The affine one gives ``v1 = u1 * exp(s1(u2)) + t1(u2)``.

    Args:
        first: Gives the parameters of ``v1``, stacked, from ``u2`` and the condition.
        second: Gives those of ``o2``, from ``v1`` and the condition.
        split: How many leading variables form ``u1``.
        dim: Number of variables in all.
        transformer: What is done to each variable.
        guard: Bound of the subnetworks' inputs; ``None`` leaves them free.
    """

    first: Subnetwork
    second: Subnetwork
    split: int = eqx.field(static=True)
    dim: int = eqx.field(static=True)
    transformer: AbstractTransformer = Affine()
    guard: float | None = eqx.field(static=True, default=None)
    part: ClassVar[str] = "block"
    is_penalised: ClassVar[bool] = True

    def __check_init__(self) -> None:
        if not 0 < self.split < self.dim:
            raise ValueError(
                f"split must lie strictly between 0 and dim={self.dim}, "
                f"got {self.split}; a coupling needs variables on both sides"
            )
        if self.guard is not None and not self.guard > 0:
            raise ValueError(f"guard must be a positive number or None, got {self.guard!r}")

    subnetworks = told(
        "The networks or formulas that give its parameters.", lambda self: (self.first, self.second)
    )

    def with_subnetworks(self, *networks: Subnetwork) -> Coupling:
        return replace(self, first=networks[0], second=networks[1])

    def forward_columns(self, x: Columns, condition: Array | None = None) -> MappedColumns:
        return self.forward_and_log_det(x, _a_column_each(condition, x.shape[-1]))

    def inverse_columns(self, z: Columns, condition: Array | None = None) -> MappedColumns:
        return self.inverse_and_log_det(z, _a_column_each(condition, z.shape[-1]))

    def forward_and_log_det(self, x: Array, condition: Array | None = None) -> tuple[Array, Array]:
        """Return the image of one sample, or of a column each, and the log-determinant there."""
        u1, u2 = jnp.split(x, [self.split])
        u1, u2 = checkpoint_name(u1, "u1"), checkpoint_name(u2, "u2")
        v1, slope1 = self.transformer.forward(u1, *self.parameters(1, u2, condition))
        v1 = checkpoint_name(v1, "v1")
        o2, slope2 = self.transformer.forward(u2, *self.parameters(2, v1, condition))
        o2 = checkpoint_name(o2, "o2")
        return jnp.concatenate([v1, o2]), jnp.sum(slope1, axis=0) + jnp.sum(slope2, axis=0)

    def inverse_and_log_det(self, z: Array, condition: Array | None = None) -> tuple[Array, Array]:
        """Return the preimage of one sample, or of a column each, and the log-determinant there."""
        v1, o2 = jnp.split(z, [self.split])
        v1, o2 = checkpoint_name(v1, "v1"), checkpoint_name(o2, "o2")
        u2, slope2 = self.transformer.inverse(o2, *self.parameters(2, v1, condition))
        u2 = checkpoint_name(u2, "u2")
        u1, slope1 = self.transformer.inverse(v1, *self.parameters(1, u2, condition))
        log_det = jnp.sum(slope1, axis=0) + jnp.sum(slope2, axis=0)
        return jnp.concatenate([checkpoint_name(u1, "u1"), u2]), log_det

    def parameters(self, which: int, half: Array, condition: Array | None) -> tuple[Array, ...]:
        """Return the transformer's parameters for the first or the second half, for one sample or a column each."""
        network = self.first if which == 1 else self.second
        inputs = [checkpoint_name(self._guarded(half), f"g{3 - which}")]
        if condition is not None:
            with jax.named_scope("condition"):
                inputs.append(checkpoint_name(self._guarded(condition), "gc"))
        inputs = jnp.concatenate(inputs)
        raw = network.columns(inputs) if inputs.ndim == 2 else network(inputs)
        parameters = self.transformer.constrained(*raw)
        return tuple(
            checkpoint_name(p, f"{name}{which}")
            for p, name in zip(parameters, self.transformer.names, strict=True)
        )

    def _guarded(self, values: Array) -> Array:
        return values if self.guard is None else jnp.clip(values, -self.guard, self.guard)


def _a_column_each(condition: Array | None, n: int) -> Array | None:
    if condition is None or condition.ndim == 2:
        return condition
    return jnp.broadcast_to(condition[:, None], (len(condition), n))
