"""SGD on sampled regression data, beside the exact recursion: the check that needs no theory."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bss.theory.regression import Stage, Task


@dataclass(frozen=True)
class Sampled:
    """Mean excess risk of the runs after each step [K + 1], and its standard error [K + 1]."""

    mean: np.ndarray
    standard_error: np.ndarray


def simulate(task: Task, run: Sequence[Stage], *, runs: int, seed: int) -> Sampled:
    """Trains `runs` models, 2 at least, on Gaussian samples of their own.

    The stages have whole batches and steps; the seed is that of the samples.
    """
    draw = np.random.default_rng(seed)
    scale, target = np.sqrt(task.eigenvalues), np.sqrt(task.target)
    weights = np.zeros((runs, task.modes))
    risks = [0.5 * (weights - target) ** 2 @ task.eigenvalues]
    for stage in run:
        for _ in range(int(stage.steps)):
            shape = (runs, int(stage.batch), task.modes)
            features = scale * draw.standard_normal(shape)
            labels = draw.standard_normal(shape[:2]) * np.sqrt(task.noise)
            errors = np.einsum("rbm,rm->rb", features, weights - target) - labels
            gradient = np.einsum("rb,rbm->rm", errors, features) / shape[1]
            weights = weights - stage.rate * gradient
            risks.append(0.5 * (weights - target) ** 2 @ task.eigenvalues)
    table = np.array(risks)
    return Sampled(table.mean(axis=1), table.std(axis=1, ddof=1) / np.sqrt(runs))
