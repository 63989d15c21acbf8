"""Generated code gives the model's numbers, in every language, in both directions and in density."""

import runpy

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import sympy
from mpmath import mp
from numpy.testing import assert_allclose
from scipy.stats import ks_2samp, spearmanr

from equations.code_runs import RUNNERS, Inputs, Results
from equations.expression_models import conditional, make, sparse, spread
from isr.bijections.affine import Bounded
from isr.bijections.build import Architecture, build_flow
from isr.bijections.primitives import PRIMITIVES, register_primitive
from isr.equations import Assignment, Expressions, Phi, PhiInverse, Program, extract
from isr.equations.code import LANGUAGES, generate
from isr.equations.functions import sigmoid

LIBRARY = dict.fromkeys(PRIMITIVES, 1)


def joint_of_one(key):
    return build_flow(key, 1, noise=(0.3,), standardise_condition=spread([2], [1.5]))


FLOWS = {
    "dense": lambda key: build_flow(key, 3, architecture=Architecture(n_blocks=2)),
    "sparse": lambda key: sparse(build_flow(key, 4, architecture=Architecture(n_blocks=3))),
    "every primitive": lambda key: build_flow(
        key, 2, architecture=Architecture(n_blocks=1, n_layers=1, library=LIBRARY)
    ),
    "leaky ReLU": lambda key: build_flow(key, 3, architecture=Architecture(subnet="mlp", width=8, n_blocks=1)),
    "conditional": lambda key: conditional(key, n_blocks=1),
    "conditioning network": lambda key: sparse(conditional(key, n_blocks=2, n_features=3), 0.3),
    "joint": lambda key: make("joint"),
    "bounded": lambda key: make("bounded"),
    "polar": lambda key: make("polar"),
    "tails": lambda key: make("tails"),
    "split": lambda key: make("split"),
    "shapes": lambda key: make("shapes"),
    "mixture": lambda key: make("mixture"),
    "triangular": lambda key: make("triangular"),
    "spiral": lambda key: make("spiral"),
    "formulas": lambda key: make("formulas"),
    "one variable": lambda key: make("padded"),
    "joint of one variable": joint_of_one,
}  # fmt: skip
N_ROWS = 1000


def case_of(flow, n=N_ROWS):
    """Rows, and what the model makes of them. Run without compiling, which would take longer than running."""
    rng = np.random.default_rng(5)
    z = rng.normal(size=(n, flow.bijection.dim))
    y = rng.normal(size=(n, flow.condition_dim))
    condition, observation, latent = None, (y if flow.condition_dim else None), z.copy()
    if flow.condition_map is not None:
        fixed = flow.condition_map.standardise
        y = condition = observation = np.array(fixed.shift) + np.array(fixed.scale) * y
    elif flow.noise:
        latent[:, : flow.n_observed] = y + np.array(flow.noise) * z[:, : flow.n_observed]
    with jax.disable_jit():
        inverse, _ = flow.inverse(z, condition)
        draw = flow.inverse(latent, condition)[0] if flow.noise else inverse
        forward, log_det = flow.forward(draw, condition)
        log_prob = None if flow.n_padding else flow.log_prob(draw, observation)
    if flow.n_padding:  # 32 nodes a row: here compiling is quicker
        log_prob = flow.log_prob(draw, observation)
    return Inputs(draw, z, y), Results(forward, inverse, log_det, log_prob, draw)


@pytest.fixture(scope="module", params=FLOWS)
def case(request):
    flow = FLOWS[request.param](jax.random.key(2))
    return extract(flow), *case_of(flow)


@pytest.mark.parametrize("language", RUNNERS)
def test_code_gives_the_models_numbers(case, language, tmp_path):
    expressions, inputs, expected = case
    found = RUNNERS[language](generate(expressions, language), inputs, tmp_path)
    for name in vars(expected):
        assert_allclose(getattr(found, name), getattr(expected, name), rtol=1e-9, atol=1e-9, err_msg=name)


@pytest.fixture
def _own_primitives():
    register_primitive("bump", lambda g: jnp.exp(-g * g))
    register_primitive("ratio", lambda a, b: a / (1 + b * b), arity=2)
    register_primitive("hinge", lambda g: jnp.where(g > 0, g, 0.1 * g))
    yield
    for name in ("bump", "ratio", "hinge"):
        del PRIMITIVES[name]


