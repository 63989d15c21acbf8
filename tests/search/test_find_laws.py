"""The search finds laws of many kinds, whatever the scale, and no longer ones than the rows ask for."""

import time
from functools import partial

import numpy as np
import pytest
import sympy

from isr.search import FUNCTIONS, find_laws, products, rational
from isr.search.candidates import Pool, eliminated, fitted
from isr.search.constants import snapped
from isr.search.evaluate import opened, symbol
from isr.search.levenberg import covariance, refit
from isr.search.problem import Problem
from isr.search.rows import Data
from isr.search.selection import select

A, B, C = (symbol(n) for n in "abc")
LAWS = {
    "power": 2 * A * sympy.sqrt(B) / C,
    "sum of monomials": A * B**2 / 2 + 3 * C,
    "ratio": (A + B) / (1 + A * B),
    "root of a sum": sympy.sqrt(A**2 + B**2),
    "factor that changes sign": -A * B * sympy.cos(2 * C),
    "exponential of a ratio": A * sympy.exp(-B / C),
    "difference": A / (B - 4 * C) ** 2,
    "root of a quadratic equation": (A + B) / 2 + sympy.sqrt((A - B) ** 2 / 4 + C**2),
    "offset": (1 - sympy.exp(-A * (1 + B))) / (1 + B),
    "weighted sums": 25.7 * sympy.log((A + 0.05 * B) / (C + 0.3 * B)),
    "law of cosines": sympy.sqrt(A**2 + B**2 - 2 * A * B * sympy.cos(C)),
    "sines of sums": A + sympy.sin(B) + sympy.sin(B + C) / 2,
}


def rows(n=400, seed=0):
    return np.random.default_rng(seed).uniform(1, 3, size=(n, 3))


def values(law, x):
    return opened(law, (A, B, C)).values(list(x.T))


@pytest.mark.parametrize("law", LAWS.values(), ids=LAWS.keys())
def test_an_exact_law_is_found_exactly(law):
    x = rows()
    found = find_laws(x, values(law, x), ["a", "b", "c"], max_time=300)
    fresh = rows(seed=1)
    np.testing.assert_allclose(values(found.best.expression, fresh), values(law, fresh), rtol=1e-8)


@pytest.mark.parametrize("noise", [0.01, 0.1])
def test_under_noise_the_law_is_no_longer_than_the_truth(noise):
    x = rows(300)
    y = x[:, 0] * x[:, 1] ** 2 / 2
    y = y + noise * y.std() * np.random.default_rng(1).normal(size=300)
    assert find_laws(x, y, ["a", "b", "c"], max_time=300).best.expression == A * B**2 / 2


FAMILIES = {
    "root of a quadratic equation": (sympy.sqrt(A**2 + 2 * A * B) - A, rational.roots),
    "number inside": (1 / (sympy.exp(A / 1.7) - 1), partial(products.with_functions, numbers="natural")),
}


@pytest.mark.parametrize(("law", "family"), FAMILIES.values(), ids=FAMILIES.keys())
def test_under_noise_a_family_offers_the_true_form_among_those_that_imitate_it(law, family):
    x = np.random.default_rng(0).uniform(1, 12, size=(400, 2))[:, : len(law.free_symbols)]
    names = (A, B)[: x.shape[1]]
    y = opened(law, names).values(list(x.T))
    y = y + 0.005 * y.std() * np.random.default_rng(1).normal(size=len(y))
    problem = Problem(x, names, y, np.ones(len(y)), lambda e: e, FUNCTIONS)
    pool = Pool(Data.of([str(n) for n in names], x, y))
    for level in (problem, problem.smoothed() or problem):
        for form in family(level, lambda: 1.0):
            pool.offer(problem.lifted(form))
    best = min((snapped(pool.data, c) for c in pool.ranked(5)), key=lambda c: c.description_length)
    beyond = [column * 2 for column in x.T]
    np.testing.assert_allclose(
        opened(best.expression, names).values(beyond), opened(law, names).values(beyond), rtol=0.05
    )


