"""BayesFlow's basic workflow with its default coupling flow, on Keras's JAX backend, stopped when a budget is spent."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np

os.environ.setdefault("KERAS_BACKEND", "jax")

import bayesflow as bf
import keras

BATCH = 100
# The learning rate follows the budget from epoch to epoch, so an epoch is a small part of it.
STEPS_AN_EPOCH = 500
FAR_MORE_EPOCHS = 100_000


def train(
    x: np.ndarray, y: np.ndarray, clock: Any, *, seed: int
) -> tuple[Callable[[np.ndarray, int], np.ndarray], int, int]:
    """Train until the budget is spent; return what draws, the number of steps and of parameters.

    Args:
        x: Standardised rows of parameters.
        y: Standardised rows of observations.
        clock: Tells what is ``spent`` of its ``budget`` and the learning ``rate`` that is due.
        seed: Of weights and batches.
    """

    class Stop(keras.callbacks.Callback):
        n_steps = 0

        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            self.model.optimizer.learning_rate = clock.rate()  # type: ignore[union-attr]

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            self.n_steps += 1
            if clock.spent() >= clock.budget:
                self.model.stop_training = True  # type: ignore[union-attr]

    keras.utils.set_random_seed(seed)
    rng = np.random.default_rng(seed)

    def some_rows(batch_shape: tuple[int, ...]) -> dict[str, np.ndarray]:
        rows = rng.integers(len(x), size=batch_shape[0])
        return {"x": x[rows], "y": y[rows]}

    workflow = bf.BasicWorkflow(
        simulator=bf.simulators.LambdaSimulator(some_rows, is_batched=True),
        inference_network=bf.networks.CouplingFlow(), inference_variables=["x"], inference_conditions=["y"],
        optimizer=keras.optimizers.Adam(clock.rate(), clipnorm=1.5), standardize=None,
    )  # fmt: skip
    stop = Stop()
    workflow.fit_online(
        epochs=FAR_MORE_EPOCHS,
        num_batches_per_epoch=STEPS_AN_EPOCH,
        batch_size=BATCH,
        callbacks=[stop],
        verbose=0,
    )
    n_parameters = sum(int(np.prod(w.shape)) for w in workflow.approximator.trainable_weights)

    def sample(observed: np.ndarray, n: int) -> np.ndarray:
        drawn = workflow.sample(num_samples=n, conditions={"y": observed.astype(np.float32)})
        return np.asarray(drawn["x"]).reshape(n, -1)

    return sample, stop.n_steps, n_parameters
