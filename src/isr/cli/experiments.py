"""``isr demo`` and ``isr reproduce``: what comes with the package, run again."""

from __future__ import annotations

import subprocess
import sys
from enum import StrEnum
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from isr.cli.options import Force, Json, asked
from isr.cli.output import print_json, refuse_existing, say
from isr.cli.show import checks_as_data
from isr.tables.extras import need

STORIES = {
    "arm": "a robot arm backwards: which heights and angles reach a point?",
    "sensor": "temperature and pressure from two voltages",
    "density": "a bent cloud of points as a formula, and drawn from again",
    "regression": "a pendulum's period from its length, with units and noise",
    "ocean": "water depth and sediment from sound (needs the extra ocean)",
}
Story = StrEnum("Story", list(STORIES))
Experiment = StrEnum("Experiment", "densities laws kinematics posteriors geoacoustics")


def demo(
    story: Annotated[Story, typer.Argument(help="Which one; --list says what they are.")] = Story.arm,
    listed: Annotated[bool, asked("List the stories and leave.", None, "--list")] = False,
    out: Annotated[Path, asked("Folder for the page and the model.", "FOLDER")] = Path("demo"),
    force: Force = False,
    json: Json = False,
) -> None:
    """Show on an example what the package does, and write a page about it.

    Example: isr demo sensor --out /tmp/sensor
    """
    if listed:
        lines = (f"isr demo {name:<11} {what}" for name, what in STORIES.items())
        print_json(STORIES) if json else say("\n".join(lines))
        return
    files = ("report.html", "arm.isr") if story is Story.arm else (f"{story}.html", f"{story}.isr")
    if out.exists() and not out.is_dir():
        raise NotADirectoryError(f"{out} is a file; --out needs a folder")
    above = next(p for p in (out.absolute(), *out.absolute().parents) if p.exists())
    refuse_existing(above / "probe", force=True)
    for name in files if out.exists() else ():
        refuse_existing(out / name, force)
    facts: dict[str, Any] = {"story": story.value, "files": list(files)}
    if story is Story.arm:
        from isr.demo import run

        result = run(lambda text: say(text, err=json), folder=out)
        facts = checks_as_data(result) if json else {}
    else:
        from isr.demo import tell

        tell(story.value, lambda text: say(text, err=json), out)
    if json:
        print_json({**facts, "out": str(out)})


def bench(
    context: typer.Context,
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME]...", help="Which; all when left out.")
    ] = None,
) -> None:
    """Measure isr beside its peers by the scripts of a clone's folder of benchmarks, and write rows and a page.

    Options are those of benchmarks/run.py and of the scripts: --quick, --out FOLDER, and what a script adds.

    Example: isr bench sbibm --task sir --simulations 1000 --observation 1 --out /tmp/benchmarks
    """
    places = (Path(__file__).resolve().parents[3], Path.cwd())
    script = next((p / "benchmarks/run.py" for p in places if (p / "benchmarks/run.py").is_file()), None)
    if script is None:
        raise FileNotFoundError(
            "benchmarks come with the repository, not with the package; run this in a clone"
        )
    run = subprocess.run([sys.executable, str(script), *(names or []), *context.args], check=False)
    raise typer.Exit(run.returncode)


def reproduce(
    experiment: Annotated[Experiment, typer.Argument(help="Which of the paper's experiments.")],
    quick: Annotated[bool, asked("A short look, not for the record.", None, "--quick")] = False,
    seeds: Annotated[int | None, asked("How many: 5 for densities and laws, else 1.", "N", min=1)] = None,
    function_seeds: Annotated[int, asked("For each regression function of laws.", "N", min=1)] = 20,
    only: Annotated[str, asked("Names of the cases to run; all when left out.", "NAMES")] = "",
    task: Annotated[int, asked("Which task of geoacoustics.", "N", min=1, max=2)] = 1,
    out: Annotated[Path, asked("Folder for rows (JSON), tables and figures.", "FOLDER")] = Path("results"),
    json: Json = False,
) -> None:
    """Run an experiment of the paper again and write rows, tables and figures.

    Rows are added to those in the folder; tables and figures are drawn anew from all of them.

    Example: isr reproduce densities --quick --out /tmp/densities
    """
    runner: Any = import_module(f"isr.paper.{experiment.value}")
    known = [case for group in _GROUPS[experiment] for case in getattr(runner, group)]
    names = [n.strip() for n in only.split(",") if n.strip()] or known
    for name in names:
        if name not in known:
            raise ValueError(f"unknown case {name!r} of {experiment.value}; known: {', '.join(known)}")
    if experiment not in (Experiment.laws, Experiment.posteriors):  # those draw no figures
        need("matplotlib")
    out.mkdir(parents=True, exist_ok=True)
    options: dict[str, Any] = {"names": names}
    if experiment is Experiment.laws:
        options = {"laws": [n for n in names if n in runner.LAWS], "function_seeds": range(function_seeds)}
        options["functions"] = [n for n in names if n in runner.FUNCTIONS]
    elif experiment is Experiment.geoacoustics:
        options["task"] = task
    n_seeds = seeds or (5 if experiment in (Experiment.densities, Experiment.laws) else 1)
    runner.run(out, **options, seeds=range(n_seeds), quick=quick, say=lambda text: say(text, err=json))
    if json:
        files = sorted(str(p.relative_to(out)) for p in out.rglob("*") if p.is_file())
        print_json({"out": str(out), "files": files})
    else:
        say(f"rows, tables and figures are in {out}")


# The names of the cases, where a module of `isr.paper` lists them.
_GROUPS = {
    Experiment.densities: ("MODELS",), Experiment.laws: ("LAWS", "FUNCTIONS"), Experiment.kinematics: ("MODELS",),
    Experiment.posteriors: ("PROBLEMS",), Experiment.geoacoustics: ("STAGES",),
}  # fmt: skip
