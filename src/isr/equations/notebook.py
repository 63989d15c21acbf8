"""What notebooks show of models and equations: text in columns that line up, every word of the user escaped."""

from __future__ import annotations

import html
from collections.abc import Sequence

MOST_LINES, LONGEST = 40, 300
_PRE = "margin:.2em 0 .8em 1em;font-family:monospace;line-height:1.5;white-space:pre;overflow-x:auto;text-align:left"


def as_html(title: str, sections: Sequence[tuple[str, str]], *, table: str = "", note: str = "") -> str:
    """Return texts under their headings as HTML, long ones cut; ``table`` is HTML that follows them.

    Example:
        >>> "<b>y given x</b>" in as_html("a law", [("y given x", "y = 2*x")])
        True
    """
    head = f"<p><b>{html.escape(title)}</b></p>" if title else ""
    named = [(f"<b>{html.escape(name)}</b>" if name else "", text) for name, text in sections]
    body = "".join(f"<div>{name}{_listing(text)}</div>" for name, text in named)
    last = f"<p>{html.escape(note)}</p>" if note else ""
    return f"<div>{head}{body}{table}{last}</div>"


def _listing(text: str) -> str:
    lines = [line if len(line) <= LONGEST else f"{line[:LONGEST]} …" for line in text.splitlines()]
    if len(lines) > MOST_LINES:
        lines = [*lines[:MOST_LINES], f"… and {len(lines) - MOST_LINES} more lines; print it to read them"]
    shown = html.escape("\n".join(lines))
    return f'<pre style="{_PRE}">{shown}</pre>'
