"""Saving and loading changes nothing, and a file that is not as it was written is refused in words."""

import hashlib
import io
import json
import os
import pickle
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
import safetensors.numpy
from numpy.testing import assert_array_equal
from pandas.testing import assert_frame_equal

import isr
from equations.expression_models import MODELS, make
from isr.bijections.build import Architecture, build_flow
from isr.bijections.formula import Formulas, check_tree, evaluate
from isr.bijections.networks import build_eql, build_mlp
from isr.bijections.parameters import cast
from isr.bijections.primitives import PRIMITIVES, register_primitive
from isr.storage import (
    SCHEMA,
    Bundle,
    ModelFileError,
    from_bytes,
    layout,
    load,
    save,
    to_bytes,
)


@pytest.fixture(scope="module")
def bundle():
    return Bundle(
        make("conditional"),
        x_names=("length", "mass (kg)", "θ", "sin"),
        y_names=("depth", "speed"),
        units={"depth": "m"},
        kind="ConditionalISR",
        metadata={
            "seed": 3, "note": 'quotes " and \\ and \u2028', "loss": float("nan"), "limits": (-np.inf, 1.5),
            "front": {"nll": np.array([1.0, 2.0]), "chosen": [True, False]}, "sha256": "0" * 64, "none": None,
        },
        others={"simpler": build_eql(jax.random.key(1), 2, 1)},
    )  # fmt: skip


@pytest.fixture(scope="module")
def data(bundle):
    return to_bytes(bundle)


def assert_same_tree(first, second):
    assert jax.tree.structure(first) == jax.tree.structure(second)
    for a, b in zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True):
        assert type(a) is type(b)
        assert np.asarray(a).dtype == np.asarray(b).dtype
        assert np.asarray(a).tobytes() == np.asarray(b).tobytes()


@pytest.mark.parametrize("name", MODELS)
def test_a_flow_comes_back_bit_for_bit(name):
    flow = make(name)
    data = to_bytes(Bundle(flow))
    assert_same_tree(from_bytes(data).flow, flow)
    assert to_bytes(from_bytes(data)) == data


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_precision_is_kept_whatever_the_reader_prefers(dtype):
    flow = cast(make("one block"), dtype)
    with jax.enable_x64(False):
        assert_same_tree(from_bytes(to_bytes(Bundle(flow))).flow, flow)


@pytest.mark.parametrize("build", [build_eql, build_mlp])
def test_a_subnetwork_alone_is_saved_too(build, tmp_path):
    network = build(jax.random.key(0), 3, 2)
    loaded = load(save(network, tmp_path / "network.isr"))
    assert_same_tree(loaded.model, network)
    with pytest.raises(
        TypeError, match=r"this (eql|mlp) of x1, x2, x3, .* has no sample; it has only \.model"
    ):
        loaded.sample(3)
    with pytest.raises(TypeError, match=r"holds a (EQL|MLP), not a flow; see \.model"):
        _ = loaded.flow


def test_everything_around_the_model_comes_back(bundle, tmp_path):
    loaded = load(save(bundle, tmp_path / "arm.isr"))
    for name in ("x_names", "y_names", "units", "kind"):
        assert getattr(loaded, name) == getattr(bundle, name)
    assert np.isnan(loaded.metadata["loss"])
    assert loaded.metadata["limits"] == (-np.inf, 1.5)
    assert_array_equal(loaded.metadata["front"]["nll"], [1.0, 2.0])
    assert isinstance(loaded.metadata["front"]["nll"], np.ndarray)
    same = [key for key in bundle.metadata if key not in ("loss", "front")]
    assert {k: loaded.metadata[k] for k in same} == {k: bundle.metadata[k] for k in same}
    assert_same_tree(loaded.others["simpler"], bundle.others["simpler"])


