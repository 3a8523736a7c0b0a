"""The critical batch of SGD on power-law least squares, and its growth with the data.

The theory of Zhang et al. (arXiv 2410.21676) for why the critical batch size follows the data. Let
R be the minimum risk of D samples over batch sizes, each at its best step size. The critical batch
size is the largest that reaches R with at most (1 + r)·D samples. B*(D) ~ D^(1 − a/min(b, 2a + 1))
for b > a, constant for b ≤ a. 2a + 1 belongs to averaging from the start; a tail's average has 1 −
a/b (derived here). The measured exponent depends on r and on the largest step size searched.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from bss.errors import check
from bss.stats import slope
from bss.theory.least_squares import LeastSquares, Procedure, risk_curve

LAST_POINTS = 4


class CriticalPoint(NamedTuple):
    """Results at D samples: the minimum risk over batch sizes, and the critical batch size."""

    data: int
    risk: float
    cbs: float


@dataclass(frozen=True)
class CriticalTable:
    """Critical batches over budgets.

    Attributes:
        points: by D.
        exponent: slope of log B* over log D at the last four budgets.
        low: end of its 95% CI, from the deviations about a line; the numbers have no other error.
        high: the other end.
        theory: 1 − a/min(b, 2a + 1), or 0 for b ≤ a; with a tail's average 1 − a/b.
    """

    points: tuple[CriticalPoint, ...]
    exponent: float
    low: float
    high: float
    theory: float


def critical_batches(
    task: LeastSquares, data: Sequence[int], procedure: Procedure | None = None
) -> CriticalTable:
    """Critical batches at budgets of D samples, and their exponent over the last four.

    Budgets that are not ascending, or fewer than two, are an InputError.
    """
    procedure = procedure or Procedure()
    ascending = all(a < b for a, b in itertools.pairwise([3, *data]))
    check(len(data) > 1 and ascending, "data", list(data), "two or more ascending budgets above 3")
    most = (1 + procedure.overhead) * 1.15 * data[-1]
    octaves = np.arange(0, math.log2(data[-1]) - 1, 1 / procedure.per_octave)
    steps = [(batch, math.ceil(most / batch)) for batch in 2.0**octaves]
    curves = [(batch, *risk_curve(task, batch, most, procedure)) for batch, most in steps]
    points = tuple(_critical(budget, curves, procedure.overhead) for budget in data)
    last = [(point.data, point.cbs) for point in points[-LAST_POINTS:]]
    fitted = slope(*np.array(last).T, level=0.95)
    theory = task.exponent
    if procedure.average == "tail" and procedure.tail < 1 and task.source > task.capacity:
        theory = 1 - task.capacity / task.source
    return CriticalTable(points, fitted.value, fitted.low, fitted.high, theory)


def _critical(budget: int, curves: Sequence[tuple], overhead: float) -> CriticalPoint:
    """Return the batch size at which the samples to the minimum risk exceed (1 + r)·D."""
    logs = [(batch, np.log(batch * counts), np.log(risks)) for batch, counts, risks in curves]
    usable = [curve for curve in logs if curve[1][0] <= math.log(budget)]
    target = min(np.interp(math.log(budget), samples, risk) for _, samples, risk in usable)
    excess = [_samples(samples, risk, target) - math.log(budget) for _, samples, risk in usable]
    limit = math.log1p(overhead)
    last = max(i for i, value in enumerate(excess) if value <= limit)
    at = math.log(usable[last][0])
    if last + 1 < len(usable):
        # Past the batches that can reach the risk at all the crossing lies before the next one.
        following = min(excess[last + 1], limit + 1)
        share = (limit - excess[last]) / (following - excess[last])
        at += share * math.log(usable[last + 1][0] / usable[last][0])
    return CriticalPoint(budget, math.exp(target), math.exp(at))


def _samples(samples: np.ndarray, risk: np.ndarray, target: float) -> float:
    """Logarithm of the first sample count at which a risk is reached; infinite if never."""
    reached = np.flatnonzero(risk <= target + 1e-12)
    if not len(reached):
        return math.inf
    i = int(reached[0])
    if i == 0:
        return float(samples[0])
    share = (risk[i - 1] - target) / (risk[i - 1] - risk[i])
    return float(samples[i - 1] + min(share, 1.0) * (samples[i] - samples[i - 1]))
