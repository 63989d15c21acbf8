"""Closed forms are found for densities that no chart was made for, and their numbers are those of the truth."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import sympy
from numpy.testing import assert_allclose
from scipy import stats

import isr
from isr.bijections.bijection import Chain
from isr.bijections.flow import Flow
from isr.densities.charts import find_chains, find_charts, find_components, marginals_of
from isr.densities.marginals import find_marginal, marginal_steps
from isr.densities.mixtures import find_mixture
from isr.estimators.closed_forms import _dependent, _with_tails, as_opaque, closed_forms
from isr.estimators.law_edges import Band
from isr.formulas.to_formulas import build_formulas
from isr.tables.bounds import sharp_ends

N = 4000


def kl(law, rows, seed=1):
    """Mean of log p - log q on fresh rows of one variable, with q the marginal found on others."""
    fresh = law.rvs(N, random_state=seed)
    flow = Flow(Chain(tuple(marginal_steps([find_marginal(rows)], 1))))
    return float(np.mean(law.logpdf(fresh) - flow.log_prob(fresh[:, None])))


@pytest.mark.parametrize(
    "law",
    [stats.t(3), stats.lognorm(0.7), stats.uniform(-2, 5), stats.expon(0, 4), stats.gamma(2.5), stats.laplace(0, 2),
     stats.beta(2, 5)],
    ids=lambda law: law.dist.name,
)  # fmt: skip
def test_the_law_of_one_variable_is_within_five_thousandths_of_a_nat(law):
    assert kl(law, law.rvs(N, random_state=0)) < 0.005


def test_ends_are_sharp_or_not():
    rng = np.random.default_rng(0)
    assert sharp_ends(rng.uniform(-3, 7, N)) == (-3.0, 7.0)
    assert sharp_ends(rng.exponential(size=N))[1] is None
    low, high = sharp_ends(rng.uniform(np.pi, 2 * np.pi, N))
    assert np.pi - 0.01 < low < np.pi
    assert 2 * np.pi < high < 2 * np.pi + 0.01


def test_a_mixture_comes_back_with_its_means_scales_and_weights():
    rng = np.random.default_rng(0)
    means = np.array([[-3.0, 0.0], [3.0, 0.0], [0.0, 4.0]])
    found = find_mixture(means[rng.integers(3, size=N)] + 0.5 * rng.normal(size=(N, 2)))
    assert found.shared == "even one round"
    assert_allclose(found.means[np.lexsort(found.means.T[::-1])], means[[0, 2, 1]], atol=0.05)
    assert_allclose(found.covariances, np.tile(0.25 * np.eye(2), (3, 1, 1)), atol=0.02)


def test_a_law_of_one_variable_given_the_other_is_found_in_the_right_order():
    rng = np.random.default_rng(0)
    x = rng.uniform(-3, 3, N)
    rows = np.column_stack([np.sin(2 * x) + 0.1 * rng.normal(size=N), x])
    form = closed_forms(rows)[0]
    assert form.kind == "laws"
    assert form.steps[0].order == (1, 0)
    truth = np.log(1 / 6) + stats.norm(np.sin(2 * rows[:, 1]), 0.1).logpdf(rows[:, 0])
    assert np.mean(truth - Flow(Chain(form.steps)).log_prob(rows)) < 0.005


@pytest.mark.parametrize("side", ["low", "high", "both"])
def test_a_law_along_the_ends_of_rows_is_right_by_one_over_their_number(side):
    rng = np.random.default_rng(0)
    x = rng.uniform(-2, 2, N)
    noise = {"low": rng.exponential(size=N), "high": -rng.exponential(size=N), "both": rng.uniform(size=N)}[
        side
    ]
    symbol = sympy.Symbol("input0", real=True)
    end, width = 0.9 + 1.9 * symbol, sympy.Float(1.3) if side == "both" else None
    band = Band(["input0"], x[:, None], 1 + 2 * x + noise, end, width, -1.0 if side == "high" else 1.0)
    found = band.fitted(np.ones(N))
    assert_allclose(np.array(sympy.Poly(found.end, symbol).all_coeffs(), float), [2, 1], atol=20 / N)
    assert width is None or abs(float(found.width) - 1) < 20 / N


def test_no_row_beyond_a_soft_end_has_an_absurd_density_and_a_disc_is_found():
    rng = np.random.default_rng(0)
    radius, angle = 2 * np.sqrt(rng.random(N)), rng.uniform(-np.pi, np.pi, N)
    rows = np.column_stack([1 + radius * np.cos(angle), radius * np.sin(angle)])
    (kind, chart), *_ = find_charts(rows)
    seen = jax.vmap(chart.forward_and_log_det)(jnp.asarray(rows))[0]
    marginals = marginals_of(chart, np.asarray(seen))
    flow = Flow(Chain((chart, *marginal_steps(marginals, 2))))
    assert kind == "polar"
    assert marginals[0].side == "high"
    assert abs(np.mean(flow.log_prob(rows)) + np.log(4 * np.pi)) < 0.02
    assert flow.log_prob([[3.005, 0.0]])[0] > -20


def test_a_half_normal_law_that_was_turned_is_turned_back():
    rng = np.random.default_rng(0)
    turn = np.array([[np.cos(0.6), -np.sin(0.6)], [np.sin(0.6), np.cos(0.6)]])
    x = np.column_stack([np.abs(rng.normal(size=4000)) * 1.5, 0.4 * rng.normal(size=4000)]) @ turn.T
    found = next(find_components(x, 2))
    images = found.steps[0].matrix @ turn  # what is made of the half-normal variable and of the other one
    assert np.max(np.abs(np.sort(np.abs(images / np.abs(images).max(axis=1, keepdims=True)))[:, 0])) < 0.1
    entropy = np.log(0.75 * np.sqrt(2 * np.pi * np.e)) + np.log(0.4 * np.sqrt(2 * np.pi * np.e))
    assert 0 < found.total / len(x) - entropy < 0.02


def test_a_shell_is_a_radius_and_two_angles():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(4000, 3))
    x *= (2 + 0.1 * rng.normal(size=(4000, 1))) / np.linalg.norm(x, axis=1, keepdims=True)
    *_, found = find_chains(x, [find_marginal(column) for column in x.T], 3)
    radius = found.seen[:, found.steps[-1].pair[0]]
    assert np.allclose(radius, np.linalg.norm(x, axis=1), atol=0.05)
    entropy = np.log(0.1 * np.sqrt(2 * np.pi * np.e)) + np.log(4 * np.pi) + 2 * np.log(2)
    assert 0 < found.total / len(x) - entropy < 0.03


def test_a_form_that_is_not_exact_has_heavy_tails():
    rows = np.random.default_rng(0).standard_t(2.2, size=(150, 3)) @ np.array(
        [[1, 2, 0], [0, 1, 3], [0, 0, 1]]
    )
    far = 8 * rows.std(axis=0)
    for form in _dependent(rows, [find_marginal(column) for column in rows.T], 3):
        assert Flow(Chain(_with_tails(form, rows, 3).steps)).log_prob(far[None])[0] > -150


@pytest.mark.slow
def test_a_spiral_is_unwound():
    rng = np.random.default_rng(0)
    t = rng.uniform(2, 14, N)
    rows = np.column_stack([0.3 * t * np.cos(t), 0.3 * t * np.sin(t)]) + 0.05 * rng.normal(size=(N, 2))
    form = closed_forms(rows)[0]
    assert form.kind.startswith("spiral")
    assert abs(float(form.steps[0].pitch) - 0.3) < 0.01


@pytest.mark.slow
def test_a_density_without_a_constant_to_learn_is_fitted_and_its_bounds_are_told():
    rows = np.random.default_rng(0).uniform(size=(2000, 2))
    model = isr.SymbolicFlow(training=isr.Training("quick", n_restarts=2, verbose=False), random_state=0).fit(
        rows
    )
    assert_allclose(model.score_samples(rows), 0.0, atol=1e-9)
    assert np.all(np.isneginf(model.score_samples([[0.5, 1.1], [-0.1, 0.5]])))
    assert "x1 ends sharply at 0 and 1" in str(model.status_)


def test_laws_may_hold_reciprocals_and_roots():
    x, n = sympy.symbols("input0 input1", real=True)
    given = [1 / x**2 + sympy.sqrt(n), sympy.exp(-x) / n, x**0.3 * sympy.sin(n)]
    formulas = build_formulas([as_opaque(e) for e in given], 2, stack=3)
    at = np.array([1.7, 2.3])
    expected = [float(e.subs({x: at[0], n: at[1]})) for e in given]
    with jax.enable_x64(True):
        assert_allclose(np.ravel(formulas(jnp.asarray(at))), expected, rtol=1e-12)
