"""What docs/security.md promises, read off the source: nothing from a file or a name is ever run."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
import sympy

PACKAGE = Path(__file__).parent.parent / "src" / "isr"

# Modules whose reading runs code that the data names.
FORBIDDEN_MODULES = {
    "pickle",
    "cloudpickle",
    "dill",
    "marshal",
    "shelve",
    "yaml",
    "ctypes",
    "code",
    "codeop",
    "runpy",
}
FORBIDDEN_CALLS = {
    "eval",
    "exec",
    "compile",
    "__import__",
    "execfile",
    "os.system",
    "os.popen",
    "joblib.load",
}
FORBIDDEN_CALLS |= {"pandas.read_pickle", "pd.read_pickle"}
# SymPy makes source of what these are given and runs it, so the reason stands here why that is safe.
READERS_OF_TEXT = {"parse_expr", "sympify", "S", "lambdify"}
ALLOWED = {
    ("equations/expressions.py", "exec"): (
        "source written there: identifiers of ours (see isr.tables.names), no name or unit of a user in it"
    ),
    (
        "search/formula.py",
        "lambdify",
    ): "expressions of `parse`, which knows arithmetic, FUNCTIONS and names",
    ("inversion/refit.py", "lambdify"): "the same expressions, with symbols of ours for constants",
    ("motion/system.py", "lambdify"): "terms of the dictionary, in symbols made by `symbol_names`",
    ("problems/laws.py", "lambdify"): "laws written in that file",
    ("problems/comparison.py", "lambdify"): "expressions whose symbols are ours",
    ("problems/paper_equations.py", "lambdify"): "equations written in that file",
    ("problems/paper_equations.py", "parse_expr"): "equations written in that file",
}

ALLOWED_IMPORTS = {
    (
        "native/library.py",
        "ctypes",
    ): "loads what the compiler made of a source of ours, in the user's own folder",
}


def calls(tree: ast.AST) -> Iterator[tuple[int, str, ast.Call]]:
    """Every call of a plain or dotted name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield node.lineno, dotted(node.func), node


def dotted(node: ast.AST) -> str:
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def violations(path: str, source: str) -> list[str]:
    """A sentence for everything in a file that could run what it reads."""
    found, tree = [], ast.parse(source)
    for node in ast.walk(tree):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        found += [
            f"{path}, line {node.lineno}: imports {n}"
            for n in names
            if n.partition(".")[0] in FORBIDDEN_MODULES and (path, n) not in ALLOWED_IMPORTS
        ]
    for line, name, call in calls(tree):
        last = name.rpartition(".")[2]
        options = {k.arg: repr(getattr(k.value, "value", "?")) for k in call.keywords}
        if (path, name) in ALLOWED:
            continue
        if name in FORBIDDEN_CALLS or options.get("shell") == "True":
            found.append(f"{path}, line {line}: calls {name}")
        elif options.get("allow_pickle", "False") != "False":
            found.append(f"{path}, line {line}: {name} may unpickle")
        elif last == "sympify" and options.get("strict") == "True":
            continue  # takes no text
        elif last in READERS_OF_TEXT and name != "sympy.S.Zero" and (path, last) not in ALLOWED:
            found.append(f"{path}, line {line}: {name} may read text")
    return found


def test_no_source_runs_what_it_reads():
    found = [
        sentence
        for path in sorted(PACKAGE.rglob("*.py"))
        for sentence in violations(str(path.relative_to(PACKAGE)), path.read_text("utf-8"))
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "source",
    [
        "import pickle", "from marshal import loads", "eval(text)", "exec(code)", "os.system(name)",
        "subprocess.run(name, shell=True)", "sympy.sympify(text)", "sp.parse_expr(text)", "joblib.load(path)",
        "np.load(path, allow_pickle=True)", "sympy.S(text)",
    ],
)  # fmt: skip
def test_a_dangerous_call_is_seen(source):
    assert len(violations("bijections/new.py", source)) == 1


def test_strict_sympify_takes_no_text():
    with pytest.raises(sympy.SympifyError):
        sympy.sympify("__import__('os').getpid()", strict=True)


def test_reasons_belong_to_calls_that_are_there():
    there = {
        (str(path.relative_to(PACKAGE)), name.rpartition(".")[2])
        for path in PACKAGE.rglob("*.py")
        for _, name, _ in calls(ast.parse(path.read_text("utf-8")))
    }
    assert set(ALLOWED) <= there
