"""Solving a law for x: re-simulated to rounding, and distributed as exact samplers and quadrature have it."""

import json
import runpy
import shutil
import subprocess
from itertools import product

import numpy as np
import pandas as pd
import pytest
import sympy
from numpy.testing import assert_allclose
from scipy import stats

import isr
from isr.inversion.isolate import TURNS, isolate
from isr.problems import kinematics as arm

ARM_LAW = {
    "vertical": "height + 0.5*sin(angle1) + 0.5*sin(angle1 + angle2) + sin(angle1 + angle2 + angle3)",
    "horizontal": "0.5*cos(angle1) + 0.5*cos(angle1 + angle2) + cos(angle1 + angle2 + angle3)",
}
X, A, B = sympy.symbols("x a b", real=True)


@pytest.mark.parametrize(
    "text",
    ["a + 2*exp(b*x)", "a/(x + b)", "x**2 + a*x", "b*sqrt(x)", "sin(2*x + a)", "cos(x) - b*sin(x + a)", "log(x)*a",
     "tanh(x)/b", "(x + a)**3", "Abs(x - a)", "a**x", "x**sqrt(2)", "exp(2*x) + exp(x)", "tan(x)", "cosh(x)"],
)  # fmt: skip
def test_one_of_the_branches_is_what_was_put_in(text):
    expression = sympy.sympify(text, locals={"x": X, "a": A, "b": B})
    target = sympy.Symbol("t", real=True)
    solution = isolate(expression, X, target)
    known = {X: 0.37, A: 0.6, B: 1.7}
    value = float(expression.subs(known))
    found = []
    for turn in range(-2, 3):
        for signs in product((1, -1), repeat=len(solution.signs)):
            put = {
                **known,
                target: value,
                TURNS: turn,
                **dict(zip(solution.signs, signs, strict=True)),
            }
            found.append(complex(solution.expression.subs(put).evalf()))
    assert min(abs(f - 0.37) for f in found) < 1e-12


def test_what_cannot_be_set_free_is_left_alone():
    assert isolate(X + sympy.sin(X), X, A) is None


@pytest.fixture(scope="module", params=[0.0, arm.SIGMA_Y])
def model(request):
    x = arm.sample_prior(2000, random_state=0)
    y = arm.forward(x) + request.param * np.random.default_rng(1).normal(size=(2000, 2))
    prior = {n: stats.norm(0, s) for n, s in zip(arm.X_NAMES, arm.PRIOR_STD, strict=True)}
    names = [pd.DataFrame(v, columns=c) for v, c in ((x, arm.X_NAMES), (y, arm.Y_NAMES))]
    return isr.Inversion(prior, noise=request.param, law=ARM_LAW, random_state=0).fit(*names), request.param


def test_the_arm_is_solved_and_its_inverse_fits_on_a_page(model):
    found, sigma = model
    text = str(found.proposal_)
    assert "height = vertical - 0.5*sin(angle1)" in text
    assert "acos(horizontal" in text
    assert found.law_.n_constants + found.proposal_.n_constants <= 60
    assert "no test refutes it" in found.verdict_
    assert len(f"{found.law_}\n{found.prior_}\n{text}".splitlines()) < 40
    post = found.posterior(arm.TARGET)
    resimulated = np.mean(np.sum((arm.forward(post.sample(4000)) - arm.TARGET) ** 2, axis=1))
    assert resimulated <= (1e-20 if sigma == 0 else 2.05e-4)


def test_evidence_is_that_of_the_exact_sampler(model):
    found, sigma = model
    for target in ((0.0, 1.5), (0.6, 1.7), (-0.9, 1.2)):
        post = found.posterior(target)
        assert_allclose(post.log_evidence, arm.log_evidence(target, sigma_y=sigma), atol=0.06)
        assert post.pareto_k < 0.7
        assert post.effective_size > 300
        assert post.predictive().p_value > 0.01


def test_draws_are_those_of_the_exact_sampler(model):
    found, sigma = model
    drawn = found.posterior((0.3, 1.4)).sample(4000)
    exact = arm.sample_posterior((0.3, 1.4), 4000, sigma_y=sigma, random_state=0)
    for mine, theirs in zip(drawn.T, exact.T, strict=True):
        assert stats.ks_2samp(mine, theirs).pvalue > 1e-3


