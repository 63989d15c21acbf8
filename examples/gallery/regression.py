# %% [markdown]
# # A law with units, from noisy rows
#
# A plain regression: how a pendulum's period follows from its length, taken to 10 ms. In truth it is
# $2\pi\sqrt{l/g}$, that is $2.006\,\sqrt{l}$.

# %%
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import isr

rng = np.random.default_rng(0)
rows = pd.DataFrame({"length": rng.uniform(0.1, 2, 200)})
period = pd.Series(2 * np.pi * np.sqrt(rows["length"] / 9.81) + 0.01 * rng.normal(size=200), name="period")

# %%
law = isr.LawRegressor(units={"length": "m", "period": "s"}, random_state=0).fit(rows, period)
print(law.expressions_.text())
print(law.front_[["complexity", "nll", "chosen"]])
print("the fit:", law.status_)

# %%
lengths = pd.DataFrame({"length": np.linspace(0.1, 2, 100)})
figure, (top, below) = plt.subplots(2, 1, figsize=(6, 5), sharex=True, height_ratios=[2, 1])
top.plot(rows["length"], period, ".", ms=3)
top.plot(lengths["length"], law.predict(lengths))
top.set(ylabel="period (s)")
below.plot(rows["length"], period - law.predict(rows), ".", ms=3)
below.axhline(0, color="0.5")
below.set(xlabel="length (m)", ylabel="residual (s)")
plt.savefig("regression.png", dpi=150)

# %% [markdown]
# **When not to trust it.** Where residuals show a pattern; where a simpler formula of the front is as accurate within
# the noise; and beyond the lengths that were measured. A formula that fits is not yet the law: many do.
