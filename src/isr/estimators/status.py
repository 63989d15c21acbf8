"""How a fit ended, in words, and whether its posteriors are right wherever y may lie."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from isr.bijections.flow import Ensemble, Flow
from isr.formulas.front import Point
from isr.posterior.calibration import regions_of
from isr.training.population import Population

# Nats per row that a model may miss, over all and where some y lie, beyond so many standard errors.
LARGE_LOSS, LARGE_GAP_THERE, SURE = 0.03, 0.1, 2.0
# How that is found: rows it takes, folds, and normal numbers per row.
LEAST_JUDGED, N_FOLDS, N_NORMAL = 200, 4, 3
# Nats per row by which held-out rows may be worse than training rows, beside what chance explains.
LARGE_GAP = 0.5
SIMPLER = "give more rows, or use fewer blocks or layers, or a penalty"


class DivergedError(FloatingPointError, ValueError):
    """No member of a population ended with a finite loss, so there is no model."""

    def __init__(self) -> None:
        super().__init__(
            "every restart diverged, so there is no model; check the data for outliers and scale, lower the "
            "learning rate (peak of an Effort), or use fewer blocks or layers"
        )


@dataclass(frozen=True)
class Status:
    """How a fit ended: whether as the settings asked for, what happened, and what to do about it."""

    ok: bool
    reason: str
    remedy: str = ""

    def __str__(self) -> str:
        return self.reason if not self.remedy else f"{self.reason}; {self.remedy}"


WILD = Status(
    False,
    "every model found throws some draws far from the data, or gives rows near them next to no density",
    "give bounds, more rows, fewer blocks or layers, or another random_state",
)


def status_of(population: Population, n_steps: int, stopped: str | None = None) -> Status:
    """Return how training went: finished, stopped early (then or later), or lost many of its steps."""
    if population.stopped or stopped:
        reason = f"the fit ended early: {population.stopped or stopped}"
        return Status(False, reason, "the best model so far is kept")
    if population.still_falls:
        reason = "undertrained: the held-out loss still fell when the steps of this effort were over"
        return Status(False, reason, 'ask for more, such as training="thorough"')
    alive = np.isfinite(population.held_out)
    share = float(np.max(population.skipped[alive])) / max(1, n_steps)
    if share > 0.1:
        reason = f"up to {share:.0%} of the steps were skipped because the loss was not finite"
        return Status(False, reason, "check the data for outliers or use fewer layers")
    return Status(True, "converged" if alive.all() else f"{(~alive).sum()} of {len(alive)} members diverged")


def overfitting(point: Point) -> Status | None:
    """Return a status that names both losses where held-out rows are far worse off than training rows, else None."""
    held_out, train = point.held_out_nats, point.train_nats
    # The spread of most rows: those that were memorised would excuse themselves.
    spread = np.diff(np.nanquantile(point.held_out_rows, (0.25, 0.75)))[0] / 1.35
    if not held_out - train > LARGE_GAP + 3 * spread / np.sqrt(len(point.held_out_rows)):
        return None
    reason = f"overfitting: {held_out:.4g} nats per held-out row against {train:.4g} per training row"
    return Status(False, reason, SIMPLER)


def beaten_by_normal(normal: Point, best: Point) -> Status:
    """Return a status that says that a normal law is used because all that was trained is worse."""
    reason = (
        f"a normal law, linear in what is given, is used: it has {normal.held_out_nats:.4g} nats per held-out row, the "
        f"best model trained {best.held_out_nats:.4g}"
    )
    return Status(False, reason, SIMPLER)


def judged(flow: Flow, x: np.ndarray, y: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """Return the latents of rows, which are standard normal at every y where the posteriors are right, and y."""
    x = _unrounded(x)
    members = flow.members if isinstance(flow, Ensemble) else (flow,)
    nats, latents = [], []
    for member in members:
        padding = np.random.default_rng(1).normal(size=(len(x), member.n_padding))
        z = np.array(replace(member, n_padding=0).forward(np.concatenate([x, padding], axis=1), y)[0])
        if n := member.n_observed:
            z[:, :n] = (z[:, :n] - y) / np.reshape(member.noise, (1, n))
        nats.append(member.log_prob(x, y))
        latents.append(z)
    # A row of a mixture belongs to one of its members, by their odds.
    chances = np.stack(nats) + np.log(flow.shares if isinstance(flow, Ensemble) else [1.0])[:, None]
    member_of = np.argmax(chances + np.random.default_rng(0).gumbel(size=chances.shape), axis=0)
    return np.stack(latents)[member_of, np.arange(len(x))], np.zeros((len(x), 0)) if y is None else y


def _unrounded(x: np.ndarray) -> np.ndarray:
    """Return rows with the values of rounded columns spread over what was rounded, inwards at the ends."""
    rng, x = np.random.default_rng(2), x.copy()
    for column in x.T:
        values = np.unique(column)
        if 1 < len(values) < len(column) / 2:
            moved = column + (rng.random(len(column)) - 0.5) * np.median(np.diff(values))
            inside = (moved >= values[0]) & (moved <= values[-1])
            column[:] = np.where(inside, moved, 2 * column - moved)
    return x


def told_apart(latents: np.ndarray, y: np.ndarray, names: Sequence[str]) -> Status | None:
    """Return a status where trees tell latents from normal numbers, over all or where some y lie, else None.

    Latents of exact posteriors are standard normal whatever y is; those of an exact density, standard normal. Trees
    that separate the two, each row judged by those that have not seen it, bound the missing nats per row from below
    (Donsker and Varadhan), wrong means, widths, shapes and dependences alike.
    """
    if len(latents) < LEAST_JUDGED:
        return None
    of_rows, of_draws = _log_odds(latents, y)
    regions = regions_of(y, names) if y.shape[1] else {"": np.ones(len(y), bool)}
    worst = (0.0, 0.0, "")
    for number, (where, kept) in enumerate(regions.items()):
        odds, n = np.exp(of_draws[kept]), np.count_nonzero(kept)
        nats = float(np.mean(of_rows[kept]) - np.log(np.mean(odds)))
        error = float(np.sqrt((np.var(of_rows[kept]) + np.var(odds) / np.mean(odds) ** 2) / n))
        beyond = nats - SURE * error - (LARGE_GAP_THERE if number else LARGE_LOSS)
        if n >= LEAST_JUDGED // 4 and beyond > worst[0]:
            worst = (beyond, nats, where)
    if not worst[1]:
        return None
    if not y.shape[1]:
        reason = f"the density is not exact: it gives rows at least {worst[1]:.2g} nats less than could be"
        return Status(False, reason, 'try more blocks, a chart or training="thorough", if it matters')
    reason = f"posteriors are not calibrated {worst[2]}: truths have at least {worst[1]:.2g} nats less than could be"
    remedy = "give more rows, take the accurate goal, or isr.Inversion, which corrects by the law of y"
    return Status(False, reason, remedy)


def _log_odds(latents: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the log-odds of each row, and of a normal number beside its y, by trees that have seen neither."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    rng, n = np.random.default_rng(0), len(latents)
    fold, normal = rng.permutation(n) % N_FOLDS, rng.normal(size=(N_NORMAL + 1, *latents.shape))
    found = np.zeros((2, n))
    for k in range(N_FOLDS):
        seen, others = fold != k, fold == k
        shown = [np.column_stack([z[seen], y[seen]]) for z in (latents, *normal[1:])]
        trees = HistGradientBoostingClassifier(
            max_iter=60, max_leaf_nodes=8, l2_regularization=1.0, random_state=0
        )
        trees.set_params(early_stopping=False).fit(
            np.concatenate(shown), np.repeat([1, *[0] * N_NORMAL], seen.sum())
        )
        for i, z in enumerate((latents, normal[0])):
            found[i, others] = trees.decision_function(np.column_stack([z[others], y[others]]))
    return found[0], found[1]


def worse_than_constant(predicted: np.ndarray, y: np.ndarray, names: Sequence[str]) -> Status | None:
    """Return a status that names the outputs which their own mean predicts better, else None."""
    spread = np.sum((y - y.mean(axis=0)) ** 2, axis=0)
    with np.errstate(invalid="ignore", over="ignore"):
        scores = 1 - np.sum((predicted - y) ** 2, axis=0) / np.where(spread > 0, spread, 1.0)
    told = zip(names, scores, spread, strict=True)
    bad = [f"{n!r} (R² {r:.3g})" for n, r, s in told if s > 0 and not r > 0]
    if not bad:
        return None
    reason = f"the surrogate predicts {', '.join(bad)} worse than the mean of the training rows does"
    remedy = "use ConditionalISR for the posterior or EQLRegressor for the surrogate, or more blocks"
    return Status(False, reason, remedy)
