"""A report is one file that stands alone, shows what was given and nothing else, and runs no text of the user."""

import base64
import hashlib
import html
import json
import re
from html.parser import HTMLParser

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
import sympy
from numpy.testing import assert_allclose

from isr.bijections.build import Architecture, build_flow
from isr.bijections.coupling import Coupling
from isr.bijections.flow import Flow
from isr.bijections.formula import Formulas
from isr.equations import extract
from isr.equations.extract import constant_errors
from isr.problems import kinematics
from isr.report import ReportData, gather, render, write_report
from isr.report.explorer import ARM_LENGTHS, ARM_TARGET, ARM_X, ARM_Y, packed, script_json
from isr.report.figures import Axis, axis_of
from isr.report.page import fitting
from isr.storage import Bundle, save
from report.report_models import HOSTILE, PAGES, arm_flow, law

LARGEST = 3_000_000


class Elements(HTMLParser):
    """Every element with its attributes, and the text of the scripts."""

    def __init__(self, text):
        super().__init__()
        self.found, self.scripts = [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))
        if tag == "script":
            self.scripts.append("")

    def handle_data(self, data):
        if self.cdata_elem == "script":
            self.scripts[-1] += data

    @property
    def ids(self):
        return {attributes["id"] for _, attributes in self.found if "id" in attributes}


@pytest.fixture(scope="module")
def elements(page_of):
    return lambda name: Elements(page_of(name)[0].read_text("utf-8"))


SECTIONS = {
    "law",
    "explorer",
    "equations",
    "front",
    "samples",
    "fits",
    "calibration",
    "checks",
    "provenance",
}
SHOWN = {
    "arm": SECTIONS - {"law", "front", "fits"},
    "joint": {"explorer", "equations", "provenance"},
    "density": {"explorer", "equations", "front", "samples", "checks", "provenance"},
    "padded": {"explorer", "equations", "provenance"},
    "law": {"equations", "fits", "provenance"},
    "laws": {"equations", "law", "fits", "provenance"},
}


@pytest.mark.parametrize("name", SHOWN)
def test_a_page_has_the_sections_it_was_given_and_no_others(elements, name):
    page = elements(name)
    assert page.ids & SECTIONS == SHOWN[name]
    links = {a["href"][1:] for tag, a in page.found if tag == "a" and a["href"] != "#main"}
    assert links == SHOWN[name] | {"summary"}


@pytest.mark.parametrize("name", [*PAGES, "hostile"])
def test_a_page_stands_alone(elements, page_of, name):
    text = page_of(name)[0].read_text("utf-8")
    assert len(text.encode()) < LARGEST
    for tag, attributes in elements(name).found:
        assert tag not in ("link", "iframe", "object", "embed", "base", "form"), tag
        assert "src" not in attributes
        assert attributes.get("href", "#").startswith("#")
        assert not [a for a in attributes if a.startswith("on")]
    outside = set(re.findall(r"https?://[^\s\"'<>\\)]*", text))
    assert outside <= {"http://www.w3.org/1998/Math/MathML"}
    assert "@import" not in text
    assert not re.search(r"url\(\s*['\"]?(?!data:|#)[\w/]", text)


@pytest.mark.parametrize("name", [*PAGES, "hostile"])
def test_only_the_one_script_may_run(elements, name):
    page = elements(name)
    data, script = page.scripts
    json.loads(data)
    policy = next(a["content"] for tag, a in page.found if a.get("http-equiv") == "Content-Security-Policy")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in policy
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy.replace("style-src 'unsafe-inline'", "")


@pytest.mark.parametrize(("low", "high"), [(-0.9, 0.8), (0.0, 1.0), (-1.3, 1.4), (199.0, 241.0)])
def test_an_axis_has_two_ticks_at_least(low, high):
    for n in (2, 3, 5):
        assert 2 <= len(Axis(low, high).ticks(n)) <= 2 * n + 2


def test_hostile_names_stay_text(elements, page_of):
    page = elements("hostile")
    harmless = {tag for name in ("arm", "density") for tag, _ in elements(name).found}
    assert {tag for tag, _ in page.found} <= harmless | {"pre", "code"}
    explorer = json.loads(page.scripts[0])["explorer"]
    assert [v["name"] for v in explorer["x"] + explorer["y"]] == list(HOSTILE)
    text = page_of("hostile")[0].read_text("utf-8")
    for name in HOSTILE:
        assert html.escape(name) in text or html.escape(name, quote=False) in text


