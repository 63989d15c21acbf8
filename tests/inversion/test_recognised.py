"""What is recognised in rows: the law of one variable, kinds of noise, counts."""

import re

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import stats

import isr
from isr.inversion.curve import MOST_TERMS, SHRINKING, SIZES, curve_length, interpolations
from isr.inversion.find import find_law
from isr.inversion.law import Column, Group, Law
from isr.inversion.marginals import recognise
from isr.inversion.means import find_scale, values_of
from isr.inversion.noise import choose
from isr.inversion.prior import _recognised
from isr.inversion.record import _of_part, _to_part, of_law, of_prior_law, to_law
from isr.inversion.screen import Features
from isr.inversion.sums import fit_broken
from isr.search.formula import Formula, parse
from isr.search.surrogate import polynomial_features

LAWS = {
    "uniform": stats.uniform(0.1, 9.9),
    "arcsine": stats.beta(0.5, 0.5),
    "beta": stats.beta(2, 5, scale=3),
    "lognormal": stats.lognorm(0.5),
    "weibull": stats.weibull_min(1.5, scale=2),
    "exponential": stats.expon(scale=3),
    "cut at both ends": stats.truncnorm(-1, 1.5, 3, 2),
    "cut at zero": stats.truncnorm(-1, np.inf, 1, 1),
    "student": stats.t(3),
    "normal": stats.norm(1, 2),
}


@pytest.mark.parametrize("name", LAWS)
def test_the_law_of_a_variable_is_within_a_hundredth_of_a_nat(name):
    law = LAWS[name]
    found = recognise(law.rvs(3000, random_state=1))
    fresh = law.rvs(20_000, random_state=2)
    assert np.mean(law.logpdf(fresh) - np.maximum(found.log_prob(fresh), -50)) < 0.01
    assert found.p_value > 1e-3


def test_a_box_is_recognised_from_two_hundred_rows():
    x = np.random.default_rng(0).uniform(2, 5, 200)
    found = recognise(x)
    assert found.kind == "uniform"
    assert_allclose(found.support, (2, 5), atol=0.06)


NOISES = {
    "laplace": stats.laplace(),
    "uniform": stats.uniform(-1, 2),
    "exponential": stats.expon(-1),
    "student": stats.t(3),
}


@pytest.mark.parametrize("name", NOISES)
def test_noise_of_any_shape_is_within_a_few_hundredths_of_a_nat(name):
    law = NOISES[name]
    u, fresh = (law.rvs((1, 4000), random_state=seed) for seed in (1, 2))
    choice = choose(u)
    density = choice.noise.log_density(choice.standardised(fresh)) - np.log(choice.scale[0])
    assert np.mean(law.logpdf(fresh[0]) - np.maximum(density, -50)) < 0.06


def test_counts_are_poisson_numbers():
    rng = np.random.default_rng(0)
    x = rng.gamma(3, 0.5, size=(1500, 1))
    model = isr.Inversion(fallback=False).fit(x, rng.poisson(10 * x).astype(float))
    assert re.fullmatch(r"y1 ~ Poisson\((10|9\.9\d+\(\d+\))\*x1\)", str(model.law_))
    assert model.is_green_
    assert r"\mathrm{Poisson}" in model.law_.latex()
    assert str(to_law(of_law(model.law_))) == str(model.law_)
    grid = np.linspace(1e-3, 6, 20_001)
    weights = stats.gamma.pdf(grid, 3, scale=0.5) * stats.poisson.pmf(3, 10 * grid)
    mean = np.average(grid, weights=weights)
    draws = model.posterior([3.0]).sample(8000)
    assert_allclose(draws.mean(), mean, rtol=0.04)
    assert_allclose(draws.std(), np.sqrt(np.average((grid - mean) ** 2, weights=weights)), rtol=0.06)


def test_a_logarithm_is_not_taken_for_a_sum_of_waves():
    rng = np.random.default_rng(0)
    x = rng.uniform(1, 5, size=(1500, 1))
    model = isr.Inversion(fallback=False).fit(x, np.log(x) + 0.05 * rng.normal(size=(1500, 1)))
    assert re.match(r"y1 = ([\d.()]+\*)?log\(x1\) ± ", str(model.law_))


def test_a_square_beside_a_cosine_is_not_taken_for_a_sum_of_waves():
    rng = np.random.default_rng(0)
    x = rng.uniform([-3, -2, 0], [3, 2, 1], size=(250, 3))
    y = 3 * np.cos(x[:, 0]) + x[:, 1] ** 2 + 0.05 * rng.normal(size=250)
    law = str(isr.Inversion(fallback=False).fit(x, y).law_)
    assert "x2**2" in law
    assert law.count("cos") == 1


