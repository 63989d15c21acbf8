"""Methods of simulation-based inference behind one face: learn from pairs of a task, then give posteriors.

A method takes a task of `sbibm_tasks`, rows of x and of y, and a seed. What it returns has ``posterior(y)``, which has
``sample(n)``. A sequential method learns more when it is asked for a posterior: it has the task, and so the simulator.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

import isr
from sbibm_tasks import Task

Method = Callable[[Task, np.ndarray, np.ndarray, int], Any]


def accurate(task: Task, x: np.ndarray, y: np.ndarray, seed: int) -> Any:
    """`isr.ConditionalISR` for accuracy."""
    return isr.ConditionalISR(goal="accurate", noise=0.0, bounds=task.bounds, random_state=seed).fit(x, y)


def short(task: Task, x: np.ndarray, y: np.ndarray, seed: int) -> Any:
    """`isr.ConditionalISR` as it comes."""
    return isr.ConditionalISR(noise=0.0, bounds=task.bounds, random_state=seed).fit(x, y)


def inversion(task: Task, x: np.ndarray, y: np.ndarray, seed: int) -> Any:
    """`isr.Inversion`, which knows the prior where its variables are independent."""
    prior = None if task.prior else {f"x{i + 1}": law for i, law in enumerate(task.marginals)}
    return isr.Inversion(prior, random_state=seed).fit(x, y)


# What is known of how y was measured: columns of each channel, days between them, and the noise where it is counted.
SERIES = {
    "lotka_volterra": ({"prey": range(10), "predator": range(10, 20)}, 2.1, "auto"),
    "sir": ({"ill": range(10)}, 17.0, "binomial(1000)"),
}


def motion(task: Task, x: np.ndarray, y: np.ndarray, seed: int) -> Any:
    """`isr.Inversion`, told which columns are one channel measured again and again."""
    series, step, noise = SERIES[task.name]
    prior = {f"x{i + 1}": law for i, law in enumerate(task.marginals)}
    times = step * np.arange(10)
    return isr.Inversion(prior, noise, series=series, times=times, random_state=seed).fit(x, y)


def sbi_npe(task: Task, x: np.ndarray, y: np.ndarray, seed: int) -> Any:
    """sbi's NPE with a neural spline flow, as in its tutorials; x with a bounded prior is opened by sbi itself."""
    import torch
    from sbi.inference import NPE

    torch.manual_seed(seed)
    torch.set_num_threads(1)
    rows = [torch.as_tensor(a, dtype=torch.float32) for a in (x, y)]
    trainer = NPE(density_estimator="nsf", show_progress_bars=False)
    estimator = trainer.append_simulations(*rows).train()
    learned = trainer.build_posterior(estimator, prior=_torch_prior(task))

    def posterior(y_star: np.ndarray) -> Any:
        given = torch.as_tensor(y_star, dtype=torch.float32)
        return SimpleNamespace(
            sample=lambda n: learned.sample((n,), x=given, show_progress_bars=False).numpy()
        )

    return SimpleNamespace(posterior=posterior)


def _torch_prior(task: Task) -> Any:
    import torch
    from sbi.utils import BoxUniform, MultipleIndependent
    from torch.distributions import LogNormal, MultivariateNormal

    from sbibm_tasks import glm_covariance

    if task.prior is not None:
        return MultivariateNormal(torch.zeros(10), torch.as_tensor(glm_covariance(), dtype=torch.float32))
    first = task.marginals[0]
    low, high = first.support()
    if np.isfinite(high):
        return BoxUniform(low * torch.ones(len(task.marginals)), high * torch.ones(len(task.marginals)))
    if np.isfinite(low):
        laws = [(np.log(m.median()), m.args[0]) for m in task.marginals]
        return MultipleIndependent([LogNormal(torch.tensor([a]), torch.tensor([b])) for a, b in laws])
    variance = float(first.var())
    return MultivariateNormal(torch.zeros(len(task.marginals)), variance * torch.eye(len(task.marginals)))


METHODS: dict[str, tuple[Method, tuple[str, ...]]] = {
    "isr accurate": (accurate, ()),
    "isr short": (short, ()),
    "isr Inversion": (inversion, ()),
    "isr series": (motion, ()),
    "sbi NPE": (sbi_npe, ("torch", "sbi")),
}
