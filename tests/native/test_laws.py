"""With C kernels and without, fits end in the same equations; only the last digits of trained weights differ."""

import os
import subprocess
import sys

import pytest
import sympy

from isr.native import library
from isr.problems.laws import LAWS, compare_laws

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not library.library().tag, reason="no C compiler, or another system"),
]

FIT = """
import sys, isr, isr.native, sympy
from isr.problems.laws import LAWS
law = LAWS[sys.argv[1]]
library = {"constant": 1, "id": 1, "square": 1, **{name: 1 for name in law.primitives}}
training = isr.Training("quick", n_restarts=4, verbose=False)
model = isr.SymbolicFlow(law.n_blocks, 1, charts=(), library=library, training=training, random_state=0)
equations = model.fit(law.sample(10_000, 0)).expressions_
print(isr.native.status().split(":")[0])
for latent in equations.composed().outputs:
    print(latent.subs(dict(zip(equations.forward.inputs, sympy.symbols("x:9")))))
"""


def fitted(law: str, **settings: str) -> tuple[str, list[sympy.Expr]]:
    done = subprocess.run(
        [sys.executable, "-c", FIT, law],
        env=os.environ | settings,
        capture_output=True,
        text=True,
        check=True,
    )
    status, *latents = done.stdout.splitlines()
    return status, [sympy.sympify(latent) for latent in latents]


@pytest.mark.parametrize("name", ["banana", "funnel", "sine_shear"])
def test_a_fit_finds_the_same_law_with_and_without_a_compiler(name):
    (status, found), (other_status, other) = fitted(name), fitted(name, ISR_NATIVE="off")
    assert (status, other_status) == ("C kernels, compiled for this processor", "XLA alone")
    x = LAWS[name].sample(1000, random_state=0)
    comparison = compare_laws(found, other, x)
    assert comparison.same, comparison.reason
    assert LAWS[name].compare(found).same