def test_of_columns_that_explain_as_much_up_to_chance_the_simple_ones_are_handed_back():
    rng = np.random.default_rng(0)
    table = rng.normal(size=500) + 0.01 * rng.normal(size=(60, 500))
    target = table[0] + 0.3 * rng.normal(size=500)
    best = {chosen.rows for chosen in select(table, target, np.ones(500), n_terms=1, keep=2)}
    assert {(0,), (1,)} < best
    assert len(best) < 12


@pytest.mark.parametrize("idle", [(sympy.cos(B) + 1.5) ** -0.0006, A**0.0004, sympy.cosh(0.001 * C)])
def test_what_says_nothing_within_its_error_goes(idle):
    x = rows(300)
    y = x[:, 0] / x[:, 1] + 0.01 * np.random.default_rng(1).normal(size=300)
    data = Data.of(["a", "b", "c"], x, y)
    assert snapped(data, eliminated(data, fitted(data, 1.0 * A / B * idle))).expression == A / B


def test_exponents_are_refitted_from_far_away():
    x = rows(300)
    data = Data.of(["a", "b", "c"], x, x[:, 1] * (1 + x[:, 0] ** 2 / 5) ** 3.5)
    found = snapped(data, fitted(data, B * (0.25 * A**2 + 0.9) ** sympy.Float(3.0)))
    assert found.expression == B * (A**2 / 5 + 1) ** sympy.Rational(7, 2)


def test_a_sine_and_a_cosine_become_one_sine_with_a_phase():
    x = rows(300)
    y = 1.3 * np.sin(2.2 * x[:, 0] + 0.4) + 0.05 * np.random.default_rng(1).normal(size=300)
    data = Data.of(["a", "b", "c"], x, y)
    found = eliminated(data, fitted(data, 1.1 * sympy.sin(2.25 * A) + 0.5 * sympy.cos(2.25 * A))).expression
    assert not found.has(sympy.cos)
    np.testing.assert_allclose(values(found, x), 1.3 * np.sin(2.2 * x[:, 0] + 0.4), atol=0.02)


def test_decimal_powers_become_fractions():
    x = rows()
    y = x[:, 0] * x[:, 1] ** 0.3 * x[:, 2] ** 0.7
    expected = A * B ** sympy.Rational(3, 10) * C ** sympy.Rational(7, 10)
    assert find_laws(x, y, ["a", "b", "c"], max_time=300).best.expression == expected


@pytest.mark.parametrize("scale", [1e-8, 1e12])
def test_units_of_any_size_change_nothing(scale):
    x = rows() * scale
    best = find_laws(x, 3 * x[:, 0] / x[:, 1] + x[:, 2] / scale, ["a", "b", "c"], max_time=300).best
    assert best.residual_sd < 1e-9


def test_whole_columns_with_zeros_and_repeated_columns_do_no_harm():
    x = np.random.default_rng(0).integers(0, 9, size=(300, 2)).astype(float)
    x = np.column_stack([x, x[:, 0]])
    best = find_laws(x, x[:, 0] ** 2 + 3 * x[:, 1], ["a", "b", "c"], max_time=300).best
    assert best.residual_sd < 1e-9


def test_time_is_kept():
    x, began = rows(1000), time.monotonic()
    noise = np.random.default_rng(1).normal(size=1000)
    find_laws(x, np.sin(7 * x[:, 0] * x[:, 1]) + x[:, 2] ** 3 * noise, ["a", "b", "c"], max_time=3)
    assert time.monotonic() - began < 15


def test_derivatives_and_covariance_are_those_of_least_squares():
    x = rows()
    law = opened(1.5 * A + 0.7 * B, (A, B, C))
    noise = np.random.default_rng(2).normal(size=400)
    constants, _ = refit(law, list(x.T), 2 * x[:, 0] + x[:, 1] + noise, np.ones(400))
    matrix = x[:, :2]
    np.testing.assert_allclose(
        np.sort(constants), np.sort(np.linalg.lstsq(matrix, 2 * x[:, 0] + x[:, 1] + noise)[0])
    )
    own = covariance(law, list(x.T), np.ones(400), constants)
    np.testing.assert_allclose(np.sort(np.diag(own)), np.sort(np.diag(np.linalg.inv(matrix.T @ matrix))))
