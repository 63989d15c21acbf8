"""Laws of motion: the integrator against SciPy, laws found from trajectories, and what is said of bad series."""

import ctypes
import json
import shutil
import subprocess
import time
import warnings

import numpy as np
import pandas as pd
import pytest
import sympy
from numpy.testing import assert_allclose
from scipy import stats
from scipy.integrate import solve_ivp
from sklearn.exceptions import ConvergenceWarning

import isr
from isr.motion.law import Channel, MotionLaw
from isr.motion.library import Library
from isr.motion.noise import Noise
from isr.motion.record import of_motion, to_motion
from isr.motion.refit import refit
from isr.motion.refute import lack_of_fit
from isr.motion.series import Series, from_long, read_series
from isr.motion.system import System
from isr.report import write_report
from isr.search.formula import Formula, parse

A, B, K = sympy.symbols("a b k", real=True)
C = sympy.symbols("c0 c1", real=True)
SYSTEM = System((C[0] - A * B, K * A - C[1] * B), (True, False), (A, B), (K,), C)
THETA = np.array([1.5, 0.8])
POLYNOMIALS = [Library(2)]


def predator_prey(times, starts):
    def rate(_, y):
        return [y[0] * (1 - 0.5 * y[1]), y[1] * (-0.7 + 0.2 * y[0])]

    return np.array([solve_ivp(rate, (0, 20), s, t_eval=times, rtol=1e-10, atol=1e-12).y.T for s in starts])


def truth(fitted, channels=("a", "b")):
    a, b = (sympy.Symbol(n, real=True) for n in channels)
    wanted = a * (1 - 0.5 * b), b * (-0.7 + 0.2 * a)
    return [sympy.lambdify([a, b], c.slope - w) for c, w in zip(fitted.law_.channels, wanted, strict=True)]


def assert_is_predator_prey(fitted, tolerance):
    points = np.random.default_rng(0).uniform(1, 4, size=(2, 50))
    for off in truth(fitted):
        assert np.max(np.abs(off(*points))) < tolerance


@pytest.fixture(scope="module")
def runs():
    times = np.linspace(0, 12, 60)
    return times, predator_prey(times, [(2.0, 1.0), (5.0, 3.0)])


def test_the_integrator_agrees_with_scipy():
    times = np.array([[0.0, 0.3, 1.0], [0.0, 0.7, 0.9]])
    start, k = np.array([[0.1, 0.4], [1.0, 2.0]]), np.array([[0.5], [1.5]])
    states = SYSTEM.solve(THETA, start, times, k, 50)
    for i in range(2):

        def rate(_, y, k=k[i, 0]):
            return [1.5 - np.exp(y[0]) * y[1], k * np.exp(y[0]) - 0.8 * y[1]]

        exact = solve_ivp(rate, (0, 1), start[:, i], t_eval=times[i], rtol=1e-11, atol=1e-12).y
        assert_allclose(states[:, :, i], exact, atol=1e-8)


def test_sensitivities_are_derivatives():
    times, start, k = np.array([[0.0, 0.5, 1.0]]), np.array([[0.1], [1.0]]), np.array([[0.5]])
    slopes = SYSTEM.sensitivities(THETA, start, times, k, 20)[1]
    step = 1e-6
    for j in range(4):
        theta, begun = THETA.copy(), start.copy()
        theta_down, begun_down = THETA.copy(), start.copy()
        if j < 2:
            theta[j], theta_down[j] = theta[j] + step, theta[j] - step
        else:
            begun[j - 2], begun_down[j - 2] = begun[j - 2] + step, begun[j - 2] - step
        up, down = (SYSTEM.solve(t, s, times, k, 20) for t, s in ((theta, begun), (theta_down, begun_down)))
        assert_allclose(slopes[:, j], (up - down) / (2 * step), atol=1e-7)


