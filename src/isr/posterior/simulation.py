"""Simulation: parameters drawn from a prior and what a simulator makes of them, chunk by chunk, also in rounds.

A chunk depends only on the seed and its own number. So the rows are the same with any number of workers on any joblib
backend (``with joblib.parallel_config(backend="dask"): simulate(...)``), and a killed run goes on where it stopped.

Truncated rounds simulate again where the last posterior lives, and keep what earlier rounds simulated there. Rows drawn
from the prior inside a box follow the prior cut to that box, whichever round drew them. A model trained on them learns
the posterior cut to the box, exactly, as long as the box holds the posterior: no weights, no correction (truncated
sequential inference, Deistler et al. 2022, with boxes, because a bounded model never leaves a box).
"""

from __future__ import annotations

import functools
import json
import warnings
import zipfile
import zlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import joblib
import numpy as np
import pandas as pd
from jaxtyping import Float, Num

from isr.posterior.priors import Prior, parse_prior
from isr.posterior.simulators import Simulator, check_widths, evaluate
from isr.tables.bounds import Bounds
from isr.tables.whole_files import make_folder, write_arrays, write_whole
from isr.tables.workers import as_they_end, progress_bar

_MANIFEST = "manifest.json"


class _Chunk(NamedTuple):
    """Rows drawn from the prior, their observations (NaN where failed, no columns if all did), and why each failed."""

    x: np.ndarray
    y: np.ndarray
    reasons: Sequence[str | None]


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
        folder: Where finished chunks are kept; made if missing. The same call finds them there, and one with
            another ``n`` uses those it can. It notices another seed, prior, chunk size or name of the simulator,
            but not a change inside the simulator: delete the folder after one.
        progress: Show a progress bar; None for only when standard error is a terminal.

    Example:
        >>> found = simulate({"a": (0, 1), "b": (-1, 1)}, lambda x: x[:, 0] * x[:, 1], 200, random_state=1)
        >>> found.x.shape, found.y.shape, found.n_failed
        ((200, 2), (200, 1), 0)
    """
    prior, seed = parse_prior(prior), _seed(random_state)
    if n < 1 or chunk_size < 1:
        raise ValueError(f"n and chunk_size must be at least 1, got {n} and {chunk_size}")
    if not callable(simulator):
        raise TypeError(f"the simulator must be a function of rows of x, got {type(simulator).__name__}")
    sizes = [min(chunk_size, n - start) for start in range(0, n, chunk_size)]
    draw = functools.partial(_draw, prior, seed, chunk_size)
    names = _names(prior, draw(0, 1).shape[1])
    if "reason" in names:
        raise ValueError("'reason' names the column that says why a simulation failed; rename this variable")
    kept = None if folder is None else Path(folder)
    chunks: dict[int, _Chunk] = {}
    if kept is not None:
        _claim(kept, _manifest(prior, simulator, seed, chunk_size, names))
        chunks = _kept(kept, sizes, draw)
    todo = [number for number in range(len(sizes)) if number not in chunks]
    jobs = (joblib.delayed(_run)(draw, simulator, number, sizes[number]) for number in todo)
    with progress_bar(len(todo), "simulations", progress) as advance:
        for number, chunk in as_they_end(jobs, n_jobs=n_jobs):
            chunks[number] = chunk
            # A chunk without a single success tells of a broken simulator and is tried again next time.
            if kept is not None and None in chunk.reasons:
                reasons = np.array([reason or "" for reason in chunk.reasons])
                write_arrays(_part(kept, number), {"x": chunk.x, "y": chunk.y, "reasons": reasons})
            advance(1)
    return _gather([chunk for _, chunk in sorted(chunks.items())], prior)


def _draw(prior: Prior, seed: int, chunk_size: int, number: int, n_rows: int) -> np.ndarray:
    # A full chunk is always drawn, so that the first rows of a simulation do not depend on n.
    return prior.sample(chunk_size, np.random.default_rng([seed, number]))[:n_rows]


def _run(
    draw: Callable[[int, int], np.ndarray], simulator: Simulator, number: int, n_rows: int
) -> tuple[int, _Chunk]:
    x = draw(number, n_rows)
    return number, _Chunk(x, *evaluate(simulator, x))


def _claim(folder: Path, wanted: dict[str, Any]) -> None:
    """Make the folder and write there what is asked for, or raise where it holds another simulation."""
    make_folder(folder)
    wanted, text = json.loads(json.dumps(wanted)), json.dumps(wanted, indent=2) + "\n"
    found = _read_manifest(folder)
    if found != wanted and not any(folder.glob("part-*")):
        with suppress(FileExistsError):  # of two that begin at the same moment one is first
            write_whole(
                folder / _MANIFEST, lambda hidden: hidden.write_text(text, "utf-8"), replace=found is not None
            )
        found = _read_manifest(folder)
    if found != wanted:
        differing = [
            f"{key}: there {found[key]!r}, asked {wanted[key]!r}"
            for key in (found or {}).keys() & wanted
            if found[key] != wanted[key]
        ]
        raise ValueError(
            f"{folder} holds another simulation ({'; '.join(differing) or f'its {_MANIFEST} is missing or damaged'}); "
            "repeat its settings to continue it, or choose another folder"
        )


def _read_manifest(folder: Path) -> Any:
    """What was asked for; None where there is no manifest, empty where it is damaged."""
    try:
        content = json.loads((folder / _MANIFEST).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except ValueError:
        return {}
    return content if isinstance(content, dict) else {}


def _part(folder: Path, number: int) -> Path:
    return folder / f"part-{number:06d}.npz"


def _kept(folder: Path, sizes: list[int], draw: Callable[[int, int], np.ndarray]) -> dict[int, _Chunk]:
    read = ((number, _read_part(_part(folder, number), size)) for number, size in enumerate(sizes))
    chunks = {number: chunk for number, chunk in read if chunk is not None}
    first = next(iter(chunks), None)
    if first is not None and not np.allclose(chunks[first].x, draw(first, sizes[first]), rtol=1e-9, atol=0):
        raise ValueError(
            f"{folder} holds another simulation: its draws are not this prior's; choose another folder"
        )
    return chunks


def _read_part(path: Path, n_rows: int) -> _Chunk | None:
    """The first rows of a chunk; None if its file is missing, damaged or too short."""
    try:
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as file:
            x, y, reasons = (file[name][:n_rows] for name in ("x", "y", "reasons"))
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error):
        return None
    return _Chunk(x, y, [reason or None for reason in reasons.tolist()]) if len(x) == n_rows else None


def _gather(chunks: list[_Chunk], prior: Prior) -> Simulations:
    x = np.concatenate([chunk.x for chunk in chunks])
    reasons = [reason for chunk in chunks for reason in chunk.reasons]
    failed = np.flatnonzero([reason is not None for reason in reasons])
    failures = pd.DataFrame(x[failed], index=failed, columns=list(_names(prior, x.shape[1])))
    failures["reason"] = [reasons[row] for row in failed]
    _warn_of_failures(failures, len(x), x.shape[1])
    check_widths({chunk.y.shape[1] for chunk in chunks if chunk.y.size})
    width = max(chunk.y.shape[1] for chunk in chunks)
    y = np.concatenate([chunk.y if chunk.y.size else np.empty((len(chunk.x), width)) for chunk in chunks])
    return Simulations(np.delete(x, failed, axis=0), np.delete(y, failed, axis=0), prior, failures)


def _warn_of_failures(failures: pd.DataFrame, n: int, n_columns: int) -> None:
    counts = failures["reason"].value_counts()
    reasons = ", ".join(f"{reason} ({count} times)" for reason, count in counts.head(3).items())
    reasons += f" and {len(counts) - 3} other reasons" if len(counts) > 3 else ""
    if len(failures) == n:
        raise ValueError(
            f"all {n} simulations failed: {reasons}. The simulator gets rows of x, shape "
            f"(n, {n_columns}), and returns n rows of y; wrap one for a single vector: "
            "lambda rows: np.array([simulator(row) for row in rows])"
        )
    if len(failures):
        warnings.warn(
            f"{len(failures)} of {n} simulations failed and were left out: {reasons}; "
            "see failures for their parameters",
            FailedSimulationsWarning,
            stacklevel=4,
        )


def _names(prior: Prior, n_columns: int) -> tuple[str, ...]:
    return prior.names or tuple(f"x{i + 1}" for i in range(n_columns))


def _seed(random_state: int) -> int:
    if isinstance(random_state, bool) or not isinstance(random_state, int | np.integer) or random_state < 0:
        raise ValueError(
            f"random_state must be an integer of at least 0, got {random_state!r}; "
            "a generator could not draw a chunk a second time"
        )
    return int(random_state)


def _manifest(
    prior: Prior, simulator: Simulator, seed: int, chunk_size: int, names: tuple[str, ...]
) -> dict[str, Any]:
    named = simulator.func if isinstance(simulator, functools.partial) else simulator
    return {
        "format": 2,
        "random_state": seed,
        "chunk_size": int(chunk_size),
        "names": list(names),
        "prior": prior.description,
        "simulator": getattr(named, "__qualname__", type(named).__qualname__),
    }


# The box of the draws, wider by this share of its width on either side: five standard deviations of a normal posterior.
MARGIN = 0.25
N_DRAWS = 4000
# Another round does not pay once the box keeps at least this share of each width.
SETTLED = 0.8


def box_around(draws: Float[np.ndarray, "n d_x"], prior: Prior) -> Bounds:
    """Return the box around finite posterior draws, with a margin, cut to the prior's bounds.

    Example:
        >>> from isr.posterior.priors import parse_prior
        >>> draws = np.array([[0.25, 5.0], [0.75, 6.0]])
        >>> print(box_around(draws, parse_prior({"a": (0, 1), "b": (5, 9)})))
        [0.125, 0.875] x [5, 6.25]
    """
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


def hardly_shrinks(before: Bounds, after: Bounds) -> bool:
    """Return whether the box ``after`` is nearly as wide as ``before`` in every variable."""
    return bool(np.all(after.widths > SETTLED * before.widths))


def inside(simulated: Simulations, box: Bounds) -> Simulations:
    """Return the pairs whose x lies in the box."""
    kept = box.contains(simulated.x)
    return Simulations(simulated.x[kept], simulated.y[kept], simulated.prior, simulated.failures)


def joined(parts: list[Simulations], prior: Prior) -> Simulations:
    """Return all pairs of several rounds as draws of ``prior``, with all failures."""
    return Simulations(
        np.concatenate([part.x for part in parts]),
        np.concatenate([part.y for part in parts]),
        prior,
        pd.concat([part.failures for part in parts], ignore_index=True),
    )
