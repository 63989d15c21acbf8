"""Simulation: parameters drawn from a prior and what a simulator makes of them, chunk by chunk, also in rounds.

A simulator is a function from rows of x to rows of y; some rows may fail. A chunk depends only on the seed and its own
number. So the rows are the same with any number of workers on any joblib backend
(``with joblib.parallel_config(backend="dask"): simulate(...)``), and a killed run goes on where it stopped.

Rows drawn from the prior inside a box follow the prior cut to that box, whichever round drew them. A model trained on
them learns the posterior cut to the box, exactly, as long as the box holds the posterior: no weights, no correction
(truncated sequential inference, Deistler et al. 2022, with boxes, because a bounded model never leaves a box).
"""

from __future__ import annotations

import functools
import hashlib
import json
import warnings
import zipfile
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import joblib
import numpy as np
import pandas as pd
from jaxtyping import Float, Num

from isr.posterior.priors import Prior, parse_prior
from isr.tables.bounds import Bounds
from isr.tables.memory import draw_count
from isr.tables.whole_files import make_folder, write_arrays
from isr.tables.workers import as_they_end, progress_bar

Simulator = Callable[[np.ndarray], Any]


class FailedSimulationsWarning(UserWarning):
    """Some simulations failed and were left out."""


@dataclass(frozen=True, eq=False)
class Simulations:
    """Pairs of parameters and observations, without those that failed.

    Args:
        x: Parameters, drawn from the prior, as rows.
        y: Their observations, complex if the simulator's are.
        prior: What x was drawn from.
        failures: Parameters of the failed simulations by number of the draw, with a last column ``reason``.

    Example:
        >>> done = simulate({"side": (1.0, 2.0)}, lambda x: x**2, 5)
        >>> done.names, done.n_failed, done.x_frame().shape, done.y.shape
        (('side',), 0, (5, 1), (5, 1))
    """

    x: Float[np.ndarray, "n d_x"]
    y: Num[np.ndarray, "n d_y"]
    prior: Prior
    failures: pd.DataFrame

    @property
    def n_failed(self) -> int:
        """How many simulations were left out."""
        return len(self.failures)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns of x: the prior's, or ``x1``, ``x2``, ..."""
        return _names(self.prior, self.x.shape[1])

    def x_frame(self) -> pd.DataFrame:
        """Return x as a new pandas frame with its names."""
        return pd.DataFrame(self.x.copy(), columns=list(self.names))


class _Chunk(NamedTuple):
    """Rows drawn from the prior, their observations (NaN where failed, no columns if all did), and why each failed."""

    x: np.ndarray
    y: np.ndarray
    reasons: Sequence[str | None]


def simulate(
    prior: Any,
    simulator: Simulator,
    n: int,
    *,
    random_state: int = 0,
    n_jobs: int | None = None,
    chunk_size: int = 1000,
    folder: str | Path | None = None,
    progress: bool | None = None,
) -> Simulations:
    """Draw ``n`` rows of parameters from the prior and simulate an observation for each.

    A chunk of rows in which the simulator raises is tried again row by row. What still fails, or is not finite, is left
    out and counted in a warning.

    Args:
        prior: Anything `parse_prior` takes.
        simulator: Rows of x ``(n, d_x)`` to rows of y ``(n, d_y)``, or to one number per row; real or complex, without
            observation noise. It travels to the workers, and must give the same rows whatever chunk they come in.
        n: Draws, failures included.
        random_state: Seed of every draw.
        n_jobs: Workers, as joblib counts them; None for what joblib is configured to, else one.
        chunk_size: Rows the simulator gets at a time.
        folder: Where finished chunks are kept; made if missing. The same call finds them there, with any ``n``.
            Only a change inside the simulator goes unnoticed: delete the folder after one.
        progress: Show a progress bar; None for only when standard error is a terminal.

    Example:
        >>> found = simulate({"a": (0, 1), "b": (-1, 1)}, lambda x: x[:, 0] * x[:, 1], 200, random_state=1)
        >>> found.x.shape, found.y.shape, found.n_failed
        ((200, 2), (200, 1), 0)
    """
    prior, seed = parse_prior(prior), _seed(random_state)
    n, chunk_size = draw_count(n, 1), draw_count(chunk_size, 1, what="chunk_size")
    if not callable(simulator):
        raise TypeError(f"the simulator must be a function of rows of x, got {type(simulator).__name__}")
    sizes = [min(chunk_size, n - start) for start in range(0, n, chunk_size)]
    draw = functools.partial(_draw, prior, seed, chunk_size)
    names = _names(prior, draw(0, 1).shape[1])
    if "reason" in names:
        raise ValueError("'reason' names the column that says why a simulation failed; rename this variable")
    chunks: dict[int, _Chunk] = {}
    part = functools.partial(_part, folder or "", _key(prior, simulator, seed, chunk_size, names))
    if folder is not None:
        make_folder(Path(folder))
        read = ((number, _read_part(part(number), draw(number, size))) for number, size in enumerate(sizes))
        chunks = {number: chunk for number, chunk in read if chunk is not None}
    todo = [number for number in range(len(sizes)) if number not in chunks]
    jobs = (joblib.delayed(_run)(draw, simulator, number, sizes[number]) for number in todo)
    with progress_bar(len(todo), "simulations", progress) as advance:
        for number, chunk in as_they_end(jobs, n_jobs=n_jobs):
            chunks[number] = chunk
            # A chunk without a single success tells of a broken simulator and is tried again next time.
            if folder is not None and None in chunk.reasons:
                reasons = np.array([reason or "" for reason in chunk.reasons])
                write_arrays(part(number), {"x": chunk.x, "y": chunk.y, "reasons": reasons})
            advance(1)
    return _gather([chunk for _, chunk in sorted(chunks.items())], prior)