@pytest.mark.parametrize("text", ["</script>", "<!--", "]]>", "&amp;", "\u2028", "é"])
def test_json_in_a_page_cannot_end_its_element(text):
    safe = script_json({text: text})
    assert json.loads(safe) == {text: text}
    assert safe.isascii()
    assert not re.search("[<>&]", safe)


def test_json_in_a_page_refuses_what_is_no_number():
    with pytest.raises(ValueError, match="not JSON compliant"):
        script_json([float("nan")])


def test_long_texts_are_packed_smaller():
    text = "x = 1\n" * 20_000
    assert packed("short") == {"text": "short"}
    assert len(packed(text)["deflate"]) < len(text) / 20


def test_sources_too_long_for_the_page_are_left_out():
    noise = {name: str(np.random.default_rng(k).random(4000).tolist()) for k, name in enumerate("abc")}
    sizes = {name: len(packed(text)["deflate"]) for name, text in noise.items()}
    assert list(fitting(noise, sizes["a"] + sizes["b"])) == ["a", "b"]
    assert list(fitting({**noise, "d": "short"}, sizes["a"] + 10)) == ["a", "d"]


@pytest.mark.slow
def test_a_dense_network_fits_into_a_page(tmp_path):
    flow = arm_flow(Architecture(n_blocks=6, n_layers=3))
    x, y = kinematics.sample(1000, random_state=0)
    path = write_report(flow, tmp_path / "report.html", data=(x, y), checks=False)
    assert path.stat().st_size < LARGEST
    assert "more equations are left out here" in path.read_text("utf-8")


def test_standard_errors_follow_the_derivative_of_a_printed_constant():
    # s1 = c0 gives the printed factor exp(c0), t2 = c1 * v1 the factor c1 itself.
    zero = ("number", 0)
    first = Formulas(jnp.array([0.3]), (("constant", 0), zero), stack=2, n_inputs=1)
    second = Formulas(jnp.array([0.7]), (zero, ("mul", ("constant", 0), ("input", 0))), stack=2, n_inputs=1)
    flow = Flow(Coupling(first, second, split=1, dim=2))
    found = constant_errors(flow, np.array([0.01, 0.02]), lambda f: extract(f).forward.expressions)
    assert_allclose(found[float(np.exp(np.float64(0.3)))], 0.01 * np.exp(0.3), rtol=1e-4)
    assert_allclose(found[0.7], 0.02, rtol=1e-4)


def test_a_constant_made_of_two_fitted_numbers_has_no_error():
    tree = ("mul", ("constant", 0), ("constant", 1), ("input", 0))
    formulas = Formulas(jnp.array([0.3, 0.7]), (tree,), stack=1, n_inputs=1)
    write = lambda m: [sympy.Float(float(m.constants[0] * m.constants[1])) * sympy.Symbol("x")]  # noqa: E731
    assert constant_errors(formulas, np.array([0.1, 0.1]), write) == {}


def test_standard_errors_are_shown_where_they_are_known(page_of):
    text = page_of("law")[0].read_text("utf-8")
    assert "<mn>0.250(10)</mn>" in text
    assert "<mn>1.5</mn>" in text


def test_sources_to_copy_are_those_of_the_expressions(elements):
    sources = json.loads(elements("density").scripts[0])["sources"]
    expressions = extract(PAGES["density"]().bundle.model, ["x0", "x1"])
    assert sources["Python"]["text"] == expressions.code("python")
    assert sources["C"]["text"] == expressions.code("c")
    assert expressions.latex("forward") in sources["LaTeX"]["text"]
    assert expressions.latex("inverse") in sources["LaTeX"]["text"]


def test_sources_of_a_regressor_run():
    sources = json.loads(Elements(render(law())).scripts[0])["sources"]
    names = {}
    exec(sources["Python"]["text"], names)  # noqa: S102
    assert sources["C"]["text"] == extract(law().bundle.model, ["t"]).code("c")
    assert_allclose(names["y"](0.1), 0.25 + 1.5 * np.sin(0.2 * np.pi))
    assert "double y(double t)" in sources["C"]["text"]
    assert "det J" not in sources["LaTeX"]["text"]


def test_the_arm_is_that_of_the_problem():
    assert (ARM_LENGTHS, ARM_TARGET) == (kinematics.LENGTHS, kinematics.TARGET)
    assert (ARM_X, ARM_Y) == (kinematics.X_NAMES, kinematics.Y_NAMES)


