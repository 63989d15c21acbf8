# %% [markdown]
# # Your own simulator
#
# Any function from rows of x to rows of y will do. Here a ball rolls off a table; unknown are the table's height and
# the ball's speed, and where it lands is measured to 2 cm. One number cannot fix two unknowns: the answer is a curve.

# %%
import matplotlib.pyplot as plt
import numpy as np

import isr

rng = np.random.default_rng(0)
prior = {"height": (0.5, 2.0), "speed": (1.0, 5.0)}  # uniform, in m and m/s


def landing(x):
    height, speed = x.T
    return speed * np.sqrt(2 * height / 9.81) + 0.02 * rng.normal(size=len(x))


# %%
model = isr.Inversion(units={"height": "m", "speed": "m/s", "y1": "m"}, random_state=0)
model.fit_simulator(prior, landing, 2000)
print(model.law_)
print(model.verdict_)

# %% [markdown]
# The truth is $y = v\,\sqrt{2h/g}$, with $\sqrt{2/g} = 0.4515$.

# %%
posterior = model.posterior([2.0])
draws = posterior.sample(2000)
print(posterior.summary().round(3))
print(f"re-simulated: {landing(draws).mean():.3f} ± {landing(draws).std():.3f} m")

# %%
height = np.linspace(0.5, 2.0, 100)
plt.figure(figsize=(5, 3.6))
plt.plot(*draws.T, ".", ms=2, label="posterior")
plt.plot(height, 2.0 / np.sqrt(2 * height / 9.81), "k-", lw=1, label="lands at 2 m exactly")
plt.xlabel("height (m)")
plt.ylabel("speed (m/s)")
plt.legend()
plt.savefig("simulator.png", dpi=150)

# %% [markdown]
# **When not to trust it.** Where the simulator leaves out what the experiment has: the posterior is exact for the
# simulator, not for nature. And where `posterior.warning` says that the observation does not fit.
