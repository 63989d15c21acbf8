"""The accuracy-complexity front as a frame that reads well, in a terminal and in a notebook."""

from __future__ import annotations

import html
from typing import Any

import pandas as pd

# Of one model; the frame itself holds the equations whole.
MOST_LINES = 12
MOST_CHARACTERS = 120
_HEADINGS = {
    "complexity": "complexity",
    "nll": "held-out loss (nats)",
    "nll_train": "training loss (nats)",
    "n_parameters": "learned numbers",
    "n_constants": "numbers in the equations",
    "chosen": "chosen",
    "equations": "equations",
}


class Front(pd.DataFrame):
    """A pandas frame with one row a model, from simple to complex; what is taken out of it is a plain frame.

    Example:
        >>> Front({"complexity": [3, 8], "nll": [2.0, 1.5], "chosen": [False, True], "equations": ["z = x", "z = x²"]})
           complexity  nll  chosen
        0           3  2.0   False
        1           8  1.5    True
        <BLANKLINE>
        equations of the chosen model:
          z = x²
    """

    def __repr__(self) -> str:
        if not {"chosen", "equations"} <= set(self):
            return super().__repr__()
        figures = repr(pd.DataFrame(self).drop(columns="equations"))
        chosen = [line for text in self.loc[self["chosen"], "equations"] for line in _lines(text)]
        if not chosen:
            return figures
        return "\n".join([figures, "", "equations of the chosen model:", *(f"  {line}" for line in chosen)])

    def _repr_html_(self) -> str | None:
        if not pd.get_option("display.notebook_repr_html"):
            return None
        head = "".join(f"<th>{html.escape(_HEADINGS.get(str(c), str(c)))}</th>" for c in self)
        rows = "".join(
            f"<tr>{''.join(_cell(str(name), value) for name, value in row.items())}</tr>"
            for row in self.to_dict("records")
        )
        return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"


def _cell(column: str, value: Any) -> str:
    if column == "equations":
        shown = html.escape("\n".join(_lines(str(value))))
        return f'<td><pre style="margin:0;text-align:left">{shown}</pre></td>'
    if column == "chosen":
        return f"<td>{'<b>chosen</b>' if value else ''}</td>"
    return f"<td>{f'{value:.4f}' if isinstance(value, float) else html.escape(str(value))}</td>"


def _lines(text: str) -> list[str]:
    lines = text.splitlines()
    shown = [line if len(line) <= MOST_CHARACTERS else f"{line[:MOST_CHARACTERS]} …" for line in lines]
    more = len(lines) - MOST_LINES
    return shown if more <= 0 else [*shown[:MOST_LINES], f"… and {more} more lines"]
