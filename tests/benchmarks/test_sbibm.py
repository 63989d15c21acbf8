"""sbibm's tasks: simulators and shipped posteriors obey one likelihood, written here; C2ST; rows; published figures."""

import subprocess

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import stats
from scipy.integrate import solve_ivp

import sbibm
from c2st import c2st
from isr.posterior.metrics import c2st as faster_c2st
from sbibm_tasks import (
    TASKS,
    design,
    distractors,
    glm_covariance,
    infected,
    moon_centre,
    populations,
    shipped,
)


def two_scales(x, y):
    wide, narrow = (stats.norm.logpdf(y, x, s).sum(axis=1) for s in (1.0, 0.1))
    return np.logaddexp(wide, narrow)


def slcp(x, y):
    a, b, r = x[:, 2] ** 2, x[:, 3] ** 2, np.tanh(x[:, 4])
    s00, s01, s11 = a**2 + 1e-6, r * a * b, b**2 + 1e-6
    det = s00 * s11 - s01**2
    u, v = (y.reshape(len(y), 4, 2) - x[:, None, :2]).transpose(2, 1, 0)
    return np.sum(-0.5 * (s11 * u**2 - 2 * s01 * u * v + s00 * v**2) / det - 0.5 * np.log(det), axis=0)


def glm(x, y):
    psi = x @ design().T
    return np.sum(y * psi - np.logaddexp(0, psi), axis=1)


LIKELIHOODS = {
    "gaussian_linear": lambda x, y: -5 * np.sum((y - x) ** 2, axis=1),
    "gaussian_linear_uniform": lambda x, y: -5 * np.sum((y - x) ** 2, axis=1),
    "gaussian_mixture": two_scales,
    "slcp": slcp,
    "bernoulli_glm_raw": glm,
    "sir": lambda x, y: stats.binom.logpmf(y, 1000, infected(x)).sum(axis=1),
    "lotka_volterra": lambda x, y: -50 * np.sum((np.log(y) - np.log(populations(x))) ** 2, axis=1),
}


def slope(log_density, x, i):
    step = 1e-3 * np.std(x[:, i]) + 1e-4 * np.mean(np.abs(x[:, i]))
    move = step * np.eye(x.shape[1])[i]
    return (log_density(x + move) - log_density(x - move)) / (2 * step)


def agrees_with_zero(values):
    return abs(np.mean(values)) < 5 * np.std(values) / np.sqrt(len(values))


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_the_mean_slope_of_the_likelihood_is_zero_over_simulations(name):
    task, rng = TASKS[name], np.random.default_rng(1)
    one = np.median(task.draw_prior(100, rng), axis=0) + 0.3 * np.std(task.draw_prior(100, rng), axis=0)
    x = np.repeat(one[None], 4000, axis=0)
    y = task.simulate(x, rng)
    for i in range(x.shape[1]):
        assert agrees_with_zero(slope(lambda x: LIKELIHOODS[name](x, y), x, i))


def test_moons_are_half_rings():
    x, y = TASKS["two_moons"].pairs(5000, np.random.default_rng(0))
    is_half_ring(y - moon_centre(x))


def is_half_ring(p):
    assert stats.kstest(np.hypot(*p.T), stats.norm(0.1, 0.01).cdf).pvalue > 1e-4
    assert stats.kstest(np.arctan2(p[:, 1], p[:, 0]), stats.uniform(-np.pi / 2, np.pi).cdf).pvalue > 1e-4


def test_trajectories_are_those_of_another_solver():
    rng = np.random.default_rng(2)
    rates = TASKS["lotka_volterra"].draw_prior(20, rng)
    for (a, b, c, d), found in zip(rates, populations(rates), strict=True):
        exact = solve_ivp(
            lambda _, u, a=a, b=b, c=c, d=d: [a - b * np.exp(u[1]), d * np.exp(u[0]) - c], (0, 19),
            np.log([30.0, 1.0]), t_eval=2.1 * np.arange(10), rtol=1e-9, atol=1e-9, method="LSODA",
        )  # fmt: skip
        assert_allclose(np.log(found), exact.y.ravel(), atol=1e-4)


def test_c2st_is_a_half_for_one_law_and_agrees_with_the_faster_form():
    rng = np.random.default_rng(0)
    a, b, moved = rng.normal(size=(3, 3000, 2)) + np.array([0.0, 0.0, 1.0])[:, None, None]
    assert abs(c2st(a, b, n_folds=1) - 0.5) < 0.06
    exact = stats.norm.cdf(np.hypot(1, 1) / 2)
    assert abs(c2st(a, moved) - exact) < 0.03
    assert abs(faster_c2st(a, moved) - c2st(a, moved)) < 0.03


