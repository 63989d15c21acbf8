"""Whether a formula was found: pairs whose answer is known."""

import time

import numpy as np
import pytest
import sympy as sp

import recovery
from formulas import Formula, family
from recovery import judge
from worker import Ended, Worker

x0, x1, x2, x3 = X = sp.symbols("x0:4", real=True)
UNIT = (1.0, 3.0)


def formula(expression, *ranges):
    n = len(expression.free_symbols)
    ranges = ranges or (UNIT,) * n
    return Formula("truth", expression, ranges, ranges)


COULOMB = x0 * x1 / (4 * sp.pi * x2**2)
WAVES = x0 + x1 + 2 * sp.sqrt(x0 * x1) * sp.cos(x2)
SCREEN = x0 * sp.sin(x1 / 2) ** 2
GAS = x0 * sp.Float(0.0821) * x1 / (x2 - sp.Float(0.0427) * x0) - sp.Float(3.59) * x0**2 / x2**2
TANH = x0 * sp.tanh(x1 / 2)
U = x1 / 2
PADE = x0 * U * (945 + 105 * U**2 + U**4) / (945 + 420 * U**2 + 15 * U**4)
SQUARE = (x0 + x1) ** 2
ARC = sp.sin((x0 - x1) / 2) ** 2 + sp.cos(x0) * sp.cos(x1) * sp.sin(x2 / 5) ** 2
ANGLE = 2 * sp.asin(sp.sqrt(ARC))

# truth, found, symbolic by SRBench's rule, strict
PAIRS = {
    "the same": (COULOMB, COULOMB, True, True),
    "written otherwise": (SCREEN, x0 * (1 - sp.cos(x1)) / 2, True, True),
    "all digits of single precision": (COULOMB, 0.0795775 * x0 * x1 / x2**2, True, True),
    "one constant 1 % off, a factor": (COULOMB, 0.0804 * x0 * x1 / x2**2, True, True),
    "one constant 3 % off, a factor": (COULOMB, 0.0820 * x0 * x1 / x2**2, True, False),
    "one constant 1 % off": (WAVES, 1.01 * x0 + x1 + 2 * sp.sqrt(x0 * x1) * sp.cos(x2), False, True),
    "one constant 3 % off": (WAVES, x0 + x1 + 2.06 * sp.sqrt(x0 * x1) * sp.cos(x2), False, False),
    "one constant off in the fourth digit": (
        WAVES, 0.9997 * x0 + x1 + 2.0001 * sp.sqrt(x0 * x1) * sp.cos(x2), True, True,
    ),
    "a constant too much": (SCREEN, x0 * sp.sin(x1 / 2) ** 2 + 0.7, True, False),
    "twice": (WAVES, 2 * WAVES, True, False),
    "opposite": (WAVES, -WAVES, True, False),
    "another form, constants 1 % off": (SCREEN, x0 * (0.505 - 0.495 * sp.cos(1.003 * x1)), False, True),
    "another form, constants 3 % off": (SCREEN, x0 * (0.515 - 0.5 * sp.cos(x1)), False, False),
    "expanded, each term a little off": (
        SQUARE, 1.01 * x0**2 + 1.99 * x0 * x1 + 0.995 * x1**2, False, True,
    ),
    "a term too much": (WAVES, WAVES + 0.01 * x2, False, False),
    "a term of no account": (COULOMB, COULOMB + 1e-12 * x0, True, True),
    "a term too few": (WAVES, x0 + x1, False, False),
    "a power slightly off": (COULOMB, 0.0795775 * x0 * x1 / x2**sp.Float(2.01), False, True),
    "another power": (COULOMB, 0.0795775 * x0 * x1 / x2**sp.Float(2.1), False, False),
    "constants as in life": (
        GAS, 0.082 * x0 * x1 / (x2 - 0.0425 * x0) - 3.62 * x0**2 / x2**2, False, True,
    ),
    "life, one off": (
        GAS, 0.0821 * x0 * x1 / (x2 - 0.0427 * x0) - 3.7 * x0**2 / x2**2, False, False,
    ),
    "tanh by a rational function": (TANH, PADE, False, False),
    "a mean": (COULOMB, sp.Float(0.2), False, False),
    "nothing": (COULOMB, sp.Integer(0), False, False),
    "a pole": (COULOMB, COULOMB + 1e-12 * sp.log(x0 - 2), False, False),
    "a guard that never acts": (COULOMB, 0.0795775 * x0 * x1 / sp.Max(0.01, x2) ** 2, True, True),
    "a guard that acts": (COULOMB, 0.0795775 * x0 * x1 / sp.Max(1.5, x2) ** 2, False, False),
    "one constant 1 % off, deep inside": (ANGLE, 2 * sp.asin(sp.sqrt(ARC.subs(x1, 1.01 * x1))), False, True),
    "one constant 3 % off, deep inside": (ANGLE, 2 * sp.asin(sp.sqrt(ARC.subs(x1, 1.03 * x1))), False, False),
    "a root of a negative multiple": (sp.sqrt(4 - x0), 1.01 * sp.sqrt(-x0 * 0.99 + 4), False, True),
    "a size where there is no sign": (COULOMB, sp.Abs(x0) * x1 / (4 * sp.pi * x2**2), True, True),
}  # fmt: skip


