"""``isr bench``: isr measured beside its peers, by the scripts of the repository's folder of benchmarks."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Annotated

import typer

from isr.cli.options import Json
from isr.cli.output import print_json

BENCHMARKS = (
    "training_step", "machine_limit", "restarts", "sampling", "equal_time", "constants", "symbolic", "posthoc",
    "growth", "normal_modes", "report_explorer",
)  # fmt: skip
"""What can be measured, each a script of that name."""


def bench(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME]...", help=f"Which ones; all when left out: {', '.join(BENCHMARKS)}."),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="A short look: all within five minutes.")] = False,
    out: Annotated[Path, typer.Option(help="Folder for rows (JSON) and the page made of them.")] = Path(
        "results/benchmarks"
    ),
    json: Json = False,
) -> None:
    """Measure isr beside its peers and write rows and a page.

    Example: isr bench training_step --quick --out /tmp/benchmarks
    """
    chosen = list(names or BENCHMARKS)
    for name in chosen:
        if name not in BENCHMARKS:
            raise ValueError(f"unknown benchmark {name!r}; known: {', '.join(BENCHMARKS)}")
    folder = benchmarks_folder()
    lacking = missing_peers()
    if lacking:
        typer.echo(
            f"warning: not installed here: {', '.join(lacking)}; their rows will say so. `make bench` sets up an "
            "environment with every peer, as does pip install 'symbolicflow[bench]'",
            err=True,
        )
    failed = [name for name in chosen if not _run(folder, name, quick=quick, out=out, json=json)]
    page = out / "benchmarks.md"
    _script(folder / "page.py", "--rows", out, "--out", page, json=json)
    if json:
        files = sorted(str(p.relative_to(out)) for p in out.rglob("*") if p.is_file())
        print_json({"out": str(out), "files": files, "failed": failed})
    else:
        typer.echo(f"rows are in {out}, the page made of them is {page}")
    if failed:
        raise RuntimeError(f"these benchmarks ended with an error: {', '.join(failed)}")


def benchmarks_folder() -> Path:
    """Return the folder of benchmarks: beside the sources of an editable install, or in the current folder."""
    places = (Path(__file__).resolve().parents[3] / "benchmarks", Path.cwd() / "benchmarks")
    for place in places:
        if (place / "harness.py").is_file():
            return place
    raise FileNotFoundError(
        "there is no folder of benchmarks: they come with the repository, not with the installed package; run this "
        "command inside a clone"
    )


def missing_peers() -> list[str]:
    """Return the peers of the extra ``bench`` that are not installed."""
    try:
        wanted = requires("symbolicflow") or []
    except PackageNotFoundError:  # run from sources that were never installed
        return []
    names = [
        re.split(r"[^\w.-]", text, maxsplit=1)[0] for text in wanted if re.search(r"extra == .bench.", text)
    ]
    return [name for name in names if not is_installed(name)]


def is_installed(name: str) -> bool:
    """Return whether a distribution is installed, whether or not it can be imported."""
    try:
        version(name)
    except PackageNotFoundError:
        return False
    return True


def _run(folder: Path, name: str, *, quick: bool, out: Path, json: bool) -> bool:
    options = ["--quick"] if quick else []
    return _script(folder / f"{name}.py", *options, "--out", out / f"{name}.jsonl", json=json)


def _script(script: Path, *arguments: object, json: bool) -> bool:
    """Run a script and return whether it ended well; its words go to stderr where stdout is for machines."""
    command = [sys.executable, str(script), *map(str, arguments)]
    return subprocess.run(command, stdout=sys.stderr if json else None, check=False).returncode == 0
