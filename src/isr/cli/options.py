"""What commands take: the model file, --json, texts such as ``p1=0.1,p2=0.3``; and their exit codes."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

FAULT = 1
WRONG_INPUT = 2
FIT_FAILED = 3
CHECK_FAILED = 4
INTERRUPTED = 130


class CheckFailedError(Exception):
    """Equations and model disagree; everything else the command was to do is done."""


ModelFile = Annotated[Path, typer.Argument(metavar="MODEL.isr", help="A saved model.", show_default=False)]
Json = Annotated[bool, typer.Option("--json", help="One JSON object for machines, nothing else.")]
Force = Annotated[bool, typer.Option("--force", help="Replace files that exist already.")]
Seed = Annotated[int, typer.Option(min=0, help="Seed of everything drawn.")]
Complexity = Annotated[
    int | None, typer.Option(min=0, help="Use the best model of the front no more complex than this.")
]
TableFile = Annotated[Path | None, typer.Option(help="CSV or Parquet file; CSV on stdout when left out.")]


def names_in(text: str) -> list[str]:
    """Return comma-separated names; one with a comma in it stands in double quotes.

    Example:
        >>> names_in('depth, "speed, m/s"')
        ['depth', 'speed, m/s']
    """
    fields = next(csv.reader([text], skipinitialspace=True), [])
    return [name.strip() for name in fields if name.strip()]


def pairs_in(texts: Iterable[str], option: str, example: str) -> dict[str, str]:
    """Return ``name=value`` texts, comma-separated or one by one, as a mapping.

    Example:
        >>> pairs_in(["depth=200:240,speed=1500:", "p (Pa)=0:"], "--bounds", "depth=200:240")
        {'depth': '200:240', 'speed': '1500:', 'p (Pa)': '0:'}
    """
    found: dict[str, str] = {}
    for piece in (name for text in texts for name in names_in(text)):
        name, equals, value = (part.strip() for part in piece.rpartition("="))
        if not equals or not name or not value:
            raise ValueError(f"{option} cannot read {piece!r}; write it as {option} {example}")
        if name in found:
            raise ValueError(f"{option} names {name!r} twice; give one value")
        found[name] = value
    return found


def numbers_in(texts: Iterable[str], option: str, example: str) -> dict[str, float]:
    """Return ``name=number`` texts as a mapping; see `pairs_in`."""
    return {name: number(value, option, name) for name, value in pairs_in(texts, option, example).items()}


_PRIOR = re.compile(r'\s*(?:"([^"]+)"|([^=,]+?))\s*=\s*([a-z]+)\(([^()]*)\)\s*(?:,|$)')


def priors_in(texts: Iterable[str]) -> dict[str, Any]:
    """Return texts such as ``depth=uniform(200,240),speed=normal(1500,20)`` as a prior for each name.

    Example:
        >>> priors_in(["depth=uniform(200,240), t=uniform(0,1)"])
        {'depth': (200.0, 240.0), 't': (0.0, 1.0)}
    """
    from scipy import stats

    laws: dict[str, Callable[[float, float], Any]] = {
        "uniform": lambda low, high: (low, high),
        "normal": stats.norm,
        "lognormal": lambda mu, sigma: stats.lognorm(sigma, scale=math.exp(mu)),
    }
    found: dict[str, Any] = {}
    for text in texts:
        at = 0
        while at < len(text):
            match = _PRIOR.match(text, at)
            if match is None or match[3] not in laws or match[4].count(",") != 1:
                raise ValueError(
                    f"--prior cannot read {text[at:]!r}; write it as name=uniform(0,80), normal(mean,sd) "
                    "or lognormal(mu,sigma)"
                )
            name = match[1] or match[2]
            low, high = (number(part.strip(), "--prior", name) for part in match[4].split(","))
            found[name] = laws[match[3]](low, high)
            at = match.end()
    return found


def number(text: str, option: str, name: str) -> float:
    """Return the number that ``text`` stands for, or say whose value cannot be read."""
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"{option} needs a number for {name!r}, got {text!r}") from None