def test_a_refit_finds_constants_from_far_off():
    rng = np.random.default_rng(0)
    times, k = np.tile(np.linspace(0, 3, 12), (20, 1)), rng.uniform(0.5, 2, size=(20, 1))
    start = np.array([0.2, 1.0])[:, None] + np.zeros(20)
    states = SYSTEM.values(SYSTEM.solve(THETA, start, times, k, 30)).transpose(2, 1, 0)
    series = Series(
        times, states + 1e-3 * rng.normal(size=states.shape), k, ("a", "b"), ("k",), (Noise(), Noise())
    )
    fit = refit(SYSTEM, np.array([0.7, 0.3]), start, series, ("shared", "shared"), steps=10)
    assert_allclose(fit.theta, THETA, rtol=5e-3)


@pytest.fixture(scope="module")
def fitted(runs):
    return isr.MotionRegressor(library=POLYNOMIALS).fit(*runs, names=["a", "b"])


def test_a_law_is_found_from_trajectories_alone(runs, fitted):
    assert_is_predator_prey(fitted, 1e-3)
    assert "rounding" in fitted.verdict_
    assert fitted.score(*runs) > 0.9999


def test_a_saved_regressor_predicts_the_same(runs, fitted, tmp_path):
    fitted.save(tmp_path / "law.isr")
    again = isr.load(tmp_path / "law.isr")
    start = runs[1][0, 0]
    assert_allclose(again.predict(runs[0], start), fitted.predict(runs[0], start))
    assert dict(again.sections)["The law of motion"] == str(fitted.law_)


FORGED = {
    "steps": {"steps": 10**12}, "columns": {"y_names": ["m"], "times": [0.0]}, "channels": {"channels": []},
    "rate": {"rate": "open('x')"}, "missing": {"noise": None},
}  # fmt: skip


@pytest.mark.parametrize("change", FORGED.values(), ids=FORGED.keys())
def test_a_forged_law_is_refused(change):
    decay = Channel("m", Formula(parse("-k*m", ["m", "k"])), columns=(3,))
    record = of_motion(MotionLaw(("k",), (decay,), (0.0,), 8, ("a", "b", "c", "d")))
    assert str(to_motion(record)) == "m' = -k*m"
    record["channels"][0] |= {k: v for k, v in change.items() if k in record["channels"][0]}
    record |= {k: v for k, v in change.items() if k in record}
    if change == FORGED["missing"]:
        del record["channels"][0]["noise"]
    with pytest.raises((ValueError, KeyError)):
        to_motion(record)


def test_a_report_shows_the_law_and_trajectories(runs, fitted, tmp_path):
    page = write_report(fitted, tmp_path / "law.html", data=runs).read_text("utf-8")
    assert "a&#39; = a" in page
    assert fitted.verdict_ in page
    assert page.count("over time, measured and as the law says") == 2


def test_a_plot_has_a_panel_for_each_channel(runs, fitted):
    figure = fitted.plot(*runs)
    assert [ax.get_ylabel() for ax in figure.axes] == ["a", "b"]
    assert len(figure.axes[0].lines) == 4  # points and a line for each of two trajectories


def test_a_law_is_found_in_noise_gaps_and_unequal_steps(runs):
    rng = np.random.default_rng(1)
    kept = [np.sort(rng.permutation(60)[:50]), np.arange(55)]
    times = [runs[0][k] for k in kept]
    values = [run[k] + 0.01 * rng.normal(size=(len(k), 2)) for run, k in zip(runs[1], kept, strict=True)]
    values[0][5:8, 0] = np.nan
    model = isr.MotionRegressor(library=POLYNOMIALS).fit(times, values, names=["a", "b"])
    assert_is_predator_prey(model, 0.1)
    assert all(abs(c.scale - 0.01) < 0.003 for c in model.law_.channels)
    assert model.law_.n_constants >= 2


def test_a_long_table_is_read_as_arrays_are(runs):
    parts = [
        pd.DataFrame({"time": runs[0], "run": i, "a": run[:, 0], "b": run[:, 1]})
        for i, run in enumerate(runs[1])
    ]
    times, values, names = from_long(pd.concat(parts), "time", "run")
    series = read_series(times, values, names=names)
    assert_allclose(series.values, runs[1])
    assert series.names == ("a", "b")


