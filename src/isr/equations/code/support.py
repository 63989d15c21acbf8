"""The text around the equations: comments that cannot break out, and the normal distribution in each language.

The distribution function follows W. J. Cody (1969), the quantile M. J. Wichura's AS 241 (1988); both hold a
relative error below 1e-15 over all doubles they can reach.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from isr.bijections.affine import LOG_SQRT_2PI
from isr.bijections.flow import N_PAD_NODES
from isr.equations.program import Program


@dataclass(frozen=True)
class Subject:
    """What code is written about: both directions of a flow and how its latent is distributed.

    Args:
        forward: From x (and its padding) to the latent.
        inverse: From the latent to x.
        x_names: Display names of x.
        y_names: Display names of y, whichever way it enters.
        noise: Standard deviations of the observed outputs (joint form), else empty.
        n_padding: Zeros appended to x.
        units: Unit of a variable, by display name.
    """

    forward: Program
    inverse: Program
    x_names: tuple[str, ...]
    y_names: tuple[str, ...] = ()
    noise: tuple[float, ...] = ()
    n_padding: int = 0
    units: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if len(self.forward.inputs) != self.n_x + self.n_padding:
            raise ValueError(
                f"the forward equations read {len(self.forward.inputs)} variables, but x has {self.n_x} "
                f"and {self.n_padding} of padding"
            )
        if len(self.inverse.inputs) != self.n_latent or len(self.inverse.outputs) < self.n_x:
            raise ValueError(
                f"the inverse equations take {len(self.inverse.inputs)} latents to {len(self.inverse.outputs)} "
                f"variables, expected {self.n_latent} to {self.n_x}"
            )

    @property
    def n_x(self) -> int:
        """How many variables x has."""
        return len(self.x_names)

    @property
    def n_y(self) -> int:
        """How many variables y has."""
        return len(self.y_names)

    @property
    def n_latent(self) -> int:
        """How many latents there are."""
        return len(self.forward.outputs)

    @property
    def conditional(self) -> bool:
        """Whether the equations themselves read y."""
        return bool(self.forward.conditions or self.inverse.conditions) or (self.n_y > 0 and not self.noise)

    @property
    def outside(self) -> list[tuple[int, str, float]]:
        """When x has no density: (variable, comparison, bound); a box is closed, an end bounded alone is open."""
        return [
            (i, sign if None not in pair else f"{sign}=", end)
            for i, pair in enumerate(self.inverse.bounds)
            for sign, end in zip("<>", pair, strict=True)
            if end is not None
        ]

    @property
    def base_constant(self) -> float:
        """What the latent's log-density adds to ``-sum(standardised**2) / 2``."""
        return -float(sum(np.log(s) for s in self.noise) + self.n_latent * LOG_SQRT_2PI)


def comment(text: str) -> str:
    """Return ``text`` as it may stand in a comment of any of the languages: one line that ends nothing.

    Example:
        >>> comment("a */ b")
        'a * / b'
    """
    line = "".join(c if c.isprintable() else " " for c in text)
    line = line.replace("\\", "/").replace('"', "'")
    for hostile, tame in (
        ("*/", "* /"),
        ("/*", "/ *"),
        ("</", "< /"),
        ("<!", "< !"),
        ("->", "- >"),
        ("??", "? ?"),
    ):
        while hostile in line:
            line = line.replace(hostile, tame)
    return re.sub(" +", " ", line).strip()[:200]


def text_list(names: Sequence[str]) -> str:
    """Return names as a list of string literals that Python and JavaScript read alike, safe inside HTML."""
    return json.dumps(list(names)).replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def header(subject: Subject, calls: Sequence[str], notes: Sequence[str] = ()) -> list[str]:
    """Return the lines that open a generated source: what it is, its variables, how to call it."""
    if subject.noise:
        kind = "Joint map f(x) = [y, z] with its inverse and the density of x given y."
    elif subject.n_y:
        kind = "Conditional map f(x; y) = z with its inverse and the density of x given y."
    else:
        kind = "Map f(x) = z with its inverse and the density of x."
    lines = [kind, "Written by isr from a fitted model's equations; stands alone.", "", "Variables:"]
    lines += [f"  x[{i}]  {_named(subject, name)}" for i, name in enumerate(subject.x_names)]
    for i, name in enumerate(subject.y_names):
        noise = (
            f", observed with normal noise of standard deviation {subject.noise[i]!r}"
            if subject.noise
            else ""
        )
        lines.append(f"  y[{i}]  {_named(subject, name)}{noise}")
    lines.append(f"  the latent has {subject.n_latent} entries: {_latent(subject)}")
    if subject.n_padding:
        lines.append(
            "  the second one belongs to a padding of x by zero, which a coupling of one variable needs"
        )
    return [*lines, "", "Functions:", *(f"  {call}" for call in calls), *(["", *notes] if notes else [])]


