"""Draws docs/figures/hero.png: rows in, the law found from them, and its posterior beside the exact answer."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import isr

OUT = Path(__file__).parents[1] / "docs" / "figures" / "hero.png"
MEASURED, GAIN, NOISE = 1.6, 0.02, 0.02


def main() -> None:
    """Learn the law of README's example and draw what follows from it."""
    mpl.use("agg")
    rng = np.random.default_rng(0)
    x = rng.uniform([10, 1], [80, 3], size=(1000, 2))
    y = GAIN * x[:, 0] * x[:, 1] + NOISE * rng.normal(size=1000)
    frame = pd.DataFrame(x, columns=["temperature", "pressure"])
    model = isr.Inversion(random_state=0).fit(frame, pd.Series(y, name="voltage"))
    post = model.posterior([MEASURED])
    draws = post.sample(2000)
    missed = GAIN * draws[:, 0] * draws[:, 1] - MEASURED
    print(f"{model.law_}\n{model.verdict_}\nre-simulated to {np.sqrt(np.mean(missed**2)):.4f} V")

    figure, (left, right) = plt.subplots(1, 2, figsize=(9.6, 3.9), sharex=True, sharey=True)
    dots = left.scatter(*x.T, c=y, s=7, cmap="viridis", linewidths=0)
    figure.colorbar(dots, ax=left, label="voltage (V), measured to 0.02 V")
    left.set(title="in: 1,000 rows", xlabel="temperature (°C)", ylabel="pressure (bar)")
    temperature = np.linspace(MEASURED / GAIN / 3, 80, 200)
    right.plot(*draws.T, ".", ms=2, color="tab:blue", alpha=0.5, label="draws from the law found")
    right.plot(temperature, MEASURED / GAIN / temperature, "k--", lw=1, label="truth: exactly 1.6 V")
    right.legend(loc="lower left", frameon=False)
    right.set(title=f"out: what gives {MEASURED} V", xlabel="temperature (°C)")
    figure.suptitle(f"the law found:  {model.law_}", family="monospace", fontsize=13)
    figure.tight_layout()
    figure.savefig(OUT, dpi=130)


if __name__ == "__main__":
    main()
