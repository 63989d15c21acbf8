"""The walk from a CSV file to a report: which files of the package are visited, in the order of their first call.

The aim is at most 40, and no folder entered twice but the estimators'.
"""

import sys
import tempfile
import threading
from pathlib import Path

import numpy as np
import pandas as pd

import isr

PACKAGE = Path(isr.__file__).parent
visited: dict[str, None] = {}


def note(frame, event, _):
    """Remember the file of a call, but for the code that runs while it is imported."""
    if event == "call" and frame.f_code.co_name not in ("<module>", "<lambda>"):
        path = Path(frame.f_code.co_filename)
        if PACKAGE in path.parents:
            visited.setdefault(path.relative_to(PACKAGE).as_posix())


def walk(folder: Path) -> None:
    """Read a table, fit, print the equations, draw from a posterior, write a report."""
    from isr.report import write_report
    from isr.tables.files import read_columns

    rng = np.random.default_rng(0)
    x = rng.normal(size=(800, 2))
    y = x[:, 0] + 0.3 * x[:, 1] ** 2 + 0.1 * rng.normal(size=800)
    pd.DataFrame({"a": x[:, 0], "b": x[:, 1], "signal": y}).to_csv(folder / "rows.csv", index=False)
    sys.setprofile(note)
    threading.setprofile(note)
    rows = read_columns(folder / "rows.csv", ["a", "b", "signal"])
    training = isr.Training("quick", n_restarts=1, verbose=False)
    model = isr.ConditionalISR(noise=0, training=training, random_state=0).fit(
        rows[["a", "b"]], rows[["signal"]]
    )
    model.expressions_.text("inverse")
    posterior = model.posterior([0.5])
    posterior.sample(100)
    write_report(model, folder / "report.html")
    sys.setprofile(None)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        walk(Path(folder))
    for path in visited:
        print(path)
    print(f"{len(visited)} files", file=sys.stderr)
