# %% [markdown]
# # The ocean floor by sound
#
# A source sounds three tones three kilometres away; one hydrophone hears them. Water depth and the sediment's sound
# speed are wanted. `isr.ocean` computes the field by normal modes; a small model is learned from 2,000 simulations.

# %%
import matplotlib.pyplot as plt
import numpy as np

import isr
from isr.ocean import TRUTH, pressure, swellex96

TONES = [49.0, 79.0, 112.0]  # Hz
field = pressure(swellex96(m1=TRUTH[0], m2=TRUTH[1]), TONES, n_jobs=1)[:, -1]  # at the deepest hydrophone
scale = np.abs(field)


def one_hydrophone(x):
    sites = [swellex96(m1=depth, m2=speed) for depth, speed in x]
    return pressure(sites, TONES, n_jobs=1, progress=False, on_error="nan")[:, :, -1] / scale


prior = {"water depth": (200.5, 236.5), "sediment speed": (1532.0, 1592.0)}

# %%
model = isr.ConditionalISR(
    n_blocks=3,
    n_layers=2,
    library={"constant": 1, "id": 2, "sin": 3, "product": 2},
    noise=0.1,
    units={"water depth": "m", "sediment speed": "m/s"},
    training=isr.Training("quick", n_restarts=1, penalty=None),
    random_state=0,
)
model.fit_simulator(prior, one_hydrophone, 2000)
print(model.status_)

# %%
heard = field / scale
posterior = model.posterior(np.stack([heard.real, heard.imag], axis=1).ravel())
print(posterior.summary().round(2))
posterior.plot(truth=TRUTH[:2])
plt.savefig("ocean.png", dpi=150)

# %% [markdown]
# **When not to trust it.** Small on purpose: [the full problem](../geoacoustics.md) has 21 hydrophones, seven tones and
# 50,000 simulations. One hydrophone hardly hears the sediment's speed, and a fit of 2,000 rows is too wide.
