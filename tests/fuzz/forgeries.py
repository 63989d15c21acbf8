"""Forged model files with a right checksum: what a file may hold, twisted; the same for the tests and the long run.

What can be forged is read from what files may hold (`layout.CLASSES` and the types of their fields), so a new kind
of part is tried from the day it is there.
"""

import contextlib
import hashlib
import io
import json
import time
import typing
from importlib import import_module

import jax
import jax.numpy as jnp
import numpy as np
import safetensors.numpy

from isr.bijections.build import Architecture, build_flow
from isr.bijections.charts import Polar
from isr.bijections.flow import Flow
from isr.bijections.formula import Formulas
from isr.bijections.primitives import PRIMITIVES
from isr.cli import main
from isr.inversion.law import Column, Group, Law
from isr.inversion.prior import of_prior
from isr.inversion.record import SavedLaws, of_law, of_prior_law
from isr.posterior.priors import parse_prior
from isr.search.formula import FUNCTIONS, Formula, parse
from isr.storage import Bundle, ModelFileError, from_bytes, layout, to_bytes

CONSTANT = ("add", ("constant", 0), ("mul", ("constant", 1), ("call", "sin", ("input", 0))))
WHOLE = (0, 1, 2, 3, -1, 7, 100, 1000, 10**6, 10**9, 2**63, 10**400)
ODD = (*WHOLE, None, True, 2.5, 1e308, -0.0, "", "a", "nan", "Flow", "sin", "00000", "\x1b[31m", "x" * 5000)


def opened(data: bytes) -> tuple[dict, dict]:
    """Return the structure and the arrays of a file."""
    head = 8 + int.from_bytes(data[:8], "little")
    content = json.loads(json.loads(data[8:head])["__metadata__"]["isr"])
    del content["checksum"]
    return content, safetensors.numpy.load(data)


def forged(content: dict, tensors: dict) -> bytes:
    """Return a file with a right checksum, whatever it holds."""
    text = '{"checksum":"' + "0" * 64 + '",' + json.dumps(content)[1:]
    data = bytearray(safetensors.numpy.save(tensors, metadata={"isr": text}))
    data[layout._DIGITS] = hashlib.sha256(data).hexdigest().encode()
    return bytes(data)


def whole_models() -> list[bytes]:
    """Return a file of a flow, of formulas, of laws and of a flow without numbers of its own."""
    flow = build_flow(
        jax.random.key(0), 2, architecture=Architecture(n_blocks=1, n_layers=1, mixing="linear")
    )
    law = Formulas(jnp.array([1.0, 2.0]), (CONSTANT,), 1, 2)
    column = Column("y", 0, Formula(parse("a**2 + sin(b)", ["a", "b"])), Formula(parse("0.1", [])))
    laws = SavedLaws(
        of_law(Law(("a", "b"), (column,), (Group((0,)),))),
        of_prior_law(of_prior(parse_prior({"a": (0, 1), "b": (0, 1)}), ["a", "b"])),
    )
    return [
        to_bytes(Bundle(flow, x_names=("a", "b"), units={"a": "m"}, metadata={"front": {"nll": [1.0]}})),
        to_bytes(Bundle(law, x_names=("a", "b"), kind="EQLRegressor")),
        to_bytes(Bundle(laws, x_names=("a", "b"), y_names=("y",), kind="Inversion")),
        to_bytes(Bundle(Flow(Polar(jnp.zeros(2), (0, 1), 2)))),
    ]


def places(node, path=()):
    """Every place in nested JSON."""
    parts = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, part in parts:
        yield (*path, key)
        yield from places(part, (*path, key))


def forgery(rng: np.random.Generator, models: list[bytes]) -> bytes:
    """Return one of the models with up to three things changed."""
    content, tensors = opened(models[rng.integers(len(models))])
    for _ in range(rng.integers(1, 4)):
        known = list(places(content["bundle"]))
        *path, last = known[rng.integers(len(known))]
        node = content["bundle"]
        for key in path:
            node = node[key]
        kind = rng.integers(6)
        if kind == 0 and isinstance(node, dict):
            del node[last]
        elif kind == 1:
            node[last] = _part(rng, 4)
        elif isinstance(node[last], str) and kind == 2:
            node[last] = _law(rng, 6)
        elif kind == 3:
            content["bundle"]["model"] = _formulas(rng, tensors) if rng.integers(2) else _part(rng, 6)
        else:
            node[last] = _odd(rng)
    if tensors and not rng.integers(3):
        name = sorted(tensors)[rng.integers(len(tensors))]
        shape = tuple(rng.integers(0, 4, size=rng.integers(0, 4)))
        tensors[name] = np.ones(shape, ("float64", "int64", "bool", "float32")[rng.integers(4)])
    return forged(content, tensors)


