"""Every printed form says the same as the equations, whatever the variables are called."""

import re
from xml.dom import minidom

import jax
import numpy as np
import pytest
import sympy
from numpy.testing import assert_allclose
from sympy.parsing.sympy_parser import parse_expr

from equations.expression_models import make, rows_for
from isr.bijections.build import Architecture, build_flow
from isr.equations import ExpressionTooLarge, Phi, PhiInverse, complexity, extract, n_constants
from isr.equations.functions import sigmoid
from isr.equations.program import Program, composed_size
from isr.equations.text import text, with_error
from isr.equations.typeset import latex, mathml

HOSTILE = [
    "sin",
    "E",
    "I",
    "lambda",
    "p (Pa)",
    "θ",
    "x}\\input{/etc/passwd}$",
    "<script>alert(1)</script>",
    "a\nb = 1",
]


def read_back(printed, program, row):
    """Return the values of printed equations, read by SymPy one after the other."""
    known = {"Phi": Phi, "PhiInverse": PhiInverse}
    symbols = {s.name: s for s in (*program.inputs, *program.conditions)}
    values = dict(zip(symbols.values(), map(sympy.Float, row), strict=True))
    results = {}
    for line in printed.splitlines():
        if line.startswith("#"):
            continue
        target, _, right = line.partition(" = ")
        target = target.strip()
        value = parse_expr(right, local_dict={**known, **symbols}).xreplace(values).evalf(17)
        symbol = symbols.setdefault(target, sympy.Symbol(target, real=True))
        values[symbol] = results[target] = value
    return results


@pytest.mark.parametrize("name", ["sparse", "formulas", "bounded", "split", "polar", "tails", "leaky ReLU"])
@pytest.mark.parametrize("direction", ["forward", "inverse"])
def test_printed_equations_read_by_sympy_give_the_same_numbers(name, direction):
    flow = make(name)
    expressions = extract(flow)
    program = expressions.program(direction)
    x, _ = rows_for(flow, n=3)
    rows = x if direction == "forward" else np.random.default_rng(0).normal(size=(3, flow.bijection.dim))
    expected, log_det = expressions.evaluate(direction, rows)
    for digits, tolerance in ((None, 1e-9), (4, 0.02)) if name in ("sparse", "formulas") else ((None, 1e-9),):
        found = read_back(expressions.text(direction, digits=digits), program, rows[0])
        outputs = [float(found[s.name]) for s in program.output_symbols]
        assert_allclose(outputs, expected[0], rtol=tolerance, atol=tolerance)
        assert_allclose(float(found["log_det"]), log_det[0], rtol=tolerance, atol=tolerance)


def test_printed_numbers_have_the_digits_asked_for():
    x, z = sympy.symbols("x z", real=True)

    program = Program((x,), (), (), (123.456789 * x + 1.23456e-7,), sympy.Integer(0), output_symbols=(z,))
    assert "123.5*x + 1.235e-07" in str(program)

    assert "1.235 \\cdot 10^{-7}" in latex(program)
    assert "123.457·x + 1.23456·10⁻⁷" in text(program, digits=6, unicode=True)


@pytest.mark.parametrize("names", [HOSTILE, ["x", "X", "x_", "s1", "b1_s1_1", "z1", "log_det", "pi", "Φ"]])
def test_any_name_will_do_and_changes_no_number(names):
    flow = build_flow(jax.random.key(0), 9, architecture=Architecture(n_blocks=1, n_layers=1))
    x, _ = rows_for(flow, n=5)
    plain, named = extract(flow), extract(flow, names)
    for direction in ("forward", "inverse"):
        assert_allclose(named.evaluate(direction, x)[0], plain.evaluate(direction, x)[0], rtol=1e-13)
    assert named.x_names == tuple(names)
    identifiers = [s.name for s in (*named.forward.inputs, *(a.target for a in named.forward.assignments))]
    assert all(re.fullmatch(r"[A-Za-z]\w*", i, re.ASCII) for i in identifiers)
    assert len(set(identifiers)) == len(identifiers)


@pytest.mark.parametrize("names", [["PhiInverse", "Phi", "sigmoid", "E"], ["Φ", "clip", "w_1", "I"]])
def test_names_of_functions_the_equations_use_are_kept_apart(names):
    flow = make("bounded")
    x, _ = rows_for(flow, n=5)
    plain, named = extract(flow), extract(flow, names)
    for direction in ("forward", "inverse"):
        assert_allclose(named.evaluate(direction, x)[0], plain.evaluate(direction, x)[0], rtol=1e-13)
        found = read_back(named.text(direction, digits=None), named.program(direction), x[0])
        outputs = [float(found[s.name]) for s in named.program(direction).output_symbols]
        assert_allclose(outputs, plain.evaluate(direction, x)[0][0], rtol=1e-9)


