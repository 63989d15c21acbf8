"""How a symbol looks on paper: letter, subscripts and block, from its name or from what the user calls it."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass

_GREEK_NAMES = (
    "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi omicron pi rho sigma tau upsilon "
    "phi chi psi omega"
).split()
GREEK = dict(zip("αβγδεζηθικλμνξοπρστυφχψω", _GREEK_NAMES, strict=True))
LETTERS = {name: letter for letter, name in GREEK.items()}


@dataclass(frozen=True)
class Label:
    """A name taken apart.

    Args:
        base: Letter or word.
        subscripts: What stands below it.
        block: The block it belongs to, above it; empty outside blocks.
        verbatim: Whether ``base`` is free text rather than a letter or a word.
    """

    base: str
    subscripts: tuple[str, ...] = ()
    block: str = ""
    verbatim: bool = False


def label_of(name: str, labels: Mapping[str, str]) -> Label:
    """Return how the symbol called ``name`` looks, where ``labels`` holds the user's own names.

    Example:
        >>> label_of("b2_s1_3", {})
        Label(base='s', subscripts=('1', '3'), block='2', verbatim=False)
        >>> label_of("p_Pa", {"p_Pa": "p (Pa)"})
        Label(base='p (Pa)', subscripts=(), block='', verbatim=True)
    """
    if name in labels:
        return _of_user(labels[name])
    block = re.match(r"b(\d+)_(?=[a-z])", name)
    rest = name[block.end() :] if block else name
    base, subscripts = _parts(rest)
    return Label(base, subscripts, block[1] if block else "")


def _of_user(label: str) -> Label:
    plain = unicodedata.normalize("NFKC", label)
    if re.fullmatch(r"[^\W\d_]+\d*(_[^\W_]+)*", plain):
        return Label(*_parts(plain))
    return Label("".join(c if c.isprintable() else " " for c in label), verbatim=True)


def _parts(name: str) -> tuple[str, tuple[str, ...]]:
    first, *rest = name.split("_")
    match = re.fullmatch(r"([^\W\d]+)(\d*)", first)
    if match is None:
        return name, ()
    base = LETTERS.get(match[1], match[1])
    return base, tuple(part for part in (match[2], *rest) if part)
