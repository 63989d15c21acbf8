"""A primitive of your own: write it in JAX, and equations, inverse and exports follow."""

import jax
import matplotlib.pyplot as plt
import numpy as np

import isr

isr.register_primitive("softplus", jax.nn.softplus)

rng = np.random.default_rng(0)
a = rng.normal(size=2000)
rows = np.column_stack([a, np.log1p(np.exp(2 * a)) + 0.1 * rng.normal(size=2000)])
flow = isr.SymbolicFlow(
    library={"constant": 1, "id": 1, "softplus": 1},
    training=isr.Training("quick", n_restarts=4),
    random_state=0,
).fit(rows)
print(flow.expressions_)
print(flow.expressions_.code("javascript")[:300])

plt.plot(*rows.T, ".", ms=2, label="data")
plt.plot(*flow.sample(1000).T, ".", ms=2, label="drawn")
plt.legend()
plt.savefig("own_parts.png", dpi=150)
