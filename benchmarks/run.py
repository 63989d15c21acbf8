"""All benchmarks that measure isr beside its peers, or some of them, and the page made of their rows.

    python benchmarks/run.py [NAME]... [--quick] [--out FOLDER] [further options for the scripts]

Where a peer is not installed its rows say so; `make bench` sets up an environment with all of them.
"""

import argparse
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parent


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    known = benchmarks_in(FOLDER)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"{', '.join(known)}; all if left out")
    parser.add_argument("--quick", action="store_true", help="a short look: all within five minutes")
    parser.add_argument(
        "--out", type=Path, default=Path("results/benchmarks"), help="folder for rows and page"
    )
    given, more = parser.parse_known_args()
    for name in given.names:
        if name not in known:
            parser.error(f"unknown benchmark {name!r}; known: {', '.join(known)}")
    options = [*(["--quick"] if given.quick else []), *more]
    failed = [
        name for name in given.names or known
        if not ran_well(FOLDER / f"{name}.py", *options, "--out", given.out / f"{name}.jsonl")
    ]  # fmt: skip
    ran_well(FOLDER / "page.py", "--rows", given.out, "--out", given.out / "benchmarks.md")
    if failed:
        sys.exit(f"these benchmarks ended with an error: {', '.join(failed)}")


def ran_well(script: Path, *arguments: object) -> bool:
    return subprocess.run([sys.executable, str(script), *map(str, arguments)], check=False).returncode == 0


def benchmarks_in(folder: Path) -> list[str]:
    """Return the scripts that measure isr beside its peers: those that take the options this one gives."""
    usage = "python benchmarks/{}.py [--quick] [--out rows.jsonl]"
    scripts = {path.stem: path.read_text("utf-8") for path in sorted(folder.glob("*.py"))}
    return [name for name, text in scripts.items() if usage.format(name) in text and name != "cluster_costs"]


if __name__ == "__main__":
    main()
