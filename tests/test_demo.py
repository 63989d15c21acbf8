"""The demonstration holds what it says."""

import numpy as np
import sympy
from numpy.testing import assert_allclose

from isr.demo import banana_law, run
from isr.expressions import extract
from isr.problems.densities import BANANA


def test_the_demonstration_prints_both_directions_checks_them_and_writes_a_page(tmp_path):
    lines = []
    result = run(lines.append, tmp_path / "demo")
    text = "\n".join(lines)
    assert result.passed
    assert "z₁      = v₁" in text or "z1 = 0.5*x0" in text
    assert "entropy 3.531" in text
    page = (tmp_path / "demo" / "report.html").read_text("utf-8")
    assert page.count("<math") == 2
    assert "<svg" in page
    assert "http://" not in page.replace("http://www.w3.org/1998/Math/MathML", "")
    assert "https://" not in page


def test_the_law_built_by_hand_is_the_exact_law():
    composed = extract(banana_law(), ["x0", "x1"]).composed()
    for found, exact in zip(composed.outputs, BANANA.law, strict=True):
        assert sympy.nsimplify(sympy.expand(found), rational=True) - sympy.expand(exact) == 0
    x = BANANA.sample(1000, random_state=0)
    assert_allclose(banana_law().log_prob(x), BANANA.log_prob(x), rtol=1e-12)
    assert np.isclose(BANANA.entropy, 3.531, atol=1e-3)
