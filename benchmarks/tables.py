"""Markdown tables of the page of benchmarks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any


def table(heads: Iterable[str], lines: Iterable[Sequence[Any]]) -> str:
    """Return a Markdown table; numbers with three digits, None as an empty cell."""
    heads = list(heads)
    written = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    return "\n".join([*written, *(f"| {' | '.join(_cell(value) for value in line)} |" for line in lines)])


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.0f}" if 100 <= abs(value) < 1e6 else f"{value:.3g}"
    return str(value).replace("|", "\\|")
