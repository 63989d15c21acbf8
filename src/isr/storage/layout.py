"""The layout of a file: a safetensors header with the structure as JSON, its checksum first, then the arrays.

A file asks of the process that loads it primitives of the same meaning, and arrays that fit each other.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import safetensors.numpy

from isr import __version__
from isr.bijections.coupling import Coupling
from isr.bijections.flow import Flow
from isr.bijections.formula import Formulas, check_tree
from isr.bijections.networks import EQL
from isr.bijections.parameters import cast
from isr.bijections.primitives import PRIMITIVES
from isr.storage.bundle import REMEDY, Bundle, ModelFileError
from isr.storage.structure import SCHEMA, Source, decode, encode, refuse_wrong_fields


def primitives_of(tree: Any) -> set[str]:
    """Return the names of the primitives that models compute with."""
    used = {name for network in _parts(tree, EQL) for name, _ in network.library}
    return used | {
        name for part in _parts(tree, Formulas) for formula in part.trees for name in _calls(formula)
    }


def _parts(tree: Any, kind: type) -> list[Any]:
    leaves = jax.tree.leaves(tree, is_leaf=lambda node: isinstance(node, kind))
    return [leaf for leaf in leaves if isinstance(leaf, kind)]


def _calls(formula: tuple[Any, ...]) -> Iterator[str]:
    if formula[0] == "call":
        yield formula[1]
    for part in formula[1:]:
        if isinstance(part, tuple):
            yield from _calls(part)


def probe(name: str) -> list[float]:
    """A primitive's values at fixed points: what tells whether a name still means the same function."""
    primitive = PRIMITIVES[name]
    if not primitive.arity:
        return []
    points = np.array([[-1.7, -0.3, 0.4, 1.9], [0.6, -1.1, 2.3, 0.8]])
    with jax.enable_x64(True):
        return np.asarray(primitive.apply(*map(jnp.asarray, points[: primitive.arity]))).tolist()


def refuse_unknown_primitives(needed: Mapping[str, list[float]]) -> None:
    """Raise unless every primitive a file needs is known and gives the values it gave then."""
    missing = [name for name in needed if name not in PRIMITIVES]
    if missing:
        raise ModelFileError(
            f"it needs the primitive(s) {', '.join(missing)}, which are not known here; "
            "call isr.register_primitive for each before loading"
        )
    for name, values in needed.items():
        found = probe(name)
        if len(found) != len(values) or not np.allclose(found, values, rtol=1e-9, atol=1e-12, equal_nan=True):
            raise ModelFileError(
                f"the primitive {name!r} known here is not the function of that name it was saved with; "
                "register the same function before loading"
            )


def refuse_bad_formulas(tree: Any) -> None:
    """Raise unless every formula in models is made of known operators, inputs and constants."""
    for part in _parts(tree, Formulas):
        for formula in part.trees:
            check_tree(formula, part.n_inputs, len(part.constants))


def refuse_unless_shapes_fit(model: Any) -> None:
    """Raise unless the arrays of a model fit each other; nothing is computed, JAX only traces the shapes."""
    if hasattr(model, "to_law"):
        model.refuse_unreadable()
        return
    with jax.enable_x64(True):
        model = cast(model, jnp.float64)

        def rows(n: int) -> jax.ShapeDtypeStruct:
            return jax.ShapeDtypeStruct((n,), jnp.float64)

        if isinstance(model, Flow):
            _refuse_unless_subnetworks_fit(model)
            y = rows(model.condition_dim) if model.condition_dim else None
            latent, _ = jax.eval_shape(model.forward_one, rows(model.dim), y)
            x, _ = jax.eval_shape(model.inverse_one, rows(model.bijection.dim), y)
            if latent.shape != (model.bijection.dim,) or x.shape != (model.dim,):
                raise ModelFileError(f"its arrays give {latent.shape} and {x.shape}; {REMEDY}")
        elif hasattr(model, "n_inputs"):
            jax.eval_shape(model, rows(model.n_inputs))


def _refuse_unless_subnetworks_fit(flow: Flow) -> None:
    """Tracing lets a width of one or none pass, because such arrays broadcast."""
    n_features = flow.condition_map.n_features if flow.condition_map is not None else 0
    for part in (step for step in flow.steps if isinstance(step, Coupling)):
        halves = part.split, part.dim - part.split
        for network, given, read in ((part.first, *halves), (part.second, *halves[::-1])):
            found = network.stack, network.n_inputs, network.n_outputs
            expected = len(part.transformer.names), read + n_features, given
            if found != expected:
                raise ModelFileError(
                    f"a subnetwork has (stack, inputs, outputs) {found}, expected {expected}; {REMEDY}"
                )


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
    content = {
        "schema": SCHEMA,
        "isr": __version__,
        "primitives": {name: probe(name) for name in sorted(primitives_of((bundle.model, bundle.others)))},
        "bundle": {f.name: encode(getattr(bundle, f.name), tensors, f.name) for f in fields(bundle)},
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
        content = json.loads(json.loads(header)["__metadata__"]["isr"], parse_constant=_refuse_constant)
        schema = content["schema"]
        if isinstance(schema, bool) or not isinstance(schema, int):
            raise ModelFileError(f"its schema version is {schema!r}, not a whole number; {REMEDY}")
        if schema > SCHEMA:
            raise ModelFileError(
                f"it has schema version {schema}, written by isr {content.get('isr')}; this isr {__version__} "
                f"reads up to {SCHEMA}; upgrade isr"
            )
        refuse_unknown_primitives(content["primitives"])
        tensors = safetensors.numpy.load(data)
        source = Source(tensors, schema, max(_FEWEST, len(data) // _BYTES_PER_COUNT))
        with jax.enable_x64(True):  # without it JAX would round doubles to singles
            parts = {name: decode(node, source) for name, node in content["bundle"].items()}
            refuse_wrong_fields(Bundle, parts, source.largest)
        if tensors:
            raise ModelFileError(f"it holds {len(tensors)} arrays that belong to nothing; {REMEDY}")
        bundle = Bundle(**parts)
        refuse_bad_formulas((bundle.model, bundle.others))
        refuse_unless_shapes_fit(bundle.model)
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
        raise ModelFileError(
            f"it is not a model saved by isr, or its beginning is damaged{_guess(data)}; {REMEDY}"
        )
    if length > _LONGEST_HEADER or 8 + length > len(data) or _DIGITS.stop > len(data):
        raise ModelFileError(
            f"the file ends too early ({len(data)} bytes) or its length is damaged; {REMEDY}"
        )
    undigested = bytearray(data)
    undigested[_DIGITS] = _NO_DIGITS
    if hashlib.sha256(undigested).hexdigest().encode() != data[_DIGITS]:
        raise ModelFileError(f"its checksum does not match: the file is damaged or cut short; {REMEDY}")
    return data[8 : 8 + length]


def _guess(data: bytes) -> str:
    if data[:1] == b"\x80" or data[:2] == b"PK":
        return " (it looks like a pickle or a zip file, which isr never opens)"
    return " (it is some other safetensors file)" if data[8:9] == b"{" else ""


def _refuse_constant(text: str) -> None:
    raise ModelFileError(f"it holds the constant {text} where none may stand; {REMEDY}")