def test_published_figures_cover_every_task():
    found = sbibm.published()
    assert {task for method, task in found if method == "NPE"} == set(TASKS)
    assert found["NPE", "slcp"] == [0.975, 0.901, 0.831]
    assert found["GenSBI flow matching", "slcp"][0] is None


class Prior:
    """Gives draws of the prior as a posterior."""

    def __init__(self, task, seed):
        self.task, self.rng = task, np.random.default_rng(seed)

    def posterior(self, y):
        return self

    def sample(self, n):
        return self.task.draw_prior(n, self.rng)


def test_ranks_are_uniform_under_the_exact_posterior_and_not_under_the_prior():
    class Exact(Prior):
        def posterior(self, y):
            self.mean = y / 2
            return self

        def sample(self, n):
            return self.mean + np.sqrt(0.05) * self.rng.normal(size=(n, len(self.mean)))

    task = TASKS["gaussian_linear"]
    assert sbibm.calibration(Exact(task, 0), task, 300, 0)["sbc_passed"]
    wide = type("Wide", (Exact,), {"sample": lambda self, n: self.mean + 0.5 * self.rng.normal(size=(n, 10))})
    assert not sbibm.calibration(wide(task, 0), task, 300, 0)["sbc_passed"]


def needs_the_wheel():
    try:
        shipped()
    except (subprocess.CalledProcessError, OSError):
        pytest.skip("the wheel of sbibm cannot be fetched here")


@pytest.mark.slow
def test_a_row_tells_the_c2st_of_each_observation_and_failures_stay(monkeypatch):
    needs_the_wheel()
    monkeypatch.setitem(sbibm.METHODS, "isr accurate", (lambda task, x, y, seed: Prior(task, seed), ()))
    monkeypatch.setitem(sbibm.METHODS, "isr short", (lambda *_: 1 / 0, ()))
    few = ["--task", "two_moons", "--simulations", "50", "--draws", "300", "--folds", "1"]
    row, failed = sbibm.main([*few, "--observation", "1", "2", "--method", "isr accurate", "isr short"])
    assert list(row["c2st_each"]) == [1, 2]
    assert row["c2st"] > 0.9
    assert row["share_outside"] == 0
    assert failed["failure"] == "ZeroDivisionError: division by zero"


@pytest.mark.slow
@pytest.mark.parametrize("name", LIKELIHOODS)
def test_shipped_draws_are_those_of_the_likelihood_and_the_prior(name):
    """By Stein's identity: the mean of f' + f (log p)' is zero for any f that vanishes at the ends of the prior."""
    needs_the_wheel()
    task, raw = TASKS[name], TASKS[name].shipped[1] != "observation.csv"
    for number in (1, 7):
        x, y = task.reference(number)[:4000], task.observation(number)[None]

        def log_density(x, y=y):
            if raw:
                return LIKELIHOODS[name](x, y) + stats.multivariate_normal.logpdf(
                    x, np.zeros(10), glm_covariance()
                )
            prior = sum(m.logpdf(v) for m, v in zip(task.marginals, x.T, strict=True))
            return LIKELIHOODS[name](x, np.repeat(y, len(x), axis=0)) + np.where(np.isfinite(prior), prior, 0)

        for i, marginal in enumerate(task.marginals):
            low, high = marginal.support()
            v = x[:, i]
            end = (v - low) * (high - v) if np.isfinite(high) else 1.0
            end_slope = low + high - 2 * v if np.isfinite(high) else 0.0
            d = slope(log_density, x, i)
            assert agrees_with_zero(end_slope + end * d)
            assert agrees_with_zero(end_slope * (v - v.mean()) + end * (1 + (v - v.mean()) * d))


@pytest.mark.slow
def test_what_sbibm_ships_is_made_of_the_same_stimulus_moons_and_distractors():
    needs_the_wheel()
    files, (locations, factors, order) = shipped(), distractors()
    assert (
        design()[:, 1].astype(np.float32).tobytes()
        in (files / "bernoulli_glm/files/stimulus_I.pt").read_bytes()
    )
    raw = (files / "slcp/files/gmm.torch").read_bytes()
    for numbers in (locations, factors):
        start = raw.index(numbers.ravel()[:1].tobytes())
        assert_allclose(np.frombuffer(raw, count=numbers.size, offset=start), numbers.ravel(), rtol=1e-12)
    for k in range(1, 11):
        assert_allclose(
            TASKS["slcp_distractors"].observation(k)[np.argsort(order)][:8],
            TASKS["slcp"].observation(k),
            rtol=1e-6,
        )
        assert_allclose(
            TASKS["bernoulli_glm_raw"].observation(k) @ design(),
            TASKS["bernoulli_glm"].observation(k),
            atol=1e-4,
        )
        moons = TASKS["two_moons"].reference(k)
        if np.max(np.abs(moons)) < 0.98:  # else the prior cuts a piece off
            is_half_ring(TASKS["two_moons"].observation(k) - moon_centre(moons))
