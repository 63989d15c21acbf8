# %% [markdown]
# # Two voltages, temperature and pressure
#
# A sensor gives two voltages, and each depends on both temperature and pressure. From 1,000 calibration rows
# `Inversion` finds the law of the voltages, the law of the unknowns, and from both the exact posterior.

# %%
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import isr

rng = np.random.default_rng(0)
temperature, pressure = rng.uniform(0, 80, 1000), rng.uniform(1, 3, 1000)
unknown = pd.DataFrame({"temperature": temperature, "pressure": pressure})
volts = np.column_stack([0.02 * temperature * pressure, 0.5 * pressure + 0.001 * temperature])
measured = pd.DataFrame(volts + 0.02 * rng.normal(size=volts.shape), columns=["u1", "u2"])

# %%
model = isr.Inversion(units={"temperature": "°C", "pressure": "bar"}, random_state=0).fit(unknown, measured)
print(model.law_)
print(model.prior_)
print(model.verdict_)

# %% [markdown]
# The formulas found are those that made the rows. Now 1.6 V and 1.04 V are measured; in truth it is 40 °C and 2 bar.

# %%
posterior = model.posterior([1.6, 1.04])
posterior.summary().round(3)

# %%
posterior.plot(truth=[40, 2])
plt.savefig("sensor.png", dpi=150)

# %% [markdown]
# **When not to trust it.** Where `verdict_` says that the law is refuted; where `posterior.warning` is not empty (the
# observation does not fit, or the weights of the draws are too unequal); and where the sensor is used outside the
# range it was calibrated in: the law may go on, but nothing was measured there.
