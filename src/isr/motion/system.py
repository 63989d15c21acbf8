"""System: rates of change as formulas, and trajectories integrated through them with their sensitivities.

The state of a channel on a log scale is the logarithm of its value: its rate is that of the logarithm. Arrays have the
trajectories last.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import sympy

from isr.motion.clock import keep_time

# Beyond this a trajectory counts as lost.
LARGEST = 1e8


def compiled(
    symbols: Sequence[sympy.Symbol], expressions: Sequence[sympy.Expr], modules: str = "numpy"
) -> Any:
    """Return a function of arrays that gives the value of each expression, in NumPy or JAX."""
    return sympy.lambdify(list(symbols), list(expressions), modules=modules, cse=True)


def runge_kutta(rate: Callable[[Any], Any], u: Any, h: Any) -> Any:
    """Return states one classic Runge-Kutta step of length ``h`` later, of NumPy or JAX arrays."""
    k1 = rate(u)
    k2 = rate(u + 0.5 * h * k1)
    k3 = rate(u + 0.5 * h * k2)
    return u + h / 6 * (k1 + 2 * (k2 + k3) + rate(u + h * k3))


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
    constants: tuple[sympy.Symbol, ...] = ()

    @cached_property
    def _rates(self) -> Any:
        return compiled([*self.states, *self.parameters, *self.constants], self.rates)

    @cached_property
    def _slopes(self) -> tuple[list[tuple[int, int]], Any]:
        """Place and value of each derivative of a rate, by a state or by a constant, that is not zero."""
        channels = enumerate(zip(self.states, self.logs, strict=True))
        by = [(b, s, s if log else 1) for b, (s, log) in channels]
        by += [(len(self.states) + k, constant, 1) for k, constant in enumerate(self.constants)]
        found = {
            (a, b): sympy.diff(rate, s) * factor
            for a, rate in enumerate(self.rates)
            for b, s, factor in by
            if s in rate.free_symbols
        }
        return list(found), compiled(
            [*self.states, *self.parameters, *self.constants], [*self.rates, *found.values()]
        )

    def values(self, u: np.ndarray) -> np.ndarray:
        """Return channels from states, channels first."""
        if not any(self.logs):
            return u
        logs = list(self.logs)
        found = u.copy()
        found[logs] = np.exp(np.minimum(u[logs], 300))
        return found

    def solve(
        self, theta: np.ndarray, start: np.ndarray, times: np.ndarray, x: np.ndarray, n_steps: int
    ) -> np.ndarray:
        """Return states at times (n, t), from states at the first: (c, t, n)."""

        def rate(u: np.ndarray) -> np.ndarray:
            out = np.empty_like(u)
            for a, v in enumerate(self._rates(*self.values(u), *x.T, *theta)):
                out[a] = v
            return out

        with np.errstate(all="ignore"):
            return _march(rate, start, times, n_steps)

    def sensitivities(
        self, theta: np.ndarray, start: np.ndarray, times: np.ndarray, x: np.ndarray, n_steps: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return states (c, t, n), and their derivatives by constants and by first states (c, k, t, n)."""
        (c, n), q = start.shape, len(self.constants)
        places, function = self._slopes

        def rate(z: np.ndarray) -> np.ndarray:
            out = np.zeros_like(z)
            values = function(*self.values(z[:, 0]), *x.T, *theta)
            for a in range(c):
                out[a, 0] = values[a]
            for (a, b), v in zip(places, values[c:], strict=True):
                if b < c:
                    out[a, 1:] += v * z[b, 1:]
                else:
                    out[a, 1 + b - c] += v
            return out

        z = np.zeros((c, 1 + q + c, n))
        z[:, 0] = start
        z[np.arange(c), 1 + q + np.arange(c)] = 1.0
        with np.errstate(all="ignore"):
            found = _march(rate, z, times, n_steps)
        return found[:, 0], found[:, 1:]


def _march(rate: Callable[[Any], Any], z: np.ndarray, times: np.ndarray, n_steps: int) -> np.ndarray:
    """States at all times, by ``n_steps`` equal steps between two of them; the times stand before the trajectories."""
    found = [z]
    for gap in np.diff(times, axis=1).T:
        keep_time()
        for _ in range(n_steps):
            z = runge_kutta(rate, z, gap / n_steps)
        z = np.where(np.abs(z) < LARGEST, z, np.nan) if z.ndim == 2 else z
        found.append(z)
    return np.stack(found, axis=-2)
