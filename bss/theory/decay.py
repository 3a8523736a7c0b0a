"""The functional law under constant, WSD and exponentially decayed LRs, each at its best peak.

Li et al. (arXiv 2509.19189) at batch 1 and infinite width: with D samples a constant LR reaches
D^−s/(1+s). A decay does better. Over the whole run it reaches the best power of the task up to
logarithms. Here the LR falls exponentially from its peak to peak/D over the last part of the
samples. In intrinsic time this fall is a straight line (derived here).
"""

import math

import numpy as np

from bss.errors import check
from bss.theory.exponents import exponents, regime
from bss.theory.fsl import Drive, RiskLaw, law_curve, limit_law
from bss.theory.search import minimum

GRID = 30
_SMALLEST = -14.0  # logarithm of the rates tried
_TOLERANCE = 1e-6


def decayed_risk(law: RiskLaw, peak: float, data: float, share: float) -> float:
    """Return the law's risk after D samples one at a time.

    Args:
        law: which.
        peak: η before the decay.
        data: D.
        share: part of the samples over which the LR decays: 0 for a constant LR, 1 for an
            exponential decay, between them WSD.
    """
    _check(data, share)
    stable = (1 - share) * data * peak
    if share == 0:
        drive = Drive(lambda t: np.full_like(t, peak))
        end = stable
    else:
        fall = math.log(data) / (share * data)
        edges = (stable,) if share < 1 else ()
        drive = Drive(lambda t: peak - fall * np.maximum(t - stable, 0), edges)
        end = stable + peak * (1 - 1 / data) / fall
    return float(law_curve(law, drive, [end], tolerance=_TOLERANCE)[0])


def best_peak(source: float, capacity: float, data: float, share: float) -> tuple[float, float]:
    """Return the peak LR up to 1 with the lowest risk, and that risk; noise of variance 1.

    Arguments as in `decayed_risk`; the law is that of infinite width.
    """
    _check(data, share)
    law = limit_law(source, capacity, 1.0, data * (1 + 1e-9))

    def risk(log_peak: float) -> float:
        return decayed_risk(law, math.exp(log_peak), data, share)

    grid = np.linspace(_SMALLEST, 0.0, GRID)
    place, lowest = minimum(risk, grid, np.array([risk(at) for at in grid]))
    return math.exp(place), lowest


def decay_order(source: float, capacity: float, data: np.ndarray, share: float) -> np.ndarray:
    """Return the order of the best risk [N] in D, `data` [N], up to a constant (Li et al.).

    Constant D^−s/(1+s). Exponential (D/log D)^p with p the power of the optimum, −s for hard and
    −sβ/(1+sβ) for easy tasks. WSD D^p for hard, D^p (log D)^((sβ−s)/(1+sβ)) for easy. `share` is as
    in `decayed_risk`.

    Examples:
        >>> budgets = np.array([1e4, 1e8])
        >>> ratio = np.divide(*decay_order(0.5, 4, budgets, 0.2))
        >>> round(float(ratio), 6)
        100.0
    """
    theory = exponents(source, capacity)
    signal = source * capacity
    if share == 0:
        return data**theory.constant_loss
    if share == 1:
        return (data / np.log(data)) ** theory.loss
    logs = 0.0 if regime(source, capacity) == "hard" else (signal - source) / (1 + signal)
    return data**theory.loss * np.log(data) ** logs


def _check(data: float, share: float) -> None:
    check(1 < data < math.inf, "data", data, "a number of samples above 1")
    check(0 <= share <= 1, "share", share, "a part of the samples, 0 to 1")
