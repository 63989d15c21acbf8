"""Sub-libraries hold back functions and layers, and nothing else."""

import jax
import numpy as np
import pytest
import sympy

from isr.bijections.build import Architecture, build_flow
from isr.bijections.coupling import Affine, Coupling
from isr.bijections.networks import build_eql
from isr.bijections.parameters import flatten
from isr.formulas.to_formulas import functions_in, network_expressions
from isr.training.penalties import sublibrary_masks

LIBRARY = {"constant": 1, "id": 1, "square": 1, "exp": 1, "sin": 1}


def _network(skip):
    return build_eql(jax.random.key(0), 2, 1, n_layers=2, library=LIBRARY, skip=skip, last_scale=1.0)


def _formulas(network, mask):
    vector, restore = flatten(network)
    return network_expressions(restore(vector * mask.astype(vector.dtype)))


@pytest.fixture(scope="module")
def kinds():
    network = _network(skip=True)
    return [_formulas(network, mask) for mask in sublibrary_masks(network, 9)[0]]


def test_the_first_restart_may_use_everything(kinds):
    assert functions_in(kinds[0]) == {"exp", "sin"}
    assert np.all(sublibrary_masks(_network(skip=True), 1)[0] == 1)


def test_each_other_restart_knows_its_own_functions(kinds):
    wanted = [set(), {"exp"}, {"sin"}, {"exp"}, {"sin"}, set(), {"exp"}, {"sin"}]
    assert [set(functions_in(formulas)) for formulas in kinds[1:]] == wanted


def test_a_single_layer_has_no_function_of_a_function(kinds):
    for formulas in kinds[1:4]:
        for call in formulas[0].atoms(sympy.core.function.AppliedUndef):
            assert not call.args[0].atoms(sympy.core.function.AppliedUndef)
    assert max(sympy.Poly(kinds[1][0]).total_degree(), 0) == 2


def test_an_outer_function_is_taken_of_a_polynomial_and_stands_alone(kinds):
    for formulas in kinds[4:6]:
        calls = formulas[0].atoms(sympy.core.function.AppliedUndef)
        assert len(calls) == 1
        (call,) = calls
        assert call.args[0].is_polynomial()
        assert sympy.Poly(call.args[0]).total_degree() == 2
        assert formulas[0].subs(call, 0).is_number


def test_without_a_skip_only_functions_are_held_back():
    network = _network(skip=False)
    found = [set(functions_in(_formulas(network, mask))) for mask in sublibrary_masks(network, 5)[0]]
    assert found == [{"exp", "sin"}, set(), {"exp"}, {"sin"}, {"exp", "sin"}]


class ShiftFirst(Affine):
    """The affine transformer with its parameters the other way round."""

    names = ("t", "s")

    def constrained(self, *raw):
        return super().constrained(*raw[::-1])[::-1]

    def forward(self, u, *parameters):
        return super().forward(u, *parameters[::-1])

    def inverse(self, v, *parameters):
        return super().inverse(v, *parameters[::-1])


class ScaleAlone(Affine):
    """The affine transformer, which does not say that a parameter only shifts."""

    shifts = ()


def _ways(n_blocks, n, transformer=None):
    """Which half each restart's couplings change by the other, and whether a scale is among it."""
    shape = Architecture(n_blocks, 2, library=LIBRARY, skip=True, transformer=transformer)
    flow = build_flow(jax.random.key(0), 2, architecture=shape)
    vector, restore = flatten(flow)
    rows = np.random.default_rng(0).normal(size=(5, 2))
    ways = []
    for mask in sublibrary_masks(flow, n)[0]:
        steps = restore(vector * mask.astype(vector.dtype)).steps
        first = next(step for step in steps if isinstance(step, Coupling))
        slopes, scales = jax.vmap(jax.jacfwd(first.forward_and_log_det))(rows)
        ways.append((np.any(slopes[:, 0, 1]), np.any(slopes[:, 1, 0]), np.any(scales)))
    return [tuple(map(bool, way)) for way in ways]


def test_restarts_of_one_coupling_may_shift_or_change_one_half_or_all():
    everything, shift, second, first = (
        (True, True, True),
        (True, True, False),
        (False, True, True),
        (True, False, True),
    )
    assert _ways(1, 9) == [everything, *[shift, second, first, everything] * 2]


def test_which_parameter_shifts_is_what_the_transformer_says():
    assert _ways(1, 9, ShiftFirst(2.0)) == _ways(1, 9)
    assert (True, True, False) not in _ways(1, 9, ScaleAlone(2.0))


def test_restarts_of_several_couplings_may_shift_or_do_all():
    assert _ways(2, 5) == [(True, True, True), *[(True, True, True), (True, True, False)] * 2]


def test_a_restart_is_of_the_same_group_whatever_its_couplings_may_do():
    flow = build_flow(
        jax.random.key(0), 2, architecture=Architecture(n_blocks=1, n_layers=2, library=LIBRARY, skip=True)
    )
    assert list(sublibrary_masks(flow, 10)[1]) == [0, 1, 1, 1, 1, 2, 2, 2, 2, 3]
