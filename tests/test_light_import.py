"""Importing the package and asking for help load nothing heavy."""

import json
import os
import subprocess
import sys

import pytest

HEAVY = [
    "arviz",
    "blackjax",
    "dask",
    "equinox",
    "jax",
    "matplotlib",
    "numba",
    "optax",
    "pandas",
    "ray",
    "scipy",
]
HEAVY += ["sklearn", "sympy", "torch"]

STATEMENTS = {
    "import isr": "import isr",
    "dir(isr)": "import isr; dir(isr)",
    "isr --help": "from isr.cli import main\ntry: main(['--help'])\nexcept SystemExit: pass",
    "isr demo --help": "from isr.cli import main\ntry: main(['demo', '--help'])\nexcept SystemExit: pass",
}


def loaded_after(statement: str) -> list[str]:
    code = (
        f"import sys, json\n{statement}\nprint(); print(json.dumps([m for m in {HEAVY} if m in sys.modules]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("statement", STATEMENTS.values(), ids=STATEMENTS.keys())
def test_nothing_heavy_is_loaded(statement):
    assert loaded_after(statement) == []


def test_a_heavy_module_would_be_noticed():
    assert "sympy" in loaded_after("import sympy")


def test_reading_a_table_needs_numpy_alone():
    assert loaded_after("from isr.tables import read_table; read_table([[1.0, 2.0]])") == []


DENSE_FIT = """
import numpy as np
from isr import ConditionalISR, Training
from isr.estimators.settings import Effort
x = np.random.default_rng(0).normal(size=(200, 2))
model = ConditionalISR(
    1, 1, noise=0.1, library={"constant": 1, "id": 10, "sin": 10}, random_state=0,
    training=Training(Effort(20, 0, 0), penalty=None, n_restarts=1, verbose=False),
).fit(x, x[:, :1])
model.sample([[0.0]], 3, random_state=0)
"""


def test_a_network_is_trained_and_drawn_from_without_sympy():
    loaded = loaded_after(DENSE_FIT)
    assert "jax" in loaded
    assert "sympy" not in loaded


@pytest.mark.parametrize(
    ("arguments", "seconds"), [(("-c", "import isr"), 0.1), (("-m", "isr.cli", "--help"), 0.6)]
)
def test_importing_and_asking_for_help_take_a_moment_of_the_processor_once_warm(arguments, seconds):
    def used() -> float:
        start = os.times()
        subprocess.run([sys.executable, *arguments], capture_output=True, check=True)
        end = os.times()
        return end.children_user + end.children_system - start.children_user - start.children_system

    # Processor time, and the best of several: the machine may be busy with other work.
    assert min(used() for _ in range(5)) <= seconds
