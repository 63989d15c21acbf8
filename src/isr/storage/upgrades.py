"""Files of earlier versions: what became of the classes and fields they hold.

A file tells its schema. Whoever renames a class or changes its fields adds 1 to `SCHEMA` (once between two releases)
and a line below; files written before then load as if they had been written today.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from isr.bijections.coupling import Affine

Fields = dict[str, Any]

SCHEMA = 2
"""Version of what a file holds; a file with a higher one is refused."""


def _coupling(old: Fields) -> tuple[str, Fields]:
    return "Coupling", {"transformer": Affine(old.pop("clamp")), **old}


CHANGES: dict[int, dict[str, Callable[[Fields], tuple[str, Fields]]]] = {2: {"Coupling": _coupling}}
"""By the schema that brought them: for each class that changed, its new name and fields from the old fields.

Fields hold finished parts, so a change may build modules of them.
"""


def upgraded(name: str, fields: Fields, schema: int) -> tuple[str, Fields]:
    """Return the name and fields that a part of a file has today.

    Args:
        name: Its class in the file.
        fields: Its fields there, by name.
        schema: That of the file.
    """
    for version in sorted(version for version in CHANGES if version > schema):
        if name in CHANGES[version]:
            name, fields = CHANGES[version][name](dict(fields))
    return name, fields
