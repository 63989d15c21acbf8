"""Laws of pruning, on cases with closed forms."""

from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import sympy
from numpy.testing import assert_allclose

from isr.bijections.affine import Standardise
from isr.bijections.bijection import Chain
from isr.bijections.build import Architecture, build_flow
from isr.bijections.flow import Flow
from isr.bijections.formula import evaluate
from isr.bijections.networks import build_eql
from isr.bijections.parameters import flatten
from isr.formulas.front import Point, choose, pareto
from isr.formulas.refit import Fit, eliminate, fix_gauge, flow_row_loss, simple_values, snap
from isr.formulas.to_formulas import (
    build_formulas,
    input_symbols,
    network_expressions,
    open_flow,
    shortest,
    tidy,
    with_small_phases,
)


def sparse(network, share, seed=0):
    vector, restore = flatten(network)
    keep = np.random.default_rng(seed).uniform(size=vector.shape) < share
    return restore(jnp.where(jnp.asarray(keep), vector, 0.0))


def square_loss(formulas, data):
    return jnp.sum((jax.vmap(formulas, in_axes=-1, out_axes=-1)(data["x"])[0] - data["y"]) ** 2, axis=0)


def quadratic(noise=0.1, n=400):
    u = input_symbols(1)[0]
    truth = build_formulas([1.5 * u**2 + 0.02 * u - 0.5], 1, stack=1)
    rng = np.random.default_rng(0)
    x = rng.normal(size=(1, n))
    y = 1.5 * x**2 - 0.5 + noise * rng.normal(size=(1, n))
    return truth, {"x": x, "y": y}


def log_variance(loss):
    return 0.5 * float(np.log(loss))


@pytest.mark.parametrize("share", [0.2, 0.5])
@pytest.mark.parametrize("skip", [False, True])
def test_formulas_equal_the_network(share, skip):
    library = {"constant": 1, "id": 1, "square": 2, "sin2pi": 1, "exp": 1, "sigmoid": 1, "product": 1}
    network = sparse(build_eql(jax.random.key(1), 3, 2, library=library, stack=2, skip=skip), share)
    formulas = build_formulas([shortest(e) for e in network_expressions(network)], 3, stack=2)
    x = np.random.default_rng(0).normal(size=(3, 200))
    expected = jax.vmap(network, in_axes=-1, out_axes=-1)(jnp.asarray(x))
    found = jax.vmap(formulas, in_axes=-1, out_axes=-1)(jnp.asarray(x))
    assert_allclose(found, expected, rtol=1e-9, atol=1e-11)


def test_formulas_written_out_and_read_back_are_the_same():
    u, v = input_symbols(2)
    formulas = build_formulas([0.5 * u * v**2 - 1.25, sympy.Function("sin")(2.0 * u + 0.1)], 2, stack=1)
    again = build_formulas(network_expressions(formulas), 2, stack=1)
    assert again.trees == formulas.trees
    assert_allclose(again.constants, formulas.constants)


def test_the_expanded_form_is_taken_when_it_is_shorter():
    u = input_symbols(1)[0]
    nested = 0.5 * (1.1 * u + 0.2) ** 2 + 0.7 * (0.3 * u - 0.4) ** 2
    assert shortest(nested).is_Add
    assert len(shortest(nested).args) == 3


def test_opening_changes_nothing_where_scales_are_constant():
    """With constant log-scales, unclamping and folding the standardisation are exact."""
    flow = build_flow(
        jax.random.key(3), 2, standardise=Standardise((1.0, -2.0), (2.0, 0.5)),
        architecture=Architecture(n_blocks=1, skip=True),
    )  # fmt: skip
    couplings = sparse(flow, 0.3)
    # Cut every weight of s except its last bias.
    block = couplings.bijection.bijections[-1]
    for name in ("first", "second"):
        net = getattr(block, name)
        weights = tuple(w.at[0].set(0.0) for w in net.weights)
        block = _replace(block, name, _replace(net, "weights", weights))
    flow = Flow(Chain((flow.bijection.bijections[0], block)))
    x = np.array([1.0, -2.0]) + np.array([2.0, 0.5]) * np.random.default_rng(0).normal(size=(500, 2))
    assert_allclose(open_flow(flow).log_prob(x), flow.log_prob(x), rtol=1e-9, atol=1e-9)


def _replace(module, name, value):
    import equinox as eqx

    return eqx.tree_at(lambda m: getattr(m, name), module, value)


def test_refit_never_worsens_the_loss():
    model, data = quadratic()
    fit = Fit(model, square_loss, data)
    for seed in range(5):
        start = np.random.default_rng(seed).normal(size=3)
        theta, loss = fit.converge(start, np.arange(3))
        assert loss <= fit.loss(start)
        assert_allclose(fit.loss(theta), loss)


