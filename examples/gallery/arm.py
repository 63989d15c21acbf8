# %% [markdown]
# # An arm, backwards
#
# An arm on a rail has a height and three joints. Its hand is at $y_1 = h + \tfrac12\sin a_1 + \tfrac12\sin(a_1 + a_2)
# + \sin(a_1 + a_2 + a_3)$, and $y_2$ likewise with cosines. Which arms reach a given point? Infinitely many.

# %%
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import isr
from isr.problems import kinematics

rng = np.random.default_rng(1)
arms = kinematics.sample_prior(2000, 0)
hands = kinematics.forward(arms) + 0.01 * rng.normal(size=(2000, 2))  # measured to a centimetre
x = pd.DataFrame(arms, columns=kinematics.X_NAMES)
y = pd.DataFrame(hands, columns=kinematics.Y_NAMES)

# %%
model = isr.Inversion(random_state=0).fit(x, y)
print(model.law_)
print(model.verdict_)

# %%
target = [0.0, 1.5]
posterior = model.posterior(target)
draws = posterior.sample(1000)
miss = np.linalg.norm(kinematics.forward(draws) - target, axis=1)
print(posterior.summary().round(3))
print(f"half of the draws reach the target to within {np.median(miss):.3f}")

# %%
figure, axes = plt.subplots(1, 2, figsize=(8, 4), sharex=True, sharey=True)
exact = kinematics.sample_posterior(target, 1000, random_state=2)
for ax, drawn, title in zip(
    axes, (exact, draws), ("exact posterior", "posterior of the law found"), strict=True
):
    kinematics.plot_arms(ax, drawn, target)
    ax.set_title(title)
plt.savefig("arm.png", dpi=150)

# %% [markdown]
# **When not to trust it.** Where `verdict_` says that the law is refuted and no flow does better; and for targets far
# from every hand in the rows. Compare with an exact sampler wherever one exists, as the figure does.
