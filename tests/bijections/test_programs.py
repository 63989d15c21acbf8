"""Compiled programs: one for a structure, and no more kept than are in use."""

import gc
from functools import lru_cache

import jax
import jax.numpy as jnp

from isr.bijections import programs
from isr.bijections.programs import MOST_PROGRAMS, compiled


def _scaled(factor: float, model: dict[str, jax.Array]) -> jax.Array:
    return factor * model["a"]


def _live() -> int:
    gc.collect()
    return len(jax.devices()[0].client.live_executables())


def test_models_of_one_structure_share_a_program():
    one, other = {"a": jnp.ones(3)}, {"a": jnp.zeros(3)}
    assert compiled(_scaled, one, 2.0) is compiled(_scaled, other, 2.0)
    assert compiled(_scaled, one, 2.0) is not compiled(_scaled, one, 3.0)
    assert compiled(_scaled, one, 2.0)(one).tolist() == [2.0, 2.0, 2.0]


def test_programs_not_used_for_long_give_their_memory_back(monkeypatch):
    assert programs._program.cache_parameters()["maxsize"] == MOST_PROGRAMS
    monkeypatch.setattr(programs, "_program", lru_cache(maxsize=8)(programs._program.__wrapped__))
    model = {"a": jnp.ones(3)}
    for factor in range(8):
        compiled(_scaled, model, float(factor))(model)
    before = _live()
    for factor in range(8, 24):
        compiled(_scaled, model, float(factor))(model)
    assert _live() <= before