@pytest.mark.parametrize(("truth", "found", "symbolic", "strict"), PAIRS.values(), ids=PAIRS.keys())
def test_the_verdict_on_a_pair_is_the_known_one(truth, found, symbolic, strict):
    verdict = judge(found, formula(truth))
    assert (verdict.symbolic, verdict.strict) == (symbolic, strict), verdict.reason


def test_a_wide_range_tells_a_function_from_its_imitation():
    truth = formula(TANH, (1.0, 2.0), (-1.0, 1.0))
    fraction = sp.lambdify(X[:2], PADE)
    x = np.linspace(-1, 1, 50)
    assert np.abs(fraction(1.0, x) - np.tanh(x / 2)).max() < 1e-8
    assert not judge(PADE, truth).strict


def test_strict_is_symbolic_where_nothing_was_rounded():
    for name in ("feynman", "strogatz", "kim", "arm"):
        for one in family(name).values():
            assert judge(one.expression, one) == recovery.Verdict(True, True)


@pytest.mark.parametrize("name", ["I.6.2b", "I.15.3t", "I.37.4", "II.35.18", "III.9.52"])
def test_every_constant_of_a_listed_formula_may_be_one_percent_off(name):
    one = family("feynman")[name]
    off = one.expression.xreplace({n: 1.01 * n for n in [sp.Integer(2)] if one.expression.is_Add})
    assert judge(sp.Float(1.01) * off, one).strict
    assert not judge(sp.Float(1.03) * off, one).strict
    assert judge(sp.Float(1.03) * one.expression, one).symbolic


def test_sympy_is_asked_as_srbench_does():
    assert recovery.simplifies_to_constant(0.33333 * x0 * x1, x0 * x1 / 3)
    assert recovery.simplifies_to_constant(x0 * 1.50001 + 0.2, 3 * x0 / 2)
    assert not recovery.simplifies_to_constant(0.34 * x0 + x1, x0 / 3 + x1)


def test_a_call_that_takes_too_long_ends_and_the_next_one_works():
    with Worker() as worker:
        with pytest.raises(Ended, match="not done after 1 s"):
            worker.call(time.sleep, 60, seconds=1)
        assert worker.call(recovery.simplifies_to_constant, 2 * x0, x0, seconds=60) is True
        with pytest.raises(RuntimeError, match="ZeroDivisionError"):
            worker.call(divmod, 1, 0, seconds=60)


@pytest.mark.parametrize("name", ["feynman", "strogatz", "kim", "arm"])
def test_a_family_has_its_formulas_and_finite_rows(name):
    formulas = family(name)
    assert len(formulas) == {"feynman": 63, "strogatz": 14, "kim": 10, "arm": 2}[name]
    for one in formulas.values():
        x, y = one.rows(200, 0)
        assert np.isfinite(y).all()
        assert y.shape == (len(x),) == ((400,) if name == "strogatz" else (200,))


def test_trajectories_follow_their_equations():
    one, two = family("strogatz")["glider1"], family("strogatz")["glider2"]
    assert one.path is not None
    seen, between = one.path
    # The mean of the slopes at both ends and in the middle, by Simpson's rule, leads to the next point.
    for i, equation in enumerate((one, two)):
        slope, middle = equation.values(seen), equation.values(between)
        step = 0.1 * (slope[:99] + 4 * middle[:99] + slope[1:100]) / 6
        np.testing.assert_allclose(seen[1:100, i] - seen[:99, i], step, atol=2e-4)


def test_an_unknown_family_is_told_with_those_there_are():
    with pytest.raises(ValueError, match=r"unknown family 'nobody'; known: arm, .*feynman, fields, .*kim, "):
        family("nobody")
