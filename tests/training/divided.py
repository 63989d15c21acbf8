"""Training over several devices or processes, run as a program of its own: ``divided.py devices|process …``.

JAX fixes its devices when it starts, so a test cannot have several of them in its own process.
"""

import sys

import jax
import jax.numpy as jnp
import numpy as np

jax.config.update("jax_enable_x64", True)


def loss(weights, batch, key, moment):
    noise = 0.1 * jax.random.normal(key, batch["y"].shape, batch["y"].dtype)
    return jnp.mean((jnp.tanh(weights[:4] @ batch["x"]) * weights[4] - batch["y"][0] - noise[0]) ** 2)


def rows(seed, dtype=float):
    x = np.random.default_rng(seed).normal(size=(4, 256))
    return {"x": x.astype(dtype), "y": np.tanh(2 * x[:1] - x[2:3]).astype(dtype)}


def train(n_devices):
    from isr.training.loop import Phase
    from isr.training.population import Schedule
    from isr.training.population import train as train_population

    phases = (Phase("warm up", 6), Phase("sparsify", 6), Phase("refit", 2, 3e-3))
    weights = np.random.default_rng(1).normal(size=(3, 5)).astype(np.float32)
    schedule = Schedule(phases, (1e-3, 1e-2), batch_size=32, threshold=0.01)
    return train_population(loss, weights, rows(0), rows(1), schedule, jax.random.key(0), n_devices=n_devices)


def gradients(n_devices):
    """The gradient of one batch on one device and divided among several, in doubles, and the program that does it."""
    from isr.training.devices import divided, everywhere, rows_mesh

    mesh = rows_mesh(n_devices, 256)
    weights, batch, key = (
        jnp.linspace(-1, 1, 5),
        {k: jnp.asarray(v) for k, v in rows(0).items()},
        jax.random.key(3),
    )
    alone = jax.jit(jax.grad(loss))(weights, batch, key, 0)
    together = jax.jit(jax.grad(lambda w, b, k: loss(w, divided(b, mesh), k, 0)))
    program = together.lower(*everywhere((weights, batch, key), mesh)).compile().as_text()
    return np.asarray(alone), np.asarray(together(*everywhere((weights, batch, key), mesh))), program


def main():
    if sys.argv[1] == "devices":
        alone, together, program = gradients(4)
        error = np.max(np.abs(together - alone)) / np.max(np.abs(alone))
        found = train(4)
        print("gradient", error < 1e-14, "all-reduce" in program)
        single = train(None)
        print("training", np.allclose(found.weights, single.weights, rtol=1e-3, atol=1e-4))
    else:
        _, _, address, number = sys.argv
        jax.distributed.initialize(address, num_processes=2, process_id=int(number))
        assert (jax.device_count(), jax.local_device_count()) == (2, 1)
        found = train(2)
        print("weights", repr(np.asarray(found.weights).tolist()))


if __name__ == "__main__":
    main()
