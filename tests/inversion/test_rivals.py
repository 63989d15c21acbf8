"""Laws that follow few rows as well as the one found are kept, and a posterior that they would move says so."""

import warnings

import numpy as np
import pandas as pd
import pytest

import isr
from isr.inversion.law import Column, Group, Law
from isr.inversion.posterior import RivalWarning
from isr.inversion.proposal import find_proposal
from isr.inversion.refit import constants_of, refit
from isr.inversion.rivals import find_doubt, find_rivals
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
    return find_doubt(fitted.law, fitted, find_rivals(fitted.law, forms, x, y)), x, y


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


@pytest.mark.parametrize("start", ["0.1*cos(a) + 0.2*sin(b)", "0.1*cos(a) - 0.9*sin(b)", "0.3*b - 0.1*a"])
def test_values_of_a_refit_stand_in_the_order_of_its_constants(start):
    x, _ = rows(400)
    y = (-0.8 * np.cos(x[:, :1]) - 0.5 * np.sin(x[:, 1:])) + 0.05 * np.random.default_rng(2).normal(
        size=(400, 1)
    )
    fitted = refit(law(start), x, y)
    assert constants_of(fitted.law, ()) == fitted.values.tolist()


def test_a_rival_that_is_shorter_once_all_is_refitted_takes_the_place_of_the_law():
    rng = np.random.default_rng(0)
    x = rng.uniform(-2, 2, size=(1500, 1))
    y = x + np.abs(x) ** 1.5 * rng.normal(size=(1500, 1))
    long = Formula(parse("0.9*sinh(0.5*x1)**2 + 0.3*x1**2 + 0.1", ["x1"]))
    wrong = Column("w", 0, Formula(parse("1.0*x1", ["x1"])), long)
    found = refit(Law(("x1",), (wrong,), (Group((0,)),), n_y=1), x, y).law
    short = Formula(parse("1.0*abs(x1)**1.5", ["x1"]))
    (rival,) = find_rivals(found, {"w": [(None, short)]}, x, y)
    assert rival.length < -1
    assert "Abs(x1)**3" in rival.text


def test_rivals_are_saved_with_the_model(tmp_path):
    x, y = rows(60)
    model = isr.Inversion(random_state=0, law="a**2*b/(1.0 + a)", fallback=False)
    model.fit(pd.DataFrame(x, columns=list(NAMES)), y)
    found = doubt(30, "0.667*a*b*tanh(1.0*a)")[0]
    model.law_, model.doubt_ = found.law, found
    model.proposal_ = find_proposal(model.law_, model.prior_)
    model.save(tmp_path / "few.isr")
    loaded = isr.load(tmp_path / "few.isr")
    told = [model.posterior([v]).open_to for v in (0.3, 1.0, 2.4)]
    assert any(told)
    assert "tanh" in loaded.posterior([1.0]).doubt.rivals[0][0]
    assert [loaded.posterior([v]).open_to for v in (0.3, 1.0, 2.4)] == told


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
