"""Laws that follow few rows as well as the one found are kept, and a posterior that they would move says so."""

import warnings

import numpy as np
import pytest

import isr
from isr.inversion.law import Column, Group, Law
from isr.inversion.posterior import RivalWarning
from isr.inversion.refit import refit
from isr.inversion.rivals import find_doubt
from isr.search.formula import Formula, parse

NAMES = ("a", "b")


def law(mean):
    column = Column("w", 0, Formula(parse(mean, NAMES)), Formula(parse("0.05", NAMES)))
    return Law(NAMES, (column,), (Group((0,)),), n_y=1)


def rows(n, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.uniform(0, 2, size=(n, 2))
    return x, (x[:, :1] ** 2 * x[:, 1:] / (1 + x[:, :1])) + 0.05 * rng.normal(size=(n, 1))


def doubt(n, text):
    x, y = rows(n)
    fitted = refit(law("a**2*b/(1.0 + a)"), x, y)
    forms = {"w": [(Formula(parse(text, NAMES)), None)]}
    return find_doubt(fitted.law, fitted, forms, x, y), x, y


def test_a_form_as_likely_is_a_rival_of_few_rows_and_none_of_many():
    few, many = (doubt(n, "0.667*a*b*tanh(1.0*a)")[0] for n in (30, 5000))
    assert len(few.rivals) == 1
    assert "tanh" in few.rivals[0][0]
    assert not many.rivals


def test_the_same_form_in_other_words_is_no_rival():
    assert not doubt(250, "a*b/(1 + 1.0/a)")[0].rivals


def draws(found, y):
    """Draws of the posterior of an observation by the law that was found, where b is nearly known."""
    x = np.random.default_rng(0).uniform([0, 1.9], [2, 1.95], size=(100_000, 2))
    weights = np.exp(found.law.log_prob(x, np.array([[y]])))
    return x[np.random.default_rng(1).choice(len(x), 600, p=weights / weights.sum())]


def said(found):
    """What is said of posteriors all over y."""
    return [found.of(draws(found, y), np.array([[y]])) for y in np.linspace(0.1, 2.4, 9)]


def test_a_rival_moves_posteriors_where_it_parts_from_the_law():
    assert any("tanh" in text for text in said(doubt(30, "0.667*a*b*tanh(1.0*a)")[0]))


def test_constants_of_few_rows_are_rough_and_those_of_many_are_not():
    assert any("for want of rows" in text for text in said(doubt(15, "a**2*b/(1.0 + a)")[0]))
    assert not any(said(doubt(20_000, "a**2*b/(1.0 + a)")[0]))


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 3])
def test_where_a_wrong_form_is_found_a_warning_names_another(seed):
    x, y = rows(250, seed)
    model = isr.Inversion(random_state=0).fit(x, y)
    is_right = np.max(np.abs(model.predict([[2.0, 2.0]]) - 8 / 3)) < 0.02
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.posterior([8 / 3 - 0.05]).sample(1000)
    assert is_right or any(w.category is RivalWarning for w in caught)
