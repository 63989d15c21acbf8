# %% [markdown]
# # A law with units, from noisy rows
#
# A plain regression: the distance fallen in a given time, read to 5 cm. The constant should be $g/2 = 4.905$ m/s².

# %%
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import isr

rng = np.random.default_rng(0)
rows = pd.DataFrame({"time": rng.uniform(0, 3, 300)})
fallen = pd.Series(4.905 * rows["time"] ** 2 + 0.05 * rng.normal(size=300), name="distance")

# %%
law = isr.EQLRegressor(
    library={"constant": 1, "id": 1, "square": 1},
    units={"time": "s", "distance": "m"},
    training=isr.Training("quick", n_restarts=2),
    random_state=0,
).fit(rows, fallen)
print(law.expressions_.text())
print(law.front_)

# %%
times = pd.DataFrame({"time": np.linspace(0, 3, 100)})
figure, (top, below) = plt.subplots(2, 1, figsize=(6, 5), sharex=True, height_ratios=[2, 1])
top.plot(rows["time"], fallen, ".", ms=3)
top.plot(times["time"], law.predict(times))
top.set(ylabel="distance (m)")
below.plot(rows["time"], fallen - law.predict(rows), ".", ms=3)
below.axhline(0, color="0.5")
below.set(xlabel="time (s)", ylabel="residual (m)")
plt.savefig("regression.png", dpi=150)

# %% [markdown]
# **When not to trust it.** Where residuals show a pattern; where a simpler formula of the front is as accurate within
# the noise; and beyond the times that were measured. A formula that fits is not yet the law: many do.
