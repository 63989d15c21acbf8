"""Known tasks with their truth: densities, laws, kinematics, ballistics, toys.

The library proper never imports this folder; examples, benchmarks, the command line and tests do. Each task is a
submodule, loaded when first asked for: ``isr.problems.kinematics`` works without importing the others.
"""

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from isr.problems import ballistics, densities, kinematics, laws, paper_equations, toys

__all__ = ["ballistics", "densities", "kinematics", "laws", "paper_equations", "toys"]


def __getattr__(name: str) -> ModuleType:
    if name in __all__:
        return import_module(f"{__name__}.{name}")
    raise AttributeError(
        f"module {__name__!r} has no attribute {name!r}; known problems: {', '.join(__all__)}"
    )


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
