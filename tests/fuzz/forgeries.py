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
import warnings
from importlib import import_module

import jax
import jax.numpy as jnp
import numpy as np
import safetensors.numpy

from equations.expression_models import make
from isr.bijections.build import Architecture, build_flow
from isr.bijections.charts import Polar
from isr.bijections.flow import Ensemble, Flow
from isr.bijections.formula import Formulas
from isr.bijections.primitives import PRIMITIVES
from isr.cli import main
from isr.cli.program import FAULT, meaning
from isr.cli.show import describe
from isr.inversion.law import Column, Group, Law
from isr.inversion.parts import Joint, NormalMixture
from isr.inversion.prior import PriorLaw, of_prior
from isr.inversion.record import SavedLaws, of_law, of_prior_law
from isr.motion.law import Channel, MotionLaw
from isr.motion.record import SavedMotion, of_motion
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
    """Return a file of each kind that users save: flows, formulas, laws, laws of motion, ensembles."""
    flow = build_flow(
        jax.random.key(0), 2, architecture=Architecture(n_blocks=1, n_layers=1, mixing="linear")
    )
    formulas = Formulas(jnp.array([1.0, 2.0]), (CONSTANT,), 1, 2)
    uniform = of_prior(parse_prior({"a": (0, 1), "b": (0, 1)}), ["a", "b"])
    mean, noise = Formula(parse("a**2 + sin(b)", ["a", "b"])), Formula(parse("0.1", []))
    law = Law(("a", "b"), (Column("y", 0, mean, noise),), (Group((0,)),))
    several = Law(
        ("a", "b"),
        (
            Column("y", 0, mean, noise),
            Column("w", 1, Formula(parse("a*b", ["a", "b"])), mean, transform="log"),
        ),
        (Group((0, 1), correlation=Formula(parse("0.5", []))),),
        n_y=3,
    )
    rates = ("0.5*m - 0.1*m*n", "-k*n"), ("exp(k)", None)
    motion = MotionLaw(
        ("k",),
        tuple(
            Channel(name, Formula(parse(rate, ["k", "m", "n"])), log=name == "m",
                    start=None if start is None else Formula(parse(start, ["k"])), columns=columns)
            for name, rate, start, columns in zip("mn", *rates, ((0, 2), (1, 3)), strict=True)
        ),
        (0.0, 1.5), y_names=("m0", "n0", "m1", "n1"),
    )  # fmt: skip
    metadata = {"front": {"nll": [1.0], "complexity": [9], "chosen": [True]}, "seed": 3}
    pair = {"x_names": ("a", "b"), "y_names": ("y",)}
    alone = {"x_names": ("a", "b")}
    kept = SavedLaws(of_law(law), of_prior_law(uniform))
    return [
        to_bytes(Bundle(flow, **alone, units={"a": "m"}, metadata={"front": {"nll": [1.0]}})),
        to_bytes(Bundle(formulas, **alone, kind="EQLRegressor")),
        to_bytes(Bundle(kept, **pair, kind="Inversion")),
        to_bytes(Bundle(Flow(Polar(jnp.zeros(2), (0, 1), 2)))),
        to_bytes(Bundle(make("sparse"), kind="SymbolicFlow", metadata=metadata)),
        to_bytes(Bundle(make("linear condenser"), kind="ConditionalISR", others={"front 0": make("joint")})),
        to_bytes(Bundle(make("joint"), kind="ISR", metadata=metadata)),
        to_bytes(Bundle(make("mixture"))),
        to_bytes(Bundle(make("triangular"))),
        to_bytes(Bundle(make("edges"))),
        to_bytes(Bundle(make("spiral"))),
        to_bytes(Bundle(make("leaky ReLU"))),
        to_bytes(Bundle(Ensemble.of((make("polar"), make("tails"), make("bounded")), [0.5, 0.3, 0.2]))),
        to_bytes(
            Bundle(SavedLaws(of_law(several), mixture_of_two()), ("a", "b"), ("y", "w", "v"), kind="Inversion")
        ),
        to_bytes(Bundle(SavedMotion(of_motion(motion)), kind="MotionRegressor")),
        to_bytes(
            Bundle(SavedLaws(of_motion(motion), of_prior_law(of_prior(parse_prior({"k": (0, 1)}), ["k"]))),
                   ("k",), ("m0", "n0", "m1", "n1"), kind="Inversion")
        ),
    ]  # fmt: skip


