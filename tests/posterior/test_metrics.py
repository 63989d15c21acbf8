"""Metrics against direct sums, closed forms and SciPy."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import stats

from isr.posterior import metrics


def kernel(a, b):
    d2 = np.sum((a - b) ** 2)
    return sum(s**2 / (s**2 + d2) for s in (0.05, 0.2, 0.9))


def test_mmd_is_the_double_loop():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(7, 3)), 0.5 + rng.normal(size=(5, 3))
    xy = np.mean([kernel(a, b) for a in x for b in y])
    biased = (
        np.mean([kernel(a, b) for a in x for b in x]) + np.mean([kernel(a, b) for a in y for b in y]) - 2 * xy
    )
    assert_allclose(metrics.mmd2(x, y, unbiased=False), biased, rtol=1e-12)
    xx = np.mean([kernel(x[i], x[j]) for i in range(7) for j in range(7) if i != j])
    yy = np.mean([kernel(y[i], y[j]) for i in range(5) for j in range(5) if i != j])
    assert_allclose(metrics.mmd2(x, y), xx + yy - 2 * xy, rtol=1e-12)


def test_unbiased_mmd_has_mean_zero_for_equal_laws_and_biased_has_not():
    rng = np.random.default_rng(1)
    x, y = rng.normal(size=(2, 2000, 20, 2))
    unbiased, biased = metrics.mmd2(x, y), metrics.mmd2(x, y, unbiased=False)
    assert abs(unbiased.mean()) < 4 * unbiased.std() / np.sqrt(2000)
    # Only the diagonal sets them apart: k(0) (1/n + 1/m) less the mean kernel over n and m.
    assert 0.15 < biased.mean() < 0.3


def test_mmd_of_many_targets_is_that_of_each():
    rng = np.random.default_rng(2)
    x, y = rng.normal(size=(2, 3, 100, 30, 2))
    many = metrics.mmd2(x, y)
    assert many.shape == (3, 100)
    assert_allclose(many[1, 17], metrics.mmd2(x[1, 17], y[1, 17]), rtol=1e-12)


def test_mmd_keeps_non_finite_draws():
    x = np.zeros((10, 2))
    x[3] = np.nan
    assert np.isnan(metrics.mmd2(x, np.ones((10, 2))))


def test_mmd_refuses_shapes_that_do_not_fit():
    with pytest.raises(ValueError, match=r"got \(5, 2\) and \(5, 3\)"):
        metrics.mmd2(np.zeros((5, 2)), np.zeros((5, 3)))
    with pytest.raises(ValueError, match="at least two draws"):
        metrics.mmd2(np.zeros((1, 2)), np.zeros((5, 2)))


def test_resimulation_error_is_the_mean_square_of_each_target():
    rng = np.random.default_rng(3)
    samples, targets = rng.normal(size=(4, 50, 2)), rng.normal(size=(4, 1))
    found = metrics.resimulation_error(samples, targets, lambda x: x.sum(axis=1))
    expected = [np.mean((s.sum(axis=1) - t) ** 2) for s, t in zip(samples, targets, strict=True)]
    assert_allclose(found, expected, rtol=1e-12)
    with pytest.raises(ValueError, match="leading axes"):
        metrics.resimulation_error(samples, targets[0], lambda x: x)


def test_classifier_sees_only_what_differs():
    rng = np.random.default_rng(4)
    x, y = rng.normal(size=(2, 500, 2))
    assert abs(metrics.c2st(x, y) - 0.5) < 0.06
    # For two unit normals three apart the best accuracy is Φ(1.5).
    best = stats.norm.cdf(1.5)
    assert best - 0.05 < metrics.c2st(x, y + np.array([3.0, 0.0])) < best + 0.03