def test_a_file_tells_of_the_fit_as_frames(tmp_path):
    history = {"epoch": np.array([1, 2]), "phase": ["warm up", "refit"], "train": np.array([np.nan, 1.0])}
    front = {"complexity": [3, 9], "nll": [2.0, 1.0], "chosen": [False, True]}
    constants = {"errors": np.array([0.1, np.nan]), "labels": {"1": "1/2"}}
    metadata = {"history": history, "front": front, "constants": constants}
    loaded = load(save(Bundle(make("one block"), metadata=metadata), tmp_path / "m.isr"))
    assert_frame_equal(loaded.history, pd.DataFrame(history))
    assert_frame_equal(loaded.front, pd.DataFrame(front))
    assert_array_equal(loaded.errors, [0.1, np.nan])
    assert loaded.labels == {1: "1/2"}


def test_a_file_of_the_first_schema_without_errors_and_history_loads():
    loaded = load(Path(__file__).parent / "saved" / "law-schema-1.isr")
    assert (loaded.kind, loaded.metadata["equations"]) == ("EQLRegressor", ["2*x1**2"])
    assert loaded.expressions.text() == "y = 2*x1**2"
    assert list(loaded.front["chosen"]) == [True]
    assert (loaded.history, loaded.errors, loaded.labels) == (None, None, {})


def test_weights_that_are_not_finite_come_back_only_where_they_were_saved():
    flow = make("linear")
    broken = eqx.tree_at(lambda f: f.bijection.bijections[0].matrix, flow, jnp.full((3, 3), jnp.nan))
    assert_same_tree(from_bytes(to_bytes(Bundle(broken))).flow, broken)


def test_metadata_given_on_saving_is_added(bundle, tmp_path):
    loaded = load(save(bundle, tmp_path / "arm.isr", metadata={"seed": 4, "more": 1}))
    assert loaded.metadata["seed"] == 4
    assert loaded.metadata["more"] == 1
    assert loaded.metadata["sha256"] == "0" * 64


def test_anything_with_a_bundle_can_be_saved(bundle, tmp_path):
    class Estimator:
        def to_bundle(self):
            return bundle

    assert load(save(Estimator(), tmp_path / "arm.isr")).kind == "ConditionalISR"


