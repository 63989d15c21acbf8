"""What commands take: the model file, --json, groups of options, and texts such as ``p1=0.1,p2=0.3``."""

from __future__ import annotations

import csv
import dataclasses
import functools
import inspect
import math
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer


def asked(text: str, metavar: str | None = None, *names: str, **more: Any) -> Any:
    """Return an option with its help, called as its parameter unless ``names`` are given."""
    return typer.Option(*names, help=text, metavar=metavar, **more)


ModelFile = Annotated[Path, typer.Argument(metavar="MODEL.isr", help="A saved model.", show_default=False)]
Json = Annotated[bool, asked("One JSON object for machines, nothing else.", None, "--json")]
Force = Annotated[bool, asked("Replace files that exist already.", None, "--force")]
Seed = Annotated[int, asked("Seed of everything drawn.", "N", min=0, max=2**63 - 1)]
Complexity = Annotated[
    int | None, asked("The best model of the front no more complex than this.", "N", min=0)
]
TableFile = Annotated[Path | None, asked("CSV or Parquet file; CSV on stdout when left out.", "FILE")]


def with_groups(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command in which a parameter that is a dataclass stands for one option per field of it.

    In help they have a panel of their own where the class names one as ``PANEL``.
    """
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {name: kind for name, kind in hints.items() if dataclasses.is_dataclass(kind)}
    flat: list[inspect.Parameter] = []
    for parameter in inspect.signature(command).parameters.values():
        kind = groups.get(parameter.name)
        types = hints if kind is None else get_type_hints(kind, include_extras=True)
        for one in [parameter] if kind is None else dataclasses.fields(kind):
            flat.append(
                inspect.Parameter(
                    one.name, inspect.Parameter.KEYWORD_ONLY, default=one.default, annotation=types[one.name]
                )
            )
            if kind is not None:
                types[one.name].__metadata__[-1].rich_help_panel = getattr(kind, "PANEL", None)

    @functools.wraps(command)
    def run(**given: Any) -> None:
        for name, kind in groups.items():
            given[name] = kind(**{f.name: given.pop(f.name) for f in dataclasses.fields(kind)})
        command(**given)

    run.__signature__ = inspect.Signature(flat)  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in flat}
    return run


def names_in(text: str) -> list[str]:
    """Return comma-separated names; one with a comma in it stands in double quotes."""
    fields = next(csv.reader([text], skipinitialspace=True), [])
    return [name.strip() for name in fields if name.strip()]


def pairs_in(texts: Iterable[str], option: str, example: str) -> dict[str, str]:
    """Return ``name=value`` texts, comma-separated or one by one, as a mapping."""
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
    """Return ``name=number`` texts as a mapping of finite numbers; see `pairs_in`."""
    found = {name: number(value, option, name) for name, value in pairs_in(texts, option, example).items()}
    for name, value in found.items():
        if not math.isfinite(value):
            raise ValueError(f"{option} needs a finite number for {name!r}, got {value}")
    return found


def number(text: str, option: str, name: str) -> float:
    """Return the number that ``text`` stands for, or say whose value cannot be read."""
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"{option} needs a number for {name!r}, got {text!r}") from None


def bounds_in(texts: Iterable[str]) -> dict[str, tuple[float | None, float | None]] | None:
    """Return texts such as ``depth=200:240,speed=1500:`` as an interval for each name; None without any."""
    found = {}
    for name, text in pairs_in(texts, "--bounds", "depth=200:240").items():
        low, colon, high = text.partition(":")
        if not colon:
            raise ValueError(f"--bounds cannot read {name}={text}; write it as --bounds {name}=200:240")
        ends = (low.strip() or None, high.strip() or None)
        found[name] = tuple(None if e is None else number(e, "--bounds", name) for e in ends)
    return found or None


_PRIOR = re.compile(r'\s*(?:"([^"]+)"|([^=,]+?))\s*=\s*([a-z]+)\(([^()]*)\)\s*(?:,|$)')


def priors_in(texts: Iterable[str]) -> dict[str, Any] | None:
    """Return texts such as ``depth=uniform(200,240),speed=normal(1500,20)`` as a prior for each name."""
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
            if match[3] != "uniform" and not high > 0:
                raise ValueError(
                    f"--prior of {name!r}: the second number of {match[3]} must be above 0, got {high:g}"
                )
            found[name] = laws[match[3]](low, high)
            at = match.end()
    return found or None


def noise_in(text: str) -> Any:
    """Return ``auto``, a number or a number for each name."""
    if text.strip() == "auto":
        return "auto"
    return numbers_in([text], "--noise", "p1=0.1,p2=0.2") if "=" in text else number(text, "--noise", "y")
