"""Laws are what they say, and the comparison tells the true law from its neighbours."""

import numpy as np
import pytest
import sympy as sp
from numpy.testing import assert_allclose
from scipy import stats

from isr.problems.laws import FUNCTIONS, LAWS, compare_laws, same_law

X = sp.symbols("x0:4")


def jitter(expr, factor, rng):
    """Every decimal constant of an expression times 1 ± factor; powers and signs stay."""
    if expr.is_Pow and expr.exp.is_Integer and not expr.base.is_number:
        return jitter(expr.base, factor, rng) ** expr.exp
    if expr.is_number:
        trivial = expr in (0, 1, -1)
        return expr if trivial else sp.Float(float(expr) * (1 + factor * rng.choice([-1, 1])))
    return expr.func(*(jitter(a, factor, rng) for a in expr.args)) if expr.args else expr


def plain(expressions):
    """The same expressions in symbols without assumptions, as a user would write them."""
    return [e.xreplace({s: sp.Symbol(s.name) for s in e.free_symbols}) for e in expressions]


@pytest.mark.parametrize("law", LAWS.values(), ids=LAWS.keys())
def test_inverse_undoes_the_map_and_equations_are_the_map(law):
    z = np.random.default_rng(0).normal(size=(50, law.dim))
    x = law.from_latent(z)
    assert_allclose(law.to_latent(x)[0], z, atol=1e-9)
    values = sp.lambdify(sp.symbols(f"x0:{law.dim}", real=True), law.latent)(*x.T)
    assert_allclose(np.stack(values, axis=1), z, atol=1e-9)


@pytest.mark.parametrize("law", LAWS.values(), ids=LAWS.keys())
def test_log_density_is_that_of_the_symbolic_jacobian(law):
    symbols = sp.symbols(f"x0:{law.dim}", real=True)
    determinant = sp.lambdify(symbols, sp.Matrix(law.latent).jacobian(symbols).det())
    x = law.sample(20, random_state=3)
    z = law.to_latent(x)[0]
    expected = np.log(np.abs(determinant(*x.T))) + stats.norm.logpdf(z).sum(axis=1)
    assert_allclose(law.log_prob(x), expected, atol=1e-9)


@pytest.mark.parametrize("law", LAWS.values(), ids=LAWS.keys())
def test_entropy_is_minus_the_mean_log_density(law):
    log_p = law.log_prob(law.sample(100_000, random_state=4))
    assert abs(law.entropy + log_p.mean()) < 5 * log_p.std() / np.sqrt(len(log_p))


@pytest.mark.parametrize("law", LAWS.values(), ids=LAWS.keys())
def test_law_is_recognised_up_to_order_sign_and_small_errors_of_constants(law):
    rng = np.random.default_rng(5)
    latents = plain(law.latent)
    assert law.compare(latents).same
    found = [sp.expand(-jitter(e, 0.004, rng) + 0.005) for e in latents[::-1]]
    comparison = law.compare(found)
    assert comparison.same, comparison.reason


@pytest.mark.parametrize("law", LAWS.values(), ids=LAWS.keys())
def test_neighbours_of_a_law_are_told_apart(law):
    latents = plain(law.latent)
    assert not law.compare([*latents[:-1], 1.1 * latents[-1]]).same
    assert not law.compare([*latents[:-1], latents[-1] + 0.005 * sp.cos(3 * X[0])]).same
    assert not law.compare([*latents[:-1], latents[-1] + 0.3 * X[0]]).same


def test_the_first_difference_is_named():
    data = LAWS["banana"].sample(500, random_state=0)
    truth = LAWS["banana"].latent
    x0, x1 = X[:2]
    assert (
        "left over" in compare_laws([x0 / 2, x1 - 0.2 * x0**2 + 0.8 + 0.01 * sp.sin(x0)], truth, data).reason
    )
    assert "no term like" in compare_laws([x0 / 2, x1 - 0.25 * x0**2 + 0.8], truth, data).reason
    assert "additive constant" in compare_laws([x0 / 2, x1 - 0.2 * x0**2 + 0.9], truth, data).reason
    assert "2 true" in compare_laws([x0 / 2], truth, data).reason


def test_a_slightly_shifted_origin_is_the_same_law():
    x0, x1 = X[:2]
    assert LAWS["banana"].compare([0.5 * (x0 - 0.01), x1 - 0.2 * (x0 - 0.01) ** 2 + 0.8]).same


def test_equivalent_forms_are_one_law():
    x0, x1 = X[:2]
    shifted_cosine = x1 * 5 - 5 * sp.cos(2 * x0 - sp.pi.evalf() / 2)
    assert LAWS["sine_shear"].compare([x0, shifted_cosine]).same
    by_tanh = 4 * x1 - 6 - 6 * sp.tanh(x0)
    assert LAWS["sigmoid_shift"].compare([x0 / 2, by_tanh]).same
    mirrored = 4 * x1 - 12 + 12 / (1 + sp.exp(2 * x0))
    assert LAWS["sigmoid_shift"].compare([x0 / 2, mirrored]).same
    constant_inside = 5 * x1 - sp.exp(-1.5 * x0 + float(np.log(20))) - 10 * x0
    assert LAWS["decay_with_drift"].compare([1.5 * x0 - 1.5, constant_inside]).same


