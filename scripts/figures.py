"""Draws the figures of the documentation's pages into docs/figures, all or those named: ``figures.py front``."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from scipy import stats
from scipy.integrate import solve_ivp

import isr
from isr.bijections.primitives import PRIMITIVES
from isr.posterior.calibration import LEVELS, ecdf_band, marginal_coverage, sbc_ranks
from isr.problems import kinematics
from isr.problems.densities import BANANA

OUT = Path(__file__).parents[1] / "docs" / "figures"
GREY, N_TRUTHS = "0.55", 1000


def block() -> Any:
    """The steps of one coupling block: rows of the banana, and what each half of the block makes of them."""
    x = BANANA.sample(3000, random_state=0)
    v1 = x[:, 0] / 2
    stages = {
        "x: the data": (x, "x0", "x1"),
        "the first half: v1 = x0/2": (np.stack([v1, x[:, 1]], axis=1), "v1", "x1"),
        "the second: z2 = x1 + 0.8 − 0.8 v1²": (
            np.stack([v1, x[:, 1] + 0.8 - 0.8 * v1**2], axis=1), "z1 = v1", "z2"),
    }  # fmt: skip
    figure, axes = plt.subplots(1, 3, figsize=(9.6, 3.3))
    for ax, (title, (rows, across, up)) in zip(axes, stages.items(), strict=True):
        ax.scatter(*rows.T, c=v1, s=4, cmap="coolwarm", linewidths=0)
        ax.set(title=title, xlabel=across, ylabel=up)
        ax.title.set_fontsize("medium")
    figure.suptitle("forward, from left to right; the inverse takes the same steps back", fontsize="medium")
    return figure


def primitives() -> Any:
    """What the functions of a library look like."""
    g = np.linspace(-2.5, 2.5, 400)
    names = [name for name, p in PRIMITIVES.items() if p.arity == 1 and name not in ("constant", "id")]
    figure, axes = plt.subplots(2, -(-len(names) // 2), figsize=(9.6, 3.4), sharex=True)
    for ax in axes.flat:
        ax.set_axis_off()
    for ax, name in zip(axes.flat, names, strict=False):
        values = np.asarray(PRIMITIVES[name].apply(jnp.asarray(g)))
        ax.axhline(0, color=GREY, lw=0.6)
        ax.axvline(0, color=GREY, lw=0.6)
        ax.plot(g, values)
        ax.set(title=name, ylim=(-3.2, 6.2))
    return figure


def density() -> Any:
    """Rows, contours of the density that was found for them, and the parabola in its equations."""
    rows = BANANA.sample(10_000, random_state=0)
    model = isr.SymbolicFlow(n_blocks=1, random_state=0).fit(rows)
    across, up = np.meshgrid(np.linspace(-7, 7, 200), np.linspace(-4, 9, 200))
    log_p = model.score_samples(np.stack([across.ravel(), up.ravel()], axis=1)).reshape(across.shape)
    figure, ax = plt.subplots(figsize=(6.2, 3.8))
    ax.plot(*rows[:3000].T, ".", ms=2, color=GREY, label="rows")
    ax.contour(across, up, np.exp(log_p), levels=6, colors="tab:blue", linewidths=1)
    ridge = np.linspace(-7, 7, 200)
    ax.plot(ridge, 0.2 * ridge**2 - 0.8, "--", color="tab:red", lw=1.2, label="z2 = 0: x1 = 0.2 x0² − 0.8")
    ax.set(xlabel="x0", ylabel="x1", ylim=(-4, 9), title="contours: the density that the equations say")
    ax.legend(frameon=False, loc="upper center")
    return figure


def front() -> Any:
    """Accuracy against complexity of one fit, and the model that was chosen."""
    rows = BANANA.sample(3000, random_state=0)
    model = isr.SymbolicFlow(charts=(), training="quick", random_state=0).fit(rows)
    found = model.front_
    figure, ax = plt.subplots(figsize=(6.2, 3.4))
    ax.plot(found["complexity"], found["nll"], "o-", ms=4, lw=0.8, label="models of one fit")
    chosen = found[found["chosen"]]
    ax.plot(chosen["complexity"], chosen["nll"], "o", ms=11, mfc="none", color="tab:red", label="chosen")
    ax.axhline(3.531, color=GREY, ls="--", lw=1, label="the truth's entropy")
    ax.set(xlabel="complexity of the equations", ylabel="held-out loss (nats per row)")
    ax.legend(frameon=False)
    return figure


def calibration() -> Any:
    """Ranks and coverage of an exact posterior and of one that is too narrow by a quarter."""
    rng = np.random.default_rng(0)
    truths = rng.normal(size=(N_TRUTHS, 1))
    seen = truths + 0.5 * rng.normal(size=truths.shape)
    exact = stats.norm(seen / 1.25, np.sqrt(0.2))
    noise = rng.normal(size=(N_TRUTHS, 99, 1))
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.6, 3.4))
    grid = np.linspace(0.01, 0.99, 99)
    low, high = ecdf_band(N_TRUTHS, grid)
    left.fill_between(grid, low - grid, high - grid, color="0.88", label="95 % of exact ones")
    right.plot([0, 1], [0, 1], color=GREY, lw=1)
    for label, width in (("exact", 1.0), ("too narrow by a quarter", 0.75)):
        samples = exact.mean()[:, None] + width * exact.std()[0, 0] * noise
        ranks = (sbc_ranks(truths, samples)[:, 0] + rng.uniform(size=N_TRUTHS)) / 100
        left.plot(grid, np.mean(ranks[:, None] <= grid, axis=0) - grid, label=label)
        right.plot(LEVELS, marginal_coverage(truths, samples).coverage[:, 0], label=label)
    left.set(xlabel="rank of the truth / number of draws", ylabel="ECDF − uniform")
    right.set(xlabel="credible level", ylabel="share of truths inside")
    figure.legend(*left.get_legend_handles_labels(), loc="upper center", ncols=3, frameon=False)
    return figure


def sensor() -> Any:
    """The posterior of the page Start: temperature and pressure from one voltage."""
    return _sensor().posterior([1.6]).plot(truth={"temperature": 40.0, "pressure": 2.0})


def _sensor() -> Any:
    units = {"temperature": "°C", "pressure": "bar", "voltage": "V"}
    return isr.Inversion(units=units, random_state=0).fit(*_sensor_rows())


def _sensor_rows() -> tuple[pd.DataFrame, pd.DataFrame]:
    rng = np.random.default_rng(0)
    x = pd.DataFrame({"temperature": rng.uniform(10, 80, 1000), "pressure": rng.uniform(1, 3, 1000)})
    y = 0.02 * x["temperature"] * x["pressure"] + 0.02 * rng.normal(size=1000)
    return x, y.to_frame("voltage")


def throws() -> Any:
    """The rows of the first tutorial, and as many drawn from the model."""
    rng = np.random.default_rng(0)
    speed = rng.normal(12.0, 2.0, 4000)
    rows = pd.DataFrame({"speed": speed, "reach": speed**2 / 9.81 + rng.normal(0.0, 0.5, 4000)})
    model = isr.SymbolicFlow(training=isr.Training("quick", n_restarts=4), random_state=0).fit(rows)
    figure, axes = plt.subplots(1, 2, figsize=(9.6, 3.6), sharex=True, sharey=True)
    for ax, drawn, title in zip(axes, (rows.to_numpy(), model.sample(4000)), ("rows", "draws"), strict=True):
        ax.plot(*drawn.T, ".", ms=2, color="tab:blue")
        ax.set(title=title, xlabel="speed (m/s)")
    axes[0].set(ylabel="reach (m)")
    return figure


def landing() -> Any:
    """The posterior of the second tutorial, on the curve of what lands at 2 m."""
    model = isr.ConditionalISR(
        n_blocks=3, n_layers=2, library={"constant": 1, "id": 2, "square": 2, "sin": 2, "product": 2}, noise=0.02,
        training=isr.Training("quick", n_restarts=1, penalty=None), random_state=0,
    )  # fmt: skip
    prior = {"height": (0.5, 2.0), "speed": (1.0, 5.0)}
    model.fit_simulator(prior, lambda x: x[:, 1] * np.sqrt(2 * x[:, 0] / 9.81), 20_000)
    draws, height = model.posterior([2.0]).sample(2000), np.linspace(0.5, 2.0, 200)
    figure, ax = plt.subplots(figsize=(6.2, 3.6))
    ax.plot(*draws.T, ".", ms=2.5, color="tab:blue", alpha=0.6, label="draws given 2 m")
    ax.plot(height, 2 / np.sqrt(2 * height / 9.81), "k--", lw=1, label="all that lands at 2 m exactly")
    ax.set(xlabel="height (m)", ylabel="speed (m/s)", xlim=(0.5, 2.0), ylim=(1, 5))
    ax.legend(frameon=False)
    return figure


def arms() -> Any:
    """Arms that reach a point, drawn from the posterior that two laws of an end point give."""
    rows = kinematics.sample(2000, random_state=0)
    post = isr.Inversion(random_state=0).fit(*rows).posterior(kinematics.TARGET)
    draws = post.sample(60)
    turned = np.cumsum(draws[:, 1:], axis=1)
    steps = np.array([0.5, 0.5, 1.0]) * np.stack([np.cos(turned), np.sin(turned)])
    across, up = np.concatenate([np.zeros((2, 60, 1)), np.cumsum(steps, axis=2)], axis=2)
    figure, ax = plt.subplots(figsize=(6.2, 3.8))
    ax.plot(across.T, (up + draws[:, :1]).T, "o-", ms=2.5, lw=0.8, color="tab:blue", alpha=0.4)
    ax.plot(kinematics.TARGET[1], kinematics.TARGET[0], "*", ms=14, color="tab:red")
    ax.set(xlabel="horizontal", ylabel="vertical", aspect="equal")
    return figure


def pendulum() -> Any:
    """A law of one variable, its rows, and what it leaves of them."""
    rng = np.random.default_rng(0)
    x = pd.DataFrame({"length": rng.uniform(0.1, 2.0, 200)})
    y = 2 * np.pi * np.sqrt(x["length"] / 9.81) + 0.01 * rng.normal(size=200)
    model = isr.LawRegressor(units={"length": "m", "period": "s"}, random_state=0).fit(x, y.rename("period"))
    print(model.expressions_)
    return model.plot(x, y.rename("period"))


def hunters() -> Any:
    """What was measured of two species, and the law of motion begun where it follows that best."""
    rng, times = np.random.default_rng(0), np.linspace(0, 12, 49)

    def rates(_: float, n: np.ndarray) -> list[float]:
        return [n[0] * (1.0 - 0.5 * n[1]), n[1] * (0.3 * n[0] - 0.8)]

    starts = ([3.0, 1.0], [1.0, 2.0], [5.0, 3.0])
    exact = np.stack([solve_ivp(rates, (0, 12), s, t_eval=times, rtol=1e-9).y.T for s in starts])
    values = exact * (1 + 0.02 * rng.normal(size=exact.shape))
    model = isr.MotionRegressor().fit(times, values, names=["prey", "hunters"])
    print(model.law_)
    return model.plot(times, values)


def choosing() -> Any:
    """The same rows asked for y, and asked for x."""
    model, (x, y) = _sensor(), _sensor_rows()
    law = isr.LawRegressor(random_state=0).fit(x, y)
    figure, axes = plt.subplots(1, 2, figsize=(8.4, 3.4))
    across = np.linspace(x["temperature"].min(), x["temperature"].max(), 100)
    axes[0].plot(x["temperature"], y["voltage"], ".", color=GREY, ms=2)
    for pressure in (1.2, 2.0, 2.8):
        at = pd.DataFrame({"temperature": across, "pressure": pressure})
        axes[0].plot(across, law.predict(at), label=f"{pressure:g} bar")
    axes[0].axhline(1.6, color="red", lw=1, ls="--")
    axes[0].legend(fontsize="small")
    axes[1].plot(x["temperature"], x["pressure"], ".", color=GREY, ms=2)
    axes[1].plot(*model.posterior([1.6]).sample(400).T, ".", ms=3)
    titles = ("y from x: LawRegressor", "x from y = 1.6 V: Inversion")
    for ax, title, up in zip(axes, titles, ("voltage (V)", "pressure (bar)"), strict=True):
        ax.set(title=title, xlabel="temperature (°C)", ylabel=up)
        ax.title.set_fontsize("medium")
    return figure


def report() -> Any:
    """A page in a browser, in light and dark; Chromium and Playwright draw it."""
    from playwright.sync_api import sync_playwright

    from isr.report import write_report

    model, folder = _sensor(), Path(tempfile.mkdtemp())
    rng = np.random.default_rng(1)
    x = pd.DataFrame({"temperature": rng.uniform(10, 80, 300), "pressure": rng.uniform(1, 3, 300)})
    y = pd.DataFrame({"voltage": 0.02 * x["temperature"] * x["pressure"] + 0.02 * rng.normal(size=300)})
    page = write_report(model, folder / "sensor.html", data=(x, y), y_star=[1.6])
    figure, axes = plt.subplots(1, 2, figsize=(9.6, 5.4))
    with sync_playwright() as play:
        browser = play.chromium.launch(args=["--no-sandbox"], executable_path=_chromium())
        for ax, scheme in zip(axes, ("light", "dark"), strict=True):
            tab = browser.new_page(viewport={"width": 900, "height": 1000}, color_scheme=scheme)
            tab.goto(page.as_uri())
            tab.screenshot(path=folder / f"{scheme}.png")
            ax.imshow(plt.imread(folder / f"{scheme}.png"))
            ax.set_axis_off()
        browser.close()
    return figure


def _chromium() -> str | None:
    return next((p for p in ("/usr/bin/chromium", "/usr/bin/google-chrome") if Path(p).exists()), None)


DRAWN = (
    block,
    primitives,
    density,
    front,
    calibration,
    sensor,
    throws,
    landing,
    arms,
    pendulum,
    hunters,
    choosing,
    report,
)
FIGURES = {function.__name__: function for function in DRAWN}

if __name__ == "__main__":
    mpl.use("agg")
    for name in sys.argv[1:] or FIGURES:
        figure = FIGURES[name]()
        figure.tight_layout(rect=(0, 0, 1, 0.93) if name == "calibration" else (0, 0, 1, 1))
        figure.savefig(OUT / f"page-{name}.png", dpi=110)
        print(f"docs/figures/page-{name}.png")