T = np.arange(6.0)
GOOD = np.column_stack([np.exp(-T), T])
BAD = {
    "one point": ([0.0], [[1.0]], "trajectory 1 has 1 point; a law of motion needs at least 4"),
    "unsorted": ([0, 2, 1, 3, 4, 5], GOOD, "times of trajectory 1 do not increase: 1 comes after 2"),
    "twice": ([0, 1, 1, 3, 4, 5], GOOD, "1 comes after 1; sort its rows"),
    "gaps": (
        T,
        np.where(T[:, None] > 2, np.nan, GOOD),
        "channel 'y1' of trajectory 1 has 3 measured values; the gaps",
    ),
    "blow-up": (
        T,
        np.where(T[:, None] > 4, np.inf, GOOD),
        "trajectory 1 holds infinite values, as where a simulation",
    ),
    "constant": (
        T,
        np.column_stack([T, np.full(6, 2.0)]),
        "channel 'y2' never changes, it is always 2; leave it out",
    ),
    "huge": (T, 1e200 * GOOD, r"channel 'y1' has values up to 1e\+200; give it in another unit"),
    "tiny": (T, 1e-200 * GOOD, "channel 'y1' has values up to 1e-200; give it in another unit"),
    "no time": ([0, 1, np.nan, 3, 4, 5], GOOD, "times of trajectory 1 hold NaN or infinity"),
    "shape": (T[:5], GOOD, "trajectory 1 has 5 times and values of the shape"),
    "flat": (T, np.zeros((2, 2, 2, 2)), "it needs a row for each time and 2 columns"),
    "times": ([T, T, T], [GOOD, GOOD], "there are times of 3 trajectories but values of 2"),
}


@pytest.mark.parametrize(("times", "values", "sentence"), BAD.values(), ids=BAD.keys())
def test_a_bad_series_gets_a_sentence(times, values, sentence):
    with pytest.raises(ValueError, match=sentence):
        isr.MotionRegressor().fit(times, values)


@pytest.mark.parametrize("times", [pd.date_range("2020-01-01", periods=6), np.array(list("abcdef"))])
def test_times_that_are_no_numbers_are_refused(times):
    with pytest.raises(TypeError, match=r"times and values are real numbers, got .* give dates as days"):
        isr.MotionRegressor().fit(times, GOOD)


def test_a_law_that_misses_what_drives_the_series_is_refuted():
    times = np.linspace(0, 12, 80)
    with pytest.warns(ConvergenceWarning, match=r"is refuted .*slow waves are left"):
        model = isr.MotionRegressor(library=POLYNOMIALS).fit(times, np.sin(times))
    assert model.tests_["y1: residuals exceed the noise"] < 1e-4


def test_a_law_that_is_as_likely_is_told():
    t = np.linspace(0, 1, 30)
    noisy = 3 * np.exp(-t) + 0.1 * np.random.default_rng(1).normal(size=30)
    model = isr.MotionRegressor(library=POLYNOMIALS).fit(t, noisy, names=["m"])
    assert str(model.law_).startswith("m' = -m")
    assert "; as likely by the series: m' = " in model.verdict_


def test_growth_by_a_logarithm_is_found():
    t = np.linspace(0, 6, 60)
    sizes = 12 * np.exp(np.log(np.array([[0.5], [2.0]]) / 12) * np.exp(-0.4 * t))
    model = isr.MotionRegressor().fit(t, sizes[..., None], names=["size"])
    size = sympy.Symbol("size", real=True)
    wanted = 0.4 * size * (np.log(12) - sympy.log(size))
    off = sympy.lambdify(size, model.law_.channels[0].slope - wanted)(np.linspace(1, 12, 50))
    assert np.max(np.abs(off)) < 1e-3


