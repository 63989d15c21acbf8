# %% [markdown]
# # Ballistics: no short law
#
# A ball is thrown in air with drag. Its reach follows from height, angle and speed through Lambert's function, so no
# short formula gives it. `ConditionalISR` learns the posterior itself: equations that read the reach.

# %%
import matplotlib.pyplot as plt
import numpy as np

import isr
from isr.posterior.metrics import c2st
from isr.problems import ballistics

x = ballistics.sample_prior(30_000, 0)
y = ballistics.forward(x)

# %%
model = isr.ConditionalISR(
    n_blocks=4,
    noise=0.05,  # the reach is measured to 5 cm
    bounds=[
        (None, None),
        (0, None),
        ballistics.ANGLES,
        (0, None),
    ],  # angles of the prior, nothing below the ground
    training=isr.Training("quick", penalty=None, n_restarts=1),  # every weight: accurate, not short
    random_state=0,
).fit(x, y)
print(model.status_, "-", model.expressions_.n_constants, "constants")

# %%
posterior = model.posterior([5.0])
draws = posterior.sample(2000)
exact = ballistics.sample_posterior([5.0], 2000, random_state=1)
print(
    f"share of draws that a classifier tells from exact ones: {c2st(draws, exact, random_state=0):.2f} (0.5 is perfect)"
)

# %%
figure, axes = plt.subplots(1, 2, figsize=(8, 3), sharex=True, sharey=True)
for ax, drawn, title in zip(axes, (exact, draws), ("exact", "equations"), strict=True):
    ax.plot(np.degrees(drawn[:, 2]), drawn[:, 3], ".", ms=2)
    ax.set(title=f"{title}: throws that land at 5 m", xlabel="angle (°)", ylabel="speed (m/s)")
plt.savefig("ballistics.png", dpi=150)

# %% [markdown]
# **When not to trust it.** These equations are long and prove nothing about the physics. The speeds of the prior are
# whole numbers, which no smooth density shows: the exact posterior lies on lines, the model's between them. Judge a
# posterior by [calibration](../inference.md) and by draws put through the simulator again.
