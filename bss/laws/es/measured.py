"""The measured minimum of each target, outlier runs, and the B_opt that a fit reports.

B_opt is the optimum of the law. If its interval and that of the measured minimum do not meet, the
measured minimum is reported; if the measured minimum is at the smallest or largest batch size or
within noise, no law has a B_opt (derived here).
"""

import math
from dataclasses import replace
from statistics import NormalDist

import numpy as np

from bss.laws.base import BestBatch, Estimate, disjoint, tails
from bss.laws.es.data import EsData
from bss.laws.es.values import OutlierRun, TargetFit
from bss.laws.minimum import Minimum, batch_means, from_others, measured_minimum

TYPICAL = 0.004  # nats: the noise SD of a run's loss in the committed results
FAR = 8.0  # noise SDs of an outlier: never reached by chance, also with few degrees of freedom
FORM_SD = 0.06  # of log B_opt from the form of a law: without it 90% intervals hold 74% on planted
# curves of laws that are not the package's (benchmarks/laws)
FEWEST_DOF = 4  # degrees of freedom of a noise SD that is compared with FAR


def target_minimum(
    data: EsData, target: float, level: float, excluded: np.ndarray | None = None
) -> Minimum:
    """Return the minimum of log sequences to a target over batches, without excluded rows [N]."""
    here = data.target == target
    here &= ~excluded if excluded is not None else here
    # The noise SD of a loss is that of log tokens times the slope of the curve.
    usual = float(np.median(data.slope[here & data.reached]))
    return measured_minimum(
        data.batch[here],
        np.log(data.sequences[here]),
        typical=TYPICAL / usual,
        relative=usual / data.slope[here],
        censored=~data.reached[here],
        seed=data.seed[here],
        level=level,
    )


def outliers(data: EsData, target: float, minimum: Minimum, level: float) -> list[OutlierRun]:
    """Return the run farthest from the others of its batch and seed, or of all batches, if any.

    `minimum` is of all runs at the target.
    """
    here = np.flatnonzero((data.target == target) & data.reached)
    batch = np.unique(data.batch[here], return_inverse=True)[1]
    log, relative = np.log(data.sequences[here]), 1 / data.slope[here]
    off, times = np.zeros(len(here)), np.zeros(len(here))
    if len(here) == batch.max() + 1:
        off, times = from_others(data.batch[here], log, TYPICAL * relative)
    for i in np.flatnonzero(np.bincount(batch)[batch] > 1):
        rest = np.arange(len(here)) != i
        means, scatter, freedom = batch_means(
            batch[rest], log[rest], relative[rest], data.seed[here][rest], TYPICAL
        )
        if freedom > FEWEST_DOF:
            off[i] = log[i] - means[batch[i]]
            times[i] = abs(off[i]) / (scatter * relative[i])
    if times.max() <= FAR:
        return []
    i = int(times.argmax())
    row, name = here[i], str(data.name[here[i]])
    before = minimum.batch.value
    after = target_minimum(data, target, level, data.run == data.run[row]).batch.value
    moves = after / before if before and after else None
    return [OutlierRun(name, float(data.batch[row]), target, float(off[i]), float(times[i]), moves)]


def best_batch(
    by_law: Estimate | None, measured: BestBatch, law: str, *, requested: bool = False
) -> BestBatch:
    """Return B_opt of a law, or the measured minimum if it has no value or another one.

    The B_opt of a law that a user requested is conditional on the law: its interval has no part for
    the form of the law, and it is reported if any minimum was measured.
    """
    if measured.value is None or by_law is None or not (by_law.value and by_law.low):
        return measured
    form_sd = 0.0 if requested else FORM_SD
    form = NormalDist().inv_cdf(tails(measured.level)[1]) * form_sd
    value, high = by_law.value, by_law.high or math.inf
    low = value * math.exp(-math.hypot(math.log(value / by_law.low), form))
    high = value * math.exp(math.hypot(math.log(high / value), form))
    best = replace(measured, value=value, low=low, high=high, method=law)
    return measured if not requested and disjoint(best, measured) else best


def with_best(at: TargetFit, best: BestBatch, minimum: Minimum, seq_len: int) -> TargetFit:
    """Return a target's fit with a B_opt; if it was measured, with its fewest tokens and steps."""
    at = replace(at, batches=at.batches | {"B_opt": best})
    if best.method != "measured":
        return at
    if not math.isfinite(minimum.value):
        return replace(at, S_opt=None)
    tokens = math.exp(minimum.value) * seq_len
    half = NormalDist().inv_cdf(tails(best.level)[1]) * minimum.error
    fewest = Estimate(tokens, tokens * math.exp(-half), tokens * math.exp(half), best.level)
    steps = None if best.value is None else tokens / (best.value * seq_len)
    intervals = {n: one for n, one in at.intervals.items() if n == "S_min"} | {"E_min": fewest}
    return replace(at, E_min=tokens, S_opt=steps, intervals=intervals)
