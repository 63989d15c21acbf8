"""The equations of a regressor are the same object as those of a flow, without inverse and density."""

import copy
import ctypes
import json
import shutil
import subprocess

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import sympy
from numpy.testing import assert_allclose

from equations.expression_models import make
from isr.bijections.formula import Formulas
from isr.equations import Expressions, check, expressions, extract
from isr.equations.expressions import _run

# Names that C, JavaScript or Python know as something else.
X_NAMES, Y_NAMES = ("sin", "p (Pa)"), ("y1", "gamma")
PUBLIC = ["text", "latex", "mathml", "code", "evaluate", "complexity", "n_constants", "composed",
          "to_jax", "_repr_html_", "_repr_latex_"]  # fmt: skip


def law():
    trees = (
        ("add", ("mul", ("constant", 0), ("pow", ("input", 0), 2)), ("call", "sigmoid", ("input", 1))),
        ("mul", ("constant", 1), ("call", "sin", ("input", 0)), ("pow", ("input", 1), 3)),
    )
    return Formulas(jnp.array([2.5, -0.123456789]), trees, 1, 2)


@pytest.fixture(scope="module")
def equations():
    return extract(law(), X_NAMES, Y_NAMES, {"sin": "m"})


@pytest.fixture(scope="module")
def rows():
    return np.random.default_rng(0).normal(size=(40, 2))


@pytest.fixture(scope="module")
def expected(rows):
    return np.asarray(law().columns(jnp.asarray(rows.T))[0]).T


@pytest.mark.parametrize("name", PUBLIC)
def test_regressors_and_flows_offer_the_same(name, equations):
    assert type(equations) is type(extract(make("formulas"))) is Expressions
    assert hasattr(equations, name)


def test_equations_give_the_models_numbers(equations, rows, expected):
    found, log_det = equations.evaluate("forward", rows)
    assert log_det is None
    assert_allclose(found, expected, rtol=1e-12)
    functions = equations.to_jax()
    assert_allclose(jax.vmap(functions.y1)(*rows.T), expected[:, 0], rtol=1e-12)
    assert_allclose(jax.vmap(functions.gamma_)(*rows.T), expected[:, 1], rtol=1e-12)
    assert check(law(), equations, rows=rows).passed
    assert not check(law(), extract(Formulas(jnp.array([2.6, 1.0]), law().trees, 1, 2))).passed


def test_as_a_sequence_they_are_the_expressions_of_the_outputs(equations):
    a, b = equations.forward.inputs
    first, second = equations
    assert len(equations) == 2
    assert equations[1] == second == sympy.Float(-0.123456789) * sympy.sin(a) * b**3
    assert first == 2.5 * a**2 + 1 / (1 + sympy.exp(-b))
    assert list(extract(make("formulas"))) == list(extract(make("formulas")).composed().outputs)


def test_an_inverse_is_refused_in_words(equations):
    for ask in (
        lambda: equations.text("inverse"),
        lambda: equations.evaluate("inverse", np.zeros((1, 2))),
        lambda: equations.log_det,
    ):
        with pytest.raises(
            ValueError, match=r"a regressor's formulas give y from x alone; they have no inverse"
        ):
            ask()


def test_print_says_no_log_determinant(equations):
    for printed in (
        equations.text(),
        equations.latex(),
        equations.mathml(),
        equations._repr_html_(),
        str(equations),
    ):
        assert "log_det" not in printed
        assert "det" not in printed.replace("\\det", "det").split("Units")[0]


def test_a_copy_leaves_compiled_functions_behind(equations, rows):
    equations.evaluate("forward", rows)
    again = copy.copy(equations)
    assert "_compiled" not in again.__dict__
    assert_allclose(again.evaluate("forward", rows)[0], equations.evaluate("forward", rows)[0])


@pytest.mark.parametrize(
    "aliases", [("js", "javascript", "JavaScript"), ("c", "c99"), ("python", "numpy", "py"), ("jax",)]
)
def test_aliases_of_languages_are_the_same_for_both_kinds(aliases, equations):
    for kind in (equations, extract(make("formulas"))):
        assert len({kind.code(name) for name in aliases}) == 1


def test_an_unknown_language_is_refused(equations):
    with pytest.raises(ValueError, match="no code for language 'rust'; known: c, javascript, jax, python"):
        equations.code("rust")


def test_python_and_jax_functions_take_columns_and_numbers(equations, rows, expected):
    for language in ("python", "jax"):
        module = _run(equations.code(language), {})
        found = np.stack([module[name](*rows.T) for name in ("y1", "gamma_")], axis=1)
        assert_allclose(found, expected, rtol=1e-12)


def test_a_source_that_is_run_here_holds_no_text_of_a_user(monkeypatch):
    seen = []
    monkeypatch.setattr(expressions, "_run", lambda source, names: seen.append(source) or _run(source, names))
    names, units = ("bad\n raise SystemExit", "b"), {"b": "m\n raise SystemExit"}
    extract(law(), names, ("c", "d"), units).to_jax()
    flow = extract(make("formulas"), names, units=units)
    flow.to_jax()
    flow.evaluate("forward", np.zeros((1, 2)))
    assert len(seen) == 3
    assert not any("raise SystemExit" in source for source in seen)
    assert "raise SystemExit" in flow.code("jax")  # in a comment


def test_c_functions_take_numbers(equations, rows, expected, tmp_path):
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler on PATH")
    (tmp_path / "law.c").write_text(equations.code("c"))
    flags = [
        "-std=c99",
        "-pedantic",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-shared",
        "-fPIC",
        "law.c",
        "-o",
        "law.so",
        "-lm",
    ]
    subprocess.run([compiler, *flags], cwd=tmp_path, check=True)
    library = ctypes.CDLL(str(tmp_path / "law.so"))
    for i, name in enumerate(("y1_", "gamma_")):
        function = getattr(library, name)
        function.restype, function.argtypes = ctypes.c_double, [ctypes.c_double] * 2
        assert_allclose([function(*row) for row in rows], expected[:, i], rtol=1e-12)


def test_javascript_functions_take_numbers(equations, rows, expected, tmp_path):
    if shutil.which("node") is None:
        pytest.skip("no node on PATH")
    (tmp_path / "law.mjs").write_text(equations.code("js"))
    calls = ", ".join(f"[m.y1({a!r}, {b!r}), m.gamma_({a!r}, {b!r})]" for a, b in rows.tolist())
    (tmp_path / "main.mjs").write_text(
        f'import * as m from "./law.mjs";\nconsole.log(JSON.stringify([{calls}]));\n'
    )
    done = subprocess.run(["node", "main.mjs"], cwd=tmp_path, check=True, capture_output=True, text=True)
    assert_allclose(json.loads(done.stdout), expected, rtol=1e-12)
