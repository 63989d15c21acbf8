"""Run the fast tests with the oldest or the newest versions of the dependencies that pyproject.toml allows.

    python scripts/other_versions.py oldest|newest [--python python3.11] [--workers 2] [--only tests/cli ...]

An environment of its own is made in a temporary folder and removed afterwards. The oldest are those that stand behind
``>=``; packages that they need in turn are left to pip.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("which", choices=("oldest", "newest"))
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--workers", default="2")
    parser.add_argument("--only", nargs="*", default=[], help="run only these tests")
    arguments = parser.parse_args()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([arguments.python, "-m", "venv", folder], check=True)
        python = Path(folder) / "bin" / "python"
        command = [python, "-m", "pip", "install", "--quiet", "-e", f"{ROOT}[dev]"]
        if arguments.which == "oldest":
            pins = Path(folder) / "oldest.txt"
            pins.write_text("\n".join(oldest(runtime(project))) + "\n", encoding="utf-8")
            command += ["-c", pins]
        else:
            command += ["--upgrade"]
        subprocess.run(command, check=True)
        subprocess.run([python, "-m", "pip", "list"], check=True)
        # Old packages warn of each other's old ways, and new ones of what comes; only failures count here.
        warnings = ["-W", "ignore::DeprecationWarning", "-W", "ignore::FutureWarning"]
        tests = [
            python,
            "-m",
            "pytest",
            "-m",
            "not slow",
            "-n",
            arguments.workers,
            *warnings,
            *arguments.only,
        ]
        return subprocess.run(tests, cwd=ROOT, check=False).returncode


def runtime(project: dict) -> list[str]:
    """Return what isr needs at run time, its extras included."""
    extras = project["optional-dependencies"]
    return [
        *project["dependencies"],
        *(r for name in ("plots", "files", "chains", "ocean") for r in extras[name]),
    ]


def oldest(requirements: list[str]) -> list[str]:
    """Return the lower bounds as pins: ``jax>=0.8`` becomes ``jax==0.8.*``."""
    found = []
    for requirement in requirements:
        bound = re.match(r"([A-Za-z0-9_.-]+)>=([0-9.]+)", requirement)
        if bound:
            found.append(f"{bound[1]}=={bound[2]}.*")
    return found


if __name__ == "__main__":
    sys.exit(main())
