"""A fitted model in a file: saved, loaded without training code, asked again."""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import isr

rng = np.random.default_rng(0)
x = rng.normal(size=(3000, 2))
y = x[:, :1] + 0.3 * x[:, 1:] ** 2 + 0.1 * rng.normal(size=(3000, 1))
model = isr.ConditionalISR(noise=0, training=isr.Training("quick", n_restarts=2), random_state=0).fit(x, y)

path = Path(tempfile.mkdtemp()) / "model.isr"
model.save(path)
loaded = isr.load(path)
print(loaded)
print(loaded.expressions.text("forward"))

draws = loaded.posterior([0.5]).sample(1000)
print(f"posterior mean {draws.mean(axis=0).round(3)}, sd {draws.std(axis=0).round(3)}")
plt.plot(*np.asarray(draws).T, ".", ms=2)
plt.savefig("save_and_load.png", dpi=150)
