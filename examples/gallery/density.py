# %% [markdown]
# # A density as a formula
#
# Rows that follow a bent law. `SymbolicFlow` finds equations that take them to independent standard normal numbers
# $z$, and back: $z_1 = x_0/2$, $z_2 = x_1 - 0.2\,x_0^2 + 0.8$, so that $x_0 = 2 z_1$ and
# $x_1 = z_2 + 0.8\,z_1^2 - 0.8$. That is the density, a way to draw from it, and a sentence about the data.

# %%
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import isr

rng = np.random.default_rng(0)
bend = rng.normal(0, 2, 5000)
rows = pd.DataFrame({"x0": bend, "x1": 0.2 * (bend**2 - 4) + rng.normal(size=5000)})

# %%
flow = isr.SymbolicFlow(training=isr.Training("quick"), random_state=0).fit(rows)
print(flow.expressions_)
print("the fit:", flow.status_)

# %% [markdown]
# Does it say more than a normal law would? Higher is better, in nats per row; the exact law gives about −3.53.

# %%
new = rng.normal(0, 2, 2000)
fresh = pd.DataFrame({"x0": new, "x1": 0.2 * (new**2 - 4) + rng.normal(size=2000)})
print(
    f"formula {flow.score(fresh):.3f}, a normal law {-0.5 * np.log(np.linalg.det(np.cov(rows.T))) - 2.838 - 1:.3f}"
)

# %%
drawn = flow.sample(2000, random_state=1)
figure, axes = plt.subplots(1, 2, figsize=(7, 3.2), sharex=True, sharey=True)
axes[0].plot(*rows[:2000].to_numpy().T, ".", ms=2)
axes[0].set(title="data", xlabel="x0", ylabel="x1")
axes[1].plot(*drawn.T, ".", ms=2, color="tab:orange")
axes[1].set(title="drawn from the formula", xlabel="x0")
plt.savefig("density.png", dpi=150)

# %% [markdown]
# **When not to trust it.** Where `status_` does not say "converged"; where the score on rows it has not seen is no
# better than that of a normal law; and outside the range of the data, where the formula has seen nothing.
