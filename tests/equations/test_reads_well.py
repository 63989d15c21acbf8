"""Equations read as a scientist writes them, and mean the same in every language, at the edges too."""

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

from isr.equations import Expressions
from isr.equations.expressions import _run
from isr.equations.extract import function_program
from isr.tables.names import symbol_names


def equations(function, x_names, y_name="out"):
    """The equations of a JAX function of one vector."""
    names = symbol_names([*x_names, y_name])
    *x, y = (sympy.Symbol(name, real=True) for name in names)
    labels = dict(zip(names, (*x_names, y_name), strict=True))
    return Expressions(function_program(function, x, [y], labels), None, tuple(x_names), (y_name,))


READ = {
    "a root": (lambda v: jnp.abs(v[0]) ** 1.5, ["a"], "|a|^(3/2)", r"\left|{a}\right|^{\frac{3}{2}}"),
    "a cube root": (lambda v: jnp.cbrt(v[0]), ["a"], "∛(|a|)·sign(a)", r"\sqrt[3]{\left|{a}\right|}"),
    "an angle": (lambda v: jnp.arctan2(v[0], v[1]), ["a", "b"], "atan2(a, b)", r"\operatorname{atan2}\left(a, b"),
    "a length": (lambda v: jnp.hypot(v[0], v[1]), ["x", "y"], "√(x² + y²)", r"\sqrt{x^{2} + y^{2}}"),
    "many variables": (lambda v: jnp.sum(v), [f"x{i}" for i in range(1, 11)], "x₉ + x₁₀", "x_{9} + x_{10}"),
    "Greek letters": (lambda v: v[0] * v[1], ["ρ", "Δt"], "Δt·ρ", r"\Delta t \rho"),
    "a squared name": (lambda v: v[0] ** 2 + 1, ["σ²"], "(σ²)²", r"\left(\sigma^{2}\right)^{2}"),
    "words": (lambda v: v[0] * v[1], ["depth", "speed"], "depth·speed", r"\mathrm{depth} \cdot \mathrm{speed}"),
    "free text": (lambda v: 2 * v[0], ["p (Pa)"], "2·p_Pa", r"2 \, \text{p (Pa)}"),
    "a tiny number": (lambda v: -1.5e-12 * v[0], ["x"], "−1.5·10⁻¹²·x", r"- 1.5 \cdot 10^{-12} x"),
    "cases": (
        lambda v: jnp.where(v[0] > 1, 1.0, jnp.where(v[0] <= -1, -1.0, v[0])), ["x"],
        "{1 if x > 1, −1 if x ≤ −1, else x}", r"-1 & \text{for}\: x \leq -1",
    ),
    "softplus": (lambda v: jax.nn.softplus(v[0]), ["x"], "ln(1 + exp(x))", r"\ln{\left(1 + e^{x} \right)}"),
}  # fmt: skip


@pytest.mark.parametrize("case", READ)
def test_an_equation_reads_as_a_scientist_writes_it(case):
    function, names, text, latex = READ[case]
    found = equations(function, names)
    assert text in found.text(unicode=True)
    assert latex in found.latex()


def test_powers_of_e_do_not_go_below_a_fraction_in_mathml():
    found = equations(lambda v: v[0] ** 2 * jnp.exp(-v[0]), ["x"]).mathml()
    assert "<mfrac>" not in found
    assert found.count("<msup>") == 2


EDGES = [0.0, 1e-300, -1e-300, 1e-9, -1e-9, 0.5, -2.5, 700.0, -700.0, 1e8, -1e8, np.inf, -np.inf, np.nan]
EXACT = {
    "softplus": lambda v: jax.nn.softplus(v[0]),
    "log1p": lambda v: jnp.log1p(v[0]),
    "expm1": lambda v: jnp.expm1(v[0]),
    "cbrt": lambda v: jnp.cbrt(v[0]),
    "sigmoid": lambda v: jax.nn.sigmoid(v[0]),
    "remainder": lambda v: jnp.mod(jnp.clip(v[0], -1e3, 1e3), 2.0),
    "cases": lambda v: jnp.where((v[0] > 0) & ~(v[0] > 600), v[0], -v[0]),
}


@pytest.mark.parametrize("name", EXACT)
def test_every_language_gives_the_functions_numbers_at_the_edges(name, tmp_path):
    rows = np.array(EDGES)
    expected = np.asarray(jax.vmap(EXACT[name])(jnp.asarray(rows)[:, None]))
    law = equations(EXACT[name], ["x"])
    module = _run(law.code("python"), {})
    with np.errstate(all="ignore"):
        assert_allclose(law.evaluate("forward", rows[:, None])[0][:, 0], expected, rtol=1e-9, atol=0)
        assert_allclose(np.broadcast_to(module["out"](rows), rows.shape), expected, rtol=1e-9, atol=0)
    assert_allclose(jax.vmap(law.to_jax().out)(jnp.asarray(rows)), expected, rtol=1e-9, atol=0)
    if shutil.which("cc"):
        (tmp_path / "law.c").write_text(law.code("c"))
        subprocess.run(["cc", "-shared", "-fPIC", "law.c", "-o", "law.so", "-lm"], cwd=tmp_path, check=True)
        function = ctypes.CDLL(str(tmp_path / "law.so")).out
        function.restype, function.argtypes = ctypes.c_double, [ctypes.c_double]
        assert_allclose([function(v) for v in EDGES], expected, rtol=1e-9, atol=0)
    if shutil.which("node"):
        (tmp_path / "law.mjs").write_text(law.code("js"))
        values = ", ".join(f"m.out({v})".replace("inf", "Infinity").replace("nan", "NaN") for v in EDGES)
        (tmp_path / "main.mjs").write_text(
            f'import * as m from "./law.mjs";\nconsole.log(JSON.stringify([{values}].map(String)));\n'
        )
        done = subprocess.run(["node", "main.mjs"], cwd=tmp_path, check=True, capture_output=True, text=True)
        found = [float(v) for v in json.loads(done.stdout)]
        assert_allclose(found, expected, rtol=1e-9, atol=0)