def ladder(n, seed):
    """Rows of (tau, drive), and the voltages along three links of a ladder of resistors and capacitors, with noise."""
    rng = np.random.default_rng(seed)
    x = np.column_stack([rng.uniform(0.5, 2, n), rng.uniform(1, 5, n)])
    link, times = np.array([[-2.0, 1, 0], [1, -2, 1], [0, 1, -1]]), np.linspace(0, 6, 16)
    values, vectors = np.linalg.eigh(link)
    rest, push = -np.linalg.inv(link) @ [1.0, 0, 0], vectors.T @ (np.linalg.inv(link) @ [1.0, 0, 0])
    decay = np.exp(values * times[:, None, None] / x[:, :1, None].swapaxes(0, 1)[..., 0][..., None])
    y = x[:, 1][:, None] * (rest + (decay * push) @ vectors.T)
    y = y.transpose(1, 0, 2)
    y = y + 0.02 * y.std(axis=(0, 1)) * rng.normal(size=y.shape)
    times = np.tile(times, (n, 1))
    noises = (Noise(),) * 3
    return Series(times, y, x, ("v1", "v2", "v3"), ("tau", "drive"), noises)


@pytest.mark.parametrize("seed", range(3))
def test_a_law_of_the_ladder_that_follows_its_series_closely_is_refuted(seed):
    series = ladder(300, seed)
    (v1, v2, v3), (tau, drive) = series.states, series.parameters
    c = sympy.symbols("c0:12", real=True)
    links = drive - 2 * v1 + v2, v1 - 2 * v2 + v3, v2 - v3
    cubics = [sum(c[4 * i + k] * tau**k for k in range(4)) for i in range(3)]
    laws = {
        "true": ([k * link / tau for k, link in zip(c, links, strict=False)], 3, [1.0, 1.0, 1.0]),
        "wrong": ([p * link for p, link in zip(cubics, links, strict=True)], 12, [3.5, -4.0, 1.9, -0.3] * 3),
    }
    worst = {}
    for name, (rates, n, theta) in laws.items():
        system = System(tuple(rates), (False,) * 3, series.states, series.parameters, c[:n])
        fit = refit(system, np.array(theta), np.zeros((3, 300)), series, ("shared",) * 3, steps=8)
        assert np.all(fit.sigma < 1.5 * 0.02 * fit.spread)  # both follow the series
        worst[name] = min(lack_of_fit(fit).values())
    assert worst["wrong"] < 1e-4 < 1e-3 < worst["true"]


SLOW_SEARCHES = {
    "trajectories": lambda t, y, s: isr.MotionRegressor(max_time=s).fit(t, y),
    "parameters": lambda t, y, s: isr.Inversion(
        series={"a": range(60), "b": range(60, 120)}, times=t, max_time=s, fallback=False
    ).fit(np.tile([[1.0, 2.0]], (30, 1)) * np.linspace(1, 2, 30)[:, None], np.tile(y[0].T.ravel(), (30, 1))),
}


@pytest.mark.slow
@pytest.mark.parametrize("search", SLOW_SEARCHES.values(), ids=SLOW_SEARCHES.keys())
def test_a_search_ends_at_its_time_limit_and_says_so(runs, search):
    times, values = runs
    rough = values + 0.5 * np.random.default_rng(0).normal(size=values.shape) * np.sin(times)[:, None]
    began = time.monotonic()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = search(times, rough, 8.0)
    assert time.monotonic() - began < 8.8
    assert "s ended the" in model.verdict_


def test_a_time_limit_before_any_law_gets_a_sentence(runs):
    with pytest.raises(
        ValueError, match=r"max_time of 0.01 s ended the .* before any law was fitted; allow more"
    ):
        isr.MotionRegressor(max_time=0.01).fit(*runs)


@pytest.mark.parametrize("seconds", [0, -1.0, "long", None])
def test_a_time_limit_is_a_number_of_seconds(runs, seconds):
    with pytest.raises(ValueError, match="max_time is a number of seconds above 0, got"):
        isr.MotionRegressor(max_time=seconds).fit(*runs)


