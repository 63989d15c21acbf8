"""Which symbol stands for which variable: the user's names, the latents, and nothing twice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import sympy

from isr.bijections.flow import Flow
from isr.tables.names import check_names, symbol_names

Symbols = tuple[sympy.Symbol, ...]
LOG_DET = "log_det"
"""What the log-determinant is called where it is printed."""
FUNCTION_NAMES = ("Phi", "PhiInverse", "sigmoid")
"""Functions that printed equations call; no variable may have their names."""


@dataclass(frozen=True)
class Names:
    """The symbols of a flow's variables, and what the user calls them.

    Args:
        x: One symbol per variable of x.
        y: One symbol per variable of y, whichever way it enters.
        z: One symbol per free latent.
        padding: The zero appended to a single variable.
        labels: Display name of each symbol by its name.
    """

    x: Symbols
    y: Symbols
    z: Symbols
    padding: Symbols
    labels: Mapping[str, str] = field(default_factory=dict)

    @property
    def taken(self) -> set[str]:
        """Names that no intermediate may have."""
        return {symbol.name for symbol in (*self.x, *self.y, *self.z, *self.padding)}


def name_variables(
    flow: Flow, x_names: Sequence[str] | None = None, y_names: Sequence[str] | None = None
) -> Names:
    """Return the symbols of ``flow``'s variables; left out, they are x1, x2, ... and y1, y2, ...

    Any text is a fine name: what is no safe identifier gets one that looks like it.

    Example:
        >>> import jax
        >>> from isr.bijections.build import build_flow
        >>> name_variables(build_flow(jax.random.key(0), 2), ["sin", "p (Pa)"]).x
        (sin_, p_Pa)
    """
    x = _given(x_names, "x", flow.dim)
    y = _given(y_names, "y", flow.condition_dim)
    shared = sorted(set(x) & set(y))
    if shared:
        raise ValueError(f"x and y share the name {shared[0]!r}; give every variable its own name")
    symbols = symbol_names([*x, *y], taken=[LOG_DET, *FUNCTION_NAMES])
    latent = tuple(f"z{i + 1}" for i in range(flow.bijection.dim - flow.n_observed))
    own = symbol_names([*latent, "padding"], taken=symbols)
    n_x, n_z = len(x), len(latent)
    return Names(
        x=_symbols(symbols[:n_x]),
        y=_symbols(symbols[n_x:]),
        z=_symbols(own[:n_z]),
        padding=_symbols(own[n_z : n_z + flow.n_padding]),
        labels=dict(zip(symbols, (*x, *y), strict=True)),
    )


def output_names(n: int, taken: Sequence[str] = ()) -> tuple[str, ...]:
    """Return names for ``n`` outputs that have none: y, or y1, y2, …, and none that an input has.

    Example:
        >>> output_names(2), output_names(1, ["x", "y"])
        (('y1', 'y2'), ('y_out',))
    """
    names = ("y",) if n == 1 else tuple(f"y{i + 1}" for i in range(n))
    while set(names) & set(taken):
        names = tuple(f"{name}_out" for name in names)
    return names


def _given(names: Sequence[str] | None, letter: str, n: int) -> tuple[str, ...]:
    if names is None:
        return tuple(f"{letter}{i + 1}" for i in range(n))
    checked = check_names(names, what=letter)
    if len(checked) != n:
        raise ValueError(f"{letter} has {n} variables, but {len(checked)} names were given: {checked}")
    return checked


def _symbols(names: Sequence[str]) -> Symbols:
    return tuple(sympy.Symbol(name, real=True) for name in names)