def _seed(seed: int) -> int:
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise ValueError(
            f"random_state must be an integer of at least 0, got {seed!r}; "
            "a generator could not draw a chunk a second time"
        )
    return int(seed)


def _key(prior: Prior, simulator: Simulator, seed: int, chunk_size: int, names: tuple[str, ...]) -> str:
    """What tells the chunks of one simulation in a folder from those of another."""
    named = simulator.func if isinstance(simulator, functools.partial) else simulator
    name = getattr(named, "__qualname__", type(named).__qualname__)
    about = [seed, int(chunk_size), names, prior.description, name]
    return hashlib.sha256(json.dumps(about).encode()).hexdigest()[:12]


def _part(folder: str | Path, key: str, number: int) -> Path:
    return Path(folder) / f"part-{key}-{number:06d}.npz"


def _draw(prior: Prior, seed: int, chunk_size: int, number: int, n_rows: int) -> np.ndarray:
    # A full chunk is always drawn, so that the first rows of a simulation do not depend on n.
    return prior.sample(chunk_size, np.random.default_rng([seed, number]))[:n_rows]


def _run(
    draw: Callable[[int, int], np.ndarray], simulator: Simulator, number: int, n_rows: int
) -> tuple[int, _Chunk]:
    x = draw(number, n_rows)
    return number, _Chunk(x, *evaluate(simulator, x))


def _read_part(path: Path, drawn: np.ndarray) -> _Chunk | None:
    """The first rows of a chunk; None if its file is missing, damaged, too short or of other draws."""
    try:
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as file:
            x, y, reasons = (file[name][: len(drawn)] for name in ("x", "y", "reasons"))
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error):
        return None
    is_same = x.shape == drawn.shape and np.allclose(x, drawn, rtol=1e-9, atol=0)
    return _Chunk(x, y, [reason or None for reason in reasons.tolist()]) if is_same else None


def _gather(chunks: list[_Chunk], prior: Prior) -> Simulations:
    x = np.concatenate([chunk.x for chunk in chunks])
    reasons = [reason for chunk in chunks for reason in chunk.reasons]
    failed = np.flatnonzero([reason is not None for reason in reasons])
    failures = pd.DataFrame(x[failed], index=failed, columns=list(_names(prior, x.shape[1])))
    failures["reason"] = [reasons[row] for row in failed]
    counts = failures["reason"].value_counts()
    told = ", ".join(f"{reason} ({count} times)" for reason, count in counts.head(3).items())
    told += f" and {len(counts) - 3} other reasons" if len(counts) > 3 else ""
    if len(failed) == len(x):
        raise ValueError(
            f"all {len(x)} simulations failed: {told}. The simulator gets rows of x, shape "
            f"(n, {x.shape[1]}), and returns n rows of y; wrap one for a single vector: "
            "lambda rows: np.array([simulator(row) for row in rows])"
        )
    if len(failed):
        warnings.warn(
            f"{len(failed)} of {len(x)} simulations failed and were left out: {told}; "
            "see failures for their parameters",
            FailedSimulationsWarning,
            stacklevel=3,
        )
    _refuse_widths({chunk.y.shape[1] for chunk in chunks if chunk.y.size})
    width = max(chunk.y.shape[1] for chunk in chunks)
    y = np.concatenate([chunk.y if chunk.y.size else np.empty((len(chunk.x), width)) for chunk in chunks])
    return Simulations(np.delete(x, failed, axis=0), np.delete(y, failed, axis=0), prior, failures)


