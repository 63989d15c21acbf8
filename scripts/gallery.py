"""The gallery: plain scripts run cell by cell, each kept as a page and as a notebook with what it printed and drew.

A line ``# %%`` begins a cell, ``# %% [markdown]`` one of text. Scripts run again only when they or
the package changed.
"""

from __future__ import annotations

import ast
import base64
import contextlib
import hashlib
import io
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
ONE_THREAD = "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"


def built(scripts: Path, out: Path) -> list[Path]:
    """Return the pages, figures and notebooks of all scripts, made where they are missing or old."""
    out.mkdir(parents=True, exist_ok=True)
    found = []
    for script in sorted(scripts.glob("*.py")):
        mark, stamp = out / f".{script.stem}", _stamp(script)
        if not mark.exists() or mark.read_text() != stamp:
            print(f"gallery: {script.stem}", file=sys.stderr)
            environment = {**os.environ, **dict.fromkeys(ONE_THREAD, "1"), "PYTHONPATH": str(ROOT / "src")}
            subprocess.run([sys.executable, __file__, script, out], check=True, env=environment)
            mark.write_text(stamp)
        found += sorted(out.glob(f"{script.stem}*"))
    return found


def _stamp(script: Path) -> str:
    code = sorted((ROOT / "src" / "isr").rglob("*.py"))
    return hashlib.sha256(b"".join(p.read_bytes() for p in [script, Path(__file__), *code])).hexdigest()


def cells(source: str) -> list[tuple[bool, str]]:
    """Return the cells of a script: whether each is text, and what stands in it."""
    found: list[tuple[bool, list[str]]] = []
    for line in source.splitlines():
        if line.startswith("# %%"):
            found.append(("[markdown]" in line, []))
        elif found:
            found[-1][1].append(line.removeprefix("#").removeprefix(" ") if found[-1][0] else line)
    return [(is_text, "\n".join(lines).strip()) for is_text, lines in found]


def run(script: Path, out: Path) -> None:
    """Run a script in an empty folder and write its page, figures and notebook."""
    import matplotlib as mpl

    mpl.use("agg")
    mpl.rcParams |= {"figure.dpi": 110, "savefig.bbox": "tight"}
    names: dict[str, Any] = {"__name__": "__main__"}
    page, notebook, n_figures = [], [], 0
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        for is_text, source in cells(script.read_text("utf-8")):
            if is_text:
                page.append(source)
                notebook.append({"cell_type": "markdown", "metadata": {}, "source": source})
                continue
            printed = _executed(source, names)
            figures = _figures(out / script.stem, n_figures)
            n_figures += len(figures)
            page.append(f"```python\n{source}\n```")
            page += [f'```text title="printed"\n{printed.rstrip()}\n```'] * bool(printed.strip())
            page += [f"![{script.stem}, figure {n_figures}]({path.name})" for path in figures]
            notebook.append(_code_cell(source, printed, figures))
    page.insert(1, f"[The script as a notebook]({script.stem}.ipynb), run when these pages were built.")
    (out / f"{script.stem}.md").write_text("\n\n".join(page) + "\n", encoding="utf-8")
    about = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    whole = {"cells": notebook, "metadata": about, "nbformat": 4, "nbformat_minor": 4}
    (out / f"{script.stem}.ipynb").write_text(json.dumps(whole, indent=1), encoding="utf-8")


def _executed(source: str, names: dict[str, Any]) -> str:
    """Run a cell and return what it printed; the value of a last expression is printed as in a notebook."""
    tree = ast.parse(source)
    last = ast.Expression(tree.body.pop().value) if isinstance(tree.body[-1], ast.Expr) else None  # type: ignore[attr-defined]
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compile(tree, "cell", "exec"), names)  # noqa: S102
        value = None if last is None else eval(compile(last, "cell", "eval"), names)  # noqa: S307
        if value is not None and not type(value).__module__.startswith("matplotlib"):
            print(value)
    return printed.getvalue()


def _figures(stem: Path, n_before: int) -> list[Path]:
    import matplotlib.pyplot as plt

    paths = []
    for i, number in enumerate(plt.get_fignums()):
        paths.append(stem.with_name(f"{stem.name}-{n_before + i + 1}.png"))
        plt.figure(number).savefig(paths[-1])
    plt.close("all")
    return paths


def _code_cell(source: str, printed: str, figures: list[Path]) -> dict[str, Any]:
    outputs: list[dict[str, Any]] = []
    if printed:
        outputs.append({"output_type": "stream", "name": "stdout", "text": printed})
    for path in figures:
        image = base64.b64encode(path.read_bytes()).decode()
        outputs.append({"output_type": "display_data", "metadata": {}, "data": {"image/png": image}})
    return {
        "cell_type": "code",
        "metadata": {},
        "execution_count": None,
        "source": source,
        "outputs": outputs,
    }


if __name__ == "__main__":
    run(Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve())