def scene_of(data):
    return json.loads(Elements(render(data)).scripts[0])["explorer"]["scene"]


def test_the_arm_is_known_by_its_names_in_any_order():
    swapped = Bundle(arm_flow(), kinematics.X_NAMES[::-1], kinematics.Y_NAMES[::-1])
    assert scene_of(gather(swapped, checks=False)) == {
        "lengths": [0.5, 0.5, 1.0],
        "x": [3, 2, 1, 0],
        "y": [1, 0],
    }
    assert scene_of(gather(arm_flow(), checks=False)) is None


def test_contents_may_be_put_together_by_hand():
    x, y = kinematics.sample(40, random_state=0)
    page = render(ReportData(Bundle(arm_flow(), kinematics.X_NAMES, kinematics.Y_NAMES), x=x, y=y))
    assert "Posterior, live" in page
    assert render(ReportData(Bundle(None))).count("<section") == 1


def test_rows_that_are_no_numbers_are_left_out():
    x, y = kinematics.sample(40, random_state=0)
    x[3, 1], y[5, 0] = np.nan, np.inf
    data = gather(arm_flow(), data=(x, y), checks=False)
    assert (len(data.x), len(data.y)) == (38, 38)
    render(data)


def test_a_frame_gives_its_columns_by_name():
    frame = pd.DataFrame({"b": [1.0, 2.0], "seen": [5.0, 6.0], "a": [3.0, 4.0]})
    flow = build_flow(
        jax.random.key(0), 2, condition_dim=1, architecture=Architecture(n_blocks=1, n_layers=1)
    )
    data = gather(Bundle(flow, ("a", "b"), ("seen",)), data=frame, checks=False)
    assert data.x.tolist() == [[3.0, 1.0], [4.0, 2.0]]
    assert data.y.tolist() == [[5.0], [6.0]]


def test_a_saved_model_gives_its_figures_along_the_front(tmp_path):
    front = {"complexity": [3, 9], "nll": [2.0, 1.0], "n_parameters": [1, 4], "chosen": [False, True]}
    flow = build_flow(jax.random.key(0), 2, architecture=Architecture(n_blocks=1, n_layers=1))
    path = save(
        Bundle(flow, metadata={"front": front, "seed": 7, "status": "converged"}), tmp_path / "model.isr"
    )
    data = gather(path, checks=False)
    assert [(p.complexity, p.held_out_nats, p.n_constants) for p in data.bundle.points] == [
        (3, 2, 1),
        (9, 1, 4),
    ]
    assert data.bundle.chosen == 1
    assert data.provenance["seed"] == "7"
    page = render(data)
    assert "The equations of this model were not saved." in page
    assert "converged" in page


REFUSED = [
    (lambda: gather(3), TypeError, "cannot report on a int; give a flow, a fitted estimator"),
    (
        lambda: gather(arm_flow(), data=np.zeros((5, 3)), checks=False),
        ValueError,
        "4 variables in x, .* 3 columns",
    ),
    (lambda: gather(arm_flow(), data=(np.zeros((5, 4)), np.zeros((4, 2)))), ValueError, "5 rows and y has 4"),
    (
        lambda: gather(law().bundle.model, data=(np.zeros((5, 1)), np.zeros(4))),
        ValueError,
        "5 rows and y has 4",
    ),
    (lambda: gather(arm_flow(), y_star=[1.0]), ValueError, "y_star must have 2 entries, got 1"),
]


@pytest.mark.parametrize(("call", "error", "message"), REFUSED)
def test_what_does_not_fit_is_refused_in_words(call, error, message):
    with pytest.raises(error, match=message):
        call()


@pytest.mark.parametrize(("low", "high"), [(0, 1), (-3.2, 11.7), (1e-9, 2e-9), (1e6, 1e6 + 3), (-1, 0.5)])
@pytest.mark.parametrize("log", [False, True])
def test_ticks_are_round_and_inside(low, high, log):
    if log:
        low, high = abs(low) + 1e-3, abs(high) * 50 + 1
    ticks = Axis(low, high, log=log).ticks()
    assert 2 <= len(ticks) <= 15
    assert all(low <= t <= high for t in ticks)


def test_an_axis_covers_what_is_finite():
    axis = axis_of([1.0, float("nan"), 3.0, float("inf")])
    assert axis.low < 1.0 < 3.0 < axis.high < 10
    assert axis_of([]).low < axis_of([]).high
    assert axis_of([2.0, 2.0]).low < 2.0 < axis_of([2.0, 2.0]).high
