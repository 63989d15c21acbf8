"""A language is added as CONTRIBUTING.md says: a row of the table, and a template."""

import runpy

import numpy as np
import pytest
from jinja2 import ChoiceLoader, DictLoader
from numpy.testing import assert_allclose

from equations.expression_models import make
from isr.bijections.formula import Formulas
from isr.equations import code, extract
from isr.equations.code import LANGUAGES
from isr.equations.code.languages import Language

FUNCTIONS = {name: f"math.{name}" for name in ("exp", "sin", "atan", "sqrt")} | {"Max": "max", "Min": "min"}
MATH = Language("math", "math.py.j2", FUNCTIONS | {"sigmoid": "isr_sigmoid"}, choose="({1} if {0} else {2})")
TEMPLATE = """\
{% from "direction.py.j2" import direction, function %}
# {{ about | join("\\n# ") }}
import math


def isr_square(a):
    return a*a


def isr_sigmoid(a):
    return 1/(1 + math.exp(-a))


{% if inverse %}
{{ direction("forward", forward) }}

{{ direction("inverse", inverse) }}
{% else %}
{% for plan in functions %}
{{ function(plan) }}
{% endfor %}
{% endif %}
"""


@pytest.fixture
def _with_math(monkeypatch):
    environment = code.templates()
    loader = ChoiceLoader([environment.loader, DictLoader({"math.py.j2": TEMPLATE})])
    monkeypatch.setattr(environment, "loader", loader)
    monkeypatch.setitem(LANGUAGES, "math", MATH)


@pytest.mark.usefixtures("_with_math")
def test_a_new_language_writes_flows_and_regressors(tmp_path):
    equations = extract(make("formulas"))
    (tmp_path / "flow.py").write_text(equations.code("math"))
    module = runpy.run_path(str(tmp_path / "flow.py"))
    row = np.array([0.3, -1.2])
    for direction in equations.directions:
        outputs, log_det = module[f"isr_{direction}"](row.tolist())
        expected, expected_log_det = equations.evaluate(direction, row[None, :])
        assert_allclose(outputs, expected[0], rtol=1e-12)
        assert_allclose(log_det, expected_log_det[0], rtol=1e-12)
    law = Formulas(np.array([2.0]), (("mul", ("constant", 0), ("call", "exp", ("input", 0))),), 1, 1)
    (tmp_path / "law.py").write_text(extract(law, ["length"], ["growth"]).code("math"))
    assert_allclose(runpy.run_path(str(tmp_path / "law.py"))["growth"](0.5), 2 * np.exp(0.5))
