"""Imports run one way: data, model, training / pruning / expressions, inference, estimators, report, cli.

The table says, for each folder or file of the package, what it may import besides itself. Everything counts, also
imports inside functions and for type checking.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "src" / "isr"

LIBRARY = {"data", "model", "training", "pruning", "expressions", "inference", "storage"}
MAY_IMPORT = {
    "data": set(),
    "model": {"data"},
    "training": {"data", "model"},
    "pruning": {"data", "model"},
    "expressions": {"data", "model"},
    "storage": {"data", "model", "expressions"},
    "inference": {"data", "model", "training", "pruning", "expressions"},
    "estimators": LIBRARY,
    "report": LIBRARY | {"estimators"},
    "problems": {"data", "inference"},
    "demo": LIBRARY | {"estimators", "report", "problems"},
    "reproduce": LIBRARY | {"estimators", "report", "problems"},
    "cli": LIBRARY | {"estimators", "report", "problems", "demo", "reproduce"},
}
# What modules may take from the package itself; its lazy public names would hide where they come from.
FROM_ROOT = {"__version__"}


def violations(module: str, source: str) -> list[str]:
    """Return a sentence for each import of ``module`` (such as ``isr.model.flow``) that the table forbids."""
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
    assert {"isr.data.tables", "isr.cli.fit"} <= set(modules())


def test_the_table_has_no_circles():
    def below(unit: str, seen: tuple[str, ...] = ()) -> None:
        assert unit not in seen, f"circle in the layers: {' -> '.join([*seen, unit])}"
        for other in MAY_IMPORT[unit]:
            below(other, (*seen, unit))

    for unit in MAY_IMPORT:
        below(unit)


FORBIDDEN = [
    ("isr.data.tables", "from isr.model.flow import Flow", "isr.data.tables, line 1, imports isr.model"),
    ("isr.data.tables", "import isr.model.flow", "imports isr.model"),
    ("isr.model.flow", "def f():\n    import isr.expressions", "line 2, imports isr.expressions"),
    ("isr.training.loop", "from isr.pruning import masks", "imports isr.pruning"),
    ("isr.pruning.masks", "from isr.training import loop", "imports isr.training"),
    ("isr.expressions.check", "from isr.inference.posterior import Posterior", "imports isr.inference"),
    ("isr.estimators.flow", "from isr.problems import densities", "imports isr.problems"),
    ("isr.estimators.flow", "from isr import problems", "imports isr.problems"),
    ("isr.model.flow", "from ..storage import save", "imports isr.storage"),
    ("isr.model.flow", "import isr", "imports isr.__init__"),
    ("isr.model.flow", "from isr import Flow", "imports isr.Flow"),
    ("isr.storage", "import isr.cli as c", "imports isr.cli"),
    ("isr.novelty.thing", "", "belongs to no layer; add 'novelty' to the table"),
]


@pytest.mark.parametrize(("module", "source", "sentence"), FORBIDDEN)
def test_a_forbidden_import_is_caught(module, source, sentence):
    (found,) = violations(module, source)
    assert sentence in found


def test_allowed_imports_pass():
    source = (
        "import jax\nfrom isr import __version__\nfrom isr.data import Table\nfrom isr.model.eql import EQL\n"
    )
    assert violations("isr.model.flow", source) == []