@pytest.mark.usefixtures("_own_primitives")
def test_primitives_of_ones_own_run_in_every_language(tmp_path):
    shape = Architecture(n_blocks=1, n_layers=1, library=["constant", "id", "bump", "ratio", "hinge"])
    flow = build_flow(jax.random.key(2), 2, architecture=shape)
    expressions = extract(flow)
    inputs, expected = case_of(flow)
    for language, run in RUNNERS.items():
        (tmp_path / language).mkdir()
        found = run(generate(expressions, language), inputs, tmp_path / language)
        for name in vars(expected):
            assert_allclose(getattr(found, name), getattr(expected, name), rtol=1e-9, atol=1e-9, err_msg=name)


@pytest.fixture(scope="module")
def box():
    flow = make("bounded")
    return flow.bijection.bijections[0], extract(flow), *case_of(flow, 10_000)


@pytest.mark.parametrize("language", RUNNERS)
def test_code_samples_the_models_density_inside_its_bounds(box, language, tmp_path):
    bounds, expressions, inputs, expected = box
    samples = RUNNERS[language](generate(expressions, language), inputs, tmp_path, samples=True)
    for column, drawn, low, high in zip(samples.T, expected.draw.T, bounds.low, bounds.high, strict=True):
        assert low is None or np.all(column >= low)
        assert high is None or np.all(column <= high)
        assert ks_2samp(column, drawn).pvalue > 1e-3
        assert abs(spearmanr(column[:-1], column[1:]).statistic) < 0.04


@pytest.mark.parametrize("n_variables", [1, pytest.param(4, marks=pytest.mark.slow)])
def test_code_gives_no_density_outside_the_bounds(n_variables, tmp_path):
    small = Architecture(n_blocks=1, n_layers=1)
    flow = make("bounded")
    x = np.tile([0.5, 1.0, 3.0, 0.0], (9, 1))
    x[[1, 2, 3, 4], 0] = [-0.1, 1.1, 0.0, 1.0]
    x[[5, 6], 1] = [5.0, 6.0]
    x[[7, 8], 2] = [2.0, -1.0]
    if n_variables == 1:
        flow = build_flow(jax.random.key(0), 1, bounds=Bounded((0.0,), (1.0,)), architecture=small)
        x = x[:, :1]
    inputs = Inputs(x, np.zeros((len(x), flow.bijection.dim)), np.empty((len(x), 0)))
    expected = flow.log_prob(x)
    assert np.isneginf(expected[[1, 2]]).all()
    assert np.isfinite(expected[[0, 3, 4]]).all()
    expressions = extract(flow)
    for language, run in RUNNERS.items():
        (tmp_path / language).mkdir()
        found = run(generate(expressions, language), inputs, tmp_path / language).log_prob
        assert_allclose(found, expected, rtol=1e-9, err_msg=language)
    (tmp_path / "source.py").write_text(generate(expressions, "jax"))
    namespace = runpy.run_path(str(tmp_path / "source.py"))
    for log_prob in (expressions.to_jax().log_prob, namespace["log_prob"]):
        with jax.disable_jit():
            found = [float(log_prob(row)) for row in jnp.asarray(x)]
        assert_allclose(found, expected, rtol=1e-9)


def functions_of_normal():
    """A flow of one Phi: what the runtime's own distribution function and quantile are tested with."""
    x, z = sympy.symbols("x z", real=True)
    forward = Program((x,), (), (), (PhiInverse(x),), sympy.S.Zero)
    return Expressions(forward, Program((z,), (), (), (Phi(z),), sympy.S.Zero), ("x",))