def _names(prior: Prior, n_columns: int) -> tuple[str, ...]:
    return prior.names or tuple(f"x{i + 1}" for i in range(n_columns))


# What simulators give ------------------------------------------------------------------------------------------------


class _ContractError(TypeError):
    """The simulator's output can never be rows of numbers; no use trying again."""


def evaluate(
    simulator: Simulator, x: Float[np.ndarray, "n d_x"]
) -> tuple[Num[np.ndarray, "n d_y"], list[str | None]]:
    """Return y for rows of x, NaN where that failed, and why; rows are tried one by one if they fail together."""
    try:
        y = _rows(simulator(x.copy()), len(x))
        return y, [None if finite else "y is not finite" for finite in np.isfinite(y).all(axis=1)]
    except _ContractError:
        raise
    except Exception as error:
        if len(x) == 1:
            return np.empty((1, 0)), [f"{type(error).__name__}: {error}"]
    alone = [evaluate(simulator, row[None]) for row in x]
    reasons = [reason for _, reasons in alone for reason in reasons]
    found = {number: y[0] for number, (y, _) in enumerate(alone) if y.size}
    _refuse_widths({len(row) for row in found.values()})
    if not found:
        return np.empty((len(x), 0)), reasons
    y = np.full((len(x), len(next(iter(found.values())))), np.nan, np.result_type(*found.values()))
    y[list(found)] = list(found.values())
    return y, reasons


def _rows(output: Any, n_rows: int) -> np.ndarray:
    y = np.asarray(output)
    if y.dtype.kind == "O":  # None among the rows, perhaps; one by one they can be told apart
        raise ValueError(f"the simulator returned no numbers: {y.tolist()!r:.200}")
    if y.dtype.kind not in "biufc":
        raise _ContractError(
            f"the simulator must return rows of numbers, got {type(output).__name__}: {y!r:.200}"
        )
    if y.ndim > 2:
        raise _ContractError(
            f"the simulator returned {y.ndim} dimensions (shape {y.shape}); give it rows and columns: "
            "y.reshape(len(x), -1)"
        )
    if y.ndim == 0 or len(y) != n_rows:
        raise ValueError(f"the simulator returned shape {y.shape} for {n_rows} rows")
    y = y[:, None] if y.ndim == 1 else y
    if not y.shape[1]:
        raise _ContractError(f"the simulator returned no columns (shape {y.shape})")
    return y.astype(complex if y.dtype.kind == "c" else float)


def _refuse_widths(widths: set[int]) -> None:
    if len(widths) > 1:
        raise _ContractError(
            f"the simulator returned rows of different lengths: {sorted(widths)}; y needs the same columns always"
        )


# Rounds --------------------------------------------------------------------------------------------------------------

# The box of the draws, wider by this share of its width on either side: five standard deviations of a normal posterior.
MARGIN = 0.25
N_DRAWS = 4000
# Another round does not pay once the box keeps at least this share of each width.
SETTLED = 0.8


def box_around(draws: Float[np.ndarray, "n d_x"], prior: Prior) -> Bounds:
    """Return the box around finite posterior draws, with a margin, cut to the prior's bounds."""
    finite = draws[np.isfinite(draws).all(axis=1)]
    if not len(finite):
        raise ValueError(
            "no draw of this round's posterior is finite, so there is nowhere to simulate next; give each round more "
            "rows or a longer effort"
        )
    low, high = finite.min(axis=0), finite.max(axis=0)
    low, high = low - MARGIN * (high - low), high + MARGIN * (high - low)
    if prior.bounds is not None:
        whole = Bounds.from_pairs(prior.bounds)
        low, high = np.maximum(low, whole.low), np.minimum(high, whole.high)
    return Bounds(tuple(low.tolist()), tuple(high.tolist()))


def joined(parts: list[Simulations], prior: Prior, box: Bounds | None = None) -> Simulations:
    """Return all pairs of several rounds, those inside the box where there is one, as draws of ``prior``."""
    x, y = (np.concatenate([getattr(part, name) for part in parts]) for name in ("x", "y"))
    kept = slice(None) if box is None else box.contains(x)
    return Simulations(x[kept], y[kept], prior, pd.concat([p.failures for p in parts], ignore_index=True))
