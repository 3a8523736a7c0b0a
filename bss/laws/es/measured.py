"""The best batch of each target by its runs alone, the runs that fit none, and which is given.

B_opt is that of the law, or the mean of those that predict as well; beside it is the least of a
parabola through the runs' tokens. Where the two disagree the measured one is given, and where the
runs put the fewest tokens at an end, or nowhere, no law may tell a best batch (derived here).
"""

import math
from dataclasses import replace

import numpy as np

from bss.laws.base import BestBatch, Estimate, disjoint, sure
from bss.laws.es.design import Design
from bss.laws.es.values import EsFit, OutlierRun, TargetFit
from bss.laws.minimum import Minimum, batch_means, from_others, measured_minimum

TYPICAL = 0.004  # nats, a run's usual scatter
RISES = (0.02, 0.05)  # of the tokens: batches as good
FORM = 0.06  # standard deviation of log B_opt by what no law holds
FAR = 8.0  # times the scatter of the others, for an outlier
TELLING = 4  # degrees of freedom behind that scatter


def minimum_at(rows: Design, target: float, level: float, out: np.ndarray | None = None) -> Minimum:
    """The least log sequences to a target over batches, but for rows [N] that are left out."""
    here = rows.target == target
    here &= ~out if out is not None else here
    # A loss's scatter is that of its tokens times the slope of the curve there.
    usual = float(np.median(rows.slope[here & rows.reached]))
    return measured_minimum(
        rows.batch[here],
        np.log(rows.sequences[here]),
        typical=TYPICAL / usual,
        relative=usual / rows.slope[here],
        censored=~rows.reached[here],
        seed=rows.seed[here],
        rises=RISES,
        level=level,
    )


def outliers(rows: Design, target: float, minimum: Minimum, level: float) -> list[OutlierRun]:
    """The run farthest from the others of its batch and seed, or of all batches, if it is far.

    `minimum` is that of all runs at the target.
    """
    here = np.flatnonzero((rows.target == target) & rows.reached)
    batch = np.unique(rows.batch[here], return_inverse=True)[1]
    log, relative = np.log(rows.sequences[here]), 1 / rows.slope[here]
    off, times = np.zeros(len(here)), np.zeros(len(here))
    if len(here) == batch.max() + 1:
        off, times = from_others(rows.batch[here], log, TYPICAL * relative)
    for i in np.flatnonzero(np.bincount(batch)[batch] > 1):
        rest = np.arange(len(here)) != i
        means, scatter, freedom = batch_means(
            batch[rest], log[rest], relative[rest], rows.seed[here][rest], TYPICAL
        )
        if freedom > TELLING:
            off[i] = log[i] - means[batch[i]]
            times[i] = abs(off[i]) / (scatter * relative[i])
    if times.max() <= FAR:
        return []
    i = int(times.argmax())
    row, name = here[i], str(rows.name[here[i]])
    before = minimum.batch.value
    after = minimum_at(rows, target, level, rows.run == rows.run[row]).batch.value
    moves = after / before if before and after else None
    return [OutlierRun(name, float(rows.batch[row]), target, float(off[i]), float(times[i]), moves)]


def with_best(fits: list[EsFit], minima: dict[float, Minimum], *, chosen: bool) -> EsFit:
    """The first of the fits with B_opt of all, or the measured one.

    Args:
        fits: of laws that predict alike; of a law that has no B_opt nothing is added if it was
            asked for.
        minima: by target.
        chosen: whether the laws were chosen, and not asked for.
    """
    targets, warnings = [], list(fits[0].warnings)
    for i, at in enumerate(fits[0].fits):
        minimum = minima[at.target_loss]
        own = {fit.law.name: fit.fits[i].batches.get("B_opt") for fit in fits}
        known = {n: sure(one) for n, one in own.items() if one is not None}
        sured = replace(at, batches={n: sure(one) for n, one in at.batches.items()})
        if not known and not chosen:
            targets.append(sured)
            continue
        best = _best(minimum.batch, [*known.values()], " + ".join(known), chosen=chosen)
        if not chosen and best.value is not None and known[fits[0].law.name].value is None:
            why = known[fits[0].law.name].why
            best = replace(best, method=fits[0].law.name).unknown("too_few_batches", why)
        if best.method == "measured" and best.value is not None and known:
            warnings.append(
                f"target {at.target_loss:g}: the {' + '.join(known)} law has another B_opt than "
                "the runs by themselves, whose is given"
            )
        target = replace(sured, batches=sured.batches | {"B_opt": best})
        targets.append(_at_best(target, minimum, fits[0].seq_len))
    return replace(fits[0], fits=tuple(targets), warnings=tuple(warnings))


def _best(measured: BestBatch, by_law: list[Estimate], name: str, *, chosen: bool) -> BestBatch:
    """B_opt of laws, or the measured one where it is another or has no value.

    Of a law that was asked for it is its own, where the runs tell any.
    """
    told = [one for one in by_law if one.value and one.low and one.high]
    if measured.value is None or not told:
        return measured
    ends = [[one.low or 0.0, one.value or 0.0, one.high or 0.0] for one in told]
    logs = np.log(np.array(ends))
    low, value, high = logs.mean(axis=0)
    apart = 1.645 * math.hypot(FORM, float(logs[:, 1].std())) if chosen else 0.0
    ends = value - math.hypot(value - low, apart), value, value + math.hypot(high - value, apart)
    low, value, high = (float(x) for x in np.exp(ends))
    law = replace(measured, value=value, low=low, high=high, method=name)
    return measured if chosen and disjoint(law, measured) else law


def _at_best(at: TargetFit, minimum: Minimum, seq_len: int) -> TargetFit:
    """A target's fit with the fewest tokens and the steps of its best batch."""
    best = at.batches["B_opt"]
    if not isinstance(best, BestBatch) or best.method != "measured":
        return at if best.value is not None else replace(at, S_opt=None)
    if not math.isfinite(minimum.value):
        return replace(at, S_opt=None)
    tokens, level = math.exp(minimum.value) * seq_len, best.level
    half = 1.645 * minimum.error
    fewest = Estimate(tokens, tokens * math.exp(-half), tokens * math.exp(half), level)
    steps = None if best.value is None else tokens / (best.value * seq_len)
    intervals = {n: one for n, one in at.intervals.items() if n == "S_min"} | {"E_min": fewest}
    return replace(at, E_min=tokens, S_opt=steps, intervals=intervals)
