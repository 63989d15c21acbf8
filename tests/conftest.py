"""Doubles and strict promotion for every test, and the fixed seed they draw from."""

import os

# Two workers share a small machine in CI; one thread each is faster than fighting over cores. Most programs here run
# once, so they are compiled quickly rather than well; `make test-slow`, which trains for long, has the usual way.
os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false --xla_backend_optimization_level=0")
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("MPLBACKEND", "agg")

import hypothesis
import jax
import pytest

# The same examples every time, as with every other draw in these tests, and no clock on a shared machine.
hypothesis.settings.register_profile("fixed", derandomize=True, deadline=None, database=None)
hypothesis.settings.load_profile("fixed")

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")


@pytest.fixture
def key() -> jax.Array:
    """A fixed random key; split it, never reuse it."""
    return jax.random.key(0)
