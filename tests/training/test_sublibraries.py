"""Sub-libraries hold back functions and layers, and nothing else."""

import jax
import numpy as np
import pytest
import sympy

from isr.bijections.build import Architecture, build_flow
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


def test_a_flow_begins_with_everything_and_with_everything_in_a_single_layer():
    shape = Architecture(n_blocks=1, n_layers=2, library=LIBRARY, skip=True)
    flow = build_flow(jax.random.key(0), 2, architecture=shape)
    masks, groups = sublibrary_masks(flow, 10)
    assert list(groups) == [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]
    assert np.all(masks[0] == 1)
    vector, restore = flatten(flow)
    for number, wanted in ((1, {"exp", "sin"}), (2, set()), (3, {"exp"})):
        masked = restore(vector * masks[number].astype(vector.dtype))
        found = [e for step in masked.steps for net in step.subnetworks for e in network_expressions(net)]
        assert set(functions_in(found)) == wanted
        for call in set().union(*(e.atoms(sympy.core.function.AppliedUndef) for e in found)):
            assert not call.args[0].atoms(sympy.core.function.AppliedUndef)
