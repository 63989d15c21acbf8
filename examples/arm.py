"""A robot arm backwards: which joint angles reach a point?"""

import matplotlib.pyplot as plt
import numpy as np

import isr
from isr.problems import kinematics

x = kinematics.sample_prior(20_000, 0)
y = kinematics.forward(x)
model = isr.ConditionalISR(
    n_blocks=4,
    n_layers=2,
    noise=0.01,
    training=isr.Training("quick", penalty=None, n_restarts=1),
    random_state=0,
).fit(x, y)
print(f"{model.expressions_.n_constants} constants; the first equations of the inverse:")
print("\n".join(model.expressions_.text("inverse").splitlines()[:8]))

posterior = model.posterior([0.0, 1.5])
draws = posterior.sample(200)
reached = kinematics.forward(draws)
print(f"distance from the target: {np.sqrt(np.mean(np.sum((reached - [0.0, 1.5]) ** 2, axis=1))):.3f}")

plt.plot(*reached.T, ".", ms=3)
plt.plot(0.0, 1.5, "k+", ms=12)
plt.savefig("arm.png", dpi=150)