def test_loading_in_a_fresh_process_needs_no_training_code(tmp_path):
    flow = build_flow(jax.random.key(0), 2, architecture=Architecture(n_blocks=1, n_layers=1))
    path = isr.save(Bundle(flow, x_names=("length", "angle")), tmp_path / "model.isr")
    code = (
        "import sys, isr, numpy as np\n"
        "saved = isr.load(sys.argv[1])\n"
        "np.save(sys.argv[2], saved.sample(5, seed=3))\n"
        "print(saved.expressions)\n"
        "heavy = ('isr.training', 'isr.formulas.refit', 'isr.estimators', 'optax', 'matplotlib', 'arviz', 'numba')\n"
        "print('LOADED', [m for m in sys.modules if m in heavy])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(path), str(tmp_path / "x.npy")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "LOADED []" in done.stdout
    assert "angle" in done.stdout
    assert_array_equal(np.load(tmp_path / "x.npy"), flow.sample(jax.random.key(3), 5))


LAW = Formulas(jnp.array([2.0]), (("mul", ("constant", 0), ("input", 0)),), 1, 1)
KINDS = {
    "density": (lambda: build_flow(jax.random.key(0), 2), {"sample", "score_samples"}),
    "conditional": (lambda: make("conditional"), {"posterior", "sample", "score_samples"}),
    "joint": (lambda: make("joint"), {"posterior", "predict", "sample", "score_samples"}),
    "formulas": (lambda: LAW, {"predict"}),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_loaded_model_does_what_its_kind_allows_and_says_what_that_is(kind, tmp_path):
    build, abilities = KINDS[kind]
    saved = load(save(build(), tmp_path / "model.isr"))
    x, y = np.full((3, len(saved.x_names)), 0.1), np.full(len(saved.y_names), 0.2)
    calls = {
        "posterior": lambda: saved.posterior(y).sample(5).shape == (5, len(saved.x_names)),
        "predict": lambda: saved.predict(x).shape == (3, len(saved.y_names)),
        "sample": lambda: saved.sample(4, y if len(y) else None).shape == (4, len(saved.x_names)),
        "score_samples": lambda: saved.score_samples(x, y[None] if len(y) else None).shape == (3,),
    }
    assert set(saved.abilities) == abilities
    for name, call in calls.items():
        if name in abilities:
            assert call()
        else:
            with pytest.raises(TypeError, match=f"has no {name}; it has .*{saved.abilities[-1]}"):
                call()


def test_a_loaded_model_takes_rows_as_its_estimator_does(tmp_path):
    saved = load(save(Bundle(LAW, ("length",), ("area",)), tmp_path / "law.isr"))
    assert saved.predict(pd.DataFrame({"length": [3.0]})).tolist() == [[6.0]]
    with pytest.raises(ValueError, match="missing 'length', unexpected 'width'"):
        saved.predict(pd.DataFrame({"width": [3.0]}))


def test_a_thousand_damaged_bytes_are_each_refused(data):
    rng = np.random.default_rng(0)
    head = 8 + int.from_bytes(data[:8], "little")
    places = np.concatenate(
        [np.arange(150), rng.integers(150, head, 450), rng.integers(head, len(data), 400)]
    )
    for place in places:
        damaged = bytearray(data)
        damaged[place] ^= rng.integers(1, 256)
        with pytest.raises(ModelFileError, match="damaged"):
            from_bytes(bytes(damaged))


def test_every_truncation_and_addition_is_refused(data):
    head = 8 + int.from_bytes(data[:8], "little")
    lengths = {
        *range(200),
        *range(head - 20, head + 20),
        *range(0, len(data), len(data) // 50),
        len(data) - 1,
    }
    for length in sorted(lengths):
        with pytest.raises(ModelFileError, match=r"restore it from a backup or save the model again"):
            from_bytes(data[:length])
    for more in (b"\0", b"{}", data):
        with pytest.raises(ModelFileError, match="checksum does not match"):
            from_bytes(data + more)


def forged(change):
    """A file with a right checksum whose content was changed by ``change``."""
    data = to_bytes(Bundle(make("linear")))
    head = 8 + int.from_bytes(data[:8], "little")
    content = json.loads(json.loads(data[8:head])["__metadata__"]["isr"])
    tensors = safetensors.numpy.load(data)
    change(content, tensors)
    del content["checksum"]
    text = '{"checksum":"' + "0" * 64 + '",' + json.dumps(content)[1:]
    new = bytearray(safetensors.numpy.save(tensors, metadata={"isr": text}))
    new[layout._DIGITS] = hashlib.sha256(new).hexdigest().encode()
    return bytes(new)


def deep(content, tensors):
    node = 1
    for _ in range(300):
        node = [node]
    content["bundle"]["metadata"] = node


def narrow(content, tensors):
    """Cut a column off the first layer of a subnetwork; its description stays."""
    name = next(name for name in sorted(tensors) if tensors[name].shape[-1] == 1 and tensors[name].ndim == 3)
    tensors[name] = tensors[name][..., :-1].copy()
    return name


def narrow_and_said(content, tensors):
    name = narrow(content, tensors)

    def change(node):
        if isinstance(node, dict) and node.get("array") == name:
            node["shape"] = list(tensors[name].shape)
        for part in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
            change(part)

    change(content)


FORGERIES = {
    "newer": (
        lambda c, t: c.update(schema=SCHEMA + 1, isr="9.9"),
        rf"schema version {SCHEMA + 1}, written by isr 9\.9.*upgrade isr",
    ),
    "schema of text": (lambda c, t: c.update(schema="1"), "not a whole number"),
    "unknown class": (
        lambda c, t: c["bundle"]["model"].update({"class": "os.system"}),
        "'os.system', which this isr",
    ),
    "missing field": (lambda c, t: c["bundle"]["model"]["fields"].pop("noise"), "has the fields"),
    "missing array": (lambda c, t: t.pop("00000"), "not that of a model"),
    "spare array": (lambda c, t: t.update(spare=np.ones(2)), "belong to nothing"),
    "narrow array": (narrow, "not as described"),
    "array that does not fit": (narrow_and_said, "a subnetwork has|not that of a model"),
    "deep nesting": (deep, "levels deep"),
    "not a model": (lambda c, t: c["bundle"].update(model=3), "the model of its Bundle is 3, not Module"),
    "no bundle": (lambda c, t: c.pop("bundle"), "not that of a model"),
    "NaN in the open": (lambda c, t: c["bundle"].update(metadata=float("nan")), "the constant NaN"),
    "unknown primitive": (
        lambda c, t: c["primitives"].update(wobble=[1.0] * 4),
        r"primitive\(s\) wobble, which",
    ),
    "other primitive": (
        lambda c, t: c["primitives"].update(sin=[1.0] * 4),
        "'sin' known here is not the function",
    ),
}


@pytest.mark.parametrize("name", FORGERIES)
def test_a_file_with_a_right_checksum_and_wrong_content_is_refused(name):
    change, message = FORGERIES[name]
    with pytest.raises(ModelFileError, match=message):
        from_bytes(forged(change))


BAD_TREES = {
    "an unknown operator": (("plus", ("input", 0), ("input", 1)), "'plus', which is no operator"),
    "a missing input": (("input", 7), "refers to input .*, but there are 2"),
    "a missing constant": (("constant", 1), "refers to constant .*, but there are 1"),
    "a fraction as exponent": (("pow", ("input", 0), 0.5), "a whole exponent"),
    "a tower of powers": (("pow", ("pow", ("pow", ("number", 7), 30), 30), 30), "powers up to 27000"),
    "a huge power": (("pow", ("number", 7), 10**9), "beyond 1000"),
    "an infinite number": (("number", float("inf")), "beyond 1e.300"),
    "text as a number": (("number", "2"), "which is none"),
    "too many arguments": (("call", "sin", ("input", 0), ("input", 1)), "does not take"),
    "no operator": ((), "where an operator"),
}


@pytest.mark.parametrize("name", BAD_TREES)
def test_a_file_with_a_formula_that_is_none_is_refused(name):
    tree, message = BAD_TREES[name]
    formulas = Formulas(jnp.array([2.0]), (("input", 0),), 1, 2)
    with pytest.raises(ValueError, match=message):
        check_tree(tree, formulas.n_inputs, len(formulas.constants))


def test_the_formulas_of_every_model_in_a_file_are_checked():
    tower = replace(LAW, trees=(("pow", ("number", 7), 10**9),))
    with pytest.raises(ModelFileError, match="beyond 1000"):
        from_bytes(to_bytes(Bundle(LAW, others={"front 0": tower})))


def test_a_number_in_a_formula_prints_as_it_computes():
    tree = ("mul", ("number", 2.5), ("input", 0))
    formulas = from_bytes(to_bytes(Bundle(Formulas(jnp.zeros(0), (tree,), 1, 1)))).model
    assert float(formulas(jnp.array([2.0]))[0, 0]) == 5.0
    assert evaluate(formulas.trees[0], np.array([2.0]), np.zeros(0)) == 5.0


def test_a_primitive_of_ones_own_must_be_registered_before_loading(tmp_path):
    register_primitive("bump", lambda g: jnp.exp(-g * g))
    try:
        flow = build_flow(
            jax.random.key(0), 2, architecture=Architecture(n_blocks=1, n_layers=1, library=["id", "bump"])
        )
        path = save(flow, tmp_path / "bump.isr")
        assert_same_tree(load(path).flow, flow)
        del PRIMITIVES["bump"]
        with pytest.raises(ModelFileError, match=r"needs the primitive\(s\) bump.*register_primitive"):
            load(path)
        register_primitive("bump", lambda g: jnp.exp(-2 * g * g))
        with pytest.raises(ModelFileError, match="'bump' known here is not the function"):
            load(path)
    finally:
        PRIMITIVES.pop("bump", None)


def zip_file():
    buffer = io.BytesIO()
    np.savez(buffer, x=np.ones(3))
    return buffer.getvalue()


FOREIGN = {
    "empty": (lambda: b"", "the file is empty"),
    "text": (lambda: b"this is a text of some length, and no model at all, whatever its name may say", "not a model"),
    "pickle": (lambda: pickle.dumps({"w": list(range(100))}), "looks like a pickle"),
    "zip": (zip_file, "looks like a pickle or a zip file"),
    "safetensors": (lambda: safetensors.numpy.save({"w": np.ones(9)}, {"format": "pt"}), "other safetensors file"),
    "header beyond the end": (lambda: (10**15).to_bytes(8, "little") + layout._PREFIX + b"0" * 99, "ends too early"),
}  # fmt: skip


@pytest.mark.parametrize("name", FOREIGN)
def test_a_foreign_file_is_refused(name, tmp_path):
    content, message = FOREIGN[name]
    path = tmp_path / "model.isr"
    path.write_bytes(content())
    with pytest.raises(ModelFileError, match=message) as error:
        load(path)
    assert str(path) in str(error.value)


def test_a_folder_and_a_missing_file_are_named(tmp_path, bundle):
    with pytest.raises(ModelFileError, match="is a folder"):
        load(tmp_path)
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "nothing.isr")
    with pytest.raises(IsADirectoryError, match="is a folder"):
        save(bundle, tmp_path)
    with pytest.raises(FileNotFoundError, match="does not exist; create it first"):
        save(bundle, tmp_path / "no" / "model.isr")


@pytest.mark.parametrize("step", ["open", "fsync", "replace"])
def test_a_failed_save_leaves_the_old_file_and_nothing_else(bundle, tmp_path, monkeypatch, step):
    path = save(make("one block"), tmp_path / "model.isr")
    before = path.read_bytes()

    def fail(*arguments, **options):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, step, fail)
    with pytest.raises(PermissionError):
        save(bundle, path)
    monkeypatch.undo()
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_a_new_file_replaces_the_old_in_one_step(bundle, tmp_path, monkeypatch):
    path = save(make("one block"), tmp_path / "model.isr")
    before, replaced = path.read_bytes(), []

    def replace(source, target, real=os.replace):
        assert path.read_bytes() == before
        assert from_bytes(source.read_bytes()).kind == "ConditionalISR"
        replaced.append(target)
        real(source, target)

    monkeypatch.setattr(os, "replace", replace)
    save(bundle, path)
    assert replaced == [path]
    assert load(path).kind == "ConditionalISR"


def test_an_existing_file_is_kept_when_asked(bundle, tmp_path):
    path = save(bundle, tmp_path / "model.isr", overwrite=False)
    with pytest.raises(FileExistsError, match="exists already"):
        save(bundle, path, overwrite=False)


def test_what_cannot_be_saved_is_named(bundle, tmp_path):
    class Stranger(eqx.Module):
        weight: jax.Array

    with pytest.raises(TypeError, match="cannot save a dict"):
        save({}, tmp_path / "x.isr")
    with pytest.raises(TypeError, match="cannot save model: a Stranger is no plain data"):
        save(Stranger(jnp.ones(2)), tmp_path / "x.isr")
    with pytest.raises(TypeError, match=r"metadata\.when: a object"):
        save(bundle, tmp_path / "x.isr", metadata={"when": object()})
    with pytest.raises(TypeError, match="keys must be text"):
        save(bundle, tmp_path / "x.isr", metadata={"front": {1: 2}})
    with pytest.raises(TypeError, match="arrays of complex128"):
        save(bundle, tmp_path / "x.isr", metadata={"field": np.ones(2, complex)})
    assert list(tmp_path.iterdir()) == []


def test_names_that_do_not_fit_the_model_are_refused():
    flow = make("one block")
    with pytest.raises(ValueError, match="x has 2 variables, but 1 names"):
        Bundle(flow, x_names=("a",))
    with pytest.raises(ValueError, match="duplicate names"):
        Bundle(flow, x_names=("a", "a"))
    with pytest.raises(ValueError, match=r"units name \['c'\]"):
        Bundle(flow, x_names=("a", "b"), units={"c": "m"})


def test_every_class_of_the_list_exists():
    for name in layout.CLASSES:
        assert issubclass(layout._class(name), eqx.Module)
