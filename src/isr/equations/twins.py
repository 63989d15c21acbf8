"""The symbolic twin of every bijection: what it does to numbers, done to expressions.

`forward` and `inverse` dispatch on the bijection's type; a new bijection joins by registering both. Values go in and
out as numbers, symbols or small affine expressions of symbols; anything else is named through the writer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import singledispatch

import numpy as np
import sympy

from isr.bijections.affine import Inverted, Linear, Shift, Standardise
from isr.bijections.bijection import AbstractBijection
from isr.bijections.chain import Chain
from isr.bijections.coupling import Coupling, Subnetwork
from isr.bijections.permutation import Permutation
from isr.equations.networks import express
from isr.equations.writer import Writer, exponential, folded, held, number, scaled

Values = Sequence[sympy.Expr]
Mapped = tuple[list[sympy.Expr], sympy.Expr]
# A longer sum gets a name of its own before it goes into the clamp.
LONGEST_ARGUMENT = 6


@dataclass(frozen=True)
class Block:
    """The functions of one coupling block, named as in the paper's appendix.

    ``v1 = u1 * exp(s1) + t1`` with ``s1`` and ``t1`` functions of u2; ``o2 = u2 * exp(s2) + t2`` with ``s2`` and
    ``t2`` functions of v1. One expression a component; the clamp and the guard are part of them.
    """

    number: int
    u1: tuple[sympy.Expr, ...]
    u2: tuple[sympy.Expr, ...]
    s1: tuple[sympy.Expr, ...]
    t1: tuple[sympy.Expr, ...]
    v1: tuple[sympy.Expr, ...]
    s2: tuple[sympy.Expr, ...]
    t2: tuple[sympy.Expr, ...]
    o2: tuple[sympy.Expr, ...]


@dataclass
class Context:
    """What the twins share while one direction is written.

    Args:
        write: Takes the equations.
        features: What the couplings read of the condition.
        numbers: Number of each coupling, by identity.
        blocks: Filled by the forward couplings.
    """

    write: Writer
    features: list[sympy.Expr] = field(default_factory=list)
    numbers: dict[int, int] = field(default_factory=dict)
    blocks: list[Block] = field(default_factory=list)

    def block(self, coupling: Coupling) -> tuple[str, str]:
        """Return what leads the names of a coupling, and the part it is."""
        index = self.numbers.get(id(coupling), 1)
        return (f"b{index}_" if len(self.numbers) > 1 else ""), f"block {index}"


@singledispatch
def forward(bijection: AbstractBijection, values: Values, context: Context) -> Mapped:
    """Return the image of ``values`` and the log-determinant, as expressions."""
    raise TypeError(_no_twin(bijection))


@singledispatch
def inverse(bijection: AbstractBijection, values: Values, context: Context) -> Mapped:
    """Return the preimage of ``values`` and the inverse's log-determinant, as expressions."""
    raise TypeError(_no_twin(bijection))


def _no_twin(bijection: object) -> str:
    kind = type(bijection).__name__
    return (
        f"no symbolic twin is known for {kind}; register one with "
        f"isr.equations.twins.forward.register({kind}) and inverse.register({kind})"
    )


@forward.register
def _(bijection: Chain, values: Values, context: Context) -> Mapped:
    return _one_after_the_other([(forward, b) for b in bijection.bijections], values, context)


@inverse.register
def _(bijection: Chain, values: Values, context: Context) -> Mapped:
    return _one_after_the_other([(inverse, b) for b in reversed(bijection.bijections)], values, context)


def _one_after_the_other(steps, values: Values, context: Context) -> Mapped:
    total: list[sympy.Expr] = []
    for run, bijection in steps:
        values, log_det = run(bijection, values, context)
        total.append(log_det)
    return list(values), sympy.Add(*total)


@forward.register
def _(bijection: Inverted, values: Values, context: Context) -> Mapped:
    return inverse(bijection.bijection, values, context)


@inverse.register
def _(bijection: Inverted, values: Values, context: Context) -> Mapped:
    return forward(bijection.bijection, values, context)


@forward.register
def _(bijection: Permutation, values: Values, context: Context) -> Mapped:
    return [values[i] for i in bijection.order], sympy.S.Zero


@inverse.register
def _(bijection: Permutation, values: Values, context: Context) -> Mapped:
    return [values[i] for i in bijection.back], sympy.S.Zero


@forward.register
def _(bijection: Standardise, values: Values, context: Context) -> Mapped:
    images = [
        folded(scaled(x, shift, scale, context.write, "standardise"))
        for x, shift, scale in zip(values, bijection.shift, bijection.scale, strict=True)
    ]
    return images, number(-np.sum(np.log(bijection.scale)))


@inverse.register
def _(bijection: Standardise, values: Values, context: Context) -> Mapped:
    images = [
        folded(number(shift) + number(scale) * z)
        for z, shift, scale in zip(values, bijection.shift, bijection.scale, strict=True)
    ]
    return images, number(np.sum(np.log(bijection.scale)))


