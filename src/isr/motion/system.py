"""System: rates of change as formulas, and trajectories integrated through them with their sensitivities.

The state of a channel on a log scale is the logarithm of its value: its rate is that of the logarithm. Arrays have the
trajectories last.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import sympy

# Beyond this a trajectory counts as lost.
LARGEST = 1e8


def compiled(
    symbols: Sequence[sympy.Symbol], expressions: Sequence[sympy.Expr], modules: str = "numpy"
) -> Any:
    """Return a function of arrays that gives the value of each expression, in NumPy or JAX.

    Example:
        >>> a = sympy.Symbol("a", real=True)
        >>> compiled([a], [a + 1])(np.array([1.0]))
        [array([2.])]
    """
    return sympy.lambdify(list(symbols), list(expressions), modules=modules, cse=True)


@dataclass(frozen=True, eq=False)
class System:
    """Rates of all channels.

    Args:
        rates: Of each channel, or of its logarithm, in the symbols below.
        logs: Which channels are on a log scale.
        states: Symbols of the channels' values.
        parameters: Symbols of what each trajectory was made with.
        constants: Symbols of what is to be fitted.
    """

    rates: tuple[sympy.Expr, ...]
    logs: tuple[bool, ...]
    states: tuple[sympy.Symbol, ...]
    parameters: tuple[sympy.Symbol, ...]
    constants: tuple[sympy.Symbol, ...]

    @cached_property
    def _entries(self) -> tuple[list[tuple[int, int]], list[tuple[int, int]], Any]:
        """Places and values of what is not zero among the derivatives of rates by states and by constants."""
        by_state, by_constant, values = [], [], list(self.rates)
        for a, rate in enumerate(self.rates):
            for b, state in enumerate(self.states):
                slope = sympy.diff(rate, state) * (state if self.logs[b] else 1)
                if slope != 0:
                    by_state.append((a, b))
                    values.append(slope)
        for a, rate in enumerate(self.rates):
            free = rate.free_symbols
            for k, constant in enumerate(self.constants):
                if constant in free:
                    by_constant.append((a, k))
                    values.append(sympy.diff(rate, constant))
        symbols = [*self.states, *self.parameters, *self.constants]
        return by_state, by_constant, compiled(symbols, values)

    @cached_property
    def _plain(self) -> Any:
        symbols = [*self.states, *self.parameters, *self.constants]
        return compiled(symbols, self.rates)

    def values(self, u: np.ndarray) -> np.ndarray:
        """Return channels from states, channels first."""
        if not any(self.logs):
            return u
        found = u.copy()
        for a, log in enumerate(self.logs):
            if log:
                np.exp(np.minimum(u[a], 300), out=found[a])
        return found

    def solve(
        self, theta: np.ndarray, start: np.ndarray, times: np.ndarray, x: np.ndarray, n_steps: int
    ) -> np.ndarray:
        """Return states at times (n, t), from states at the first: (c, t, n)."""

        def rate(u: np.ndarray) -> np.ndarray:
            out = np.empty_like(u)
            for a, v in enumerate(self._plain(*self.values(u), *x.T, *theta)):
                out[a] = v
            return out

        with np.errstate(all="ignore"):
            return _march(rate, start, times, n_steps)

    def sensitivities(
        self, theta: np.ndarray, start: np.ndarray, times: np.ndarray, x: np.ndarray, n_steps: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return states (c, t, n), and their derivatives by constants and by first states (c, k, t, n)."""
        c, n = start.shape
        q = len(self.constants)
        by_state, by_constant, function = self._entries

        def rate(z: np.ndarray) -> np.ndarray:
            out = np.zeros_like(z)
            values = function(*self.values(z[:, 0]), *x.T, *theta)
            for a in range(c):
                out[a, 0] = values[a]
            for (a, b), v in zip(by_state, values[c:], strict=False):
                out[a, 1:] += v * z[b, 1:]
            for (a, k), v in zip(by_constant, values[c + len(by_state) :], strict=True):
                out[a, 1 + k] += v
            return out

        z = np.zeros((c, 1 + q + c, n))
        z[:, 0] = start
        for a in range(c):
            z[a, 1 + q + a] = 1.0
        with np.errstate(all="ignore"):
            found = _march(rate, z, times, n_steps)
        return found[:, 0], found[:, 1:]


def _march(rate: Any, z: np.ndarray, times: np.ndarray, n_steps: int) -> np.ndarray:
    """Classic Runge-Kutta, ``n_steps`` equal steps between two times; the times stand before the trajectories."""
    found = [z]
    for dt in np.diff(times, axis=1).T:
        h = dt / n_steps
        for _ in range(n_steps):
            k1 = rate(z)
            k2 = rate(z + 0.5 * h * k1)
            k3 = rate(z + 0.5 * h * k2)
            k4 = rate(z + h * k3)
            z = z + h / 6 * (k1 + 2 * (k2 + k3) + k4)
        z = np.where(np.abs(z) < LARGEST, z, np.nan) if z.ndim == 2 else z
        found.append(z)
    return np.stack(found, axis=-2)