def mixture_of_two() -> list:
    """A law of x as it is recognised where two variables lie in two clouds."""
    shapes = np.array([[[1.0, 0.3], [0.3, 1.0]], [[0.5, 0.0], [0.0, 2.0]]])
    clouds = NormalMixture(np.array([0.4, 0.6]), np.array([[-3.0, 0.0], [2.0, 1.0]]), shapes)
    return of_prior_law(PriorLaw(("a", "b"), (Joint((0, 1), clouds),)))


def places(node, path=()):
    """Every place in nested JSON."""
    parts = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, part in parts:
        yield (*path, key)
        yield from places(part, (*path, key))


class Forger:
    """Twists whole files: what they hold is read once, and changed in memory; small ones are taken more often."""

    def __init__(self, models: list[bytes]) -> None:
        ease = 1 / np.array([len(data) for data in models])
        self.until = np.cumsum(ease / ease.sum())
        self.models = []
        for data in models:
            content, tensors = opened(data)
            self.models.append((json.dumps(content), tensors, list(places(content["bundle"]))))

    def __call__(self, rng: np.random.Generator) -> bytes:
        """Return one of the models with up to three things changed."""
        text, tensors, known = self.models[np.searchsorted(self.until, rng.random() * self.until[-1])]
        content, tensors = json.loads(text), dict(tensors)
        for _ in range(rng.integers(1, 4)):
            with contextlib.suppress(LookupError, TypeError):  # a place that an earlier change took away
                _twist(rng, content["bundle"], known[rng.integers(len(known))], tensors)
        if tensors and not rng.integers(5):
            name = sorted(tensors)[rng.integers(len(tensors))]
            tensors[name] = _array(rng, tensors[name])
        return forged(content, tensors)


def _twist(rng, bundle, place, tensors):
    *path, last = place
    node = bundle
    for key in path:
        node = node[key]
    kind, old = rng.integers(8), node[last]
    if isinstance(old, str) and kind <= 3:
        words = (*layout.CLASSES, *PRIMITIVES, *_KINDS)
        node[last] = _law(rng, 6) if rng.integers(2) else words[rng.integers(len(words))]
    elif isinstance(old, bool | int | float) and kind <= 4:
        near = (old + 1, old - 1, -old, old // 2, 2 * old, 0, 1, float(rng.normal()), int(rng.integers(5)))
        node[last] = near[rng.integers(len(near))]
    elif isinstance(old, list) and kind <= 3:
        i, j = rng.integers(len(old) + 1, size=2)
        node[last] = (old[:i], old + old[i:j], old[::-1], old[i:])[rng.integers(4)]
    elif kind == 4 and isinstance(node, dict):
        del node[last]
    elif kind == 5 and not rng.integers(3):
        node[last] = _part(rng, 4)
    elif kind == 6 and not rng.integers(3):
        bundle["model"] = _formulas(rng, tensors) if rng.integers(2) else _part(rng, 6)
    else:
        node[last] = _odd(rng)


_KINDS = (
    "normal", "t", "poisson", "binomial(9)", "lognormal", "uniform", "log", "exp", "square", "affine", "function",
)  # fmt: skip


def _array(rng, old):
    """Another array, or one of the same shape and type with odd numbers in it."""
    if rng.integers(2) and old.size:
        values = np.array([np.nan, np.inf, -np.inf, 0.0, -1.0, 1e308, 1e-308, 0.5, 3.0])
        with np.errstate(all="ignore"):
            odd = values[rng.integers(len(values), size=old.shape)].astype(old.dtype)
        return np.where(rng.random(old.shape) < rng.choice([0.1, 1.0]), odd, old)
    shape = tuple(rng.integers(0, 4, size=rng.integers(0, 4)))
    return np.ones(shape, ("float64", "int64", "bool", "float32")[rng.integers(4)])


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
    return {"class": name, "fields": {k: _value(rng, hint, depth) for k, hint in layout.hints_of(cls).items()
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


def judged(data: bytes, path=None) -> tuple[str, float]:
    """Return what became of a file, ``"refused"`` or ``"shown"``, and the seconds of processor time it took.

    An accepted one must be shown, or be refused in a sentence; by the whole command line where there is a path.
    """
    begun, warning = time.process_time(), warnings.catch_warnings()
    try:
        bundle = from_bytes(data)
        if path is not None:
            path.write_bytes(data)
            run_command("show", path)
        else:
            with warning, contextlib.redirect_stdout(io.StringIO()):
                warnings.simplefilter("ignore")
                describe(bundle, "forward")
    except ModelFileError:
        return "refused", time.process_time() - begun
    except Exception as error:
        if meaning(error) == FAULT:
            raise
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