@pytest.mark.parametrize("language", RUNNERS)
def test_normal_distribution_holds_its_last_digits(language, tmp_path):
    rng = np.random.default_rng(0)
    u = np.concatenate([rng.uniform(-37, 8, 1500), rng.normal(size=400), 10.0 ** rng.uniform(-18, 0, 100)])
    p = np.concatenate(
        [rng.uniform(size=900), 10.0 ** rng.uniform(-300, 0, 700), 1 - 10.0 ** rng.uniform(-15, 0, 400)]
    )
    p = np.clip(p, 1e-300, 1 - 1e-16)
    inputs = Inputs(p[:, None], u[:, None], np.empty((len(u), 0)))
    found = RUNNERS[language](generate(functions_of_normal(), language), inputs, tmp_path)
    with mp.workdps(40):
        distribution = np.array(
            [float(mp.mpf(a) / mp.ncdf(mp.mpf(b)) - 1) for a, b in zip(found.inverse[:, 0], u, strict=True)]
        )
        quantile = []
        for probability, start in zip(p, found.forward[:, 0], strict=True):
            exact = mp.mpf(start)
            for _ in range(3):
                exact -= (mp.ncdf(exact) - mp.mpf(probability)) / mp.npdf(exact)
            quantile.append(float((mp.mpf(start) - exact) / exact))
    assert np.max(np.abs(distribution)) < 1e-15
    assert np.max(np.abs(quantile)) < 1e-15


a, b = sympy.symbols("a b", real=True)
EXPRESSIONS = [
    sympy.Piecewise((a**2, a > 0.5), (-b, (a < 0) & (b > 0)), (a * b, True)),
    sympy.Piecewise((a, (a > 1) | ~(b > 0)), (sympy.Piecewise((b, b >= 2), (a - b, True)), True)),
    sympy.Max(a, b, -0.3) + sympy.Min(a, 2 * b, 0.7),
    sympy.sign(a) * sympy.Abs(b) + sympy.Heaviside(b, 0.5),
    sympy.atan2(b, a) + sympy.atan(a) * 3,
    sympy.asinh(a) - sympy.sinh(b) + sympy.cosh(a) * sympy.tanh(b),
    sympy.acosh(1 + a**2) + sympy.atanh(a / (4 + a**2)),
    sympy.tan(a / 4) + sympy.asin(b / (3 + b**2)) - sympy.acos(a / (3 + a**2)),
    3 * sympy.erf(a) / sympy.erfc(b) + 2 * sympy.erfinv(a / (3 + a**2)),
    a / b**2 - b**-3 / (1 + a**2) ** 2 + (a + b) ** 3,
    (2 + a**2) ** sympy.Rational(-1, 2) * sympy.sqrt(1 + b**2) + (1 + b**2) ** 0.37 + (a - b) ** 5,
    5 * sympy.Mod(a, 2) * sympy.Mod(-b, 1.5) + sympy.floor(a) - sympy.ceiling(b),
    sympy.exp(-a) / (1 + sympy.exp(b)) + sympy.log(1 + a**2) * sympy.pi - sympy.E,
    sympy.Rational(1, 3) * a - sympy.Float(1 / 3) * b + 10**12 * a - 1,
    2 * Phi(a) / Phi(b) - PhiInverse(Phi(a) * 0.5) ** 2,
    3 * a / sigmoid(b) - sigmoid(a + 1.5) ** 2 * b + sigmoid(300 * a) - 2 * sigmoid(a * b),
    sympy.log(2 + sympy.cos(a)) * sympy.sin(2 * sympy.pi * b) - sympy.sech(a) - sympy.sinc(b),
    -((a - b) * (a + 3)) - (-(a**2)) - -b * sympy.Max(-a, -2),
    sympy.Add(*(sympy.Float(k / 7) * sympy.sin(k * a) for k in range(80))),
]  # fmt: skip


def function_programs():
    """All of EXPRESSIONS as the outputs of a forward map; the inverse is a copy, for it must be something."""
    middle = sympy.Symbol("middle", real=True)
    expressions = [e.subs(b, middle) if i % 2 else e for i, e in enumerate(EXPRESSIONS)]
    n = len(expressions)
    latent = sympy.symbols(f"z:{n}", real=True)
    forward = Program((a, b), (), (Assignment(middle, 1 * b, "block 1"),), tuple(expressions), a - b)
    return forward, Program(latent, (), (), latent[:2], sympy.S.Zero)


@pytest.fixture(scope="module")
def function_values():
    rng = np.random.default_rng(1)
    corners = [[0.0, 0.5], [2.0, 2.0], [-1.0, 2.0], [0.5, -2.0]]
    points = np.concatenate([rng.normal(scale=2, size=(12, 2)), corners])

    def exact(expression, point):
        return float(
            expression.subs({s: sympy.Float(float(v), 40) for s, v in zip((a, b), point, strict=True)}).evalf(
                30
            )
        )

    return points, np.array([[exact(e, point) for e in EXPRESSIONS] for point in points])