@pytest.mark.parametrize("steepness", [1.0, 1e200, 1e302])
def test_a_loss_too_steep_for_the_solver_is_no_error(steepness):
    model, data = quadratic()

    def two_valleys(formulas, rows):
        return steepness * (jax.vmap(formulas, in_axes=-1, out_axes=-1)(rows["x"])[0][0] ** 2 - 4) ** 2

    fit = Fit(model, two_valleys, data)
    start = np.random.default_rng(0).normal(size=3)
    assert fit.converge(start, np.arange(3))[1] <= fit.loss(start)


def test_constants_at_the_end_of_what_a_loss_allows_have_no_errors_and_are_left():
    model, data = quadratic()

    def ends_here(formulas, rows):
        value = jax.vmap(formulas, in_axes=-1, out_axes=-1)(rows["x"])[0][0]
        return value**2 + jnp.sqrt(-jnp.abs(value))

    fit, zeros, every = Fit(model, ends_here, data), np.zeros(3), np.arange(3)
    assert np.all(np.isnan(fit.standard_errors(zeros, every)))
    assert_allclose(fix_gauge(fit, zeros, every)[1], every)
    assert not snap(fit, zeros, every).labels


def test_refit_finds_the_least_squares_solution():
    model, data = quadratic()
    fit = Fit(model, square_loss, data)
    theta, _ = fit.converge(fit.start, np.arange(3))
    x, y = data["x"][0], data["y"][0]
    found = dict(zip(_basis(model), theta, strict=True))
    exact = np.linalg.lstsq(np.stack([x**2, x, np.ones_like(x)], 1), y, rcond=None)[0]
    assert_allclose([found["2"], found["1"], found["0"]], exact, rtol=1e-6)


def _basis(formulas):
    """Return, for each constant, the power of x that it multiplies."""
    slopes = jax.grad(lambda c: evaluate(formulas.trees[0], jnp.array([2.0]), c))(formulas.constants)
    return [str(round(float(np.log2(slope)))) for slope in slopes]


def test_standard_errors_are_those_of_least_squares():
    model, data = quadratic(n=2000)
    fit = Fit(model, square_loss, data, log_variance)
    theta, loss = fit.converge(fit.start, np.arange(3))
    x = data["x"][0]
    design = np.stack([x**2, x, np.ones_like(x)], 1)
    exact = np.sqrt(np.diag(np.linalg.inv(design.T @ design)) * loss)
    found = dict(zip(_basis(model), fit.standard_errors(theta, np.arange(3)), strict=True))
    assert_allclose([found["2"], found["1"], found["0"]], exact, rtol=1e-3)


def test_standard_errors_do_not_depend_on_the_sign_of_a_loss():
    model, data = quadratic(n=200)
    fits = [Fit(model, loss, data) for loss in (square_loss, lambda f, rows: square_loss(f, rows) - 5.0)]
    theta, _ = fits[0].converge(fits[0].start, np.arange(3))
    one, other = (fit.standard_errors(theta, np.arange(3)) for fit in fits)
    assert_allclose(one, other, rtol=1e-6)
    assert np.all(one > 0)


def test_standard_errors_match_a_bootstrap():
    model, data = quadratic(n=500)
    fit = Fit(model, square_loss, data, log_variance)
    theta, _ = fit.converge(fit.start, np.arange(3))
    errors = fit.standard_errors(theta, np.arange(3))
    rng, draws = np.random.default_rng(0), []
    for _ in range(100):
        rows = rng.integers(0, 500, 500)
        again = Fit(model, square_loss, {k: v[:, rows] for k, v in data.items()}, log_variance)
        draws.append(again.converge(theta, np.arange(3))[0])
    assert_allclose(errors, np.std(draws, axis=0), rtol=0.35)


def test_elimination_never_adds_a_constant_and_drops_the_one_that_is_not_there():
    model, data = quadratic(n=4000)
    fit = Fit(model, square_loss, data, log_variance)
    path = eliminate(fit, fit.start, stop_nats=10.0)
    free = [set(cut.free.tolist()) for cut in path]
    assert all(later < earlier for earlier, later in pairwise(free))
    assert all(np.all(cut.theta[[i for i in range(3) if i not in cut.free]] == 0) for cut in path)
    basis = _basis(model)
    two = next(cut for cut in path if len(cut.free) == 2)
    assert {basis[i] for i in two.free} == {"0", "2"}


