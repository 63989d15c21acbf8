"""The layout of a file: a safetensors header with the structure as JSON, its checksum first, then the arrays.

The structure is nested modules, tuples and numbers; arrays stand apart. Only the classes listed here are ever built,
and a file asks of the process that loads it primitives of the same meaning, and arrays that fit each other. A file
tells its schema. Whoever renames a class or changes its fields adds 1 to `SCHEMA` (once between two releases) and a
line to `CHANGES`; files written before then load as if they had been written today.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
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
import safetensors.numpy
from jaxtyping import AbstractArray

from isr import __version__
from isr.bijections.coupling import TRANSFORMERS, Affine, Coupling
from isr.bijections.flow import Flow
from isr.bijections.formula import Formulas, check_tree, nodes
from isr.bijections.networks import EQL
from isr.bijections.parameters import cast, on_device
from isr.bijections.primitives import PRIMITIVES
from isr.storage.bundle import REMEDY, Bundle, ModelFileError

Fields = dict[str, Any]

SCHEMA = 3
"""Version of what a file holds; a file with a higher one is refused."""

CHANGES: dict[int, dict[str, Callable[[Fields], tuple[str, Fields]]]] = {
    2: {"Coupling": lambda old: ("Coupling", {"transformer": Affine(old.pop("clamp")), **old})},
    3: {"Polar": lambda old: ("Polar", {"cut": None, "plain": False, **old})},
}
"""By the schema that brought them: for each class that changed, its new name and fields from the old fields.

Fields hold finished parts, so a change may build modules of them.
"""

_LISTED = {
    "isr.bijections.affine": "Bounded Inverted Linear Permutation Shift Spread Standardise",
    "isr.bijections.bijection": "Chain",
    "isr.bijections.charts": "Mixture Polar Spiral Split",
    "isr.bijections.coupling": "ConditionMap Coupling",
    "isr.bijections.flow": "Ensemble Flow",
    "isr.bijections.formula": "Formulas Triangular",
    "isr.bijections.networks": "EQL MLP",
    "isr.bijections.shapes": "Edges Shapes SinhArcsinh Tails",
    "isr.inversion.record": "SavedLaws",
    "isr.motion.record": "SavedMotion",
}
CLASSES = {name: module for module, names in _LISTED.items() for name in names.split()}
"""Every class a file may hold, and where it lives. A new kind of bijection joins by a word."""

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
    return _built(node["class"], fields, source)


def _built(name: str, fields: Fields, source: Source) -> eqx.Module:
    for version in sorted(version for version in CHANGES if version > source.schema):
        if name in CHANGES[version]:
            name, fields = CHANGES[version][name](dict(fields))
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
    refuse_wrong_fields(cls, fields, source.largest)
    return cls(**fields)


def refuse_wrong_fields(cls: type, fields: Fields, largest: int) -> None:
    """Raise unless each field is of the type its class declares, and counts are at most ``largest``."""
    hints = hints_of(cls)
    for name, value in fields.items():
        if name in hints and not _fits(value, hints[name], largest):
            shown = repr(value) if len(repr(value)) <= 60 else f"{repr(value)[:60]}…"
            raise ModelFileError(
                f"the {name} of its {cls.__name__} is {shown}, not {getattr(hints[name], '__name__', hints[name])}"
                f" (counts up to {largest}); {REMEDY}"
            )


@functools.cache
def hints_of(cls: type) -> dict[str, Any]:
    """Return the types that a class declares for its fields."""
    try:
        return typing.get_type_hints(cls)
    except NameError:  # a class of a user's own may name types that exist for a checker alone
        return {}


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


def _parts(tree: Any, kind: type) -> list[Any]:
    leaves = jax.tree.leaves(tree, is_leaf=lambda node: isinstance(node, kind))
    return [leaf for leaf in leaves if isinstance(leaf, kind)]


def _probe(name: str) -> list[float]:
    """A primitive's values at fixed points: what tells whether a name still means the same function."""
    primitive = PRIMITIVES[name]
    if not primitive.arity:
        return []
    points = np.array([[-1.7, -0.3, 0.4, 1.9], [0.6, -1.1, 2.3, 0.8]])
    with jax.enable_x64(True):
        return np.asarray(primitive.apply(*map(jnp.asarray, points[: primitive.arity]))).tolist()


