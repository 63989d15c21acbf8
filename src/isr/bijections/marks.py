"""Marks for the reader of equations: while it records a program, some primitives of the library carry their names."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import jax

_marked: ContextVar[frozenset[str]] = ContextVar("marked_primitives", default=frozenset())


@contextmanager
def marked_primitives(names: Iterable[str]) -> Iterator[None]:
    """Record these primitives as calls under their names inside."""
    token = _marked.set(frozenset(names))
    try:
        yield
    finally:
        _marked.reset(token)


def marked(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function, under a name that the reader knows while it records."""
    if name not in _marked.get():
        return function

    def named(*arguments: Any) -> Any:
        return function(*arguments)

    named.__name__ = f"primitive {name}"
    return jax.jit(named)
