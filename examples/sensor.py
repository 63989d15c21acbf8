"""Temperature and pressure from two voltages: a posterior inside the sensor's range."""

import matplotlib.pyplot as plt
import numpy as np

import isr

rng = np.random.default_rng(0)
temperature, pressure = rng.uniform(0, 80, 5000), rng.uniform(1, 3, 5000)
unknown = np.column_stack([temperature, pressure])
volts = np.column_stack([0.02 * temperature * pressure, 0.5 * pressure + 0.001 * temperature])
measured = volts + 0.02 * rng.normal(size=volts.shape)

model = isr.ConditionalISR(
    noise=0,  # the rows hold their noise already
    bounds=[(0, 80), (1, 3)],
    training=isr.Training("quick", n_restarts=2),
    random_state=0,
).fit(unknown, measured)
print(model.expressions_.text("inverse"))

truth = np.array([40.0, 2.0])
posterior = model.posterior([0.02 * 40 * 2, 0.5 * 2 + 0.04])
print(posterior.summary())

draws = posterior.sample(2000)
plt.plot(*draws.T, ".", ms=2, label="posterior")
plt.plot(*truth, "k+", ms=12, label="truth")
plt.xlabel("temperature (°C)")
plt.ylabel("pressure (bar)")
plt.legend()
plt.savefig("sensor.png", dpi=150)
