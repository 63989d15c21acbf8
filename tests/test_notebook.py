"""What a terminal and a notebook show of models, equations and fronts: readable, and no text of the user runs."""

from html.parser import HTMLParser
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

import isr
from isr.bijections.affine import Standardise
from isr.bijections.build import Architecture, build_flow
from isr.bijections.formula import Formulas
from isr.equations import extract
from isr.formulas.front import Front, Point
from isr.posterior.outliers import Extent, TrainingRecord
from isr.storage import Bundle
from isr.tables.tables import Columns
from isr.training.checkpoint import History

HOSTILE = ("</td><script>run()</script>", "<img src=x onerror=run()>", '"><svg onload=run()>')
FRONT = {"complexity": [3, 9], "nll": [2.0, 1.0], "n_parameters": [1, 4], "chosen": [False, True]}


def flow():
    return build_flow(
        jax.random.key(0), 2, condition_dim=1, architecture=Architecture(n_blocks=1, n_layers=1)
    )


def law():
    return Formulas(jnp.array([2.5]), (("mul", ("constant", 0), ("input", 0), ("input", 1)),), 1, 2)


def bundle(names=("length", "mass (kg)", "force"), model=None):
    units = {names[0]: "m" if names[0] == "length" else HOSTILE[1]}
    return Bundle(
        model or flow(), names[:2], names[2:], units, "ConditionalISR", {"front": FRONT, "status": "done"}
    )


def fitted(names=("length", "mass (kg)", "force")):
    """A model put together by hand, since a fit takes long."""
    model, known = isr.ConditionalISR(bounds={names[0]: (-5, 5)}, units={names[0]: "m"}), flow()
    point = Point(known, 9, 4, 1.0, 1.0, np.zeros(3))
    model.fit_ = SimpleNamespace(front=[point], chosen=0, errors=np.zeros(4), labels={}, charts=())
    model.columns_, model.y_columns_ = Columns(names[:2], ("m", None)), Columns(names[2:], (None,))
    model.noise_, model.training_ = (
        np.zeros(1),
        TrainingRecord.of(np.random.default_rng(0).normal(size=(30, 1))),
    )
    model.extent_ = Extent.of(np.random.default_rng(0).normal(size=(30, 2)))
    model.status_, model.seed_, model.history_ = "converged", 0, History()
    model._use(0)
    return model


def front(names=("length",)):
    return Front({**FRONT, "equations": [f"z1 = {names[0]}", f"z1 = {names[0]}\nz2 = 3"]})


SHOWN = {
    "fitted estimator": fitted,
    "saved model": bundle,
    "saved regressor": lambda names=("length", "mass (kg)", "force"): bundle(names, law()),
    "equations": lambda names=("length", "mass (kg)", "force"): extract(flow(), names[:2], names[2:]),
    "one direction": lambda names=("length", "mass (kg)", "f"): extract(flow(), names[:2], names[2:]).forward,
    "formulas": lambda names=("length", "mass (kg)", "force"): extract(law(), names[:2], names[2:]),
    "front": front,
}


def test_units_stand_beside_equations():
    units = {"length": "m", "force": "N"}
    for shown in (
        extract(flow(), ("length", "mass"), ("force",), units),
        extract(law(), ("length", "mass"), ("force",), units),
    ):
        assert "# length in m\n" in shown._repr_html_()
        assert "% length in m" in shown.latex()


class Tags(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.found, self.attributes, self.text = set(), set(), ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.found.add(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_data(self, data):
        self.text += data


def html_of(thing):
    """What Jupyter would show; it asks for all forms first."""
    if hasattr(thing, "_repr_mimebundle_"):
        return thing._repr_mimebundle_()["text/html"]
    return thing._repr_html_()


@pytest.mark.parametrize("name", SHOWN)
def test_a_notebook_shows_what_it_is(name):
    shown = Tags(html_of(SHOWN[name]()))
    assert "length" in shown.text or "ℓ" in shown.text
    assert shown.found & {"pre", "table"}


@pytest.mark.parametrize("name", SHOWN)
def test_hostile_names_stay_text_in_a_notebook(name):
    plain, hostile = Tags(html_of(SHOWN[name]())), Tags(html_of(SHOWN[name](HOSTILE)))
    assert hostile.found <= plain.found | {"mtext"}
    assert hostile.attributes <= plain.attributes
    assert HOSTILE[0] in hostile.text


@pytest.mark.parametrize("name", [n for n in SHOWN if n != "fitted estimator"])
def test_a_terminal_shows_few_lines(name):
    text = repr(SHOWN[name]())
    assert "length" in text
    assert len(text.splitlines()) <= 8
    assert "array" not in text


def test_a_saved_model_says_what_it_is():
    assert repr(bundle()) == "<saved ConditionalISR of length (m), mass (kg), given force>"
    assert repr(Bundle(flow())) == "<saved flow of x1, x2, given y1>"


def test_a_notebook_shows_the_parameters_before_a_fit_and_what_was_found_after():
    assert "margin:.2em" not in html_of(isr.ConditionalISR())
    shown = Tags(html_of(fitted())).text
    assert "ConditionalISR of length (m), mass (kg), given force" in shown
    assert "n_blocks" in shown


def test_long_equations_are_cut_in_a_notebook():
    deep = extract(build_flow(jax.random.key(0), 4, architecture=Architecture(n_blocks=6, n_layers=3)))
    shown = deep._repr_html_()
    assert "more lines; print it to read them" in shown
    assert len(shown) < 500_000


def test_a_front_is_a_frame_and_its_parts_are_plain_frames():
    table = front()
    assert isinstance(table, pd.DataFrame)
    assert type(table[["nll"]]) is pd.DataFrame
    assert table["nll"].min() == 1.0
    pd.testing.assert_frame_equal(pd.DataFrame(table), table, check_frame_type=False)
    assert "z2 = 3" in repr(table)
    assert repr(Front(FRONT)) == repr(pd.DataFrame(FRONT))
    with pd.option_context("display.notebook_repr_html", False):
        assert table._repr_html_() is None


def test_long_equations_of_a_front_are_cut():
    table = front((" + ".join(["x"] * 500),)).assign(equations=["\n".join(["z = 1"] * 99)] * 2)
    assert "and 87 more lines" in Front(table)._repr_html_()
    assert len(repr(front((" + ".join(["x"] * 500),)))) < 600


def test_flows_and_histories_are_told_in_a_line():
    flow = isr.Flow(Standardise((2.0, 1.0), (0.5, 1.0)))
    assert repr(flow) == "<flow of 2 variables: Standardise>"
    history = History(["warm up", "warm up", "refit"], [np.ones(2)] * 3, [np.array([3.0, 2.0])] * 3)
    assert repr(history) == "<history of 3 epochs (warm up 2, refit 1), best held-out loss 2>"