def test_a_mixture_of_several_variables_is_saved(tmp_path):
    rng = np.random.default_rng(0)
    x = rng.choice([-2.0, 2.0], (600, 1)) + 0.5 * rng.normal(size=(600, 2))
    model = isr.Inversion(fallback=False).fit(x, x.sum(axis=1) + 0.1 * rng.normal(size=600))
    assert of_prior_law(model.prior_)[0]["kind"] == "mixture"
    model.save(tmp_path / "m.isr")
    loaded = isr.load(tmp_path / "m.isr").posterior([4.0])
    assert_allclose(loaded.sample(20), model.posterior([4.0]).sample(20), rtol=1e-12)


def test_variables_tied_by_a_correlation_keep_their_own_laws():
    exact = stats.multivariate_normal([0, -1.6], [[0.09, 0.0525], [0.0525, 0.0625]])
    x = np.exp(exact.rvs(1500, random_state=0))
    (part,) = _recognised(x, ["speed", "width"], [0, 1])
    fresh = np.exp(exact.rvs(5000, random_state=1))
    density = exact.logpdf(np.log(fresh)) - np.log(fresh).sum(axis=1)
    assert re.search(r"speed, width: correlation 0\.(6[89]|7[012])", part.lines(["speed", "width"])[-1])
    assert np.mean(density - part.log_prob(fresh)) < 0.01
    drawn = part.sample(20_000, np.random.default_rng(0))
    assert_allclose(np.cov(np.log(drawn).T), exact.cov, atol=0.01)
    again = _to_part(_of_part(part))
    assert_allclose(again.log_prob(fresh), part.log_prob(fresh), rtol=1e-12)


@pytest.mark.parametrize("steepness", [10, 30, 100, 200])
def test_a_bend_in_place_of_a_jump_is_refuted_by_the_rows_beside_it(steepness):
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 2, size=(3000, 1))
    left = (x[:, 0] > 1.1) - 0.5 * (1 + np.tanh(steepness * (x[:, 0] - 1.1))) + 0.05 * rng.normal(size=3000)
    assert Features(x).p_value(left, trend=True) < 1e-8


@pytest.mark.parametrize(("n", "d"), [(100, 1), (400, 3), (2000, 2)])
def test_windows_raise_no_alarm_of_heavy_tails(n, d):
    rng = np.random.default_rng(0)
    found = [Features(rng.uniform(size=(n, d))).windows(rng.standard_t(2, size=n)) for _ in range(20)]
    assert min(found) > 1e-3


def test_a_long_sum_through_the_rows_is_an_interpolation_and_a_short_law_is_not():
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 4, size=(600, 1))
    y = 1 / (1 + np.exp(4 - 2 * x)) + 0.03 * rng.normal(size=(600, 1))
    bends = rng.normal(size=(12, 3)).round(4)
    waves = "+".join(f"{a}*sin({b}*t)**2*cos({c}*t**2)" for a, b, c in np.abs(bends))

    def said(text):
        mean = Formula(parse(text, ["t"]))
        column = Column("w", 0, mean, Formula(parse("0.03", [])))
        return interpolations(Law(("t",), (column,), (Group((0,)),), n_y=1), x, y)

    assert said("1/(1 + exp(4.0 - 2.0*t))") == []
    assert re.search(
        "the law of w is .* nats longer than a curve", said(f"1/(1 + exp(4.0 - 2.0*t)) + 1e-4*({waves})")[0]
    )


def test_a_step_is_found_where_it_is():
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 2, size=(2000, 2))
    y = x[:, 0] + 0.5 * (x[:, 1] > 1.3) + 0.05 * rng.normal(size=2000)
    fit = fit_broken(x, y, ["a", "b"])[0]
    assert fit.n_terms == 3
    assert re.search(r"sign\(b - 1\.(299|3|300)\)", str(fit.formula))
    values = values_of(fit.formula, x, ["a", "b"])
    assert np.mean(np.abs(values - x[:, 0] - 0.5 * (x[:, 1] > 1.3)) > 0.02) < 0.002


def test_a_bend_is_found_where_it_is():
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 3, size=(600, 2))
    truth = 0.8 * np.maximum(0, x[:, 0] - 1.3) + x[:, 1]
    fit = fit_broken(x, truth + 0.04 * rng.normal(size=600), ["a", "b"])[1]
    assert re.search(r"Abs\(a - 1\.[23]\d*\)", str(fit.formula))
    assert np.max(np.abs(values_of(fit.formula, x, ["a", "b"]) - truth)) < 0.06


def test_a_law_of_x_is_refuted_by_rows_of_another():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(800, 2))
    model = isr.Inversion(fallback=False).fit(x, x[:, 0] + 0.1 * rng.normal(size=800))
    assert model.prior_.p_value(x) > 1e-3
    assert model.prior_.p_value(np.column_stack([x[:, 0], x[:, 0]])) < 1e-4


