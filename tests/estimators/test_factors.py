"""Powers of inputs that divide an output are found where they are there, and only there."""

from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
import sympy

import isr
from isr.estimators.factors import Factor, find_factor
from isr.problems.comparison import same_law

ALL = {"product", "reciprocal", "sqrt", "square"}
X = np.random.default_rng(0).uniform(1, 4, (400, 3))
A, B, C = X.T


def powers(y, library=ALL, x=X):
    return [float(p) for p in find_factor(x, y, library).powers]


@pytest.mark.parametrize("noise", [0.0, 0.05])
@pytest.mark.parametrize(
    ("y", "expected"),
    [
        (6.7e-11 * A * B / C**2, [1, 1, -2]),
        (-3e8 * A**3, [3, 0, 0]),
        (np.sqrt(A / B), [0.5, -0.5, 0]),
        (A * np.sin(C / 2), [1, 0, 0]),
        (A * (B**2 + C**2) / 2, [1, 0, 0]),
        (B**1.5 * np.exp(-A * C), [0, 1.5, 0]),
    ],
)
def test_powers_are_found_beside_any_function_of_the_rest(y, expected, noise):
    y = y * np.exp(noise * np.random.default_rng(1).normal(size=len(y)))
    assert powers(y) == expected


@pytest.mark.parametrize(
    "y",
    [A + B, A**2 + B, A * B + C, np.exp(A), np.log(A + 1), 1 / (A + B), A**0.8, np.ones(400), A - 2 * B],
    ids=str,
)
def test_where_there_is_no_factor_none_is_made_up(y):
    assert powers(y) == [0, 0, 0]


def test_only_what_the_library_offers_is_used():
    y = A * B / np.sqrt(C)
    assert powers(y, {"product", "reciprocal"}) == [1, 1, 0]
    assert powers(A / B, {"product"}) == [1, 0, 0]
    assert powers(A * B, {"square", "sin"}) == [0, 0, 0]


def test_inputs_that_are_not_positive_or_hardly_vary_have_no_power():
    x = X - [0.0, 2.0, 0.0]
    assert powers(x[:, 0] * (5 + x[:, 1]), x=x) == [1, 0, 0]
    narrow = 3 + 0.01 * X
    assert powers(narrow[:, 0] * narrow[:, 1], x=narrow) == [0, 0, 0]


@pytest.mark.parametrize("size", [1e-300, 1e300])
def test_inputs_of_any_size_are_no_trouble(size):
    x = X * [1.0, 1.0, size] - [0.0, 0.0, 2.0 * size]
    assert powers(A * B, x=x) == [1, 1, 0]
    assert powers(A / size * 1e-5, x=np.stack([A, B, C * size], axis=1))[0] == 1


def test_few_rows_or_many_columns_are_no_trouble():
    assert powers((A * B)[:10], x=X[:10]) == [0, 0, 0]
    many = np.random.default_rng(2).uniform(1, 4, (300, 200))
    assert not any(find_factor(many, many[:, 0], ALL).powers)


def test_rows_outside_of_those_that_tell_must_be_positive_too():
    x = X.copy()
    x[-1, 0] = -1.0
    assert powers(np.abs(x[:, 0]) * B, x=x) == [0, 1, 0]
    found = find_factor(x, np.abs(x[:, 0]) * B, ALL, among=np.arange(399))
    assert [float(p) for p in found.powers] == [0, 1, 0]


def test_values_and_expression_of_a_factor_agree():
    factor = Factor((Fraction(2), Fraction(-3, 2), Fraction(0)))
    inputs = sympy.symbols("a b c", positive=True)
    meaning = {"reciprocal": lambda u: 1 / u, "sqrt": np.sqrt}
    values = sympy.lambdify(inputs, factor.expression(inputs), [meaning, "numpy"])(A, B, C)
    np.testing.assert_allclose(values, factor.values(X), rtol=1e-12)


@pytest.mark.parametrize("n_columns", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_a_law_of_products_and_quotients_comes_back_exactly(n_columns):
    y = np.stack([6.7e-11 * A * B / C**2, A + B**2], axis=1)[:, :n_columns]
    library = {"constant": 1, "id": 2, "square": 1, "product": 1, "reciprocal": 1}
    model = isr.EQLRegressor(
        library=library,
        n_layers=1,
        training=isr.Training("quick", n_restarts=3, verbose=False),
        random_state=0,
    ).fit(pd.DataFrame(X, columns=["x0", "x1", "x2"]), y)
    a, b, c = sympy.symbols("x0 x1 x2")
    truth = [6.7e-11 * a * b / c**2, a + b**2][:n_columns]
    assert same_law(list(model.expressions_), truth, X, up_to="nothing")
