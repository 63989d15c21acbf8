"""A model's structure as plain JSON and back: nested modules, tuples and numbers; arrays stand apart.

Only the classes listed here are ever built. A file tells its schema. Whoever renames a class or changes its fields adds
1 to `SCHEMA` (once between two releases) and a line to `CHANGES`; files written before then load as if they had been
written today.
"""

from __future__ import annotations

import dataclasses
import math
import typing
from collections.abc import Callable, Mapping
from importlib import import_module
from types import UnionType
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import AbstractArray

from isr import __version__
from isr.bijections.coupling import TRANSFORMERS, Affine
from isr.bijections.parameters import on_device
from isr.storage.bundle import REMEDY, ModelFileError

Fields = dict[str, Any]

SCHEMA = 3
"""Version of what a file holds; a file with a higher one is refused."""


def _coupling(old: Fields) -> tuple[str, Fields]:
    return "Coupling", {"transformer": Affine(old.pop("clamp")), **old}


def _polar(old: Fields) -> tuple[str, Fields]:
    return "Polar", {"cut": None, "plain": False, **old}


CHANGES: dict[int, dict[str, Callable[[Fields], tuple[str, Fields]]]] = {
    2: {"Coupling": _coupling},
    3: {"Polar": _polar},
}
"""By the schema that brought them: for each class that changed, its new name and fields from the old fields.

Fields hold finished parts, so a change may build modules of them.
"""


def upgraded(name: str, fields: Fields, schema: int) -> tuple[str, Fields]:
    """Return the name and fields that a part of a file with this schema has today."""
    for version in sorted(version for version in CHANGES if version > schema):
        if name in CHANGES[version]:
            name, fields = CHANGES[version][name](dict(fields))
    return name, fields


CLASSES = {
    "Bounded": "isr.bijections.affine",
    "Chain": "isr.bijections.bijection",
    "ConditionMap": "isr.bijections.coupling",
    "Coupling": "isr.bijections.coupling",
    "EQL": "isr.bijections.networks",
    "Edges": "isr.bijections.shapes",
    "Ensemble": "isr.bijections.flow",
    "Flow": "isr.bijections.flow",
    "Formulas": "isr.bijections.formula",
    "Inverted": "isr.bijections.affine",
    "Linear": "isr.bijections.affine",
    "MLP": "isr.bijections.networks",
    "Mixture": "isr.bijections.mixtures",
    "Permutation": "isr.bijections.affine",
    "Polar": "isr.bijections.charts",
    "SavedLaws": "isr.inversion.record",
    "SavedMotion": "isr.motion.record",
    "Shapes": "isr.bijections.shapes",
    "Shift": "isr.bijections.affine",
    "SinhArcsinh": "isr.bijections.shapes",
    "Spiral": "isr.bijections.charts",
    "Spread": "isr.bijections.affine",
    "Split": "isr.bijections.charts",
    "Standardise": "isr.bijections.affine",
    "Tails": "isr.bijections.shapes",
    "Triangular": "isr.bijections.formula",
}
"""Every class a file may hold, and where it lives. A new kind of bijection joins by one line."""

_DEEPEST = 150
_DTYPES = ("float64", "float32", "int64", "int32", "bool")
_NOT_FINITE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


def encode(value: Any, tensors: dict[str, np.ndarray], where: str, depth: int = 0) -> Any:
    """Return plain data, arrays and modules as JSON-able data, the arrays put into ``tensors``."""
    if depth > _DEEPEST:
        raise ValueError(f"{where} is nested more than {_DEEPEST} levels deep, too deep to save")
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {"float": str(value)}
    if isinstance(value, jax.Array | np.ndarray):
        array = np.asarray(value)
        if array.dtype.name not in _DTYPES:
            raise TypeError(f"cannot save {where}: arrays of {array.dtype}; known: {', '.join(_DTYPES)}")
        name = f"{len(tensors):05d}"
        tensors[name] = np.array(array, order="C")
        return {"array": name, "shape": list(array.shape), "jax": isinstance(value, jax.Array)}

    def inner(part: Any, label: object) -> Any:
        return encode(part, tensors, f"{where}.{label}", depth + 1)

    if isinstance(value, list):
        return [inner(part, i) for i, part in enumerate(value)]
    if isinstance(value, tuple):
        return {"tuple": [inner(part, i) for i, part in enumerate(value)]}
    if isinstance(value, Mapping):
        if not all(isinstance(key, str) for key in value):
            raise TypeError(f"cannot save {where}: a mapping's keys must be text, got {list(value)!r}")
        return {"dict": {key: inner(part, key) for key, part in value.items()}}
    name = type(value).__name__
    if isinstance(value, eqx.Module) and _class(name) is type(value):
        parts = {f.name: inner(getattr(value, f.name), f.name) for f in dataclasses.fields(value)}
        return {"class": name, "fields": parts}
    raise TypeError(f"cannot save {where}: a {name} is no plain data and no class that a file may hold")