def _refuse_unknown_primitives(needed: Mapping[str, list[float]]) -> None:
    """Raise unless every primitive a file needs is known and gives the values it gave then."""
    missing = [name for name in needed if name not in PRIMITIVES]
    if missing:
        raise ModelFileError(
            f"it needs the primitive(s) {', '.join(missing)}, which are not known here; "
            "call isr.register_primitive for each before loading"
        )
    for name, values in needed.items():
        found = _probe(name)
        if len(found) != len(values) or not np.allclose(found, values, rtol=1e-9, atol=1e-12, equal_nan=True):
            raise ModelFileError(
                f"the primitive {name!r} known here is not the function of that name it was saved with; "
                "register the same function before loading"
            )


def _refuse_unless_shapes_fit(model: Any) -> None:
    """Raise unless the arrays of a model fit each other; nothing is computed, JAX only traces the shapes."""
    if hasattr(model, "to_law"):
        model.refuse_unreadable()
        return
    with jax.enable_x64(True):
        model = cast(model, jnp.float64)

        def rows(n: int) -> jax.ShapeDtypeStruct:
            return jax.ShapeDtypeStruct((n,), jnp.float64)

        if isinstance(model, Flow):
            # Tracing lets a width of one or none pass, because such arrays broadcast.
            n_features = model.condition_map.n_features if model.condition_map is not None else 0
            for part in (step for step in model.steps if isinstance(step, Coupling)):
                halves = part.split, part.dim - part.split
                for network, given, read in ((part.first, *halves), (part.second, *halves[::-1])):
                    found = network.stack, network.n_inputs, network.n_outputs
                    expected = len(part.transformer.names), read + n_features, given
                    if found != expected:
                        raise ModelFileError(
                            f"a subnetwork has (stack, inputs, outputs) {found}, expected {expected}; {REMEDY}"
                        )
            y = rows(model.condition_dim) if model.condition_dim else None
            latent, _ = jax.eval_shape(model.forward_one, rows(model.dim), y)
            x, _ = jax.eval_shape(model.inverse_one, rows(model.bijection.dim), y)
            if latent.shape != (model.bijection.dim,) or x.shape != (model.dim,):
                raise ModelFileError(f"its arrays give {latent.shape} and {x.shape}; {REMEDY}")
        elif hasattr(model, "n_inputs"):
            jax.eval_shape(model, rows(model.n_inputs))


# The file begins with 8 bytes of header length, then exactly this; the checksum's 64 digits follow.
_PREFIX = rb'{"__metadata__":{"isr":"{\"checksum\":\"'
_DIGITS = slice(8 + len(_PREFIX), 8 + len(_PREFIX) + 64)
_NO_DIGITS = b"0" * 64
_LONGEST_HEADER = 100_000_000
# A count (of variables, networks, units) takes at least so many bytes of numbers or names in an honest file; a few
# need none. A small file that declares a large model would hang whoever writes out its equations.
_BYTES_PER_COUNT, _FEWEST = 8, 128


def to_bytes(bundle: Bundle) -> bytes:
    """Return the file of a bundle; the same bundle gives the same bytes.

    Example:
        >>> from isr.bijections.affine import Standardise
        >>> from isr.bijections.flow import Flow
        >>> from_bytes(to_bytes(Bundle(Flow(Standardise((2.0,), (0.5,))), ("depth",))))
        <saved flow of depth>
    """
    tensors: dict[str, np.ndarray] = {}
    models = bundle.model, bundle.others
    used = {name for network in _parts(models, EQL) for name, _ in network.library}
    trees = [tree for part in _parts(models, Formulas) for tree in part.trees]
    used |= {node[1] for tree in trees for node in nodes(tree) if node[0] == "call"}
    content = {
        "schema": SCHEMA,
        "isr": __version__,
        "primitives": {name: _probe(name) for name in sorted(used)},
        "bundle": {
            f.name: encode(getattr(bundle, f.name), tensors, f.name) for f in dataclasses.fields(bundle)
        },
    }
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
    # The checksum stands first, where its place is known whatever else the file holds.
    text = f'{{"checksum":"{_NO_DIGITS.decode()}",{text[1:]}'
    data = bytearray(safetensors.numpy.save(tensors, metadata={"isr": text}))
    if data[8 : _DIGITS.start] != _PREFIX or data[_DIGITS] != _NO_DIGITS:
        raise RuntimeError("this version of safetensors orders its header in a way isr does not know")
    data[_DIGITS] = hashlib.sha256(data).hexdigest().encode()
    return bytes(data)


