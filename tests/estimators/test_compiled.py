"""A fit compiles programs of its own and nothing beside them: what JAX keeps for every shape it meets adds up."""

import logging
import re

import jax
import numpy as np
import pytest

import isr
from isr.estimators.settings import Effort

# Many are trained for a moment only.
pytestmark = pytest.mark.filterwarnings("ignore:a normal law, linear in what is given")

# Programs of a model, an epoch of training, the members' losses: kept in bounded number (`isr.bijections.programs`).
OWN = {"run", "epoch", "evaluate"}


@pytest.fixture
def compiled(caplog):
    """Names of the programs compiled so far."""
    caplog.set_level(logging.WARNING)
    with jax.log_compiles(True):
        yield lambda: {
            name
            for text in caplog.messages
            for name in re.findall(r"Compiling (?:jit\()?(\w+)\)? with", text)
        }


def _all_of_it(n_layers, folder):
    x = np.random.default_rng(0).normal(size=(200, 2))
    shape = {
        "random_state": 0,
        "n_layers": n_layers,
        "library": ("id", "square"),
    }
    flow = isr.SymbolicFlow(
        charts=(),
        n_blocks=1,
        training=isr.Training(Effort(300, 300, 100), n_restarts=2, verbose=False),
        **shape,
    ).fit(x)
    flow.sample(10)
    inverse = isr.ConditionalISR(
        n_blocks=1,
        training=isr.Training(Effort(50, 0, 0), n_restarts=2, penalty=None, verbose=False),
        **shape,
    ).fit(x, x[:, :1])
    inverse.posterior([0.1]).sample(10)
    inverse.save(folder / "model.isr")
    assert str(isr.load(folder / "model.isr").expressions)


@pytest.mark.slow
def test_a_fit_of_another_shape_compiles_its_own_programs_only(compiled, tmp_path, caplog):
    _all_of_it(1, tmp_path)
    assert compiled() >= OWN
    caplog.clear()
    _all_of_it(2, tmp_path)
    assert compiled() == OWN
