"""A law with units from measurements: the distance fallen is half of g times t squared."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import isr

rng = np.random.default_rng(0)
rows = pd.DataFrame({"time": rng.uniform(0, 3, 500)})
fallen = pd.Series(4.905 * rows["time"] ** 2 + 0.01 * rng.normal(size=500), name="distance")

law = isr.EQLRegressor(
    library={"constant": 1, "id": 1, "square": 1},
    units={"time": "s"},
    training=isr.Training("quick", n_restarts=2),
    random_state=0,
).fit(rows, fallen)
print(law.expressions_.text())
print(law.expressions_.code("c"))

times = pd.DataFrame({"time": np.linspace(0, 3, 100)})
plt.plot(rows["time"], fallen, ".", ms=3)
plt.plot(times["time"], law.predict(times))
plt.xlabel("time (s)")
plt.ylabel("distance (m)")
plt.savefig("regression.png", dpi=150)
