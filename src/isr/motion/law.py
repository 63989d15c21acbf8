"""MotionLaw: the rates of all channels, where they begin and the noise they are measured with."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import sympy
from jaxtyping import Float

from isr.motion.code import source
from isr.motion.noise import NORMAL, Noise
from isr.motion.refit import refit
from isr.motion.series import Series, read_series
from isr.motion.system import System, compiled, runge_kutta
from isr.search.evaluate import symbol
from isr.search.formula import Formula

# Rows that one compiled call integrates.
CHUNK = 2048
MOST_STEPS = 4096


@dataclass(frozen=True)
class Channel:
    """The law of one channel.

    Args:
        name: What it is called; an identifier that rates name.
        rate: Its rate, or that of its logarithm where ``log``; of the channels and the parameters.
        log: Whether its logarithm is integrated, because it is positive.
        start: Its value at the first time, of the parameters; None where each trajectory has its own.
        noise: What it is measured with.
        scale: Standard deviation of normal noise, of the logarithm for log-normal noise; 1 where it is counted.
        columns: Columns of y that hold it, one for each time; empty without.
    """

    name: str
    rate: Formula
    log: bool = False
    start: Formula | None = None
    noise: Noise = NORMAL
    scale: float = 0.0
    columns: tuple[int, ...] = ()

    @property
    def slope(self) -> sympy.Expr:
        """Its derivative by time."""
        return sympy.expand(self.rate.expression * symbol(self.name)) if self.log else self.rate.expression

    @property
    def shown(self) -> sympy.Expr:
        """Its derivative by time, in the shortest of three forms."""
        whole = self.rate.expression * (symbol(self.name) if self.log else 1)
        return min([self.slope, whole, sympy.together(whole)], key=lambda e: len(Formula(e).text()))

    @property
    def noise_text(self) -> str:
        """Its noise in words that follow a first value."""
        words = {"normal": " ± {:.2g}", "lognormal": " times exp(± {:.2g})", "binomial": ", counted of {:g}"}
        if self.noise.is_count:
            return words.get(self.noise.kind, ", counted").format(self.noise.trials)
        text = words[self.noise.kind] if self.noise.kind else ", not measured"
        return text.format(self.scale) if self.scale or not self.noise.kind else ""


class Measured(NamedTuple):
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
        >>> decay = Channel("m", rate, False, start, NORMAL, 0.1, (0, 1))
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
        rates, logs, states = zip(
            *((c.rate.expression, c.log, symbol(c.name)) for c in self.channels), strict=True
        )
        return System(rates, logs, states, tuple(map(symbol, self.x_names)))

    def solve(
        self, times: Float[np.ndarray, "n t"], start: Float[np.ndarray, "n c"], x: Float[np.ndarray, "n d"],
        steps: int | None = None,
    ) -> Float[np.ndarray, "n t c"]:  # fmt: skip
        """Return the channels at times, from their values at the first.

        Without ``steps``, with so many that twice as many change less than a millionth.
        """
        with np.errstate(all="ignore"):
            begun = np.where(self.system.logs, np.log(start), start).T
        if steps is not None:
            states = self.system.solve(np.zeros(0), begun, times, x, steps)
            return self.system.values(states).transpose(2, 1, 0)
        steps = self.steps
        rough, fine = (self.solve(times, start, x, k) for k in (steps, 2 * steps))
        while steps < MOST_STEPS and np.any(np.abs(fine - rough) > 1e-6 * (np.abs(fine) + np.nanstd(fine))):
            steps *= 2
            rough, fine = fine, self.solve(times, start, x, 2 * steps)
        return fine

    def trajectory(self, times: Any, start: Any, x: Any = None) -> Float[np.ndarray, "t c"]:
        """Return one trajectory, a row for each time, from ``start``, the channels at the first of the times."""
        grid, begun = np.asarray(times, dtype=float), np.asarray(start, dtype=float)
        parameters = np.zeros(0) if x is None else np.asarray(x, dtype=float)
        if begun.shape != (len(self.channels),) or parameters.shape != (len(self.x_names),):
            raise ValueError(
                f"start has {begun.size} values and x {parameters.size}; the law needs {len(self.channels)} and "
                f"{len(self.x_names)}"
            )
        return self.solve(grid[None], begun[None], parameters[None])[0]

    def read(self, times: Any, values: Any, x: Any = None) -> Series:
        """Return trajectories of its channels as one object."""
        names = [c.name for c in self.channels]
        return read_series(times, values, x, names=names, x_names=self.x_names or None)

    def followed(self, series: Series) -> Float[np.ndarray, "n t c"]:
        """Return the channels at the times of trajectories, from those first values that follow each one best."""
        first = np.argmax(series.seen, axis=1)
        start = np.take_along_axis(series.values, first[:, None], axis=1)[:, 0]
        with np.errstate(all="ignore"):
            begun = np.where(self.system.logs, np.log(start), start).T
        modes = ("free",) * len(self.channels)
        best = refit(self.system, np.zeros(0), begun, series, modes, steps=self.steps)
        return self.solve(series.times, self.system.values(best.start).T, series.x)

    @cached_property
    def _compiled(self) -> Callable[[Any], Any]:
        """A function of columns of x that gives every channel at the times of the columns of y, compiled."""
        rates = compiled([*self.system.states, *self.system.parameters], self.system.rates, "jax")
        starts = compiled(
            self.system.parameters, [c.start.expression for c in self.channels if c.start], "jax"
        )
        logs, gaps = np.array(self.system.logs)[:, None], np.diff(self.times) / self.steps

        def values(u: Any) -> Any:
            return jnp.where(logs, jnp.exp(jnp.where(logs, jnp.minimum(u, 300.0), 0.0)), u)

        def run(columns: Any) -> Any:
            def stacked(entries: Any) -> Any:
                return jnp.stack([jnp.broadcast_to(v, columns.shape[1:]) for v in entries])

            def rate(u: Any) -> Any:
                return stacked(rates(*values(u), *columns))

            def interval(u: Any, h: Any) -> Any:
                u = jax.lax.fori_loop(0, self.steps, lambda _, u: runge_kutta(rate, u, h), u)
                return u, u

            first = stacked(starts(*columns)) * 1.0
            first = jnp.where(logs, jnp.log(jnp.where(logs, first, 1.0)), first)
            rest = jax.lax.scan(interval, first, jnp.asarray(gaps))[1]
            return jnp.moveaxis(jax.vmap(values)(jnp.concatenate([first[None], rest])), 2, 0)

        return jax.jit(run)

    def trajectories(self, x: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n t c"]:
        """Return every channel at the times of the columns of y, for rows of x."""
        x, found = np.asarray(x, dtype=float), []
        with jax.enable_x64(True):
            for at in range(0, len(x), CHUNK):
                part = x[at : at + CHUNK]
                padded = np.concatenate([part, np.repeat(part[-1:], CHUNK - len(part), axis=0)])
                found.append(np.asarray(self._compiled(padded.T))[: len(part)])
        return np.concatenate(found)

    @property
    def variables(self) -> set[str]:
        """Names of the parameters that it reads."""
        formulas = [f for c in self.channels for f in (c.rate, c.start) if f is not None]
        return {v for f in formulas for v in f.variables} & set(self.x_names)

    @cached_property
    def columns(self) -> tuple[Measured, ...]:
        """The columns of y that it explains, by their place."""
        places = sorted(j for c in self.channels for j in c.columns)
        return tuple(Measured(self.y_names[j], j) for j in places)

    def _by_column(self, x: np.ndarray) -> Iterator[tuple[int, Channel, np.ndarray]]:
        """Place in y, channel and centre of each column that it explains."""
        found = self.trajectories(x)
        where = {j: (c, found[:, k, a]) for a, c in enumerate(self.channels) for k, j in enumerate(c.columns)}
        return ((m.index, *where[m.index]) for m in self.columns)

    def means(self, x: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n c"]:
        """Return the centre of each column of y that it explains for rows of x."""
        return np.column_stack([mean for _, _, mean in self._by_column(x)])

    def predict(self, x: Float[np.ndarray, "n d"], n_y: int) -> Float[np.ndarray, "n d_y"]:
        """Return the centre of all ``n_y`` columns of y for rows of x, NaN where it says nothing."""
        found = np.full((len(x), n_y), np.nan)
        found[:, [m.index for m in self.columns]] = self.means(x)
        return found

    def log_prob(
        self, x: Float[np.ndarray, "n d"], y: Float[np.ndarray, "k d_y"], *, paired: bool = False
    ) -> Float[np.ndarray, " n"]:
        """Return the log-density of y for each row of x: of all rows of y together, or of the one beside it."""
        total, y = np.zeros(len(x)), np.asarray(y, float)
        with np.errstate(all="ignore"):
            for j, channel, mean in self._by_column(x):
                law = channel.noise.law(mean, channel.scale)
                density = law.logpmf if channel.noise.is_count else law.logpdf
                for value in [y[:, j]] if paired else y[:, j]:
                    total += np.where(np.isfinite(mean), density(value), -np.inf)
        return np.where(np.isfinite(total), total, -np.inf)

    def residuals(
        self, x: Float[np.ndarray, "n d"], y: Float[np.ndarray, "n d_y"]
    ) -> Float[np.ndarray, "columns n"]:
        """Return what is left of each column, row by row, in standard deviations on the scale of the noise."""
        with np.errstate(all="ignore"):
            rows = self._by_column(x)
            return np.array([c.noise.residual(y[:, j], mean) / c.scale for j, c, mean in rows])

    def sample(self, x: Float[np.ndarray, "n d"], rng: np.random.Generator) -> Float[np.ndarray, "n c"]:
        """Return a row of measured columns for each row of x, with noise."""
        found = [
            c.noise.law(np.nan_to_num(mean, posinf=1e12), c.scale).rvs(random_state=rng)
            for _, c, mean in self._by_column(x)
        ]
        return np.column_stack(found).astype(float)

    # Words ----------------------------------------------------------------------------------------------------

    @property
    def n_constants(self) -> int:
        """How many numbers a reader meets."""
        formulas = [f for c in self.channels for f in (Formula(c.slope), c.start) if f is not None]
        scales = sum(not c.noise.is_count and c.scale > 0 for c in self.channels)
        return sum(len(f.constants) for f in formulas) + scales

    def lines(self, digits: int = 4) -> list[str]:
        """Return it as lines of text, one for each channel."""
        starts = [f",  {c.name}(0) = {c.start.text(digits)}" if c.start else "" for c in self.channels]
        return [
            f"{c.name}' = {Formula(c.shown).text(digits)}{start}{c.noise_text}"
            for c, start in zip(self.channels, starts, strict=True)
        ]

    def __repr__(self) -> str:
        return "\n".join(self.lines())

    def latex(self, digits: int = 4) -> str:
        """Return it as a LaTeX ``align*`` environment."""
        from isr.equations.typeset import TexPrinter, aligned, name_latex

        printer = TexPrinter(digits)
        return aligned(rf"\dot{{{name_latex(c.name)}}} &= {printer.doprint(c.shown)}" for c in self.channels)

    _repr_latex_ = latex

    def code(self, language: str) -> str:
        """Return source that stands alone, ``"python"``, ``"c"`` or ``"javascript"``, with an integrator."""
        return source(self, language)