def test_a_sigmoid_is_printed_as_scientists_write_it():
    expressions = extract(make("formulas"))
    assert "t1      = 1/(1 + exp(-1.5*g2))\n" in expressions.text()
    assert "t₁      = 1/(1 + exp(−1.5·g₂))\n" in expressions.text(unicode=True)
    assert r"t_{1} &= \frac{1}{1 + e^{- 1.5 g_{2}}}" in expressions.latex()
    assert "sigmoid" not in expressions.mathml()
    assert not any(e.has(sigmoid) for e in expressions.composed().outputs)


def test_a_difference_is_printed_with_its_positive_term_first():
    assert "x₁      = (z₁ − t₁)·exp(−s₁)\n" in extract(make("formulas")).text("inverse", unicode=True)


def test_limits_are_printed_as_the_model_holds_them():
    for name in ("bounded", "polar"):
        expressions = extract(make(name))
        assert re.search(r"PhiInverse\(Min\(1 - 1e-12, Max\(1e-12, .*\)\)\)\n", expressions.text())
        assert re.search(r"Φ⁻¹\(clip\(.*, 10⁻¹², 1 − 10⁻¹²\)\)\n", expressions.text(unicode=True))
        assert r", 10^{-12}, 1 - 10^{-12}\right)" in expressions.latex()
        assert "<mn>1</mn><mo>&#8722;</mo><msup><mn>10</mn><mn>&#8722;12</mn></msup>" in expressions.mathml()
        assert "0.999999999999" in expressions.text(digits=None)
    assert "log(Max(1e-30, x3 - 2))" in extract(make("bounded")).text()


def test_extraction_takes_a_flow_alone():
    with pytest.raises(TypeError, match=r"extract takes a Flow or Formulas, got a int; .*expressions_"):
        extract(3)


def test_hostile_names_do_no_harm_in_any_form():
    flow = build_flow(jax.random.key(0), 9, architecture=Architecture(n_blocks=1, n_layers=1))
    expressions = extract(flow, HOSTILE)
    latex = expressions.latex()
    assert "\\input" not in latex
    assert "<script>" not in latex
    assert r"\theta" in latex
    assert latex.count("{") - latex.count(r"\{") == latex.count("}") - latex.count(r"\}")
    mathml = expressions.mathml()
    assert "<script>" not in mathml
    minidom.parseString(mathml)
    for line in expressions.text().splitlines():
        assert line.startswith("#") or re.match(r"[A-Za-z]\w* += ", line, re.ASCII)


@pytest.mark.parametrize(
    ("x_names", "y_names", "message"),
    [
        (["a", "a", "b", "c"], None, "duplicate names"),
        (["a", "b"], None, "x has 4 variables, but 2 names were given"),
        (["a", "b", "c", "y1"], ["y1", "y2"], "x and y share the name 'y1'"),
        (["a", "b", "c", ""], None, "must not be empty"),
    ],
)
def test_names_that_tell_nothing_apart_are_refused(x_names, y_names, message):
    with pytest.raises(ValueError, match=message):
        extract(make("conditional"), x_names, y_names)


def test_units_of_unknown_variables_are_refused():
    with pytest.raises(ValueError, match=r"units name \['mass'\]"):
        extract(make("one block"), units={"mass": "kg"})


def test_mathml_breaks_long_sums_and_shows_standard_errors():
    x = sympy.symbols("x1:13", real=True)
    total = sympy.Add(*((-1) ** i * (1.5 + i) * v for i, v in enumerate(x)))
    program = Program(x, (), (), (total,), sympy.Integer(0), output_symbols=(sympy.Symbol("z"),))
    whole, broken = (
        mathml(program, log_det=False),
        mathml(program, log_det=False, width=40, errors={2.5: 0.03}),
    )
    assert (whole.count("<mtr>"), broken.count("<mtr>")) == (1, 3)
    assert "<mn>2.500(30)</mn>" in broken
    assert "<mn>2.5</mn>" in whole
    for markup in (whole, broken):
        minidom.parseString(markup)
        assert markup.count("<msub>") == 12
    assert "det" not in whole
    assert "det" in mathml(program)


