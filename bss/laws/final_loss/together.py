"""Where the best batches of all (N, D) lie, each by its own runs and all by a power law of them.

log B_opt = β·(1, log N, log D) + ε: every cell departs from the power law by its own ε of standard
deviation τ, and its runs say how probable each best batch is (`bss.points.valley`). β has a wide
prior about what is published, τ lies on a grid, and the cells' own probabilities, which need be no
normal ones, are put together by expectation propagation (Minka, 2001). A cell with a sharp valley
so keeps its own best batch, one without is told by the others, and an open end says what it can
(the model is derived here).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bss.laws.final_loss.elsewhere import PowerOfBest
from bss.points.valley import Valley

MISFITS = np.geomspace(0.02, 0.8, 9)  # of log B_opt
USUAL = 0.2  # standard deviation of a half-normal prior of the misfit
LEVEL_KNOWN = 4.0  # standard deviations of the prior of a level and of exponents
EXPONENTS = {"params": (0.0, 0.35), "tokens": (0.45, 0.3)}
FINE = 8  # points of the grid for one of the valley's
SWEEPS = 12
DRAWS = 200  # of the power law that are kept
VAGUE = 1e-6  # precision of a cell that says nothing


@dataclass(frozen=True)
class Together:
    """What all cells say.

    Attributes:
        posterior: per cell its grid of log B_opt [G] and the probability of each, by all cells.
        others: [n], mean of log B_opt of each cell by the others alone.
        law: the power law.
    """

    posterior: list[tuple[np.ndarray, np.ndarray]]
    others: np.ndarray
    law: PowerOfBest


def together(
    params: np.ndarray,
    tokens: np.ndarray,
    cells: Sequence[Valley | None],
    reach: tuple[float, float],
) -> Together:
    """Best batches of cells [n] at N and D, by their valleys; None for one that says nothing.

    Args:
        params, tokens: [n].
        cells: [n].
        reach: the smallest and largest batch measured in all cells, in tokens.
    """
    sizes = {"params": np.log(params), "tokens": np.log(tokens)}
    varied = {name: x for name, x in sizes.items() if np.ptp(x) > np.log(1.05)}
    centre = np.array([(x.min() + x.max()) / 2 for x in varied.values()])
    design = np.stack([np.ones(len(params)), *varied.values()], axis=1)
    design[:, 1:] -= centre
    grids = [_fine(cell, reach) for cell in cells]
    middle = float(np.mean(np.log(reach)))
    known = [float(w @ x) for x, w in grids]
    prior = np.array([np.mean(known) if known else middle, *(EXPONENTS[n][0] for n in varied)])
    width = np.array([LEVEL_KNOWN, *(EXPONENTS[n][1] for n in varied)])
    each = [_propagated(design, grids, prior, width, misfit) for misfit in MISFITS]
    logs = np.array([one.evidence for one in each]) - (MISFITS / USUAL) ** 2 / 2 + np.log(MISFITS)
    share = np.exp(logs - logs.max())
    share /= share.sum()
    weights = [share @ np.array(of_cell) for of_cell in zip(*(x.weight for x in each), strict=True)]
    posterior = [(grid, weight) for (grid, _), weight in zip(grids, weights, strict=True)]
    others = share @ np.array([one.others for one in each])
    theta = share @ np.array([one.beta for one in each])
    law = PowerOfBest(tuple(varied), centre, theta, _draws(each, share))
    return Together(posterior, others, law)


@dataclass(frozen=True)
class _Propagated:
    """Of one misfit: weights on the grids, means by the others [n], β, evidence."""

    misfit: float
    weight: list[np.ndarray]
    others: np.ndarray
    beta: np.ndarray
    covariance: np.ndarray
    evidence: float


def _fine(cell: Valley | None, reach: tuple[float, float]) -> tuple[np.ndarray, np.ndarray]:
    """A finer grid of log B and the probability of each; flat for a cell that says nothing."""
    if cell is None:
        ends = np.log(reach)
        grid = np.linspace(ends[0] - 3, ends[1] + 3, 1001)
        return grid, np.full(len(grid), 1 / len(grid))
    x = cell.log_batch
    grid = np.linspace(x[0], x[-1], FINE * (len(x) - 1) + 1)
    weight = np.exp(np.interp(grid, x, np.log(np.maximum(cell.weight, 1e-30))))
    return grid, weight / weight.sum()


def _propagated(
    design: np.ndarray,
    grids: list[tuple[np.ndarray, np.ndarray]],
    prior: np.ndarray,
    width: np.ndarray,
    misfit: float,
) -> _Propagated:
    """Expectation propagation at one misfit."""
    count = len(grids)
    K = (design * width**2) @ design.T + misfit**2 * np.eye(count)
    m, inverse = design @ prior, np.linalg.inv(K)
    precision, shift = np.full(count, VAGUE), VAGUE * m
    weight: list[np.ndarray] = [w for _, w in grids]
    cavity, norm = np.zeros((count, 2)), np.zeros(count)
    for sweep in range(SWEEPS):
        covariance = np.linalg.inv(inverse + np.diag(precision))
        mean = covariance @ (inverse @ m + shift)
        variance = np.diag(covariance)
        left = np.maximum(1 / variance - precision, 1e-9)
        cavity = np.stack([(mean / variance - shift) / left, 1 / left], axis=1)
        new = np.zeros((2, count))
        for i, (x, likelihood) in enumerate(grids):
            density = np.exp(-((x - cavity[i, 0]) ** 2) / 2 * left[i]) * np.sqrt(left[i])
            tilted = likelihood * density
            total = tilted.sum()
            norm[i] = np.log(max(total, 1e-300))
            tilted = tilted / max(total, 1e-300)
            first = tilted @ x
            second = max(float(tilted @ (x - first) ** 2), 1e-6)
            site = max(1 / second - left[i], VAGUE)
            away = first / second - left[i] * cavity[i, 0]
            new[:, i] = site, away if site > VAGUE else VAGUE * m[i]
            weight[i] = tilted
        part = 1.0 if sweep < 1 else 0.7
        precision, shift = (1 - part) * np.array([precision, shift]) + part * new
    at, spread = shift / precision, 1 / precision
    total = K + np.diag(spread)
    rest = at - m
    evidence = -0.5 * np.linalg.slogdet(total)[1] - 0.5 * rest @ np.linalg.solve(total, rest)
    both = cavity[:, 1] + spread
    evidence += np.sum(norm + 0.5 * np.log(both) + (cavity[:, 0] - at) ** 2 / (2 * both))
    noise = 1 / (misfit**2 + spread)
    precise = np.diag(1 / width**2) + (design.T * noise) @ design
    covariance = np.linalg.inv(precise)
    beta = covariance @ (prior / width**2 + (design.T * noise) @ at)
    return _Propagated(misfit, weight, cavity[:, 0], beta, covariance, float(evidence))


def _draws(each: list[_Propagated], share: np.ndarray) -> np.ndarray:
    generator = np.random.default_rng(0)
    rows = []
    for i in generator.choice(len(each), DRAWS, p=share):
        one = each[i]
        beta = generator.multivariate_normal(one.beta, one.covariance)
        rows.append([*beta, one.misfit])
    return np.round(np.array(rows), 9)
