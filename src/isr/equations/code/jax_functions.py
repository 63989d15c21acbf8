"""JAX functions from the equations, to differentiate, compile and batch.

Everything is for one sample; batch it with ``jax.vmap``. The equations are read while JAX traces, never run as text.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any

import jax
import jax.numpy as jnp
import sympy
from jax.scipy.special import erf, erfc, erfinv, ndtr, ndtri
from sympy.codegen.cfunctions import expm1, log1p
from sympy.printing.codeprinter import CodePrinter

from isr.bijections.sigmoid import sigmoid
from isr.equations.code.linear import LinearForms, linear_forms, weighed
from isr.equations.code.support import Subject, pad_nodes
from isr.equations.functions import Phi, PhiInverse
from isr.equations.program import Program

Values = dict[sympy.Symbol, Any]


@dataclass(frozen=True)
class JaxFunctions:
    """A flow's equations as JAX functions of one sample.

    Args:
        forward: ``(x, y) -> (latent, log_det)``.
        inverse: ``(latent, y) -> (x, log_det)``.
        log_prob: ``(x, y) -> log-density``.
        draw: ``(noise, y) -> x``, the x that standard-normal noise stands for.
        n_latent: Entries of the latent.
    """

    forward: Callable[..., tuple[jax.Array, jax.Array]]
    inverse: Callable[..., tuple[jax.Array, jax.Array]]
    log_prob: Callable[..., jax.Array]
    draw: Callable[..., jax.Array]
    n_latent: int

    def log_det(self, x: jax.Array, y: jax.Array | None = None) -> jax.Array:
        """Return the log-determinant of forward at ``x``."""
        return self.forward(x, y)[1]

    def sample(self, key: jax.Array, n: int, y: jax.Array | None = None) -> jax.Array:
        """Return ``n`` rows of x, given one y."""
        noise = jax.random.normal(key, (n, self.n_latent))
        return jax.vmap(lambda row: self.draw(row, y))(noise)


def jax_functions(subject: Subject) -> JaxFunctions:
    """Return a flow's equations as JAX functions."""
    n_observed = len(subject.noise)

    def forward(x: jax.Array, y: jax.Array | None = None) -> tuple[jax.Array, jax.Array]:
        return run(subject.forward, _padded(x, 0.0), y)

    def inverse(z: jax.Array, y: jax.Array | None = None) -> tuple[jax.Array, jax.Array]:
        x, log_det = run(subject.inverse, z, y)
        return x[: subject.n_x], log_det

    def joint_log_prob(padded: jax.Array, y: jax.Array | None) -> jax.Array:
        z, log_det = run(subject.forward, padded, y)
        if n_observed:
            observed = (z[:n_observed] - _given(y)) / jnp.asarray(subject.noise, z.dtype)
            z = jnp.concatenate([observed, z[n_observed:]])
        return log_det - 0.5 * jnp.sum(z * z) + subject.base_constant

    def log_prob(x: jax.Array, y: jax.Array | None = None) -> jax.Array:
        if not subject.n_padding:
            return held(x, joint_log_prob(x, y))
        nodes, log_weights = (jnp.asarray(values, x.dtype) for values in pad_nodes())
        terms = jax.vmap(lambda node: joint_log_prob(_padded(x, node), y))(nodes)
        return held(x, jax.nn.logsumexp(terms + log_weights))

    def held(x: jax.Array, density: jax.Array) -> jax.Array:
        for i, sign, end in subject.outside:
            density = jnp.where(_COMPARISONS[sign](x[i], end), -jnp.inf, density)
        return density

    def draw(noise: jax.Array, y: jax.Array | None = None) -> jax.Array:
        if n_observed:
            observed = _given(y) + jnp.asarray(subject.noise, noise.dtype) * noise[:n_observed]
            noise = jnp.concatenate([observed, noise[n_observed:]])
        return inverse(noise, y)[0]

    def _padded(x: jax.Array, value: Any) -> jax.Array:
        return jnp.append(x, jnp.asarray(value, x.dtype)) if subject.n_padding else x

    return JaxFunctions(forward, inverse, log_prob, draw, subject.n_latent)


def _given(y: jax.Array | None) -> jax.Array:
    if y is None:
        raise ValueError("y is missing: these equations give x for an observed y")
    return y


def run(
    program: Program, inputs: jax.Array, condition: jax.Array | None = None
) -> tuple[jax.Array, jax.Array]:
    """Return a program's outputs and log-determinant for one sample, traced through JAX.

    Args:
        program: The equations.
        inputs: One number an input.
        condition: One number a condition, where the equations read one.
    """
    trace = _Trace(dict(zip(program.inputs, inputs, strict=True)), linear_forms(program))
    if program.conditions:
        trace.values |= dict(zip(program.conditions, _given(condition), strict=True))
    for assignment in program.assignments:
        trace.values[assignment.target] = trace.value(assignment.value)
    outputs = [jnp.asarray(trace.value(output), inputs.dtype) for output in program.outputs]
    for i, (low, high) in enumerate(program.bounds):
        if low is not None or high is not None:
            outputs[i] = jnp.clip(outputs[i], low, high)
    return jnp.stack(outputs), jnp.asarray(trace.value(program.log_det), inputs.dtype)