def _odd(rng):
    return (
        ODD[rng.integers(len(ODD))] if rng.integers(3) else [ODD[i] for i in rng.integers(len(ODD), size=2)]
    )


def _formulas(rng, tensors):
    tensors.clear()
    tensors["00000"] = np.ones(2)
    trees = [_tree(rng, rng.integers(1, 12)) for _ in range(rng.integers(1, 3))]
    constants = {"array": "00000", "shape": [2], "jax": True}
    fields = {"constants": constants, "trees": {"tuple": trees}, "stack": 1, "n_inputs": 2}
    return {"class": "Formulas", "fields": fields}


def _tree(rng, depth):
    """A tree that follows the grammar nearly everywhere, high and bushy, with wild whole numbers."""
    kinds = ("add", "mul", "pow", "call") if depth > 0 else ("input", "constant", "number")
    kind = kinds[rng.integers(len(kinds))]
    if kind in ("input", "constant"):
        rest = [int(rng.integers(2)) if rng.integers(60) else WHOLE[rng.integers(len(WHOLE))]]
    elif kind == "number":
        rest = [WHOLE[rng.integers(len(WHOLE))] if rng.integers(60) else 2.5]
    elif kind == "pow":
        rest = [
            _tree(rng, depth - 1),
            int(rng.integers(-3, 9)) if rng.integers(20) else WHOLE[rng.integers(len(WHOLE))],
        ]
    elif kind == "call":
        name = sorted(PRIMITIVES)[rng.integers(len(PRIMITIVES))]
        rest = [name, *(_tree(rng, depth - 1) for _ in range(PRIMITIVES[name].arity))]
    else:
        rest = [_tree(rng, depth - 1 - 3 * i) for i in range(rng.integers(1, 4))]
    return {"tuple": [kind, *rest]}


def _law(rng, depth):
    """Text of a law: towers of powers and of functions, and numbers of any size."""
    if depth == 0 or not rng.integers(5):
        return ("a", "b", "7", "2.5", "1e300", "9" * 400, "0", "pi")[rng.integers(8)]
    inner = _law(rng, depth - 1)
    kind = rng.integers(4)
    if kind == 0:
        return f"({inner})**{_law(rng, depth - 2) if depth > 1 else 99}"
    if kind == 1:
        return f"{sorted(FUNCTIONS)[rng.integers(len(FUNCTIONS))]}({inner})"
    return f"({inner}{'+*/-^'[rng.integers(5)]}{_law(rng, depth - 1)})"


def _part(rng, depth):
    """A part of any class that a file may hold, its fields of about the right types."""
    name = sorted(layout.CLASSES)[rng.integers(len(layout.CLASSES))]
    cls = getattr(import_module(layout.CLASSES[name]), name)
    return {"class": name, "fields": {k: _value(rng, hint, depth) for k, hint in typing.get_type_hints(cls).items()
                                      if k in cls.__dataclass_fields__}}  # fmt: skip


def _value(rng, hint, depth):
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint is int or hint is float or not rng.integers(12):
        return WHOLE[rng.integers(len(WHOLE))]
    if origin is tuple:
        many = [arguments[0]] * rng.integers(1, 4) if arguments[-1] is Ellipsis else arguments
        return {"tuple": [_value(rng, own, depth - 1) for own in many]}
    if arguments and origin is not dict:
        return _value(rng, arguments[rng.integers(len(arguments))], depth)
    if hint is bool or hint is type(None):
        return None if hint is type(None) else bool(rng.integers(2))
    return _part(rng, depth - 1) if depth > 0 else _odd(rng)


def judged(data: bytes, folder) -> tuple[str, float]:
    """Return what became of a file, ``"refused"`` or ``"shown"``, and the seconds of processor time it took.

    An accepted one must be shown, or be refused in a sentence.
    """
    begun = time.process_time()
    try:
        from_bytes(data)
    except ModelFileError:
        return "refused", time.process_time() - begun
    path = folder / "forged.isr"
    path.write_bytes(data)
    run_command("show", path)
    return "shown", time.process_time() - begun


def run_command(*arguments) -> tuple[int, str, str]:
    """Run a command; whatever it is given, it ends with a known code and no traceback."""
    out, err, code = io.StringIO(), io.StringIO(), None
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main([str(a) for a in arguments])
        except SystemExit as leave:
            code = leave.code
    assert code in (0, 2, 3, 4), err.getvalue()
    assert "Traceback" not in err.getvalue()
    assert (code == 0) or err.getvalue().splitlines()[-1].startswith("error: ")
    return code, out.getvalue(), err.getvalue()