@forward.register
def _(bijection: Shift, values: Values, context: Context) -> Mapped:
    offset = np.asarray(bijection.offset, np.float64)
    return [folded(x - number(b)) for x, b in zip(values, offset, strict=True)], sympy.S.Zero


@inverse.register
def _(bijection: Shift, values: Values, context: Context) -> Mapped:
    offset = np.asarray(bijection.offset, np.float64)
    return [folded(z + number(b)) for z, b in zip(values, offset, strict=True)], sympy.S.Zero


@forward.register
def _(bijection: Linear, values: Values, context: Context) -> Mapped:
    matrix = np.asarray(bijection.matrix, np.float64)
    return _product(matrix, values), number(np.linalg.slogdet(matrix)[1])


@inverse.register
def _(bijection: Linear, values: Values, context: Context) -> Mapped:
    matrix = np.asarray(bijection.matrix, np.float64)
    return _product(np.linalg.inv(matrix), values), number(-np.linalg.slogdet(matrix)[1])


def _product(matrix: np.ndarray, values: Values) -> list[sympy.Expr]:
    return [
        folded(sympy.Add(*(number(w) * v for w, v in zip(row, values, strict=True) if w))) for row in matrix
    ]


@forward.register
def _(bijection: Coupling, values: Values, context: Context) -> Mapped:
    lead, part = context.block(bijection)
    name = lambda values, label: context.write.name_all(values, lead + label, part=part, role=label)  # noqa: E731
    u1, u2 = name(values[: bijection.split], "u1"), name(values[bijection.split :], "u2")
    s1, t1 = _scale_and_shift(bijection, bijection.first, u2, 1, context)
    n_s1, n_t1 = name(s1, "s1"), name(t1, "t1")
    v1 = [u * exponential(s) + t for u, s, t in zip(u1, n_s1, n_t1, strict=True)]
    n_v1 = name(v1, "v1")
    s2, t2 = _scale_and_shift(bijection, bijection.second, n_v1, 2, context)
    n_s2, n_t2 = name(s2, "s2"), name(t2, "t2")
    o2 = [u * exponential(s) + t for u, s, t in zip(u2, n_s2, n_t2, strict=True)]
    index = context.numbers.get(id(bijection), 1)
    context.blocks.append(Block(index, *map(tuple, (u1, u2, s1, t1, v1, s2, t2, o2))))
    return n_v1 + name(o2, "o2"), sympy.Add(*n_s1, *n_s2)


@inverse.register
def _(bijection: Coupling, values: Values, context: Context) -> Mapped:
    lead, part = context.block(bijection)
    name = lambda values, label: context.write.name_all(values, lead + label, part=part, role=label)  # noqa: E731
    v1, o2 = name(values[: bijection.split], "v1"), name(values[bijection.split :], "o2")
    s2, t2 = _scale_and_shift(bijection, bijection.second, v1, 2, context)
    s2, t2 = name(s2, "s2"), name(t2, "t2")
    u2 = name([(o - t) * exponential(-s) for o, s, t in zip(o2, s2, t2, strict=True)], "u2")
    s1, t1 = _scale_and_shift(bijection, bijection.first, u2, 1, context)
    s1, t1 = name(s1, "s1"), name(t1, "t1")
    u1 = name([(v - t) * exponential(-s) for v, s, t in zip(v1, s1, t1, strict=True)], "u1")
    return u1 + u2, -sympy.Add(*s1, *s2)


def _scale_and_shift(
    bijection: Coupling, subnetwork: Subnetwork, half: list[sympy.Expr], which: int, context: Context
) -> tuple[list[sympy.Expr], list[sympy.Expr]]:
    lead, part = context.block(bijection)
    inputs = [*half, *context.features]
    if bijection.guard is not None:
        guarded = [held(value, -bijection.guard, bijection.guard) for value in inputs]
        label = f"{lead}g{3 - which}" if which == 1 else f"{lead}g1"
        inputs = context.write.name_all(guarded[: len(half)], label, part=part, role="guard")
        inputs += context.write.name_all(guarded[len(half) :], "gc", part="condition", role="guard")
    raw = express(subnetwork, 0, inputs, context.write, f"{lead}s{which}", part)
    if any(len(s.args) > LONGEST_ARGUMENT for s in raw):
        raw = context.write.name_all(raw, f"{lead}s{which}_raw", part=part, role="hidden")
    shift = express(subnetwork, 1, inputs, context.write, f"{lead}t{which}", part)
    return [_clamped(s, bijection.clamp) for s in raw], shift


def _clamped(s: sympy.Expr, clamp: float | None) -> sympy.Expr:
    if clamp is None:
        return s
    bound = number(clamp)
    return folded(2 * bound * sympy.atan(s / bound) / sympy.pi)
