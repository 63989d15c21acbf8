"""Laws are written as short as algebra allows, and keep their values."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from isr.search.evaluate import opened
from isr.search.formula import parse
from isr.search.rows import Data
from isr.search.tidy import tidied

CASES = {
    "s**2*v/(k**2*(1 + s**2/k**2))": "s**2*v/(k**2 + s**2)",
    "-r/((1 - n)*(1 - r/p))": "p*r/((n - 1)*(p - r))",
    "h + 0.0257*log(1/q)/n": "h - 0.0257*log(q)/n",
    "sqrt(a**2 - 2*a + 1)": "Abs(a - 1)",
    "b/(a**2 - 3*a + 9/4 + b**2)": "b/(b**2 + (a - 3/2)**2)",
    "sqrt(a + 1)*sqrt(b)/sqrt(k)": "sqrt(b*(a + 1)/k)",
    "0.5*cos(a) + cos(a + b)": "0.5*cos(a) + cos(a + b)",
}


@pytest.mark.parametrize("text", CASES)
def test_the_shortest_form_has_the_same_values(text):
    names = sorted(set("abhknpqrstv") & set(text.replace("cos", "").replace("log", "").replace("sqrt", "")))
    x = np.random.default_rng(0).uniform(1, 2, size=(100, len(names)))
    data = Data.of(names, x, x[:, 0], None, None)
    law = parse(text, names)
    found = tidied(law, data)
    assert len(str(found)) <= len(str(law))
    assert_allclose(
        opened(found, data.symbols).values(data.columns), opened(law, data.symbols).values(data.columns)
    )
    assert str(found) == CASES[text]
