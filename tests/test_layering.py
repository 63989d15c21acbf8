"""Imports run one way: tables, bijections, training / formulas / equations, posterior, estimators, report, cli.

The table says, for each folder or file of the package, what it may import besides itself. Everything counts, also
imports inside functions and for type checking.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "src" / "isr"

LIBRARY = {"tables", "bijections", "native", "training", "formulas", "equations", "posterior", "storage"} | {
    "densities",
    "inversion",
    "search",
    "motion",
}
MAY_IMPORT = {
    "tables": set(),
    "bijections": {"tables", "native"},
    "native": {"tables"},
    "densities": {"tables", "bijections"},
    "training": {"tables", "bijections"},
    "formulas": {"tables", "bijections", "equations"},
    "equations": {"tables", "bijections"},
    "storage": {"tables", "bijections", "equations", "formulas", "posterior"},
    "posterior": {"tables", "bijections"},
    "search": {"tables", "bijections", "equations"},
    "inversion": {"tables", "bijections", "densities", "equations", "posterior", "search", "motion"},
    "motion": {"tables", "equations", "search"},
    "estimators": LIBRARY,
    "report": LIBRARY | {"estimators"},
    "problems": {"tables", "posterior"},
    "ocean": {"tables", "posterior"},
    "demo": LIBRARY | {"estimators", "report", "problems", "ocean"},
    "paper": LIBRARY | {"estimators", "report", "problems", "ocean"},
    "cli": LIBRARY | {"estimators", "report", "problems", "ocean", "demo", "paper"},
}
# What modules may take from the package itself; its lazy public names would hide where they come from.
FROM_ROOT = {"__version__"}


def violations(module: str, source: str) -> list[str]:
    """Return a sentence for each import of ``module`` (such as ``isr.bijections.flow``) that the table forbids."""
    unit = module.split(".")[1]
    if unit not in MAY_IMPORT:
        return [f"{module} belongs to no layer; add {unit!r} to the table in tests/test_layering.py"]
    allowed = MAY_IMPORT[unit] | {unit}
    sentences = []
    for line, imported in imported_units(module, ast.parse(source)):
        if imported not in allowed:
            may = ", ".join(sorted(MAY_IMPORT[unit])) or "nothing else of isr"
            sentences.append(
                f"{module}, line {line}, imports isr.{imported}, but {unit} may import only: {may}"
            )
    return sentences


def imported_units(module: str, tree: ast.AST) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            targets = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            parent = absolute_parent(module, node)
            targets = [f"{parent}.{alias.name}" for alias in node.names]
        else:
            continue
        for target in targets:
            package, _, rest = target.partition(".")
            unit = rest.partition(".")[0] or "__init__"
            if package == "isr" and unit not in FROM_ROOT:
                yield node.lineno, unit


def absolute_parent(module: str, node: ast.ImportFrom) -> str:
    base = module.split(".")[: -node.level] if node.level else []
    return ".".join([*base, *([node.module] if node.module else [])])


def modules() -> dict[str, Path]:
    paths = [path for path in sorted(PACKAGE.rglob("*.py")) if path != PACKAGE / "__init__.py"]
    return {".".join(["isr", *path.relative_to(PACKAGE).with_suffix("").parts]): path for path in paths}


def test_imports_run_one_way():
    found = [
        sentence for name, path in modules().items() for sentence in violations(name, path.read_text("utf-8"))
    ]
    assert not found, "\n".join(found)


def test_the_package_was_found():
    assert {"isr.tables.tables", "isr.cli.fit"} <= set(modules())


def test_the_table_has_no_circles():
    def below(unit: str, seen: tuple[str, ...] = ()) -> None:
        assert unit not in seen, f"circle in the layers: {' -> '.join([*seen, unit])}"
        for other in MAY_IMPORT[unit]:
            below(other, (*seen, unit))

    for unit in MAY_IMPORT:
        below(unit)


FORBIDDEN = [
    (
        "isr.tables.tables",
        "from isr.bijections.flow import Flow",
        "isr.tables.tables, line 1, imports isr.bijections",
    ),
    ("isr.tables.tables", "import isr.bijections.flow", "imports isr.bijections"),
    ("isr.bijections.flow", "def f():\n    import isr.equations", "line 2, imports isr.equations"),
    ("isr.training.loop", "from isr.formulas import masks", "imports isr.formulas"),
    ("isr.formulas.masks", "from isr.training import loop", "imports isr.training"),
    ("isr.equations.check", "from isr.posterior.posterior import Posterior", "imports isr.posterior"),
    ("isr.estimators.flow", "from isr.problems import densities", "imports isr.problems"),
    ("isr.estimators.flow", "from isr import problems", "imports isr.problems"),
    ("isr.bijections.flow", "from ..storage import save", "imports isr.storage"),
    ("isr.bijections.flow", "import isr", "imports isr.__init__"),
    ("isr.bijections.flow", "from isr import Flow", "imports isr.Flow"),
    ("isr.storage", "import isr.cli as c", "imports isr.cli"),
    ("isr.novelty.thing", "", "belongs to no layer; add 'novelty' to the table"),
]


@pytest.mark.parametrize(("module", "source", "sentence"), FORBIDDEN)
def test_a_forbidden_import_is_caught(module, source, sentence):
    (found,) = violations(module, source)
    assert sentence in found


def test_allowed_imports_pass():
    source = (
        "from isr import __version__\nfrom isr.tables import Table\nfrom isr.bijections.networks import EQL\n"
    )
    assert violations("isr.bijections.flow", source) == []