def test_what_a_law_hardly_explains_is_told():
    noise = np.random.default_rng(0).normal(size=40)
    model = isr.MotionRegressor(library=POLYNOMIALS).fit(np.arange(40.0), noise)
    assert "of the spread of y1, which it hardly explains" in model.verdict_


def test_parameters_need_a_row_for_each_trajectory():
    with pytest.raises(ValueError, match=r"x has the shape .*there are 1 trajectories; give a row for each"):
        isr.MotionRegressor().fit(T, GOOD, x=[[1.0], [2.0]])


def test_a_table_without_the_time_column_is_refused():
    with pytest.raises(ValueError, match="the table has no column 'time'; it has"):
        isr.MotionRegressor().fit(pd.DataFrame({"t": T, "a": T}))


def test_a_start_of_the_wrong_size_is_refused(fitted):
    with pytest.raises(ValueError, match="start has 1 values and x 0; the law needs 2 and 0"):
        fitted.predict([0.0, 1.0], [1.0])


def decays(n, noise, seed=0):
    """Rows of (k, m0) and of what is left of m at five times, m' = -k m."""
    rng = np.random.default_rng(seed)
    x = np.column_stack([rng.uniform(0.5, 2, n), rng.uniform(1, 3, n)])
    mean = x[:, 1:] * np.exp(-x[:, :1] * np.arange(5) * 0.5)
    return pd.DataFrame(x, columns=["k", "m0"]), mean * np.exp(noise * rng.normal(size=mean.shape))


@pytest.fixture(scope="module")
def inversion():
    x, y = decays(400, 0.05)
    model = isr.Inversion(
        prior={"k": (0.5, 2), "m0": (1, 3)}, series={"m": range(5)}, times=np.arange(5) * 0.5
    )
    return model.fit(x, y)


def test_an_inversion_finds_a_law_of_motion(inversion):
    m, k = sympy.symbols("m k", real=True)
    (channel,) = inversion.law_.channels
    assert sympy.simplify(channel.slope + k * m) == 0
    assert channel.start.text() == "m0"
    assert channel.noise == Noise("lognormal")
    assert "no test refutes it" in inversion.verdict_
    assert r"\dot{m}" in inversion.law_.latex()


@pytest.mark.parametrize("noise", ["auto", 0.05])
def test_series_without_noise_ask_what_an_observation_has(noise):
    model = isr.Inversion(series={"m": range(5)}, times=np.arange(5) * 0.5, noise=noise).fit(*decays(60, 0.0))
    assert ("say what an observation has" in model.verdict_) == (noise == "auto")
    (channel,) = model.law_.channels
    assert channel.scale == (0.0 if noise == "auto" else 0.05)
    assert noise == "auto" or channel.noise == Noise("normal")


def test_it_predicts_every_column(inversion):
    x = np.array([[1.0, 2.0], [0.5, 3.0]])
    assert_allclose(inversion.predict(x), x[:, 1:] * np.exp(-x[:, :1] * np.arange(5) * 0.5), rtol=1e-4)


def test_its_posterior_is_that_of_the_exact_trajectories(inversion):
    y = decays(1, 0.05, seed=5)[1][0]
    draws = inversion.posterior(y).sample(4000)
    k, m0 = np.meshgrid(np.linspace(0.5, 2, 400), np.linspace(1, 3, 400), indexing="ij")
    scale = inversion.law_.channels[0].scale
    off = np.log(y) - np.log(m0[..., None]) + k[..., None] * np.arange(5) * 0.5
    weight = np.exp(-0.5 * np.sum((off / scale) ** 2, axis=-1))
    weight /= weight.sum()
    for j, grid in enumerate((k, m0)):
        mean = np.sum(weight * grid)
        sd = np.sqrt(np.sum(weight * (grid - mean) ** 2))
        assert abs(draws[:, j].mean() - mean) < 0.1 * sd
        assert abs(draws[:, j].std() / sd - 1) < 0.1


