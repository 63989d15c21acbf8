# %% [markdown]
# # Many observations, and which of two laws?
#
# A stone falls down a well; the depth is wanted, the time of the splash is heard. Does the sound's way up matter?
# Two laws are stated, twelve measurements are made, and the evidence decides between them.

# %%
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import isr

rng = np.random.default_rng(0)
depth = rng.uniform(5, 60, 1000)  # m


def splash(depth, n):
    return np.sqrt(2 * depth / 9.81) + depth / 343 + 0.03 * rng.normal(size=n)  # s, with the sound's way


x, y = pd.DataFrame({"depth": depth}), pd.DataFrame({"time": splash(depth, 1000)})
without = isr.Inversion(prior={"depth": (5, 60)}, law="0.4515*sqrt(depth)", fallback=False, random_state=0)
with_sound = isr.Inversion(prior={"depth": (5, 60)}, law="0.4515*sqrt(depth) + depth/343", random_state=0)
models = {"without sound": without.fit(x, y), "with sound": with_sound.fit(x, y)}
for name, model in models.items():
    print(f"{name}: {model.law_}; {model.verdict_}")

# %% [markdown]
# Twelve measurements of one well, 31 m deep. Their likelihoods multiply; the log-evidence compares the laws.

# %%
heard = splash(31.0, 12)[:, None]
posteriors = {name: model.posterior(heard) for name, model in models.items()}
for name, post in posteriors.items():
    depths = post.sample(4000)[:, 0]
    print(f"{name}: depth {depths.mean():.2f} ± {depths.std():.2f} m, log-evidence {post.log_evidence:.1f}")

# %%
plt.figure(figsize=(6, 3))
for name, post in posteriors.items():
    plt.hist(post.sample(4000)[:, 0], bins=40, density=True, alpha=0.6, label=name)
plt.axvline(31.0, color="red", ls="--", label="truth")
plt.xlabel("depth (m)")
plt.yticks([])
plt.legend()
plt.savefig("evidence.png", dpi=150)

# %% [markdown]
# **When not to trust it.** Evidence compares the laws that were stated, under the priors that were stated; a wider
# prior lowers it. A law that `verdict_` refutes gives a wrong answer: the first one puts the water two metres too deep.
