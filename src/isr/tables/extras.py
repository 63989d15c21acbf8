"""Optional packages: imported only where they are used, and asked for by the extra that installs them."""

from __future__ import annotations

import importlib
import warnings
from typing import Any

EXTRAS = {
    "plots": ("matplotlib", "arviz"),
    "files": ("pyarrow", "h5netcdf", "openpyxl"),
    "chains": ("blackjax", "emcee"),
    "ocean": ("numba",),
}
"""The packages of each extra of `symbolicflow`, as in ``pip install 'symbolicflow[plots]'``."""


def need(module: str) -> Any:
    """Return an optional package or a module of it; an `ImportError` names the extra to install.

    Args:
        module: Such as ``"arviz"`` or ``"matplotlib.pyplot"``; its package stands in `EXTRAS`.
    """
    package = module.partition(".")[0]
    extra = next(name for name, packages in EXTRAS.items() if package in packages)
    try:
        with warnings.catch_warnings():
            # ArviZ announces its next version on import, which does not concern the caller.
            warnings.simplefilter("ignore", FutureWarning)
            return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != package:
            raise
        raise ImportError(
            f"{package} is not installed; install it with: pip install 'symbolicflow[{extra}]'"
        ) from error
