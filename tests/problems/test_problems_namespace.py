"""Problems load one by one, by name."""

import subprocess
import sys

import pytest

import isr.problems


def test_problems_are_reached_through_the_package():
    assert isr.problems.kinematics.TARGET == (0.0, 1.5)
    assert {"densities", "kinematics", "laws"} <= set(dir(isr.problems))


def test_importing_the_package_loads_no_problem():
    code = "import sys, isr.problems; print(any(m.startswith('isr.problems.') for m in sys.modules))"
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
        == "False\n"
    )


def test_unknown_problem_is_named_with_the_known():
    with pytest.raises(
        AttributeError, match="no attribute 'pendulum'; known problems: ballistics, densities"
    ):
        _ = isr.problems.pendulum
