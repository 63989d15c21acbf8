"""A bent density as a formula: z1 = x0 / 2, z2 = x1 - 0.2 x0² + 0.8, and its inverse."""

import matplotlib.pyplot as plt
import numpy as np

import isr

rng = np.random.default_rng(0)
bend = rng.normal(0, 2, 5000)
rows = np.column_stack([bend, 0.2 * (bend**2 - 4) + rng.normal(size=5000)])

flow = isr.SymbolicFlow(training=isr.Training("quick"), random_state=0).fit(rows)
print(flow.expressions_)
print(f"mean log-density of fresh rows: {flow.score(rows[:1000]):.3f} nats")

fresh = flow.sample(2000, random_state=1)
plt.plot(*rows[:2000].T, ".", ms=2, label="data")
plt.plot(*fresh.T, ".", ms=2, label="drawn from the formula")
plt.legend()
plt.savefig("density.png", dpi=150)
