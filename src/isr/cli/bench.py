"""``isr bench``: isr measured beside its peers, by the scripts of the repository's folder of benchmarks."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

from isr.cli.options import Json, asked
from isr.cli.output import say_filled


def bench(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME]...", help="Which scripts, such as training_step; all when left out."),
    ] = None,
    options: Annotated[str, asked("Further options for the scripts, as one text.", "TEXT")] = "",
    quick: Annotated[bool, asked("A short look: all within five minutes.", None, "--quick")] = False,
    out: Annotated[Path, asked("Folder for rows (JSON) and the page made of them.", "FOLDER")] = Path(
        "results/benchmarks"
    ),
    json: Json = False,
) -> None:
    """Measure isr beside its peers and write rows and a page.

    Where a peer is not installed its rows say so; `make bench` sets up an environment with all of them.

    Example: isr bench sbibm --options "--task sir --simulations 1000 --observation 1" --out /tmp/benchmarks
    """
    folder, page = benchmarks_folder(), out / "benchmarks.md"
    known = benchmarks_in(folder)
    chosen = list(names or known)
    for name in chosen:
        if name not in known:
            raise ValueError(f"unknown benchmark {name!r}; known: {', '.join(known)}")
    more = [*(["--quick"] if quick else []), *shlex.split(options)]
    failed = [
        name for name in chosen
        if not _ran_well(folder / f"{name}.py", *more, "--out", out / f"{name}.jsonl", json=json)
    ]  # fmt: skip
    _ran_well(folder / "page.py", "--rows", out, "--out", page, json=json)
    say_filled(out, json, f"rows are in {out}, the page made of them is {page}", failed=failed)
    if failed:
        raise RuntimeError(f"these benchmarks ended with an error: {', '.join(failed)}")


def _ran_well(script: Path, *arguments: object, json: bool) -> bool:
    command = [sys.executable, str(script), *map(str, arguments)]
    # The words of the script go to stderr where stdout is for machines.
    return subprocess.run(command, stdout=sys.stderr if json else None, check=False).returncode == 0


def benchmarks_folder() -> Path:
    """Return the folder of benchmarks: beside the sources of an editable install, or in the current folder."""
    for place in (Path(__file__).resolve().parents[3] / "benchmarks", Path.cwd() / "benchmarks"):
        if (place / "harness.py").is_file():
            return place
    raise FileNotFoundError(
        "there is no folder of benchmarks: they come with the repository, not with the installed package; run this "
        "command inside a clone"
    )


def benchmarks_in(folder: Path) -> list[str]:
    """Return the scripts that measure isr beside its peers: those that take the options this command gives."""
    usage = "python benchmarks/{}.py [--quick] [--out rows.jsonl]"
    scripts = {path.stem: path.read_text("utf-8") for path in sorted(folder.glob("*.py"))}
    return [name for name, text in scripts.items() if usage.format(name) in text and name != "cluster_costs"]
