"""Inversion: the front door for inverse problems. It finds the laws, proposes, corrects, and says what it found."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from isr.estimators.equation_model import Shown
from isr.estimators.inverse import ConditionalISR, observation_noise, read_pairs
from isr.estimators.motion_regressor import check_seconds, find_series_law
from isr.estimators.settings import Training, seed_of
from isr.inversion.families import REFUTED
from isr.inversion.find import find_law
from isr.inversion.law import Law
from isr.inversion.means import Searcher
from isr.inversion.posterior import LawPosterior
from isr.inversion.prior import PriorLaw, of_prior, recognise_prior
from isr.inversion.proposal import find_proposal
from isr.inversion.record import of_laws
from isr.inversion.rivals import ROUGH
from isr.inversion.screen import N_ROWS, normal_scores
from isr.inversion.written import sampler_code, stated_laws
from isr.posterior.abstract import AbstractPosterior, summary_table
from isr.posterior.outliers import Extent, TrainingRecord, warn_if_unlike
from isr.posterior.posterior import read_observations
from isr.posterior.priors import parse_prior
from isr.posterior.simulation import simulate
from isr.storage import Bundle
from isr.tables.arrays import warn_if_not_finite
from isr.tables.memory import draw_count
from isr.tables.names import symbol_names
from isr.tables.tables import Table, read_table

if TYPE_CHECKING:
    import pandas as pd

# Of the time of a law of motion, what its search may take, less where a flow may be fitted beside it; the flow's part
# of the rest, for its formulas and its comparison take time too; with less than so many seconds none is fitted.
LAW_SHARE, LAW_SHARE_BESIDE, FLOW_SHARE, LEAST_SECONDS = 0.85, 0.6, 0.4, 5.0
# Held-out rows on which a law in doubt is compared with a flow, and standard errors that decide.
N_COMPARED, FEWEST_COMPARED = 60, 5
CLEARLY = 2.0
# A summary of a table rests on so many effective draws.
ENOUGH = 400
# And on this share of the draws of its posteriors, at least.
IN_A_TABLE = 0.01
# Rows whose posteriors are weighed again by other laws.
N_OPEN, FEW_ROUGH = 12, 3
# How far beyond the rows a law is trusted, as a share of their range; of that where rows end sharply.
BEYOND, NEAR = 0.2, 0.05


@dataclass(eq=False, repr=False)
class Inversion(Shown, BaseEstimator):
    """Finds the law of y given x and the law of x, both short, and gives the exact posterior that follows.

    Args:
        prior: What is known of x: a mapping from name to ``(low, high)`` or to a frozen SciPy distribution, or anything
            else that `isr.posterior.priors.parse_prior` takes. None recognises it from the rows.
        noise: Standard deviation of the noise that an observation has: a number, one per column of y, or a mapping by
            name. ``"auto"`` finds it, which may be a formula of x, correlated, heavy-tailed or zero.
        law: What is known of the law of y: text such as ``"0.5*sin(a) + h"``, a mapping from column of y to text, or a
            function of one row of x written in JAX. Only the rest is then learned.
        series: Columns of y that are one channel measured again and again, by the name of the channel, such as
            ``{"prey": ["p0", "p1"], "predator": ["q0", "q1"]}``; the law is then one of motion, ẏ = F(y, x), and
            ``noise`` may be ``"poisson"``, ``"binomial(1000)"``, ``"lognormal"``, ``"normal"``, or one by channel.
        times: When the columns of a series were measured.
        fallback: Whether a `ConditionalISR` is fitted, and used where it is clearly better, if no short law explains y.
        max_time: Seconds that the search of the law may take; of a law of motion, all of the fit.
        units: Unit of a variable of x or y, by name.
        verbose: Whether progress is shown; None for only when standard error is a terminal.
        random_state: Seed.

    Attributes:
        law_: The law of y given x.
        prior_: The law of x.
        proposal_: How draws are made: what is solved, branch by branch, and what is drawn and weighed.
        tests_: What the law was tested for, with p-values.
        notes_: What else there is to know, a sentence each.
        verdict_: What was found, in a sentence or two.
        is_green_: Whether no test refutes the law and the verdict has nothing to note.
        fallback_: The `ConditionalISR` whose posteriors are given in place of the law's; None where the law's are.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> x = rng.uniform(0, 2, size=(1000, 2))
        >>> y = x[:, 0] * x[:, 1] + 0.1 * rng.normal(size=1000)
        >>> model = Inversion().fit(x, y)
        >>> print(model.law_)
        y1 = x1*x2 ± 0.09...
        >>> post = model.posterior([1.0])
        >>> post.sample(100).shape, post.pareto_k < 0.7, model.predict(x).shape
        ((100, 2), True, (1000, 1))
        >>> model.table([[1.0], [2.0]], 500)["mean"].shape, model.sample([[1.0], [2.0]], 5).shape
        ((4,), (2, 5, 2))
        >>> model.score(x[:3], y[:3]) > -5
        True
        >>> model.log_prob(x[:2], y[:2]).shape, model.to_bundle().kind
        ((2,), 'Inversion')
        >>> "def sample(" in model.code("python"), "double y1" in model.to_bundle().expressions.code("c")
        (True, True)
        >>> halves = Inversion(noise=0.1).fit_simulator({"a": (0, 1)}, lambda x: x / 2, 200)
        >>> print(halves.law_)
        y1 = a/2 ± 0.1
        >>> import isr, pathlib, tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "product.isr"
        >>> model.save(path)
        >>> isr.load(path).posterior([1.0])
        Posterior of x1, x2 given y1 = 1
    """

    prior: Any = None
    noise: Any = "auto"
    _: KW_ONLY
    law: Any = None
    series: Mapping[str, Sequence[Any]] | None = None
    times: Sequence[float] | None = None
    fallback: bool = True
    max_time: float = 120.0
    units: Mapping[str, str] | None = None
    verbose: bool | None = None
    random_state: int | np.random.RandomState | None = None

    def fit(self, x: Any, y: Any) -> Self:
        """Learn from pairs: rows of x, what is unknown, and of y, what is measured, in the same order."""
        check_seconds(self.max_time)
        ends = np.inf if self.series is None else time.monotonic() + self.max_time
        x_table, y_table = read_pairs(x, y, self.units, min_rows=20)
        self.x_columns_, self.y_columns_ = x_table.columns, y_table.columns
        self.n_features_in_ = x_table.n_columns
        self.training_ = TrainingRecord.of(y_table.values)
        symbols = symbol_names([*x_table.names, *y_table.names])[: x_table.n_columns]
        stated = None if self.prior is None else parse_prior(self.prior)
        if stated is not None and stated.names is not None and sorted(stated.names) != sorted(x_table.names):
            raise ValueError(
                f"the prior is one of {list(stated.names)}, but x has the columns {list(x_table.names)}"
            )
        found = self._find(x_table, y_table, symbols)
        self.law_, self.tests_, self.notes_ = found.law, dict(found.tests), found.notes
        self.doubt_ = getattr(found, "doubt", None)
        if stated is not None:
            self.prior_ = of_prior(stated, x_table.names)
        else:
            self.prior_ = recognise_prior(x_table.values, symbols, self._say)
            if (p := self.prior_.p_value(x_table.values[:N_ROWS])) < REFUTED:
                self.notes_ += (
                    f"the law of x that was recognised is refuted (p = {p:.1g}); state the prior",
                )
        self.proposal_ = find_proposal(self.law_, self.prior_)
        self.extent_ = _extent(x_table.values, self.prior_)
        self.fallback_ = self.comparison_ = None
        if not found.passed and self.fallback:
            self._compare(x_table, y_table, ends)
        self.notes_ += self._open(x_table.values, y_table.values)
        self.verdict_, self.is_green_ = self._verdict(found.passed), found.passed and not self.notes_
        return self

    def fit_simulator(
        self,
        prior: Any,
        simulator: Callable[[np.ndarray], np.ndarray],
        n: int,
        *,
        n_jobs: int | None = None,
        folder: str | Path | None = None,
    ) -> Self:
        """Draw n rows from the prior, simulate y for each and learn from the pairs.

        Args:
            prior: What x is drawn from, see ``prior`` of the estimator, which it replaces.
            simulator: Takes rows of x and returns rows of y; with its noise, or without and ``noise`` says it.
            n: Number of rows.
            n_jobs: Workers that simulate, as joblib counts them.
            folder: Where what was simulated is kept, and found again when the fit is repeated.
        """
        self.prior = parse_prior(prior)
        self.simulations_ = simulate(
            self.prior, simulator, n, n_jobs=n_jobs, random_state=seed_of(self.random_state), folder=folder
        )
        return self.fit(self.simulations_.x_frame(), self.simulations_.y)

    # What it says of x ----------------------------------------------------------------------------------------

    def posterior(self, y_star: Any) -> AbstractPosterior:
        """Return the posterior given one observation, or several of the same x (rows), whose likelihoods multiply."""
        check_is_fitted(self, "law_")
        if self.fallback_ is not None:
            return self.fallback_.posterior(y_star)
        rows = read_observations(y_star, self.y_columns_)
        warn_if_unlike(self.training_, rows, self.y_columns_.names, stacklevel=2)
        return self._posterior(rows)

    def _posterior(self, rows: np.ndarray) -> LawPosterior:
        return LawPosterior(
            self.law_, self.prior_, rows, self.x_columns_.names, self.y_columns_.names, units=self.units,
            extent=self.extent_, proposal=self.proposal_, doubt=self.doubt_,
        )  # fmt: skip

    def table(self, y: Any, n: int = 1000) -> pd.DataFrame:
        """Return a tidy table of many posteriors, one x each: a row per observation and variable.

        Args:
            y: Rows of y, each of an x of its own.
            n: Draws per observation.
        """
        import pandas as pd

        frames, facts, rows = [], [], self._rows(y)
        n = draw_count(n, len(self.x_columns_))
        for row in rows:
            post = self._one(row)
            post.least_share = IN_A_TABLE
            frames.append(summary_table(_drawn(post, n), post.x_names, hdi=0.94))
            if isinstance(post, LawPosterior):
                facts.append((post.effective_size, post.pareto_k, post.log_evidence))
        table = pd.concat(frames, keys=range(len(frames)), names=["observation", "parameter"]).reset_index()
        if not facts:
            return table
        columns = np.repeat(facts, len(self.x_columns_), axis=0).T
        return table.assign(**dict(zip(("effective_size", "pareto_k", "log_evidence"), columns, strict=True)))

    def sample(self, y: Any, n_samples: int = 1, random_state: int | None = 0) -> np.ndarray:
        """Return ``n_samples`` rows of x for every row of y: an array (rows of y, samples, variables)."""
        seed, rows = seed_of(random_state), self._rows(y)
        n = draw_count(n_samples, len(rows) * len(self.x_columns_))
        return np.stack([self._one(row)._draw(n, seed + i)[0] for i, row in enumerate(rows)])

    def log_prob(self, x: Any, y: Any) -> np.ndarray:
        """Return the log-density (nats) of each row of x given the row of y beside it."""
        rows = read_table(x, like=self.x_columns_, what="x").values
        given = self._rows(y)
        return np.array([self._one(b)._log_prob(a[None])[0] for a, b in zip(rows, given, strict=True)])

    def score(self, x: Any, y: Any) -> float:
        """Return the mean log-density (nats) of rows of x given the rows of y beside them."""
        return float(np.mean(self.log_prob(x, y)))

    def predict(self, x: Any) -> np.ndarray:
        """Return the centre of the law for rows of x, a column for each column of y; NaN where it says nothing."""
        check_is_fitted(self, "law_")
        rows = read_table(x, like=self.x_columns_, what="x").values
        predicted = self.law_.predict(rows, len(self.y_columns_))
        warn_if_not_finite(predicted[:, [c.index for c in self.law_.columns]])
        return predicted

    def _rows(self, y: Any) -> np.ndarray:
        check_is_fitted(self, "law_")
        return read_table(y, like=self.y_columns_, what="y").values

    def _one(self, row: np.ndarray) -> Any:
        return self._posterior(row[None]) if self.fallback_ is None else self.fallback_.posterior(row)

    def code(self, language: str = "python") -> str:
        """Return a program that draws from the posterior of any observation: weighed by the law, and resampled.

        Args:
            language: ``"c"``, ``"javascript"`` or ``"python"``. The law alone is ``to_bundle().expressions.code(...)``.
        """
        check_is_fitted(self, "law_")
        if not isinstance(self.law_, Law):
            raise TypeError("no sampler is written for a law of motion")
        return sampler_code(self.law_, self.prior_, language)

    # Files ----------------------------------------------------------------------------------------------------

    def to_bundle(self) -> Bundle:
        """Return what a file of this model holds."""
        check_is_fitted(self, "law_")
        if self.fallback_ is not None:
            flow = self.fallback_.to_bundle()
            return replace(flow, metadata={**flow.metadata, "verdict": self.verdict_})
        known = {"verdict": self.verdict_, "tests": dict(self.tests_), "training": self.training_.to_dict()}
        known["extent"] = self.extent_.to_dict()
        return Bundle(
            of_laws(self.law_, self.prior_, self.doubt_), self.x_columns_.names, self.y_columns_.names,
            dict(self.units or {}), kind="Inversion", metadata=known,
        )  # fmt: skip

    # Fitting --------------------------------------------------------------------------------------------------

    def _find(self, x: Table, y: Table, symbols: Sequence[str]) -> Any:
        if self.series is not None:
            seconds = self.max_time * (LAW_SHARE_BESIDE if self.fallback else LAW_SHARE)
            return find_series_law(x, y, symbols, self.series, self.times, self.noise, self._say, seconds)
        noise = (
            None if isinstance(self.noise, str) and self.noise == "auto" else observation_noise(self.noise, y)
        )
        seed = seed_of(self.random_state)
        return find_law(
            x.values, y.values, symbols, y.names, search=Searcher(self.max_time, self._say), noise=noise,
            stated=stated_laws(self.law, x.values, symbols, y.names), say=self._say, seed=seed,
        )  # fmt: skip

    def _compare(self, x: Table, y: Table, ends: float) -> None:
        """Fit a flow where the law is in doubt, and use it where held-out rows are clearly better off."""
        import pandas as pd

        left = FLOW_SHARE * (ends - time.monotonic())
        if left < LEAST_SECONDS:
            self.notes_ += ("no time was left to fit a flow beside it",)
            return
        self._say("no short law passes every test: a flow is fitted beside it")
        kept = np.arange(len(x.values)) % 5 != 0
        box = self.prior_.bounds.pairs()
        training = Training("quick", max_time=left if left < np.inf else None)
        flow = ConditionalISR(
            n_blocks=4, training=training, noise=0.0 if isinstance(self.noise, str) else self.noise,
            bounds=None if set(box) == {(None, None)} else list(box), random_state=self.random_state,
        ).fit(*(pd.DataFrame(t.values[kept], columns=list(t.names)) for t in (x, y)))  # fmt: skip
        held = np.flatnonzero(~kept)[:N_COMPARED]
        asked: list[float | None] = []
        for i in held:
            if time.monotonic() < ends or len(asked) < FEWEST_COMPARED:
                asked.append(self._asked(y.values[i], lambda post, i=i: post._log_prob(x.values[i][None])[0]))
        held = held[: len(asked)]
        ours = np.array([-np.inf if value is None else value for value in asked])
        theirs = np.maximum(flow.log_prob(x.values[held], y.values[held]), -50.0)
        gain = theirs - np.maximum(ours, -50.0)
        self.comparison_ = float(np.mean(gain)), float(np.std(gain) / np.sqrt(len(gain)))
        if self.comparison_[0] > CLEARLY * self.comparison_[1]:
            self.fallback_ = flow

    def _open(self, x: np.ndarray, y: np.ndarray) -> tuple[str, ...]:
        """A note where posteriors, of rows far out or where rivals part, move with other laws as likely by the rows."""
        if self.doubt_ is None or self.fallback_ is not None:
            return ()
        x = x[:N_ROWS]
        far, apart = np.sum(normal_scores(x) ** 2, axis=1), self.doubt_.apart(x)
        tried = dict.fromkeys([*np.argsort(-far)[: N_OPEN // 2], *np.argsort(-apart)[: N_OPEN // 2]])
        found = [self._asked(y[i], lambda post: post.open_to) for i in tried]
        said = [text for text in found if text]
        if all(ROUGH in text for text in said) and len(said) <= FEW_ROUGH:
            return ()  # of rows far out errors always count most
        return (f"the rows leave the law open: for {len(said)} of {len(tried)} of them, {said[0]}",)

    def _asked(self, y: np.ndarray, what: Callable[[LawPosterior], Any]) -> Any:
        """What a posterior says, without its warnings; None where the observation is impossible."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            try:
                return what(self._posterior(y[None]))
            except ValueError:
                return None

    def _verdict(self, passed: bool) -> str:
        law, tests = self.law_, self.tests_
        worst = min(tests, key=lambda name: tests[name], default="")
        notes = "".join(f"; {note}" for note in self.notes_)
        if isinstance(law, Law) and not law.columns:
            return f"no column of y says anything of x: posteriors are the law of x{notes}"
        if passed:
            least = f", least p = {tests[worst]:.2g}" if worst else ""
            size = f"{law.n_constants} constant{'s' if law.n_constants != 1 else ''}"
            return f"a law with {size} explains y; no test refutes it{least}{notes}"
        doubt = f"the law found is refuted (p = {tests[worst]:.1g}, {worst})"
        if self.fallback_ is not None:
            gain, error = self.comparison_
            return (
                f"no short law explains y: {doubt}, and a flow is better by {gain:.2g} ± {error:.1g} nats on held-out "
                f"rows; posteriors are amortised, those of the flow{notes}"
            )
        if self.comparison_ is not None:
            gain, error = self.comparison_
            return f"{doubt}; a flow is no better ({gain:+.2g} ± {error:.1g} nats), so the law is used{notes}"
        return f"{doubt}; it is used all the same{notes}"

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "law_")


def _extent(x: np.ndarray, prior: PriorLaw) -> Extent:
    """The range of the rows, and a little beyond it where they do not end sharply: a law holds there if it holds."""
    rows, box = Extent.of(x), prior.bounds
    room = BEYOND * (rows.high - rows.low)
    low = np.where(rows.sharp_low, rows.low - NEAR * room, rows.low - room)
    high = np.where(rows.sharp_high, rows.high + NEAR * room, rows.high + room)
    return Extent(np.maximum(low, box.low), np.minimum(high, box.high), rows.sharp_low, rows.sharp_high)


def _drawn(post: Any, n: int) -> np.ndarray:
    """Draws for a summary, from the pool that is there where it is large enough."""
    if isinstance(post, LawPosterior) and post.effective_size >= min(n, ENOUGH):
        return post.quick(n, np.random.default_rng(0))
    return post._draw(n, 0)[0]