def test_guards_the_data_never_reach_do_not_count():
    x0, x1 = X[:2]
    guarded = sp.Min(sp.Max(x0, -30.0), 30.0)
    assert LAWS["banana"].compare([x0 / 2, x1 - 0.2 * guarded**2 + 0.8]).same
    active = sp.Min(sp.Max(x0, -1.0), 1.0)
    assert not LAWS["banana"].compare([x0 / 2, x1 - 0.2 * active**2 + 0.8]).same


def test_rotated_latents_count_only_where_mixing_is_part_of_the_law():
    c, s = 0.8, 0.6
    for name, expected in (("rotated_banana", True), ("banana", False)):
        a, b = plain(LAWS[name].latent)
        assert LAWS[name].compare([c * a - s * b, s * a + c * b]).same is expected


def test_other_names_of_variables_are_taken_in_order():
    a, b = sp.symbols("depth speed")
    assert LAWS["banana"].compare([a / 2, b - a**2 / 5 + 0.8], symbols=[a, b]).same
    with pytest.raises(ValueError, match="equation uses depth, known variables are x0, x1"):
        LAWS["banana"].compare([a / 2, b])


def test_unknown_freedom_is_refused():
    with pytest.raises(ValueError, match="up_to must be 'nothing', 'sign' or 'rotation', got 'all'"):
        same_law([X[0]], [X[0]], np.ones((3, 1)), up_to="all")


@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS.keys())
def test_function_recognises_itself_and_not_its_negative(function):
    (truth,) = plain([function.expression])
    rng = np.random.default_rng(6)
    comparison = function.compare(jitter(truth, 0.002, rng))
    assert comparison.same, comparison.reason
    assert not function.compare(-truth).same
    assert not function.compare(truth + 0.05 * X[0] ** 5).same


def test_functions_are_the_ten_with_their_ranges():
    assert len(FUNCTIONS) == 10
    for function in FUNCTIONS.values():
        x, y = function.sample(random_state=0)
        assert x.shape == (256, function.dim)
        assert np.abs(x).max() < 1
        assert np.all(np.isfinite(y))
        assert 1.9 < np.abs(function.test_set()[0]).max() < 2


POSITIVE = np.random.default_rng(0).uniform(0.5, 3, size=(400, 2))
ANY = np.random.default_rng(1).normal(size=(400, 2))
SAME = {
    "a shifted sine is a cosine": (sp.sin(X[0] + 1.5707), sp.cos(X[0]), ANY),
    "a sine shifted back is minus a cosine": (sp.sin(X[0] - sp.pi / 2), -sp.cos(X[0]), ANY),
    "roots of factors": (1.005 * sp.sqrt(X[0]) * sp.sqrt(X[1]), sp.sqrt(X[0] * X[1]), POSITIVE),
    "logarithms of factors": (1.01 * sp.log(X[0] * X[1]), sp.log(X[0]) + sp.log(X[1]), POSITIVE),
    "a square expanded": ((X[0] + X[1]) ** 2, X[0] ** 2 + 2 * X[0] * X[1] + X[1] ** 2, ANY),
    "a squared sine": (1 - sp.sin(X[0]) ** 2, sp.cos(X[0]) ** 2, ANY),
    "a fraction turned over": (X[0] / (X[0] + X[1]), 1 / (1 + X[1] / X[0]), POSITIVE),
    "tanh as exponentials": ((sp.exp(2 * X[0]) - 1) / (sp.exp(2 * X[0]) + 1), sp.tanh(X[0]), ANY),
}
DIFFERENT = {
    "a constant off by 5 %": (1.05 * X[0], X[0], ANY),
    "a small term more": (X[0] + 0.01 * sp.sin(X[1]), X[0], ANY),
    "another power": (X[0] ** 2, X[0] ** 3, ANY),
    "a root of one factor only": (sp.sqrt(X[0] * X[1]), sp.sqrt(X[0]) * X[1], POSITIVE),
    "a sine and its series near zero": (sp.sin(X[0]), X[0] - X[0] ** 3 / 6, 1e-4 * ANY),
    "another phase": (sp.sin(X[0] + 1.3), sp.cos(X[0]), ANY),
}


@pytest.mark.parametrize("name", SAME)
def test_one_law_written_two_ways_is_the_same(name):
    found, truth, data = SAME[name]
    comparison = compare_laws(found, truth, data)
    assert comparison.same, comparison.reason


@pytest.mark.parametrize("name", DIFFERENT)
def test_another_law_is_told_apart(name):
    found, truth, data = DIFFERENT[name]
    assert not compare_laws(found, truth, data).same