def test_elimination_ends_when_time_is_up():
    formulas, data = quadratic()
    fit = Fit(formulas, square_loss, data, log_variance)
    assert len(eliminate(fit, fit.start, stop_nats=10.0)) > 2
    fit.should_stop = lambda: True
    assert len(eliminate(fit, fit.start, stop_nats=10.0)) == 1


def test_snapping_costs_no_more_than_its_budget():
    model, data = quadratic(n=1000)
    fit = Fit(model, square_loss, data, log_variance)
    start, _ = fit.converge(fit.start, np.arange(3))
    snapped = snap(fit, start, np.arange(3), budget=1.0)
    cost = fit.n_rows * (fit.nats(snapped.loss) - fit.nats(fit.loss(start)))
    assert cost <= 1.0 + 1e-9
    assert "3/2" in snapped.labels.values()


@pytest.mark.parametrize(
    ("value", "error", "expected"),
    [(0.2003, 0.001, "1/5"), (-0.6929, 0.002, "-ln 2"), (2.0, 0.01, "2"), (3.1405, 0.01, "pi")],
)
def test_simple_values_are_found(value, error, expected):
    assert expected in [label for label, _ in simple_values(value, error)]


def test_a_value_far_from_simple_ones_stays():
    assert simple_values(0.2345, 1e-4) == []


def test_fix_gauge_removes_a_scale_given_twice():
    u = input_symbols(1)[0]
    model = build_formulas([2.0 * (0.7 * u + 0.3) ** 2], 1, stack=1)
    x = np.random.default_rng(0).normal(size=(1, 300))
    fit = Fit(model, square_loss, {"x": x, "y": 2.0 * (0.7 * x + 0.3) ** 2 + 0.01}, log_variance)
    theta, _ = fit.converge(fit.start, np.arange(3))
    theta, free = fix_gauge(fit, theta, np.arange(3))
    assert len(free) == 2
    assert np.linalg.eigvalsh(fit.hessian(theta, free))[0] > 1e-9


def test_tidy_keeps_the_values():
    flow = build_flow(
        jax.random.key(3), 2, architecture=Architecture(n_blocks=1, skip=True, clamp=None, guard=None)
    )
    opened = open_flow(sparse(flow, 0.2))
    x = np.random.default_rng(0).normal(size=(100, 2))
    assert_allclose(tidy(opened).log_prob(x), opened.log_prob(x), rtol=1e-9)


def test_the_flow_loss_is_minus_its_log_density():
    flow = build_flow(jax.random.key(3), 2)
    x = np.random.default_rng(0).normal(size=(50, 2))
    fit = Fit(flow, flow_row_loss, {"x": x.T})
    assert_allclose(fit.loss(fit.start), -np.mean(flow.log_prob(x)), rtol=1e-9)


def _points(*pairs):
    return [Point(None, c, c, nll, nll, np.full(50, nll)) for c, nll in pairs]


def test_the_front_holds_what_no_simpler_model_beats():
    front = pareto(_points((3, 1.0), (5, 0.4), (4, 1.2), (9, 0.5), (12, 0.1)))
    assert [p.complexity for p in front] == [3, 5, 12]


def test_rules_choose_as_documented():
    front = pareto(_points((3, 1.0), (5, 0.4), (40, 0.39)))
    assert choose(front, "accuracy", n_rows=100) == 2
    assert choose(front, "bic", n_rows=100) == 1
    assert choose(front, n_rows=100, complexity=39) == 1


def test_choosing_below_the_simplest_says_so():
    with pytest.raises(
        ValueError, match="no model has complexity 2 or less; the simplest on the front has 3"
    ):
        choose(_points((3, 1.0)), n_rows=10, complexity=2)


def test_an_unknown_rule_is_named():
    with pytest.raises(ValueError, match="unknown rule 'best'; known: bic, accuracy, simple"):
        choose(_points((3, 1.0)), "best", n_rows=10)


@pytest.mark.parametrize("phase", [-7.0, -np.pi, -1.0, 1.6, 3.2, 100.0])
def test_phases_become_small_without_changing_a_value(phase):
    x = sympy.Symbol("x", real=True)
    sine = sympy.Function("sin")
    found = with_small_phases(2.0 * sine(1.5 * x + sympy.Float(phase)) + sine(x))
    at = np.linspace(-3, 3, 50)
    values = sympy.lambdify(x, found, [{"sin": np.sin}, "numpy"])(at)
    np.testing.assert_allclose(values, 2.0 * np.sin(1.5 * at + phase) + np.sin(at), atol=1e-8)
    assert all(
        abs(f.args[0].as_coeff_Add()[0]) <= np.pi / 2 for f in found.atoms(sympy.core.function.AppliedUndef)
    )
