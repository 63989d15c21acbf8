"""What the geoacoustic inversion trains, and how much of everything: models, stages and sizes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from isr.estimators.inverse import ISR, ConditionalISR, InverseModel
from isr.estimators.settings import Condenser, Effort, Training
from isr.paper.kinematics import LIBRARY, WIDER

TRAINING = Training(n_restarts=1, penalty=None, batch_size=200, selection="accuracy", verbose=False)
ARRAY: dict[str, Any] = {"n_blocks": 4, "n_layers": 2, "library": LIBRARY, "condenser": Condenser(16)}
ONE_OBSERVATION: dict[str, Any] = {"n_blocks": 2, "n_layers": 1, "library": LIBRARY}
# In the last box pressures are nearly linear in the parameters: as many weighted sums of them as there are parameters
# tell as much as a network does, and can be read.
REFINED = ("refined", "refined linear")
# Pressures oscillate with depth, and the inverse of that takes many sines: C2ST 0.81 with four of them in a layer, 0.78
# with six, 0.73 with ten, 0.72 with fourteen, 0.66 with twenty, all trained for about as long as the cINN.
SINES = {"constant": 1, "id": 2, "sin": 20, "sigmoid": 4, "product": 4}
MODELS: dict[str, tuple[type[InverseModel], dict[str, Any]]] = {
    "INN": (ISR, {"subnet": "mlp"}),
    "cINN": (ConditionalISR, {"subnet": "mlp"}),
    "ISR": (ISR, {"library": LIBRARY}),
    "cISR": (ConditionalISR, {"library": SINES}),
    "cISR condensed": (ConditionalISR, {"condenser": Condenser(24, kind="wide network"), "library": WIDER}),
    "cISR sparse": (ConditionalISR, ONE_OBSERVATION),
}
# Share of the measurement noise that the joint form takes as its own: with [m, noise] as input y is a function of x.
JOINT_NOISE = 0.2


@dataclass(frozen=True)
class Size:
    """How much is simulated, trained and judged.

    Args:
        n_simulations: Environments simulated for training.
        hydrophone: Training of the joint one-hydrophone models.
        network: Training of the cINN, by the learning rate that suits it best.
        equations: Training of the cISR; as long as the cINN takes.
        condensed: Training of the one with a conditioning network; likewise.
        sparse: Training of the sparse one.
        sparse_seconds: How long that and the elimination after it may take.
        array: Training of the amortised model of the array.
        refined: Training of each truncated round.
        n_refined: Rows of each truncated round.
        n_rounds: Truncated rounds at most.
        n_observations: Simulated observations judged against exact posteriors.
        n_calibration: Simulated observations judged by calibration.
        lattice: Cells of the first grid of task 1.
        n_pool: Prior draws that start the references of task 2.
        n_steps: Steps of the walkers of those.
        shape: Of the one-hydrophone models.
    """

    n_simulations: int
    hydrophone: Effort
    network: Effort
    equations: Effort
    condensed: Effort
    sparse: Effort
    sparse_seconds: float
    array: Effort
    refined: Effort
    n_refined: int
    n_rounds: int
    n_observations: int
    n_calibration: int
    lattice: tuple[int, int]
    n_pool: int
    n_steps: int
    shape: dict[str, int]


# Five blocks of four layers, batches of 200 and a hydrophone an example are the paper's.
FULL = Size(
    50_000, Effort(12_000, 12_000, 0, peak=2e-3), Effort(12_000, 12_000, 0, peak=6e-3),
    Effort(13_000, 13_000, 0, peak=6e-3), Effort(20_000, 20_000, 0, peak=6e-3),
    Effort(8_000, 12_000, 4_000, peak=3e-3), 400.0, Effort(30_000, 0, 0, peak=2e-3), Effort(4_000, 0, 0, peak=3e-3),
    5_000, 4, 20, 500, (720, 60), 50_000, 400,
    {"n_blocks": 5, "n_layers": 4},
)  # fmt: skip
QUICK = Size(
    2_000, Effort(500, 0, 0, peak=2e-3), Effort(500, 0, 0, peak=2e-3), Effort(500, 0, 0, peak=2e-3),
    Effort(500, 0, 0, peak=2e-3),
    Effort(0, 600, 100, peak=3e-3),
    20.0, Effort(800, 0, 0, peak=2e-3), Effort(800, 0, 0, peak=3e-3), 1_000, 3, 1, 100, (120, 20), 2_000, 120,
    {"n_blocks": 2, "n_layers": 1},
)  # fmt: skip
STAGES = (*MODELS, "array", *REFINED)
