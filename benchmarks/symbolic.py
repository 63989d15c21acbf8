"""How often plain symbolic regression finds the formula: `isr.EQLRegressor`, gplearn, pyoperon and pykan.

    python benchmarks/symbolic.py [--quick] [--out rows.jsonl] [--only pyoperon]

The ten functions of Kim et al. (2020), 256 points in (-1, 1), and ten formulas of Feynman's lectures, 512 points,
no noise. *Exact* means that every term is found with its constants within 2 % and nothing else
(`isr.problems.comparison`); ``error`` is the root mean square error on a wider range than was seen, relative to the
spread there. All run on one core.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator

import numpy as np
import sympy as sp

from formulas import FORMULAS
from harness import Case, Row, main
from peers.regressors import REGRESSORS

QUICK = {"Kim": ("product_and_linear",)}


def cases(quick: bool) -> list[Case]:
    """Return every method on every family, all formulas of a family in one process."""
    return [
        Case({"method": method, "family": family}, needs, timeout=120 if quick else 7200)
        for method, (_, needs) in REGRESSORS.items()
        for family in (QUICK if quick else FORMULAS)
    ]


def measure(method: str, family: str, *, quick: bool, seed: int) -> Iterator[Row]:
    """Yield one row a formula; one that a method cannot fit is a row with the reason."""
    warnings.simplefilter("ignore")
    for name, formula in FORMULAS[family].items():
        if quick and name not in QUICK[family]:
            continue
        x, y = formula.rows(256 if family == "Kim" else 512, seed)
        wall, cpu = time.perf_counter(), time.process_time()
        try:
            found, predict = REGRESSORS[method][0](x, y, family=family, seed=seed, quick=quick)
        except Exception as error:  # a method's own fault is a result of it
            yield {"formula": name, "failure": f"{type(error).__name__}: {error}"[:300]}
            continue
        row = {
            "formula": name, "fit_seconds": time.perf_counter() - wall,
            "fit_cpu_seconds": time.process_time() - cpu,
        }  # fmt: skip
        test, truth = formula.rows(1000, seed + 1, wider=True)
        error = float(np.sqrt(np.mean((predict(test) - truth) ** 2)) / np.std(truth))
        exact, reason = _is_found(formula, found)
        yield row | {
            "error": error, "exact": exact, "reason": reason, "found": str(found)[:300],
            "n_operations": int(sp.count_ops(found)),
        }  # fmt: skip


def _is_found(formula: object, found: sp.Expr) -> tuple[bool, str]:
    try:
        return formula.is_found(found)  # type: ignore[attr-defined]
    except Exception as error:  # what cannot be brought to a normal form is not the formula
        return False, f"not comparable: {error}"[:200]


if __name__ == "__main__":
    main("symbolic", cases, measure)
