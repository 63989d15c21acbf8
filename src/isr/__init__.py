"""Invertible symbolic regression: closed-form maps that run both ways, with their density.

Public names load on first use, so ``import isr`` costs milliseconds and pulls in neither JAX nor SymPy.
To add one, write a line in ``_EXPORTS``, its twin under ``TYPE_CHECKING`` and its name in ``__all__``.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_EXPORTS = {
    "Condenser": "isr.estimators.settings",
    "ConditionalISR": "isr.estimators.inverse",
    "EQLRegressor": "isr.estimators.eql_regressor",
    "Expressions": "isr.equations",
    "Flow": "isr.bijections.flow",
    "ISR": "isr.estimators.inverse",
    "Inversion": "isr.estimators.inversion",
    "LawRegressor": "isr.estimators.law_regressor",
    "MotionRegressor": "isr.estimators.motion_regressor",
    "PRIMITIVES": "isr.bijections.primitives",
    "Primitive": "isr.bijections.primitives",
    "SymbolicFlow": "isr.estimators.symbolic_flow",
    "Training": "isr.estimators.settings",
    "build_flow": "isr.bijections.build",
    "check": "isr.equations.check",
    "extract": "isr.equations",
    "load": "isr.storage",
    "register_primitive": "isr.bijections.primitives",
    "register_transformer": "isr.bijections.coupling",
    "save": "isr.storage",
}
_SUBMODULES = frozenset({"ocean", "problems"})

if TYPE_CHECKING:
    from isr import ocean, problems
    from isr.bijections.build import build_flow
    from isr.bijections.coupling import register_transformer
    from isr.bijections.flow import Flow
    from isr.bijections.primitives import PRIMITIVES, Primitive, register_primitive
    from isr.equations import Expressions, extract
    from isr.equations.check import check
    from isr.estimators.eql_regressor import EQLRegressor
    from isr.estimators.inverse import ISR, ConditionalISR
    from isr.estimators.inversion import Inversion
    from isr.estimators.law_regressor import LawRegressor
    from isr.estimators.motion_regressor import MotionRegressor
    from isr.estimators.settings import Condenser, Training
    from isr.estimators.symbolic_flow import SymbolicFlow
    from isr.storage import load, save

__all__ = [
    "ISR", "PRIMITIVES", "Condenser", "ConditionalISR", "EQLRegressor", "Expressions", "Flow", "Inversion",
    "LawRegressor", "MotionRegressor", "Primitive", "SymbolicFlow", "Training", "__version__", "build_flow",
    "check", "extract", "load", "ocean", "problems", "register_primitive", "register_transformer", "save",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in _EXPORTS:
        value = getattr(importlib.import_module(_EXPORTS[name]), name)
    elif name in _SUBMODULES:
        value = importlib.import_module(f"isr.{name}")
    else:
        raise AttributeError(f"module 'isr' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(__all__))