def test_independent_variables_are_not_a_mixture_where_a_test_errs():
    x = np.random.default_rng(0).uniform([0.5, 0.1], [2, 1], size=(3000, 2))
    apart = _recognised(x, ["m", "c"], [0, 1])
    assert [part.marginal.support for part in apart] == [(0.5, 2.0), (0.1, 1.0)]


@pytest.mark.parametrize(("low", "high"), [(5, 20), (25, 60), (0.05, 0.4), (1e-6, 5e-6)])
def test_a_box_of_round_numbers_is_recognised_from_five_hundred_rows(low, high):
    x = np.random.default_rng(1).uniform(low, high, 500)
    assert_allclose(recognise(x).support, (low, high), rtol=1e-9)


def test_counts_of_two_species_are_poisson_numbers():
    rng = np.random.default_rng(0)
    x = rng.uniform(50, 500, size=(2000, 2))
    y = rng.poisson(np.column_stack([0.7 * x[:, 0] + 0.9 * x[:, 1], 0.02 * x[:, 0] + 0.4 * x[:, 1]])).astype(
        float
    )
    model = isr.Inversion().fit(x, y)
    assert all(column.is_count for column in model.law_.columns)


@pytest.mark.slow
@pytest.mark.parametrize(("x_unit", "y_unit"), [(1e-12, 1e-20), (1e15, 1e18)])
def test_standard_errors_hold_in_any_units(x_unit, y_unit):
    rng = np.random.default_rng(0)
    x = rng.uniform(1, 3, size=(400, 1))
    model = isr.Inversion().fit(x_unit * x, y_unit * (2.345 * x + 0.1 * rng.normal(size=(400, 1))))
    (column,) = model.law_.columns
    slope, sigma = column.mean.errors[0] * x_unit / y_unit, column.scale.errors[0] / y_unit
    assert_allclose([slope, sigma], [0.1 / np.sqrt(np.sum(x**2)), 0.1 / np.sqrt(800)], rtol=0.2)


def test_noise_of_its_own_below_a_scale_stays_out_of_a_correlation():
    rng = np.random.default_rng(0)
    x, e = rng.uniform(-3, 3, size=(1000, 3)), rng.normal(size=(2, 1000))
    rho = np.tanh(x[:, 2])
    y = np.column_stack(
        [x[:, 0] + x[:, 1] ** 2 * e[0], x[:, 1] ** 2 * (rho * e[0] + np.sqrt(1 - rho**2) * e[1])]
    )
    found = find_law(x, y + 1e-3 * rng.normal(size=(1000, 2)), ["a", "b", "c"], ["u", "v"])
    lines = found.law.lines()
    assert re.fullmatch(r"u = a ± sqrt\(b\*\*4 \+ [0-9.]+\(\d+\)e-0[67]\)", lines[0])
    assert re.fullmatch(
        r"u and v: correlation b\*\*4\*tanh\(c\)/\(b\*\*4 \+ [0-9.]+\(\d+\)e-0[67]\)", lines[2]
    )
    assert found.passed


def test_a_scale_in_a_line_with_the_mean_is_recognised():
    rng = np.random.default_rng(1)
    x = rng.uniform(0, 2, (700, 2))
    mean = x[:, 0] * np.abs(x[:, 1] - 1)
    scale = find_scale(
        Features(x), ((0.02 + 0.05 * mean) * rng.normal(size=700))[None], ["a", "b"], None,
        Formula(parse("a*Abs(b - 1)", ["a", "b"])),
    )  # fmt: skip
    assert_allclose(scale.values, 0.02 + 0.05 * mean, rtol=0.15)
    assert scale.passed


def test_a_curve_has_a_length_where_noise_all_but_vanishes_in_some_rows():
    rng = np.random.default_rng(0)
    x, sd = rng.uniform(1, 3, size=(60, 2)), np.full(60, 0.05)
    y = x[:, 0] / (1 + x[:, 1] ** 2) + sd * rng.normal(size=60)
    expected = curve_length(x, y, sd)
    sd[[3, 10]] = 1e-9
    assert np.isfinite(curve_length(x, y, sd))
    # The evidence by its definition: y is normal, its covariance that of the noise and of the coefficients.
    features, degrees = polynomial_features(x, MOST_TERMS)
    lengths = []
    for size in np.std(y) * np.array(SIZES):
        for shrinking in SHRINKING:
            columns = features * size * shrinking**degrees / 0.05
            covariance, centred = np.eye(60) + columns @ columns.T, (y - y.mean()) / 0.05
            lengths.append(
                0.5 * (centred @ np.linalg.solve(covariance, centred) + np.linalg.slogdet(covariance)[1])
            )
    assert_allclose(expected, min(lengths), rtol=1e-6)