class Source(NamedTuple):
    """What the parts of a file are read with: its arrays by name, its schema, and the largest count it may declare."""

    tensors: dict[str, np.ndarray]
    schema: int
    largest: int


def decode(node: Any, source: Source, depth: int = 0) -> Any:
    """Return what `encode` was given, brought up to date; arrays used are taken out of ``source.tensors``."""
    if depth > _DEEPEST:
        raise ModelFileError(f"it is nested more than {_DEEPEST} levels deep; {REMEDY}")
    if node is None or isinstance(node, bool | int | float | str):
        return node

    def inner(part: Any) -> Any:
        return decode(part, source, depth + 1)

    if isinstance(node, list):
        return [inner(part) for part in node]
    if "float" in node:
        return _NOT_FINITE[node["float"]]
    if "array" in node:
        array = source.tensors.pop(node["array"])
        if list(array.shape) != node["shape"] or array.dtype.name not in _DTYPES:
            raise ModelFileError(
                f"array {node['array']} is {array.dtype}{array.shape}, not as described; {REMEDY}"
            )
        return on_device(array) if node["jax"] else array
    if "tuple" in node:
        return tuple(inner(part) for part in node["tuple"])
    if "dict" in node:
        return {key: inner(part) for key, part in node["dict"].items()}
    fields = {name: inner(part) for name, part in node["fields"].items()}
    return _built(*upgraded(node["class"], fields, source.schema), source.largest)


def _built(name: str, fields: dict[str, Any], largest: int) -> eqx.Module:
    cls = _class(name)
    if cls is None:
        raise ModelFileError(
            f"it holds a {name!r}, which this isr {__version__} does not know; upgrade isr, or call "
            "isr.register_transformer before loading if it is a transformer of your own"
        )
    known = {f.name for f in dataclasses.fields(cls)}
    if set(fields) != known:
        raise ModelFileError(
            f"its {name} has the fields {sorted(fields)}, expected {sorted(known)}; {REMEDY}"
        )
    refuse_wrong_fields(cls, fields, largest)
    return cls(**fields)


def refuse_wrong_fields(cls: type, fields: Fields, largest: int) -> None:
    """Raise unless every field is of the type that its class declares, arrays in kind and rank, counts no more than
    ``largest``.
    """
    try:
        hints = typing.get_type_hints(cls)
    except NameError:  # a class of a user's own may name types that exist for a checker alone
        return
    for name, value in fields.items():
        if name in hints and not _fits(value, hints[name], largest):
            shown = repr(value)
            shown = shown if len(shown) <= 60 else f"{shown[:60]}…"
            raise ModelFileError(
                f"the {name} of its {cls.__name__} is {shown}, not {getattr(hints[name], '__name__', hints[name])}"
                f" (counts up to {largest}); {REMEDY}"
            )


def _fits(value: Any, hint: Any, largest: int) -> bool:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, UnionType):
        return any(_fits(value, own, largest) for own in arguments)
    if origin is tuple:
        if not isinstance(value, tuple) or (arguments[-1] is not Ellipsis and len(arguments) != len(value)):
            return False
        each = [arguments[0]] * len(value) if arguments[-1] is Ellipsis else arguments
        return all(_fits(part, own, largest) for part, own in zip(value, each, strict=True))
    if origin is Mapping:
        return isinstance(value, dict) and all(_fits(part, arguments[1], largest) for part in value.values())
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= largest
    if hint is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if isinstance(hint, type) and issubclass(hint, AbstractArray):
        return isinstance(value, hint) or isinstance(jnp.asarray(value), hint)
    kind = origin or hint
    return kind is Any or not isinstance(kind, type) or isinstance(value, kind)


def _class(name: str) -> Any:
    """The class of that name, or None; transformers may be a user's own."""
    return getattr(import_module(CLASSES[name]), name) if name in CLASSES else TRANSFORMERS.get(name)
