"""Mixtures of normal laws as bijections: each variable becomes normal, given those before it, by its own distribution.

Forward is elementary; backward takes the quantile of a mixture in one variable, which equations keep whole.
"""

from __future__ import annotations

from functools import reduce
from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax.ad_checkpoint import checkpoint_name
from jaxtyping import Array, Float

from isr.bijections.bijection import AbstractBijection, Mapped, Vector
from isr.bijections.parameters import on_device
from isr.bijections.shapes import mixture_number, mixture_quantile


class Mixture(AbstractBijection):
    """Maps variables that follow a mixture of k normal laws to independent normal ones, in the order of ``variables``.

    ``z_i = Phi^-1(sum_k r_k Phi(a_k))`` with ``a_k = (x_i - m_ki - sum_j c_kij (x_j - m_kj)) / s_ki`` over variables j
    before i, and ``r_k`` the odds of component k given these. Arrays of one row, or column, serve all of them.

    Args:
        log_odds: Logarithms of the other components' weights against that of the first.
        means: One row per component.
        log_scales: Logarithms of the scales ``s``.
        slopes: The ``c``, row by row of their triangle; no rows where variables of a component are independent.
        variables: Which variables.
        dim: Number of variables in all.
    """

    log_odds: Float[Array, " others"]
    means: Float[Array, "k n"]
    log_scales: Float[Array, "k_or_1 n_or_1"]
    slopes: Float[Array, "k_or_1_or_0 pairs"]
    variables: tuple[int, ...] = eqx.field(static=True)
    dim: int = eqx.field(static=True)

    part: ClassVar[str] = "mixture"

    def __check_init__(self) -> None:
        k, n = self.means.shape
        if len(self.log_odds) != k - 1 or n != len(self.variables):
            raise ValueError(
                f"{k} components of {n} variables need {k - 1} odds and as many variables, got "
                f"{len(self.log_odds)} and {self.variables}"
            )
        if len(set(self.variables)) < n or not all(0 <= i < self.dim for i in self.variables):
            raise ValueError(f"variables must be different ones of {self.dim}, got {self.variables}")

    def forward_and_log_det(self, x: Vector, condition: Vector | None = None) -> Mapped:
        x_before, log_r, log_det = [], self._log_odds(), jnp.zeros((), x.dtype)
        for i, variable in enumerate(self.variables):
            a, log_scale = self._standard(i, x[variable], x_before)
            shares = self._shares(log_r, i)
            u = checkpoint_name(mixture_number(*shares, *a), f"u_{variable + 1}")
            x_before.append(x[variable])
            x = x.at[variable].set(u)
            log_r, log_density = _updated(log_r, a, log_scale)
            log_det = log_det + log_density + 0.5 * u * u
        return x, log_det

    def inverse_and_log_det(self, z: Vector, condition: Vector | None = None) -> Mapped:
        x_before: list[Any] = []
        log_r, log_det = self._log_odds(), jnp.zeros((), z.dtype)
        for i, variable in enumerate(self.variables):
            u = checkpoint_name(z[variable], f"u_{variable + 1}")
            shares, centres, log_scale = self._shares(log_r, i), self._centres(i, x_before), self._scale(i)
            value = mixture_quantile(u, *shares, *centres, *jnp.exp(log_scale))
            value = checkpoint_name(value, f"q_{variable + 1}")
            log_r, log_density = _updated(log_r, (value - centres) * jnp.exp(-log_scale), log_scale)
            x_before.append(value)
            z = z.at[variable].set(value)
            log_det = log_det - log_density - 0.5 * u * u
        return z, log_det

    def _log_odds(self) -> Array:
        return jnp.concatenate([jnp.zeros(1, self.means.dtype), self.log_odds])

    def _shares(self, log_r: Array, i: int) -> Array:
        shares = jnp.exp(log_r - _log_sum(log_r))
        return shares if i == 0 else checkpoint_name(shares, f"r{self.variables[i] + 1}")

    def _scale(self, i: int) -> Array:
        column = self.log_scales[:, i if self.log_scales.shape[1] > 1 else 0]
        return jnp.broadcast_to(column, self.means.shape[:1])

    def _centres(self, i: int, before: list[Any]) -> Array:
        centres, first = self.means[:, i], i * (i - 1) // 2
        if self.slopes.shape[0]:
            for j in range(i):
                centres = centres + self.slopes[:, first + j] * (before[j] - self.means[:, j])
        return centres

    def _standard(self, i: int, value: Any, before: list[Any]) -> tuple[Array, Array]:
        log_scale = self._scale(i)
        a = (value - self._centres(i, before)) * jnp.exp(-log_scale)
        return checkpoint_name(a, f"a{self.variables[i] + 1}"), log_scale


def _updated(log_r: Array, a: Array, log_scale: Array) -> tuple[Array, Array]:
    """Log-odds of components once a variable is known, and its log-density given those before, but for a constant."""
    joint = log_r - 0.5 * a * a - (log_scale - log_scale[0])
    return joint, _log_sum(joint) - _log_sum(log_r) - log_scale[0]


def _log_sum(values: Array) -> Array:
    return reduce(jnp.logaddexp, list(values))


def mixture_of(
    weights: Float[np.ndarray, " k"],
    means: Float[np.ndarray, "k n"],
    covariances: Float[np.ndarray, "k n n"],
    *,
    variables: tuple[int, ...],
    dim: int,
) -> Mixture:
    """Return the bijection of a mixture with these weights, means and covariances."""
    roots = np.linalg.cholesky(np.asarray(covariances))
    scales = np.diagonal(roots, axis1=1, axis2=2)
    unit = roots / scales[:, None, :]  # x - m = unit @ (scale * z): slopes are rows of 1 - unit^-1
    slopes = np.eye(roots.shape[1]) - np.linalg.inv(unit)
    lower = slopes[:, *np.tril_indices(roots.shape[1], -1)]
    weights = np.asarray(weights)
    return Mixture(
        on_device(np.log(weights[1:] / weights[0])), on_device(means), on_device(np.log(scales)),
        on_device(lower if np.any(lower) else lower[:0]), variables, dim,
    )  # fmt: skip