def test_an_end_point_out_of_reach_is_impossible_without_noise(model):
    found, sigma = model
    if sigma == 0:
        with pytest.raises(ValueError, match="no x that the prior allows can give"):
            found.posterior((0.0, 2.5)).sample(10)


@pytest.mark.parametrize("law", ["x1*exp(x1) + x2*sin(x2)", "x1^3 - 2*x1 + x2*exp(x2)"])
def test_roots_are_found_where_no_closed_form_is_known(law):
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1.5, size=(500, 2))
    y = np.array(
        [float(v) for v in map(sympy.lambdify(sympy.symbols("x1 x2"), law.replace("^", "**")), *x.T)]
    )
    found = isr.Inversion({"x1": (-1, 1.5), "x2": (-1, 1.5)}, law=law, fallback=False).fit(x, y)
    post = found.posterior([0.4])
    drawn = post.sample(2000)
    assert_allclose(found.law_.means(drawn)[:, 0], 0.4, atol=1e-10)
    near = np.abs(found.law_.means(big := rng.uniform(-1, 1.5, size=(2_000_000, 2)))[:, 0] - 0.4) < 0.003
    assert_allclose(post.log_evidence, np.log(near.mean() / 0.006), atol=0.05)
    assert stats.ks_2samp(drawn[:, 0], big[near, 0]).pvalue > 1e-3


def test_a_second_exact_column_chooses_among_branches():
    x = np.random.default_rng(0).uniform(-2, 2, size=(400, 1))
    found = isr.Inversion({"x1": (-2, 2)}, fallback=False).fit(x, np.hstack([x**2, x**3]))
    assert_allclose(found.posterior([1.0, -1.0]).sample(50), -1.0, atol=1e-6)


def written(language, tmp_path):
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 2, size=(1000, 2))
    model = isr.Inversion({"x1": (0, 2), "x2": (0, 2)}, law="x1*x2", fallback=False).fit(
        x, x[:, 0] * x[:, 1] + 0.1 * rng.normal(size=1000)
    )
    path = tmp_path / f"sampler.{language}"
    path.write_text(model.code({"py": "python", "c": "c", "mjs": "javascript"}[language]))
    return path, model.posterior([1.0]).sample(8000)


def agrees(draws, size, reference):
    assert size > 3000
    for mine, theirs in zip(np.asarray(draws).T, reference.T, strict=True):
        assert abs(mine.mean() - theirs.mean()) < 0.06 * theirs.std()
        assert abs(mine.std() / theirs.std() - 1) < 0.06


def test_the_sampler_in_python_has_the_same_posterior(tmp_path):
    path, reference = written("py", tmp_path)
    program = runpy.run_path(str(path))
    agrees(*program["sample"]([1.0], 8000), reference)
    with pytest.raises(ValueError, match="no x that was drawn can give"):
        program["sample"]([float("nan")], 10)


@pytest.mark.skipif(shutil.which("node") is None, reason="no Node.js")
def test_the_sampler_in_javascript_has_the_same_posterior(tmp_path):
    path, reference = written("mjs", tmp_path)
    script = f"import {{sample}} from '{path}'; console.log(JSON.stringify(sample([1.0], 8000)));"
    found = subprocess.run(
        ["node", "--input-type=module", "-e", script], capture_output=True, text=True, check=True
    )
    answer = json.loads(found.stdout)
    agrees(answer["draws"], answer["effectiveSize"], reference)


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
def test_the_sampler_in_c_has_the_same_posterior(tmp_path):
    import ctypes

    path, reference = written("c", tmp_path)
    library = tmp_path / "sampler.so"
    flags = ["-std=c99", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
    subprocess.run(["cc", *flags, str(path), "-o", str(library), "-lm"], check=True)
    function = ctypes.CDLL(str(library)).isr_sample
    function.restype = ctypes.c_double
    draws, y = np.empty((8000, 2)), np.array([1.0])
    pointer = ctypes.POINTER(ctypes.c_double)
    size = function(
        y.ctypes.data_as(pointer), draws.ctypes.data_as(pointer), ctypes.c_size_t(8000), ctypes.c_size_t(200_000),
        ctypes.c_uint64(1),
    )  # fmt: skip
    agrees(draws, size, reference)