def from_bytes(data: bytes) -> Bundle:
    """Return the bundle whose file this is, or raise `ModelFileError`.

    Example:
        >>> from_bytes(b"no model")
        Traceback (most recent call last):
        ...
        isr.storage.bundle.ModelFileError: it is not a model saved by isr, or its beginning is damaged; ...
    """
    header = _checked_header(data)
    try:
        jax.devices()
    except RuntimeError as error:  # not the file's fault
        raise OSError(f"JAX cannot compute here: {error}") from None
    try:
        content = json.loads(json.loads(header)["__metadata__"]["isr"], parse_constant=_refuse_constant)
        schema = content["schema"]
        if isinstance(schema, bool) or not isinstance(schema, int):
            raise ModelFileError(f"its schema version is {schema!r}, not a whole number; {REMEDY}")
        if schema > SCHEMA:
            raise ModelFileError(
                f"it has schema version {schema}, written by isr {content.get('isr')}; this isr {__version__} "
                f"reads up to {SCHEMA}; upgrade isr"
            )
        _refuse_unknown_primitives(content["primitives"])
        tensors = safetensors.numpy.load(data)
        source = Source(tensors, schema, max(_FEWEST, len(data) // _BYTES_PER_COUNT))
        with jax.enable_x64(True):  # without it JAX would round doubles to singles
            parts = {name: decode(node, source) for name, node in content["bundle"].items()}
            refuse_wrong_fields(Bundle, parts, source.largest)
        if tensors:
            raise ModelFileError(f"it holds {len(tensors)} arrays that belong to nothing; {REMEDY}")
        bundle = Bundle(**parts)
        for part in _parts((bundle.model, bundle.others), Formulas):
            for tree in part.trees:
                check_tree(tree, part.n_inputs, len(part.constants))
        _refuse_unless_shapes_fit(bundle.model)
    except ModelFileError:
        raise
    except Exception as error:  # a file made to mislead may fail anywhere
        raise ModelFileError(f"its content is not that of a model ({error}); {REMEDY}") from error
    return bundle


def _checked_header(data: bytes) -> bytes:
    """The file's header, once every byte is known to be as it was written."""
    if not data:
        raise ModelFileError(f"the file is empty; {REMEDY}")
    length = int.from_bytes(data[:8], "little")
    if data[8 : _DIGITS.start] != _PREFIX:
        guess = " (it is some other safetensors file)" if data[8:9] == b"{" else ""
        if data[:1] == b"\x80" or data[:2] == b"PK":
            guess = " (it looks like a pickle or a zip file, which isr never opens)"
        raise ModelFileError(f"it is not a model saved by isr, or its beginning is damaged{guess}; {REMEDY}")
    if length > _LONGEST_HEADER or 8 + length > len(data) or _DIGITS.stop > len(data):
        raise ModelFileError(
            f"the file ends too early ({len(data)} bytes) or its length is damaged; {REMEDY}"
        )
    undigested = bytearray(data)
    undigested[_DIGITS] = _NO_DIGITS
    if hashlib.sha256(undigested).hexdigest().encode() != data[_DIGITS]:
        raise ModelFileError(f"its checksum does not match: the file is damaged or cut short; {REMEDY}")
    return data[8 : 8 + length]


def _refuse_constant(text: str) -> None:
    raise ModelFileError(f"it holds the constant {text} where none may stand; {REMEDY}")
