"""MotionLaw: the rates of all channels, where they begin and the noise they are measured with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import sympy
from jaxtyping import Float
from scipy.special import gammaln
from scipy.stats import binom, norm, poisson

from isr.motion.system import System, compiled
from isr.search.evaluate import symbol
from isr.search.formula import Formula

LOG_TWO_PI = float(np.log(2 * np.pi))
# Rows that one compiled call integrates.
CHUNK = 2048
MOST_STEPS = 4096
NOISES = ("normal", "lognormal", "poisson", "binomial")


@dataclass(frozen=True)
class Channel:
    """The law of one channel.

    Args:
        name: What it is called; an identifier that rates name.
        rate: Its rate, or that of its logarithm where ``log``; of the channels and the parameters.
        log: Whether its logarithm is integrated, because it is positive.
        start: Its value at the first time, of the parameters; None where each trajectory has its own.
        noise: What it is measured with, one of `NOISES`; empty where it was not measured at all.
        scale: Standard deviation of normal noise, of the logarithm for ``"lognormal"``; the number of trials of a
            binomial; 1 of a Poisson law.
        columns: Columns of y that hold it, one for each time; empty without.
    """

    name: str
    rate: Formula
    log: bool = False
    start: Formula | None = None
    noise: str = "normal"
    scale: float = 0.0
    columns: tuple[int, ...] = ()

    @property
    def slope(self) -> sympy.Expr:
        """Its derivative by time."""
        return sympy.expand(self.rate.expression * symbol(self.name)) if self.log else self.rate.expression

    def spread(self, mean: Any) -> Any:
        """Return the standard deviation of a measurement on the scale of its noise."""
        if self.noise == "poisson":
            return np.sqrt(np.maximum(mean, 1e-9))
        if self.noise == "binomial":
            return np.sqrt(np.maximum(mean * (1 - mean / self.scale), 1e-9))
        return self.scale


@dataclass(frozen=True)
class Measured:
    """One column of y: a channel at a time."""

    name: str
    index: int
    is_exact: bool = False


@dataclass(frozen=True, eq=False)
class MotionLaw:
    """A law of motion, ẏ = F(y, x).

    Args:
        x_names: Identifiers of the parameters.
        channels: Laws of the channels; at most one was not measured.
        times: Times of the columns of y; empty where each trajectory has its own.
        steps: Runge-Kutta steps between two times.
        y_names: Names of the columns of y.

    Example:
        >>> from isr.search.formula import parse
        >>> rate, start = Formula(parse("-k*m", ["m", "k"])), Formula(parse("2.0", []))
        >>> decay = Channel("m", rate, False, start, "normal", 0.1, (0, 1))
        >>> law = MotionLaw(("k",), (decay,), (0.0, 1.0), 20, ("m0", "m1"))
        >>> print(law)
        m' = -k*m,  m(0) = 2 ± 0.1
        >>> law.means(np.array([[1.0]])).round(4), law.log_prob(np.array([[1.0]]), np.array([[2.0, 0.7358]])).round(2)
        (array([[2.    , 0.7358]]), array([2.77]))
    """

    x_names: tuple[str, ...]
    channels: tuple[Channel, ...]
    times: tuple[float, ...] = ()
    steps: int = 8
    y_names: tuple[str, ...] = ()

    # Numbers --------------------------------------------------------------------------------------------------

    @cached_property
    def system(self) -> System:
        """The rates, with every constant in place."""
        states = tuple(symbol(c.name) for c in self.channels)
        rates, logs = tuple(c.rate.expression for c in self.channels), tuple(c.log for c in self.channels)
        return System(rates, logs, states, tuple(symbol(n) for n in self.x_names), ())

    def solve(
        self, times: Float[np.ndarray, "n t"], start: Float[np.ndarray, "n c"], x: Float[np.ndarray, "n d"],
        steps: int | None = None,
    ) -> Float[np.ndarray, "n t c"]:  # fmt: skip
        """Return the channels at times, from their values at the first."""
        logs = np.array([c.log for c in self.channels])
        with np.errstate(all="ignore"):
            begun = np.where(logs, np.log(start), start).T
        states = self.system.solve(np.zeros(0), begun, times, x, steps or self.steps)
        return self.system.values(states).transpose(2, 1, 0)

    def converged(
        self, times: Float[np.ndarray, "n t"], start: Float[np.ndarray, "n c"], x: Float[np.ndarray, "n d"]
    ) -> Float[np.ndarray, "n t c"]:
        """Return the channels at times, with so many steps that twice as many change less than a millionth."""
        steps, rough = self.steps, self.solve(times, start, x)
        while steps < MOST_STEPS:
            steps *= 2
            fine = self.solve(times, start, x, steps)
            if not np.any(np.abs(fine - rough) > 1e-6 * (np.abs(fine) + np.nanstd(fine))):
                return fine
            rough = fine
        return rough

    @cached_property
    def _compiled(self) -> Callable[[Any], Any]:
        """A function of columns of x that gives the measured columns' means, compiled."""
        import jax
        import jax.numpy as jnp

        x, y = [symbol(n) for n in self.x_names], [symbol(c.name) for c in self.channels]
        rates = compiled([*y, *x], [c.rate.expression for c in self.channels], "jax")
        starts = compiled(x, [c.start.expression for c in self.channels if c.start], "jax")
        logs = [c.log for c in self.channels]
        gaps = np.diff(self.times) / self.steps

        def values(u: Any) -> Any:
            return [jnp.exp(jnp.minimum(v, 300.0)) if log else v for v, log in zip(u, logs, strict=True)]

        def run(columns: Any) -> Any:
            def rate(u: Any) -> Any:
                return jnp.stack([v + 0.0 * u[0] for v in rates(*values(u), *columns)])

            def step(_: int, carry: Any) -> Any:
                u, h = carry
                k1 = rate(u)
                k2 = rate(u + 0.5 * h * k1)
                k3 = rate(u + 0.5 * h * k2)
                return u + h / 6 * (k1 + 2 * k2 + 2 * k3 + rate(u + h * k3)), h

            def interval(u: Any, h: Any) -> Any:
                u = jax.lax.fori_loop(0, self.steps, step, (u, h))[0]
                return u, u

            first = jnp.stack(
                [
                    jnp.log(s + 0.0 * columns[0]) if log else s + 0.0 * columns[0]
                    for s, log in zip(starts(*columns), logs, strict=True)
                ]
            )
            rest = jax.lax.scan(interval, first, jnp.asarray(gaps))[1]
            states = jnp.concatenate([first[None], rest])
            return jnp.stack(values(jnp.moveaxis(states, 1, 0)))

        return jax.jit(run)

    def trajectories(self, x: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n t c"]:
        """Return every channel at the times of the columns of y, for rows of x."""
        import jax

        x = np.asarray(x, dtype=float)
        out = np.empty((len(x), len(self.times), len(self.channels)))
        with jax.enable_x64(True), np.errstate(all="ignore"):
            for at in range(0, len(x), CHUNK):
                part = x[at : at + CHUNK]
                padded = np.concatenate([part, np.repeat(part[-1:], CHUNK - len(part), axis=0)])
                out[at : at + CHUNK] = np.moveaxis(np.asarray(self._compiled(padded.T)), 0, 2).swapaxes(0, 1)[
                    : len(part)
                ]
        return out

    @property
    def variables(self) -> set[str]:
        """Names of the parameters that it reads."""
        formulas = [f for c in self.channels for f in (c.rate, c.start) if f is not None]
        return {v for f in formulas for v in f.variables} & set(self.x_names)

    @cached_property
    def columns(self) -> tuple[Measured, ...]:
        """The columns of y that it explains, by their place."""
        index = sorted(j for c in self.channels for j in c.columns)
        return tuple(Measured(self.y_names[j], j) for j in index)

    @cached_property
    def _places(self) -> list[tuple[Channel, int, int]]:
        """Channel, its number and time of each column."""
        where = {j: (c, a, k) for a, c in enumerate(self.channels) for k, j in enumerate(c.columns)}
        return [where[m.index] for m in self.columns]

    def means(self, x: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n c"]:
        """Return the centre of each column of y for rows of x."""
        found = self.trajectories(x)
        return np.column_stack([found[:, k, a] for _, a, k in self._places])

    def log_prob(
        self, x: Float[np.ndarray, "n d"], y: Float[np.ndarray, "k d_y"], *, paired: bool = False
    ) -> Float[np.ndarray, " n"]:
        """Return the log-density of y for each row of x: of all rows of y together, or of the one beside it."""
        means = self.means(x)
        total = np.zeros(len(x))
        with np.errstate(all="ignore"):
            for j, (column, (channel, _, _)) in enumerate(zip(self.columns, self._places, strict=True)):
                given = np.asarray(y, float)[:, column.index]
                for value in [given] if paired else given:
                    total += _log_density(channel, value, means[:, j])
        return np.where(np.isfinite(total), total, -np.inf)

    def residuals(
        self, x: Float[np.ndarray, "n d"], y: Float[np.ndarray, "n d_y"]
    ) -> Float[np.ndarray, "columns n"]:
        """Return (y - mean) / spread of each column, row by row, on the scale of the noise."""
        means, found = self.means(x), []
        with np.errstate(all="ignore"):
            for j, (column, (channel, _, _)) in enumerate(zip(self.columns, self._places, strict=True)):
                given, mean = y[:, column.index], means[:, j]
                off = np.log(given / mean) if channel.noise == "lognormal" else given - mean
                found.append(off / channel.spread(mean))
        return np.array(found)

    def scores(
        self, x: Float[np.ndarray, "n d"], y: Float[np.ndarray, "n d_y"], rng: np.random.Generator
    ) -> Float[np.ndarray, "columns n"]:
        """Return residuals that are standard normal where the law is true: of counts by their randomised rank."""
        means, found = self.means(x), self.residuals(x, y)
        for j, (column, (channel, _, _)) in enumerate(zip(self.columns, self._places, strict=True)):
            if channel.noise in ("poisson", "binomial"):
                mean, given = np.maximum(means[:, j], 1e-12), y[:, column.index]
                law = (
                    poisson(mean)
                    if channel.noise == "poisson"
                    else binom(channel.scale, np.minimum(mean / channel.scale, 1))
                )
                rank = law.cdf(given - 1) + rng.uniform(size=len(given)) * law.pmf(given)
                found[j] = norm.ppf(np.clip(rank, 1e-12, 1 - 1e-12))
        return found

    def sample(self, x: Float[np.ndarray, "n d"], rng: np.random.Generator) -> Float[np.ndarray, "n c"]:
        """Return a row of measured columns for each row of x, with noise."""
        means = self.means(x)
        found = [_noisy(c, means[:, j], rng) for j, (c, _, _) in enumerate(self._places)]
        return np.column_stack(found)

    # Words ----------------------------------------------------------------------------------------------------

    @property
    def n_constants(self) -> int:
        """How many numbers a reader meets."""
        formulas = [f for c in self.channels for f in (Formula(c.slope), c.start) if f is not None]
        return sum(len(f.constants) for f in formulas) + sum(
            c.noise in ("normal", "lognormal") and c.scale > 0 for c in self.channels
        )

    @property
    def dropped(self) -> tuple[str, ...]:
        """Columns of y that it does not explain."""
        known = {m.index for m in self.columns}
        return tuple(name for j, name in enumerate(self.y_names) if j not in known)

    def lines(self, digits: int = 4) -> list[str]:
        """Return it as lines of text, one for each channel."""
        found = []
        for c in self.channels:
            first = min((_slope_text(s, digits) for s in _shapes(c)), key=len)
            begin = f",  {c.name}(0) = {c.start.text(digits)}" if c.start is not None else ""
            found.append(f"{c.name}' = {first}{begin}{_noise_text(c)}")
        return found

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def __repr__(self) -> str:
        return str(self)

    def latex(self, digits: int = 4) -> str:
        """Return it as a LaTeX ``align*`` environment."""
        rows = []
        for c in self.channels:
            shape = min(_shapes(c), key=lambda s: len(_slope_text(s, digits)))
            rows.append(rf"\dot{{{sympy.latex(symbol(c.name))}}} &= {sympy.latex(_rounded(shape, digits))}")
        return "\\begin{align*}\n" + " \\\\\n".join(rows) + "\n\\end{align*}"

    def code(self, language: str) -> str:
        """Return source that stands alone, ``"python"``, ``"c"`` or ``"javascript"``, with an integrator."""
        from isr.motion.code import generate

        return generate(self, language)

    def _repr_latex_(self) -> str:
        return self.latex()


def _shapes(c: Channel) -> list[sympy.Expr]:
    whole = symbol(c.name) * c.rate.expression if c.log else c.rate.expression
    return [c.slope, whole, sympy.together(whole)]


def _rounded(e: sympy.Expr, digits: int) -> sympy.Expr:
    return e.xreplace({f: sympy.Float(float(f), digits) for f in e.atoms(sympy.Float)})


def _slope_text(e: sympy.Expr, digits: int) -> str:
    return Formula(e).text(digits)


def _noise_text(c: Channel) -> str:
    if c.noise in ("normal", "lognormal") and c.scale == 0:
        return ""
    if c.noise in ("normal", "lognormal"):
        return f" ± {c.scale:.2g}" if c.noise == "normal" else f" times exp(± {c.scale:.2g})"
    return {"poisson": ", counted", "binomial": f", counted of {c.scale:g}"}.get(c.noise, ", not measured")


def _log_density(c: Channel, y: Any, mean: np.ndarray) -> np.ndarray:
    if c.noise == "poisson":
        mean = np.maximum(mean, 1e-12)
        return y * np.log(mean) - mean - gammaln(y + 1)
    if c.noise == "binomial":
        n, p = c.scale, np.clip(mean / c.scale, 1e-12, 1 - 1e-12)
        ways = gammaln(n + 1) - gammaln(y + 1) - gammaln(n - y + 1)
        return ways + y * np.log(p) + (n - y) * np.log1p(-p)
    if c.noise == "lognormal":
        y, mean = np.log(y), np.log(mean)
        return -0.5 * ((y - mean) / c.scale) ** 2 - np.log(c.scale) - 0.5 * LOG_TWO_PI - y
    return -0.5 * ((y - mean) / c.scale) ** 2 - np.log(c.scale) - 0.5 * LOG_TWO_PI


def _noisy(c: Channel, mean: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    mean = np.nan_to_num(mean, posinf=1e12)
    if c.noise == "poisson":
        return rng.poisson(np.clip(mean, 0, 1e15)).astype(float)
    if c.noise == "binomial":
        return rng.binomial(int(c.scale), np.clip(mean / c.scale, 0, 1)).astype(float)
    noise = c.scale * rng.normal(size=len(mean))
    return mean * np.exp(noise) if c.noise == "lognormal" else mean + noise
