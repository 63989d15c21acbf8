"""Saved models: one safetensors file with the numbers, the structure and where they come from.

A file is data only: loading never runs code from it, builds nothing but the classes it knows and needs no training
code. Its checksum covers every byte, so any damage is seen.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from isr.storage.bundle import Bundle, ModelFileError
from isr.storage.layout import SCHEMA, from_bytes, to_bytes
from isr.tables.whole_files import refuse_unwritable, write_whole

__all__ = ["SCHEMA", "Bundle", "ModelFileError", "from_bytes", "load", "save", "to_bytes"]


def save(
    model: Any,
    path: str | os.PathLike[str],
    *,
    metadata: Mapping[str, Any] | None = None,
    overwrite: bool = True,
) -> Path:
    """Write a model to one file and return its path.

    Args:
        model: A `Flow` or another module of the library, a `Bundle`, or anything with a ``to_bundle()`` method.
        path: The file; the name is yours, ``.isr`` is the custom.
        metadata: Added to the bundle's own.
        overwrite: Whether an existing file may be replaced. It is replaced in one step or not at all.

    Example:
        >>> import jax, isr, tempfile, pathlib
        >>> flow = isr.build_flow(jax.random.key(0), 2)
        >>> path = save(flow, pathlib.Path(tempfile.mkdtemp()) / "model.isr", metadata={"seed": 0})
        >>> saved = load(path)
        >>> saved.metadata["seed"], saved.sample(3).shape
        (0, (3, 2))
    """
    bundle = Bundle.of(model)
    if metadata:
        bundle = dataclasses.replace(bundle, metadata={**bundle.metadata, **metadata})
    target = Path(path)
    refuse_unwritable(target)
    data = to_bytes(bundle)
    try:
        write_whole(target, lambda hidden: hidden.write_bytes(data), replace=overwrite)
    except FileExistsError:
        raise FileExistsError(
            f"{target} exists already; choose another name or pass overwrite=True"
        ) from None
    return target


def load(path: str | os.PathLike[str]) -> Bundle:
    """Return what `save` wrote, number for number, or raise `ModelFileError` saying what is wrong with the file.

    The model has ``posterior``, ``predict``, ``sample`` and ``score_samples``, as its kind allows.

    Example:
        >>> import isr, numpy, tempfile, pathlib
        >>> from isr.bijections.affine import Linear
        >>> flow = isr.Flow(Linear(numpy.array([[1.0, 1.0], [1.0, -1.0]])), noise=(0.1,))
        >>> bundle = Bundle(flow, ("mass", "charge"), ("force",), {"mass": "kg"}, kind="ISR")
        >>> saved = load(save(bundle, pathlib.Path(tempfile.mkdtemp()) / "model.isr"))
        >>> saved, saved.posterior({"force": 3.0})
        (<saved ISR of mass (kg), charge, giving force>, Posterior of mass, charge given force = 3)
        >>> saved.predict([[1.0, 2.0]]), saved.sample(5, [3.0]).shape
        (array([[3.]]), (5, 2))
    """
    source = Path(path)
    if source.is_dir():
        raise ModelFileError(f"{source} is a folder, not a saved model; name the file inside it")
    if source.exists() and not source.is_file():
        raise ModelFileError(
            f"{source} is no plain file (a pipe or a device), not a saved model; name a file"
        )
    try:
        return from_bytes(source.read_bytes())
    except ModelFileError as error:
        raise ModelFileError(f"cannot load {source}: {error}") from error
