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
importing = threading.local()


def note(frame, event, _):
    """Remember the file of a call, but for calls made while a module of the package is imported."""
    name, path = frame.f_code.co_name, frame.f_code.co_filename
    if not path.startswith(str(PACKAGE)):
        return None
    if name == "<module>":
        frame.f_trace_lines = False
        importing.depth = getattr(importing, "depth", 0) + 1
        return leave
    if not getattr(importing, "depth", 0) and name != "<lambda>":
        visited.setdefault(Path(path).relative_to(PACKAGE).as_posix())
    return None


def leave(frame, event, _):
    """Remember that an import has ended."""
    importing.depth -= event == "return"
    return leave


def walk(folder: Path) -> None:
    """Read a table, fit, print the equations, draw from a posterior, write a report."""
    from isr.report import write_report
    from isr.tables.files import read_columns

    rng = np.random.default_rng(0)
    x = rng.normal(size=(800, 2))
    y = x[:, 0] + 0.3 * x[:, 1] ** 2 + 0.1 * rng.normal(size=800)
    pd.DataFrame({"a": x[:, 0], "b": x[:, 1], "signal": y}).to_csv(folder / "rows.csv", index=False)
    sys.settrace(note)
    threading.settrace(note)
    rows = read_columns(folder / "rows.csv", ["a", "b", "signal"])
    training = isr.Training("quick", n_restarts=1, verbose=False)
    model = isr.ConditionalISR(noise=0, training=training, random_state=0).fit(
        rows[["a", "b"]], rows[["signal"]]
    )
    model.expressions_.text("inverse")
    posterior = model.posterior([0.5])
    posterior.sample(100)
    write_report(model, folder / "report.html")
    sys.settrace(None)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        walk(Path(folder))
    for path in visited:
        print(path)
    print(f"{len(visited)} files", file=sys.stderr)