@pytest.mark.parametrize("language", [*RUNNERS, "jax"])
def test_every_function_means_what_sympy_means(function_values, language, tmp_path):
    points, expected = function_values
    forward, inverse = function_programs()
    if language == "jax":
        functions = Expressions(forward, inverse, ("a", "b")).to_jax()
        found = jax.vmap(lambda point: functions.forward(point))(jnp.asarray(points))
    else:
        inputs = Inputs(points, np.zeros((len(points), len(EXPRESSIONS))), np.empty((len(points), 0)))
        source = generate(Expressions(forward, inverse, ("a", "b")), language)
        found = RUNNERS[language](source, inputs, tmp_path).forward
    assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


HOSTILE = (
    "*/ int main(void) { return 1; } /*", "</script><script>alert(1)</script>", "a\nb = 1", '""" + exit() + """',
    "back\\", "trigraph ??/", "line\u2028separator", "right\u202eto left", "`${x}`", "isr_phi", "isr_x", "linux", "np",
    "INT32_MAX", "x", "y", "z", "w", "sin", "E", "class", "forward", "Math", "θ₁ (°)", "<!--", "#define x", "'",
)  # fmt: skip


@pytest.fixture(scope="module")
def hostile():
    shape = Architecture(n_blocks=1, n_layers=1)
    flow = sparse(build_flow(jax.random.key(0), len(HOSTILE), architecture=shape), 0.03)
    return extract(flow, HOSTILE, units={"x": "*/ m\n"}), *case_of(flow, 20)


@pytest.mark.parametrize("language", RUNNERS)
def test_hostile_names_stay_inside_comments(hostile, language, tmp_path):
    expressions, inputs, expected = hostile
    source = generate(expressions, language)
    found = RUNNERS[language](source, inputs, tmp_path)
    assert_allclose(found.forward, expected.forward, rtol=1e-9, atol=1e-9)
    assert_allclose(found.inverse, expected.inverse, rtol=1e-9, atol=1e-9)
    for text in (
        "</script",
        "<!--",
        "\u2028",
        "\u202e",
        *(["??/", "*/ int main"] if language == "c" else []),
    ):
        assert text not in source
    assert "θ₁ (°)" in source


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_same_equations_give_the_same_source(language):
    first, second = (generate(extract(make("joint")), language) for _ in range(2))
    assert first == second


@pytest.mark.parametrize("language", ["c", "javascript"])
def test_equations_of_the_condition_alone_are_prepared_once(language):
    flow = sparse(conditional(jax.random.key(0), n_blocks=1, n_layers=1, n_features=2), 0.3)
    assert "isr_inverse_prepare" in generate(extract(flow), language)


def test_long_programs_are_cut_into_functions_that_v8_compiles():
    flow = build_flow(jax.random.key(0), 3, architecture=Architecture(n_blocks=3, n_layers=2))
    source = generate(extract(flow), "javascript")
    functions = source.split("\nfunction ")
    assert len(source) > 100_000
    assert max(map(len, functions)) < 40_000


def test_an_unknown_language_is_refused():
    with pytest.raises(ValueError, match="no code for language 'fortran'; known: c, javascript, jax, python"):
        generate(functions_of_normal(), "fortran")


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_constant_that_is_not_finite_is_refused(language):
    x, z = sympy.symbols("x z", real=True)
    forward = Program((x,), (), (), (x * sympy.Float("nan"),), sympy.S.Zero)
    with pytest.raises(ValueError, match="not finite"):
        generate(Expressions(forward, Program((z,), (), (), (z,), sympy.S.Zero), ("x",)), language)


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_function_without_a_form_is_named(language):
    x, z = sympy.symbols("x z", real=True)
    forward = Program((x,), (), (), (sympy.LambertW(x),), sympy.S.Zero)
    with pytest.raises(ValueError, match=r"LambertW.*elementary functions"):
        generate(Expressions(forward, Program((z,), (), (), (z,), sympy.S.Zero), ("x",)), language)
