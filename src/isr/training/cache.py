"""Compiled programs kept between processes: the second fit of a shape starts at once."""

from __future__ import annotations

import jax

from isr.tables.cache_dir import cache_dir

LEAST_SECONDS = 0.3


def keep_compiled_programs() -> None:
    """Turn JAX's persistent compilation cache on, unless the user has set one or there is no folder for it."""
    folder = cache_dir()
    if folder is None or getattr(jax.config, "jax_compilation_cache_dir", None) is not None:
        return
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", LEAST_SECONDS)