class _Trace:
    """Values of expressions while JAX traces; shared subexpressions are traced once."""

    def __init__(self, values: Values, forms: Mapping[sympy.Expr, LinearForms]) -> None:
        self.values = values
        self.forms = forms
        self.sums: dict[sympy.Expr, Any] = {}

    def value(self, expression: Any) -> Any:
        if expression.is_Symbol:
            return self.values[expression]
        if expression.is_number:
            return _finite(float(expression), expression)
        if expression in self.forms:
            return self._sum(expression)
        if isinstance(expression, sympy.Piecewise):
            return self._piecewise(expression)
        if expression.is_Pow:
            return self._power(expression)
        for kind, function in _OPERATIONS.items():
            if isinstance(expression, kind):
                return function(*(self.value(a) for a in expression.args))
        if type(expression).__name__ in CodePrinter._rewriteable_functions:
            simpler, _ = CodePrinter._rewriteable_functions[type(expression).__name__]
            rewritten = expression.rewrite(getattr(sympy, simpler))
            if rewritten != expression:
                return self.value(rewritten)
        raise ValueError(
            f"no JAX form is known for {type(expression).__name__}; "
            "build the primitive's symbol form from elementary functions"
        )

    def _sum(self, expression: Any) -> Any:
        if expression not in self.sums:
            forms = self.forms[expression]
            # Without the barrier XLA computes each unit anew for every sum that reads it.
            inputs = jax.lax.optimization_barrier(jnp.stack([self.values[s] for s in forms.symbols]))
            matrix = jnp.asarray(list(forms.rows.values()), inputs.dtype)
            self.sums |= dict(zip(forms.rows, matrix @ inputs, strict=True))
        rest = [self.value(term) for term in expression.args if weighed(term) is None]
        return reduce(operator.add, rest, self.sums[expression])

    def _power(self, expression: Any) -> Any:
        base, power = expression.as_base_exp()
        value = self.value(base)
        if power.is_Integer:
            return value ** int(power)
        if power == sympy.S.Half:
            return jnp.sqrt(value)
        return jnp.power(value, self.value(power))

    def _piecewise(self, expression: Any) -> Any:
        result: Any = jnp.nan
        for value, condition in reversed(expression.args):
            chosen = self.value(value)
            result = chosen if condition == sympy.true else jnp.where(self._holds(condition), chosen, result)
        return result

    def _holds(self, condition: Any) -> Any:
        if isinstance(condition, sympy.And | sympy.Or | sympy.Not):
            parts = [self._holds(a) for a in condition.args]
            if isinstance(condition, sympy.Not):
                return jnp.logical_not(parts[0])
            return reduce(jnp.logical_and if isinstance(condition, sympy.And) else jnp.logical_or, parts)
        if condition in (sympy.true, sympy.false):
            return bool(condition)
        return _COMPARISONS[condition.rel_op](self.value(condition.lhs), self.value(condition.rhs))


def _finite(value: float, expression: Any) -> float:
    if not math.isfinite(value):
        raise ValueError(f"the equations hold the constant {expression}, which is not finite")
    return value


_COMPARISONS = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}


def _folded(function: Callable) -> Callable:
    return lambda *values: reduce(function, values)


_OPERATIONS: Mapping[type, Callable] = {
    sympy.Add: _folded(operator.add),
    sympy.Mul: _folded(operator.mul),
    sympy.Max: _folded(jnp.maximum),
    sympy.Min: _folded(jnp.minimum),
    sympy.exp: jnp.exp,
    sympy.log: jnp.log,
    sympy.sin: jnp.sin,
    sympy.cos: jnp.cos,
    sympy.tan: jnp.tan,
    sympy.asin: jnp.arcsin,
    sympy.acos: jnp.arccos,
    sympy.atan: jnp.arctan,
    sympy.atan2: jnp.arctan2,
    sympy.sinh: jnp.sinh,
    sympy.cosh: jnp.cosh,
    sympy.tanh: jnp.tanh,
    sympy.asinh: jnp.arcsinh,
    sympy.acosh: jnp.arccosh,
    sympy.atanh: jnp.arctanh,
    sympy.Abs: jnp.abs,
    sympy.sign: jnp.sign,
    sympy.floor: jnp.floor,
    sympy.ceiling: jnp.ceil,
    sympy.Mod: jnp.mod,
    sympy.erf: erf,
    sympy.erfc: erfc,
    sympy.erfinv: erfinv,
    log1p: jnp.log1p,
    expm1: jnp.expm1,
    sigmoid: jax.nn.sigmoid,
    Phi: ndtr,
    PhiInverse: ndtri,
}
