"""Compiled programs kept between processes: the second fit of a shape starts at once."""

from __future__ import annotations

import os
from pathlib import Path

import jax

LEAST_SECONDS = 0.3


def keep_compiled_programs() -> None:
    """Turn JAX's persistent compilation cache on, unless the user has set one or ``ISR_CACHE`` is ``off``.

    ``ISR_CACHE`` names another folder; the default is ``isr`` in the user's cache folder.
    """
    if (
        getattr(jax.config, "jax_compilation_cache_dir", None) is not None
        or os.environ.get("ISR_CACHE") == "off"
    ):
        return
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = Path(os.environ.get("ISR_CACHE") or home / "isr")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", LEAST_SECONDS)