def test_a_saved_law_of_motion_is_the_same(inversion, tmp_path):
    y = decays(1, 0.05, seed=5)[1][0]
    inversion.save(tmp_path / "decay.isr")
    again = isr.load(tmp_path / "decay.isr").posterior(y)
    assert_allclose(again.sample(50), inversion.posterior(y).sample(50))


def exported():
    rates = [Formula(parse(t, ["a", "b", "k"])) for t in ("1.5 - k*b", "sin(a)**2 - b*k")]
    starts = [Formula(parse("2.0", [])), Formula(parse("k", ["k"]))]
    return MotionLaw(
        ("k",), (Channel("a", rates[0], True, starts[0]), Channel("b", rates[1], False, starts[1])), steps=8
    )


TIMES = [0.0, 0.3, 1.0]


def expected():
    law = exported()
    return law.solve(np.array([TIMES]), np.array([[2.0, 0.7]]), np.array([[0.7]]), 400)[0]


def assert_same_trajectory(values, error):
    assert_allclose(np.reshape(values, (3, 2)), expected(), atol=1e-4)
    assert 0 < error < 1e-2


def test_python_source_gives_the_same_trajectory():
    module = {}
    exec(exported().code("python"), module)  # noqa: S102
    assert_same_trajectory(*module["solve"](TIMES, module["first"]([0.7]), [0.7]))


@pytest.mark.skipif(shutil.which("node") is None, reason="needs node")
def test_javascript_source_gives_the_same_trajectory():
    call = (
        "const r = solve([0, 0.3, 1], first([0.7]), [0.7]); console.log(JSON.stringify([r.values, r.error]));"
    )
    out = subprocess.run(
        ["node", "--input-type=module", "-e", exported().code("js") + call],
        capture_output=True,
        text=True,
        check=True,
    )
    assert_same_trajectory(*json.loads(out.stdout))


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
def test_c_source_gives_the_same_trajectory(tmp_path):
    (tmp_path / "law.c").write_text(exported().code("c"))
    library = tmp_path / "law.so"
    subprocess.run(
        ["cc", "-Wall", "-Werror", "-shared", "-fPIC", "-o", library, tmp_path / "law.c", "-lm"], check=True
    )
    loaded = ctypes.CDLL(str(library))
    loaded.solve.restype = ctypes.c_double
    arrays = [np.array(v, dtype=float) for v in (TIMES, [0.0, 0.0], [0.7], np.zeros(6))]
    times, start, x, out = (a.ctypes.data_as(ctypes.POINTER(ctypes.c_double)) for a in arrays)
    loaded.first(x, start)
    error = loaded.solve(3, times, start, x, 8, out)
    assert_same_trajectory(arrays[3], error)


def test_another_language_is_refused():
    with pytest.raises(ValueError, match="unknown language 'cobol'; a law of motion is written in python, c"):
        exported().code("cobol")


SERIES = {"m": range(5)}
WRONG = {
    "times": ({"series": SERIES}, "series needs times=..., when its columns were measured"),
    "number": (
        {"series": SERIES, "times": [0, 1]},
        "there are 2 times, but the channels have {'m': 5} columns",
    ),
    "column": (
        {"series": {"m": [0, 1, 9]}, "times": [0, 1, 2]},
        "series names column 9, but y has 5 columns",
    ),
    "text": (
        {"series": SERIES, "times": list("abcde")},
        "times are numbers, one for each column of a channel: ",
    ),
    "name": ({"series": {"m": ["a"]}, "times": [0]}, "series names the column 'a', which y has not"),
    "noise": (
        {"series": SERIES, "times": range(5), "noise": "binomial"},
        "the noise of 'm' is 'binomial'; known",
    ),
}


@pytest.mark.parametrize(("options", "sentence"), WRONG.values(), ids=WRONG.keys())
def test_a_wrong_series_of_columns_gets_a_sentence(options, sentence):
    with pytest.raises(ValueError, match=sentence):
        isr.Inversion(**options).fit(*decays(30, 0.05))


