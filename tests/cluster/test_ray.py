"""Ray's backend of joblib changes where things run, never what comes out: worker processes of a real Ray."""

import pytest

from cluster.anywhere import check_simulations

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::Warning")]

RAY = {"backend": "ray", "n_jobs": -1}


@pytest.fixture(scope="module")
def ray():
    """Ray with two workers, and its backend registered."""
    ray = pytest.importorskip("ray")
    register_ray = pytest.importorskip("ray.util.joblib").register_ray
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    register_ray()
    yield ray
    ray.shutdown()


def test_simulations_are_those_of_a_single_process(ray, tmp_path):
    check_simulations(tmp_path, **RAY)
