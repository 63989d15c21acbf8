"""Transformers: monotone maps of one variable whose parameters a coupling's subnetworks give.

To add one, write its two directions and name its parameters; equations, exports and files follow from that.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from isr.bijections.elementary import soft_clamp

Numbers = Float[Array, " *n"]


class AbstractTransformer(eqx.Module):
    """A monotone map ``v = T(u; parameters)`` of each variable by itself."""

    names: ClassVar[tuple[str, ...]]
    """What equations call the parameters, in the order in which the subnetworks give them."""

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
