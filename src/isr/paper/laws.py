"""Known laws: how often the exact equations come back, densities by SymbolicFlow and functions by EQLRegressor."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from isr.estimators.eql_regressor import EQLRegressor
from isr.estimators.settings import Training
from isr.estimators.symbolic_flow import SymbolicFlow
from isr.paper import records
from isr.problems.laws import FUNCTIONS, LAWS, Function, Law

# With ten thousand rows the most likely constants themselves miss the truth by more than the 2 % that count as exact.
N_ROWS = 40_000


def run(
    out: Path,
    *,
    laws: Iterable[str] = tuple(LAWS),
    functions: Iterable[str] = tuple(FUNCTIONS),
    seeds: Iterable[int] = range(5),
    function_seeds: Iterable[int] = range(20),
    quick: bool = False,
    say: Any = print,
) -> list[dict[str, Any]]:
    """Fit every law and function and return one row a fit; rows and table go to ``out``."""
    if quick:
        laws, functions, seeds, function_seeds = list(laws)[:3], list(functions)[:3], [0], [0]
    rows = []
    for make, names, numbers in ((law_row, laws, seeds), (function_row, functions, function_seeds)):
        for name in names:
            for seed in numbers:
                row = make(name, seed)
                records.append(out / "laws.jsonl", row)
                say(f"{name:18} seed {seed}: {'exact' if row['exact'] else 'not exact'} "
                    f"({row['reason']}), {row['seconds']:.0f} s")  # fmt: skip
                rows.append(row)
    (out / "laws.md").write_text(
        table(records.latest(records.read(out / "laws.jsonl"), "kind", "name", "seed"))
    )
    return rows


def law_row(name: str, seed: int) -> dict[str, Any]:
    """Return how one law was recovered from one seed's samples."""
    law: Law = LAWS[name]
    x = law.sample(N_ROWS, random_state=seed)
    begun = time.perf_counter()
    model = SymbolicFlow(
        n_blocks=law.n_blocks,
        mixing="permutation" if law.mixing is None else "linear",
        library=_library(law.primitives),
        training=Training(verbose=False),
        random_state=seed,
    ).fit(x)
    seconds = time.perf_counter() - begun
    try:
        composed = model.expressions_.composed()
        found = law.compare(list(composed.outputs), symbols=model.expressions_.forward.inputs)
        exact, reason = bool(found.same), found.reason
    except ValueError as error:  # too large to be the law
        exact, reason = False, str(error)[:120]
    test = law.sample(20_000, random_state=10_000 + seed)
    return _row("law", name, seed, exact, reason, seconds, model.expressions_.text(),
                n_rows=N_ROWS, kl=float(np.mean(law.log_prob(test)) - model.score(test)))  # fmt: skip


def function_row(name: str, seed: int) -> dict[str, Any]:
    """Return how one function was recovered from one seed's points."""
    function: Function = FUNCTIONS[name]
    x, y = function.sample(random_state=seed)
    begun = time.perf_counter()
    model = EQLRegressor(training=Training(verbose=False), random_state=seed).fit(x, y)
    seconds = time.perf_counter() - begun
    x_test, y_test = function.test_set()
    error = float(np.sqrt(np.mean((model.predict(x_test) - y_test) ** 2)))
    try:
        names = [f"x{i + 1}" for i in range(function.dim)]
        found = function.compare(
            model.expressions_[0], symbols=_symbols(names, model.expressions_[0].free_symbols)
        )
        exact, reason = bool(found.same), found.reason
    except ValueError as problem:
        exact, reason = False, str(problem)[:120]
    return _row(
        "function",
        name,
        seed,
        exact,
        reason,
        seconds,
        str(model.expressions_[0]),
        n_rows=len(x),
        rmse_outside=error,
    )


def _symbols(names: list[str], used: Iterable[Any]) -> list[Any]:
    import sympy

    known = {str(s): s for s in used}
    return [known.get(n, sympy.Symbol(n, real=True)) for n in names]


def _library(primitives: Iterable[str]) -> dict[str, int]:
    counts = {"constant": 1, "id": 2}
    for name in primitives:
        counts[name] = counts.get(name, 0) + 2
    return counts


def _row(kind, name, seed, exact, reason, seconds, equations, **more) -> dict[str, Any]:
    return {"experiment": "laws", "kind": kind, "name": name, "seed": seed, "exact": exact, "reason": reason,
            "seconds": seconds, "equations": equations, **more}  # fmt: skip


def table(rows: list[dict[str, Any]]) -> str:
    """Return a Markdown table: how many runs of each law or function were exact."""
    lines = ["| kind | name | rows | exact | runs | median seconds |", "|---|---|---|---|---|---|"]
    for kind, name in dict.fromkeys((r["kind"], r["name"]) for r in rows):
        group = [r for r in rows if (r["kind"], r["name"]) == (kind, name)]
        exact = sum(r["exact"] for r in group)
        sizes = ", ".join(str(n) for n in sorted({r["n_rows"] for r in group}))
        seconds = np.median([r["seconds"] for r in group])
        lines.append(f"| {kind} | {name} | {sizes} | {exact} | {len(group)} | {seconds:.0f} |")
    return "\n".join(lines) + "\n"
