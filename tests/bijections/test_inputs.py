"""Shifts, scales and bounds as inputs of a program: the same map, and one program for all fits of a structure."""

import jax
import numpy as np
import pytest

from isr.bijections.affine import Bounded, Standardise
from isr.bijections.build import Architecture, build_flow

BOXES = [
    Bounded((-1.0, None, 3.0, None), (2.0, 1.5, None, None)),
    Bounded((1000.0, None, 1e-9, None), (1000.5, 7.0, None, None)),
]


@pytest.mark.parametrize("box", BOXES)
@pytest.mark.parametrize("precision", [np.float32, np.float64])
def test_bounds_as_inputs_are_the_same_chart(box, precision):
    with jax.enable_x64(precision is np.float64):
        forward = jax.jit(lambda box, x: box.forward_and_log_det(x))
        inverse = jax.jit(lambda box, u: box.inverse_and_log_det(u))
        for u in np.random.default_rng(0).normal(scale=3, size=(50, 4)).astype(precision):
            one, other = box.inverse_and_log_det(u), inverse(box, u)
            tolerance = 4 * np.finfo(precision).eps
            assert all(np.allclose(a, b, rtol=tolerance) for a, b in zip(one, other, strict=True))
            assert box.contains(np.asarray(other[0], np.float64)[None]).all()
            one, other = box.forward_and_log_det(other[0]), forward(box, other[0])
            assert all(np.allclose(a, b, rtol=1e-2 if precision is np.float32 else 1e-6, atol=1e-4)
                       for a, b in zip(one, other, strict=True))  # fmt: skip


def test_fits_of_one_structure_share_a_program():
    def fitted(seed: int, low: float):
        scale = Standardise((float(seed), 0.5), (1.0 + seed, 2.0))
        return build_flow(
            jax.random.key(seed), 2, architecture=Architecture(n_blocks=1, n_layers=1), standardise=scale,
            bounds=Bounded((low, None), (low + 1, None)),
        )  # fmt: skip

    one, other = (fitted(s, low) for s, low in ((0, -1.0), (1, 4.0)))
    assert jax.tree.structure(one) == jax.tree.structure(other)
