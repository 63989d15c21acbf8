"""The layout of a file: a safetensors header with the structure as JSON, its checksum first, then the arrays."""

from __future__ import annotations

import hashlib
import json
from dataclasses import fields

import jax
import numpy as np
import safetensors.numpy

from isr import __version__
from isr.storage.bundle import REMEDY, Bundle, ModelFileError
from isr.storage.requirements import (
    primitives_of,
    probe,
    refuse_bad_formulas,
    refuse_unknown_primitives,
    refuse_unless_shapes_fit,
)
from isr.storage.structure import decode, encode
from isr.storage.upgrades import SCHEMA

# The file begins with 8 bytes of header length, then exactly this; the checksum's 64 digits follow.
_PREFIX = rb'{"__metadata__":{"isr":"{\"checksum\":\"'
_DIGITS = slice(8 + len(_PREFIX), 8 + len(_PREFIX) + 64)
_NO_DIGITS = b"0" * 64
_LONGEST_HEADER = 100_000_000


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
        with jax.enable_x64(True):  # without it JAX would round doubles to singles
            parts = {name: decode(node, tensors, schema) for name, node in content["bundle"].items()}
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
