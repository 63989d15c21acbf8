"""Data inside a page: JSON that cannot end its script element, long texts compressed."""

from __future__ import annotations

import base64
import json
import math
import zlib
from typing import Any

import numpy as np

# Shorter texts stay readable in the page's source.
LONG = 40_000


def script_json(value: Any) -> str:
    """Return JSON that is safe inside a ``<script>`` element, whatever the texts in it say.

    Example:
        >>> script_json({"name": "</script><!--"})
        '{"name":"\\\\u003c/script\\\\u003e\\\\u003c!--"}'
    """
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def packed(text: str) -> dict[str, str]:
    """Return a text as the page's ``unpack`` reads it: as it is, or deflated when long."""
    if len(text) < LONG:
        return {"text": text}
    return {"deflate": base64.b64encode(zlib.compress(text.encode(), 9)).decode()}


def rounded(values: np.ndarray, digits: int = 6) -> list[Any]:
    """Return an array as nested lists of so many significant digits; what is not finite becomes None."""

    array = np.asarray(values, dtype=float)
    if array.ndim > 1:
        return [rounded(row, digits) for row in array]
    return [float(f"{value:.{digits}g}") if math.isfinite(value) else None for value in array]