def test_a_start_that_is_no_parameter_is_refused():
    x, y = decays(300, 0.01)
    with pytest.raises(
        ValueError, match="channel 'm' begins at values that depend on x and are no column of it"
    ):
        isr.Inversion(series=SERIES, times=range(5)).fit(x, y**2)


@pytest.mark.parametrize("noise", ["normal", "lognormal", "poisson", "binomial(30)"])
def test_noise_laws_agree_with_scipy(noise):
    rate, start = Formula(parse("-k*m", ["m", "k"])), Formula(parse("20.0", []))
    scale = {"normal": 2.0, "lognormal": 0.1}.get(noise, 1.0)
    law = MotionLaw(
        ("k",),
        (Channel("m", rate, False, start, Noise.read(noise), scale, (0, 1)),),
        (0.0, 1.0),
        20,
        ("a", "b"),
    )
    x, y = np.array([[0.7]]), np.array([[19.0, 11.0]])
    mean = 20 * np.exp([0.0, -0.7])
    frozen = {
        "normal": stats.norm(mean, 2.0).logpdf, "lognormal": stats.lognorm(0.1, scale=mean).logpdf,
        "poisson": stats.poisson(mean).logpmf, "binomial(30)": stats.binom(30, mean / 30).logpmf,
    }[noise]  # fmt: skip
    assert_allclose(law.log_prob(x, y), frozen(y[0]).sum(), rtol=1e-6)
    drawn = law.sample(np.repeat(x, 4000, axis=0), np.random.default_rng(0))
    assert np.all(np.abs(drawn.mean(axis=0) - mean) < 0.2)
    scores = law.channels[0].noise.score(drawn, mean, scale, np.random.default_rng(1))
    assert abs(np.std(scores) - 1) < 0.05


def epidemic(n):
    """Rows of the two rates of an epidemic, and how many of 1000 are ill at ten times; who may fall ill is not seen."""
    rng = np.random.default_rng(0)
    x = np.exp(np.log([0.4, 0.125]) + np.array([0.5, 0.2]) * rng.normal(size=(n, 2)))
    times = np.arange(10) * 17.0

    def rate(_, y):
        s, i = y.reshape(2, n)
        return np.concatenate([-x[:, 0] * s * i, x[:, 0] * s * i - x[:, 1] * i])

    start = np.repeat([1 - 1e-6, 1e-6], n)
    ill = solve_ivp(rate, (0, 160), start, t_eval=times, rtol=1e-8, atol=1e-14).y[n:].reshape(n, 10)
    return pd.DataFrame(x, columns=["infects", "recovers"]), rng.binomial(1000, np.clip(ill, 0, 1)), times


@pytest.mark.slow
def test_a_channel_that_nobody_measured_is_found():
    x, y, times = epidemic(300)
    model = isr.Inversion(series={"ill": range(10)}, times=times, noise="binomial(1000)").fit(x, y)
    ill, hidden, infects, recovers = sympy.symbols("ill hidden infects recovers", real=True)
    points = np.random.default_rng(0).uniform(0.1, 1, size=(4, 50))
    wanted = infects * hidden * ill - recovers * ill, -0.001 * infects * ill * hidden
    for channel, true in zip(model.law_.channels, wanted, strict=True):
        found, exact = (
            sympy.lambdify([ill, hidden, infects, recovers], e)(*points) for e in (channel.slope, true)
        )
        assert_allclose(found, exact, rtol=0.01, atol=0.01 * np.abs(exact).max())
    assert "was not measured" in model.verdict_


def test_trajectories_that_do_not_follow_the_law_are_left_out():
    x, y = decays(400, 0.05)
    y[7] = 1e-3  # as where values are clipped
    prior = {"k": (0.5, 2), "m0": (1, 3)}
    model = isr.Inversion(prior=prior, series={"m": range(5)}, times=np.arange(5) * 0.5, fallback=False).fit(
        x, y
    )
    assert abs(model.law_.channels[0].scale - 0.05) < 0.003
    assert "1 of 400 trajectories do not follow it and were left out" in model.verdict_
