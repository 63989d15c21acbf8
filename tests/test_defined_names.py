"""Every name that a module reads is bound somewhere in it: shapes such as "n d" keep linters from telling."""

import ast
import builtins
from pathlib import Path

import pytest

MODULES = sorted((Path(__file__).parent.parent / "src" / "isr").rglob("*.py"))


def unbound(source: str) -> set[str]:
    """Return the names that ``source`` reads and binds nowhere."""
    bound, read = {*dir(builtins), "__file__"}, set()
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Name(id=name, ctx=ast.Load()):
                read.add(name)
            case ast.Name(id=name) | ast.arg(arg=name) | ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                bound.add(name)
            case ast.Import(names=names) | ast.ImportFrom(names=names):
                bound.update((alias.asname or alias.name).partition(".")[0] for alias in names)
            case (
                ast.ExceptHandler(name=str(name))
                | ast.MatchAs(name=str(name))
                | ast.MatchStar(name=str(name))
            ):
                bound.add(name)
    return read - bound


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.relative_to(MODULES[0].parent).as_posix())
def test_every_name_that_is_read_is_bound(path):
    assert unbound(path.read_text("utf-8")) == set()


def test_a_lost_import_is_found():
    assert unbound("def f(x: Any) -> int:\n    return np.sum(x)\n") == {"Any", "np"}
