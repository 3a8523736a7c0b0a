"""B_opt at one target: measured over batch sizes, by a law, and which of the two is given."""

import math
from dataclasses import replace

import numpy as np

from bss.laws.base import BestBatch, Estimate, Outlier, deviations, disjoint
from bss.laws.es.data import EsData
from bss.laws.es.values import TargetFit
from bss.laws.inference import OutlierRule, over_forms
from bss.laws.minimum import FORM_SD, Minimum, excess_noise, from_others, measured_minimum
from bss.points.groups import SEED_NOISE

# Noise SDs: never reached by chance, also with few degrees of freedom.
FAR = OutlierRule(8.0, most=1)


def target_minimum(
    data: EsData, target: float, level: float, excluded: np.ndarray | None = None
) -> Minimum:
    """Return the minimum of log sequences to a target over batches, without excluded rows [N]."""
    here = data.target == target
    here &= ~excluded if excluded is not None else here
    # The noise SD of a loss is that of log tokens times the slope of the curve.
    usual = float(np.median(data.slope[here & data.reached]))
    batch = data.batch[here]
    log = np.log(data.sequences[here])
    reached = data.reached[here]
    relative = usual / data.slope[here]
    seed = data.seed[here]
    typical = SEED_NOISE / usual
    typical *= excess_noise(batch[reached], log[reached], relative[reached], seed[reached], typical)
    return measured_minimum(
        batch,
        log,
        typical=typical,
        relative=relative,
        censored=~reached,
        seed=seed,
        level=level,
    )


def outliers(data: EsData, target: float, level: float) -> list[Outlier]:
    """Return the run farthest from the minimum measured by the others, if it is an outlier."""
    here = np.flatnonzero((data.target == target) & data.reached)
    log = np.log(data.sequences[here])
    relative = 1 / data.slope[here]
    off, times = from_others(data.batch[here], log, SEED_NOISE, relative, data.seed[here])
    found = []
    for i in FAR.of(times):
        row = here[i]
        name = str(data.name[row])
        at = {"run": name, "batch": float(data.batch[row]), "target_loss": target}
        after = target_minimum(data, target, level, data.run == data.run[row]).batch.value
        without = {"B_opt": after} if after else {}
        numbers = (float(off[i]), float(times[i]))
        found.append(Outlier(at, f"run={name}", *numbers, "log tokens", without))
    return found


def best_batch(
    by_law: Estimate | None, measured: BestBatch, law: str, *, requested: bool = False
) -> BestBatch:
    """Return B_opt of a law, or the measured minimum if it has no value or another one.

    The interval is over both forms. The B_opt of a requested law is conditional on that law. Its
    interval ignores the uncertainty of the functional form, and it is reported if the measured
    minimum has a value.
    """
    if measured.value is None or by_law is None or not (by_law.value and by_law.low):
        return measured
    level = measured.level
    value = by_law.value
    low = by_law.low
    high = by_law.high or math.inf
    best = replace(measured, value=value, low=low, high=high, method=law)
    if requested:
        return best
    form = deviations(level) * FORM_SD
    below = math.hypot(math.log(value / low), form)
    above = math.hypot(math.log(high / value), form)
    wider = replace(best, low=value * math.exp(-below), high=value * math.exp(above))
    if disjoint(wider, measured):
        return measured
    low, high = over_forms([value, measured.value], low, high, level)
    return replace(best, low=low, high=high)


def with_best(at: TargetFit, best: BestBatch, minimum: Minimum, seq_len: int) -> TargetFit:
    """Return a target's fit with a B_opt; if it was measured, with its fewest tokens and steps."""
    at = replace(at, batches=at.batches | {"B_opt": best})
    if best.method != "measured":
        return at
    if not math.isfinite(minimum.value):
        return replace(at, S_opt=None)
    tokens = math.exp(minimum.value) * seq_len
    half = deviations(best.level) * minimum.error
    fewest = Estimate(tokens, tokens * math.exp(-half), tokens * math.exp(half), best.level)
    steps = None if best.value is None else tokens / (best.value * seq_len)
    intervals = {n: one for n, one in at.intervals.items() if n == "S_min"} | {"E_min": fewest}
    return replace(at, E_min=tokens, S_opt=steps, intervals=intervals)
