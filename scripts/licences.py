"""List every package that isr needs at run time with its version and licence, as a Markdown table.

python scripts/licences.py
"""

from __future__ import annotations

import re
from importlib import metadata


def main() -> None:
    print("| package | version | licence |\n|---|---|---|")
    for name in sorted(needed("symbolicflow"), key=str.lower):
        print(f"| {name} | {metadata.version(name)} | {licence(name)} |")


def needed(root: str) -> set[str]:
    """Return the names of all packages that one needs, directly or not, without its extras."""
    found: set[str] = set()
    todo = [root]
    while todo:
        for line in metadata.requires(todo.pop()) or []:
            requirement, _, marker = line.partition(";")
            if "extra" in marker:
                continue
            name = re.split(r"[\s<>=!~\[(]", requirement.strip(), maxsplit=1)[0]
            try:
                name = metadata.metadata(name)["Name"]
            except metadata.PackageNotFoundError:  # for another system or Python
                continue
            if name not in found:
                found.add(name)
                todo.append(name)
    return found


def licence(name: str) -> str:
    """Return what a package says of its licence, shortened."""
    about = metadata.metadata(name)
    stated = about.get("License-Expression")
    if not stated:
        kinds = [
            c.rpartition(" :: ")[2] for c in about.get_all("Classifier") or [] if c.startswith("License")
        ]
        stated = ", ".join(kinds) or (about.get("License") or "not stated").strip().splitlines()[0]
    return stated[:60]


if __name__ == "__main__":
    main()
