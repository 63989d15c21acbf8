"""Runs that are made to be killed: each writes its result only at the end, and can be begun again at any time.

They live in a module of their own because the processes that run them import it.
"""

import time
from pathlib import Path

import numpy as np


def train_population(folder: str) -> None:
    """Train a tiny population with a checkpoint after every epoch."""
    import jax
    import jax.numpy as jnp

    from isr.tables.whole_files import write_arrays
    from isr.training import population
    from isr.training.loop import Phase
    from isr.training.monitor import Monitor

    class Slow(Monitor):
        def advance(self, note=""):
            time.sleep(0.002)  # time to be killed in

    def loss(weights, batch, key, moment):
        return jnp.mean((weights @ batch["x"] - batch["y"][0]) ** 2)

    def rows(seed):
        x = np.random.default_rng(seed).normal(size=(4, 64))
        return {"x": x, "y": (2 * x[:1] - x[2:3])}

    population.CHECKPOINT_SECONDS = -1.0
    # Without it most kills would fall into compiling, not into training.
    jax.config.update("jax_compilation_cache_dir", str(Path(folder).parent / "compiled"))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    phases = (Phase("warm up", 30), Phase("sparsify", 30), Phase("refit", 30, 3e-3))
    found = population.train(
        population.Task(loss, rows(0), rows(1)),
        population.Restarts(np.random.default_rng(1).normal(size=(3, 4)).astype(np.float32)),
        population.Schedule(phases, (1e-2, 3e-2), batch_size=16, threshold=0.05), 0,
        monitor=Slow(verbose=False), path=Path(folder) / "fit.checkpoint",
    )  # fmt: skip
    curves = np.concatenate([*found.history.train, *found.history.held_out])
    write_arrays(
        Path(folder) / "result.npz", {"weights": found.weights, "held_out": found.held_out, "curves": curves}
    )


def waves(x: np.ndarray) -> np.ndarray:
    time.sleep(0.002)
    return np.exp(1j * x) * x[:, ::-1]


def simulate_rows(folder: str) -> None:
    """Simulate 60 chunks into a folder."""
    from isr.posterior.simulation import simulate
    from isr.tables.whole_files import write_arrays

    prior = {"a": (-1.0, 1.0), "b": (0.0, 2.0)}
    found = simulate(
        prior, waves, 600, folder=Path(folder) / "rows", random_state=7, chunk_size=10, progress=False
    )
    write_arrays(Path(folder) / "result.npz", {"x": found.x, "y": found.y})


def fit_flow(folder: str) -> None:
    """Fit a tiny flow with a checkpoint after every epoch, and save it."""
    import isr
    from isr.estimators.settings import Effort
    from isr.training import population

    population.CHECKPOINT_SECONDS = -1.0
    x = np.random.default_rng(0).normal(size=(200, 2)) @ np.array([[1.0, 0.5], [0.0, 1.0]])
    model = isr.SymbolicFlow(
        charts=(),
        n_layers=1,
        training=isr.Training(
            Effort(400, 400, 100), n_restarts=2, verbose=False, checkpoint=Path(folder) / "fit.checkpoint"
        ),
        random_state=0,
        library={"constant": 1, "id": 1, "square": 1},
    ).fit(x)
    model.save(Path(folder) / "result.npz")


def save_many(folder: str, name: str, overwrite: bool) -> None:
    """Save models of different sizes to the same file again and again; ``wins`` counts how often that worked."""
    import jax.numpy as jnp

    from isr.bijections.formula import Formulas
    from isr.storage import Bundle, save

    wins = 0
    for size in range(1, 11):
        model = Formulas(jnp.arange(200.0 * size), (("constant", 0),), 1, 1)
        try:
            save(
                Bundle(model, metadata={"by": name, "size": size}),
                Path(folder) / "model.isr",
                overwrite=overwrite,
            )
            wins += 1
        except FileExistsError:
            pass
    (Path(folder) / f"wins-{name}").write_text(str(wins))