@pytest.mark.parametrize(
    ("value", "error", "text"),
    [(0.79432, 0.0123, "0.794(12)"), (-1234.5, 67.0, "-1234(67)"), (2.5e-7, 3e-9, "2.500(30)e-07"),
     (0.5, 0.001, "0.5000(10)"), (0.3, 2.0, "0.3(20)"), (0.25, 0.0099996, "0.250(10)"),
     (1.0, float("nan"), "1"), (3.0, 0.0, "3")],
)  # fmt: skip
def test_a_standard_error_stands_behind_the_digits_it_is_of(value, error, text):
    assert with_error(value, error) == text


def test_mathml_is_well_formed_for_every_chart():
    for name in ("split", "bounded", "polar", "tails", "leaky ReLU"):
        expressions = extract(make(name))
        for direction in ("forward", "inverse"):
            minidom.parseString(expressions.mathml(direction))


def test_long_sums_are_broken_over_lines_and_lose_nothing():

    xs = sympy.symbols("x1:31", real=True)
    total = sympy.Add(*((i - 15.5) * x for i, x in enumerate(xs)))
    program = Program(xs, (), (), (total,), sympy.Integer(0), output_symbols=(sympy.Symbol("z"),))
    printed = latex(program)
    assert printed.count("&\\quad") >= 2
    assert max(map(len, printed.splitlines())) < 250
    assert all(f"x_{{{i}}}" in printed for i in range(1, 31))


def test_objects_show_themselves_in_a_notebook():
    expressions = extract(make("formulas"))
    assert expressions.forward._repr_latex_().startswith("\\begin{align*}")
    assert "x₁      = (z₁ − t₁)·exp(−s₁)" in expressions._repr_html_()
    assert "Forward" in str(expressions)
    assert "complexity" in str(expressions)


def test_the_composed_form_equals_the_block_form():
    flow = make("formulas")
    expressions = extract(flow)
    for direction in ("forward", "inverse"):
        composed = expressions.composed(direction)
        rows = np.random.default_rng(0).normal(size=(20, 2))
        expected, log_det = expressions.evaluate(direction, rows)
        values = [sympy.lambdify(composed.inputs, e, cse=True) for e in (*composed.outputs, composed.log_det)]
        found = np.array([[value(*row) for value in values] for row in rows])
        assert_allclose(found, np.column_stack([expected, log_det]), rtol=1e-9, atol=1e-9)


def test_the_size_is_known_before_anything_is_composed():
    flow = make("formulas")
    program = extract(flow).forward
    composed = extract(flow).composed()
    real = sum(int(sympy.count_ops(e)) for e in (*composed.outputs, composed.log_det))
    assert 0.5 < composed_size(program) / real < 2


def test_an_unreadably_large_form_is_refused_with_its_size_and_a_way_out():
    dense = build_flow(jax.random.key(0), 4, architecture=Architecture(n_blocks=3))
    with pytest.raises(
        ExpressionTooLarge, match=r"about .* operations, more than the 1,000 allowed; read the block form"
    ):
        extract(dense).composed()


def test_complexity_follows_its_rule():
    u, v = sympy.symbols("u v", real=True)
    assert complexity(u) == 1
    assert complexity(u + v) == 3
    assert complexity(u * v) == 4
    assert complexity(sympy.sin(u)) == 5
    assert complexity(1 / u) == 4
    assert complexity(-u) == 1
    assert complexity(sigmoid(u)) == 5
    assert n_constants(2.5 * sympy.sin(2 * sympy.pi * u) + u**2 - 1) == 2


def test_a_sparser_model_is_less_complex():
    assert extract(make("sparse")).complexity < extract(make("three layers")).complexity
    assert extract(make("identity")).n_constants == 0


@pytest.mark.parametrize("name", ["sparse", "formulas", "bounded", "three layers", "conditional"])
def test_constants_are_the_numbers_that_stand_in_the_printed_equations(name):
    expressions = extract(make(name))
    lines = [
        line.partition(" = ")[2] for line in expressions.text(digits=None).splitlines() if line[0] != "#"
    ]
    # Neither indices of names nor exponents; the log-determinant, in the last line, is not counted.
    printed = [re.sub(r"(?<![\d.])[A-Za-z_]\w*|\*\*\d+", " ", line) for line in lines[:-1]]
    numbers = [float(n) for line in printed for n in re.findall(r"[\d.]+(?:e[+-]?\d+)?", line)]
    assert expressions.n_constants == sum(n != 1.0 for n in numbers)