def _named(subject: Subject, name: str) -> str:
    unit = subject.units.get(name, "")
    return comment(f"{name} ({unit})" if unit else name)


def _latent(subject: Subject) -> str:
    if not subject.noise:
        return "each is standard normal"
    leading = "the first is y" if len(subject.noise) == 1 else f"the first {len(subject.noise)} are y"
    return leading if len(subject.noise) == subject.n_latent else f"{leading}, the rest is standard normal"


def pad_nodes() -> tuple[list[float], list[float]]:
    """Return nodes and log-weights of the quadrature that sums a padding out."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(N_PAD_NODES)
    return nodes.tolist(), (np.log(weights) + 0.5 * nodes**2).tolist()


# Coefficients from the highest power down: numerator and denominator of each range.
_CDF_CENTRE = (
    (0.065682337918207449113, 2.2352520354606839287, 161.02823106855587881, 1067.6894854603709582,
     18154.981253343561249),
    (1.0, 47.20258190468824187, 976.09855173777669322, 10260.932208618978205, 45507.789335026729956),
)  # fmt: skip
_CDF_MIDDLE = (
    (1.0765576773720192317e-8, 0.39894151208813466764, 8.8831497943883759412, 93.506656132177855979,
     597.27027639480026226, 2494.5375852903726711, 6848.1904505362823326, 11602.651437647350124, 9842.7148383839780218),
    (1.0, 22.266688044328115691, 235.38790178262499861, 1519.377599407554805, 6485.558298266760755,
     18615.571640885098091, 34900.952721145977266, 38912.003286093271411, 19685.429676859990727),
)  # fmt: skip
_CDF_TAIL = (
    (0.02307344176494017303, 0.21589853405795699, 0.1274011611602473639, 0.022235277870649807,
     0.001421619193227893466, 2.9112874951168792e-5),
    (1.0, 1.28426009614491121, 0.468238212480865118, 0.0659881378689285515, 0.00378239633202758244,
     7.29751555083966205e-5),
)  # fmt: skip
_QUANTILE_CENTRE = (
    (2509.0809287301226727, 33430.575583588128105, 67265.770927008700853, 45921.953931549871457,
     13731.693765509461125, 1971.5909503065514427, 133.14166789178437745, 3.387132872796366608),
    (5226.495278852854561, 28729.085735721942674, 39307.89580009271061, 21213.794301586595867,
     5394.1960214247511077, 687.1870074920579083, 42.313330701600911252, 1.0),
)  # fmt: skip
_QUANTILE_MIDDLE = (
    (7.7454501427834140764e-4, 0.0227238449892691845833, 0.24178072517745061177, 1.27045825245236838258,
     3.64784832476320460504, 5.7694972214606914055, 4.6303378461565452959, 1.42343711074968357734),
    (1.05075007164441684324e-9, 5.475938084995344946e-4, 0.0151986665636164571966, 0.14810397642748007459,
     0.68976733498510000455, 1.6763848301838038494, 2.05319162663775882187, 1.0),
)  # fmt: skip
_QUANTILE_TAIL = (
    (2.01033439929228813265e-7, 2.71155556874348757815e-5, 0.0012426609473880784386, 0.026532189526576123093,
     0.29656057182850489123, 1.7848265399172913358, 5.4637849111641143699, 6.6579046435011037772),
    (2.04426310338993978564e-15, 1.4215117583164458887e-7, 1.8463183175100546818e-5, 7.868691311456132591e-4,
     0.0148753612908506148525, 0.13692988092273580531, 0.59983220655588793769, 1.0),
)  # fmt: skip

_RATIOS = {
    "@CDF_CENTRE": (_CDF_CENTRE, "s"),
    "@CDF_MIDDLE": (_CDF_MIDDLE, "a"),
    "@CDF_TAIL": (_CDF_TAIL, "t"),
    "@QUANTILE_CENTRE": (_QUANTILE_CENTRE, "r"),
    "@QUANTILE_MIDDLE": (_QUANTILE_MIDDLE, "r"),
    "@QUANTILE_TAIL": (_QUANTILE_TAIL, "r"),
}


def with_ratios(text: str, wrap: str) -> str:
    """Return runtime text with its rational functions written out in Horner form.

    Args:
        text: Holds the marks ``@CDF_CENTRE`` and so on.
        wrap: What a broken line begins with.
    """
    for mark, ((above, below), variable) in _RATIOS.items():
        text = text.replace(mark, f"({_horner(above, variable)}){wrap}/ ({_horner(below, variable)})")
    return text


def _horner(coefficients: Sequence[float], variable: str) -> str:
    text = repr(coefficients[0])
    for i, coefficient in enumerate(coefficients[1:]):
        text = f"{f'({text})' if i else text}*{variable} + {coefficient!r}"
    return text
