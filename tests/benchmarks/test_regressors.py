"""How a model is chosen from the front of a symbolic regression."""

import numpy as np
import pytest
import sympy as sp

from peers.regressors import by_bic, without_idle_constant

# What pyoperon has for Coulomb's law, I.12.2 (512 rows): error, constants and nodes. The last one is the law.
COULOMB = [
    (5.70e-3, 3, 5), (4.60e-3, 3, 6), (4.24e-3, 4, 7), (2.83e-3, 4, 8), (2.48e-3, 5, 9), (1.80e-3, 5, 10),
    (4.79e-4, 6, 11), (9.94e-5, 6, 12), (9.53e-17, 7, 13),
]  # fmt: skip


@pytest.mark.parametrize("error", [9.53e-17, 0.0])
def test_the_exact_model_on_a_front_is_chosen(error):
    front = [*COULOMB[:-1], (error, *COULOMB[-1][1:])]
    assert by_bic(front, n=512, noise=1.3e-8)[2] == 13


def test_of_models_within_the_noise_the_one_with_fewest_constants_is_chosen():
    front = [(0.3, 2, "wrong"), (9e-5, 3, "short"), (1e-9, 9, "long")]
    assert by_bic(front, n=512, noise=1e-2)[2] == "short"
    assert by_bic(front, n=512, noise=1e-6)[2] == "long"


@pytest.mark.parametrize(("constant", "left"), [(1e-3, False), (0.1, True)])
def test_an_added_constant_within_its_error_goes(constant, left):
    x0 = sp.Symbol("x0", real=True)
    rng = np.random.default_rng(0)
    x = rng.uniform(1, 2, (400, 1))
    y = 3 * x[:, 0] ** 2 + (constant if left else 0.0) + 0.05 * rng.standard_normal(400)
    found = 3 * x0**2 + constant
    assert without_idle_constant(found, x, y, noise=1e-8) == (found if left else 3 * x0**2)
