"""The schedule that a fitted law of loss curves calls best, at equal tokens or at equal loss.

The free optimum (bss.laws.functional.free) is followed in a few stages, which are moved while that
helps, beside constants and late switches. Rates are searched among those that a trainer knows:
peak, decay and its shape. All predictions are of whole plans (derived here).
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, get_args

import numpy as np

from bss.errors import InputError
from bss.laws.functional.curves import stack
from bss.laws.functional.free import GRID, TIE, free_batches
from bss.laws.functional.paths import plan_path
from bss.laws.functional.values import CurveFit, check_drive, law_losses
from bss.schedules.batch import BatchSchedule
from bss.schedules.plan import resolve
from bss.schedules.rates import Rate, Shape

Optimise = Literal["batch", "lr", "both"]
SHARES = (0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0)
PEAKS = (1.0, 0.7, 0.5, 0.35, 0.25)
SHAPES: tuple[Shape, ...] = ("linear", "1-sqrt", "cosine")
ROUNDS = 12
CHUNK = 32


@dataclass(frozen=True)
class Recommendation:
    """A schedule with what the law predicts of it, beside the constant largest batch.

    Attributes:
        schedule: batches in sequences.
        rate: the learning rate, a function of tokens.
        tokens: consumed, in whole steps.
        steps: of the plan.
        predicted_loss: at the end, in nats.
        large_batch: the constant it is compared with, at the same shape of rate.
        large_loss: predicted of it with as many tokens.
        saved_at_equal_steps: share of the tokens that the constant takes in as many steps.
        saved_at_equal_loss: share of the tokens that the constant needs for the predicted loss;
            None where it never gets there.
    """

    schedule: BatchSchedule
    rate: Rate
    tokens: int
    steps: int
    predicted_loss: float
    large_batch: int
    large_loss: float
    saved_at_equal_steps: float
    saved_at_equal_loss: float | None

    def to_dict(self) -> dict[str, Any]:
        """JSON: batch as text, the rate by its fields, counts and shares."""
        return asdict(self) | {"schedule": str(self.schedule), "rate": asdict(self.rate)}


@dataclass(frozen=True)
class _Search:
    """What stays the same while schedules are compared."""

    fit: CurveFit
    tokens: int
    choices: tuple[int, ...]
    stages: int
    target: float | None

    def measured(self, candidates: Sequence["_Candidate"]) -> list[tuple[float, int]]:
        """Predicted loss and steps of each, in chunks of one shape."""
        paths = [plan_path(c.schedule, self.tokens, self.fit.seq_len, c.rate) for c in candidates]
        losses: list[float] = []
        for begin in range(0, len(paths), CHUNK):
            part = [*paths[begin : begin + CHUNK], *paths[:1] * CHUNK][:CHUNK]
            losses += law_losses(self.fit.law, stack(part, self.fit.seq_len))[:, 0].tolist()
        steps = [round(float(path.steps.sum())) for path in paths]
        return list(zip(losses, steps, strict=False))

    def best(self, candidates: Sequence["_Candidate"]) -> tuple[tuple[float, ...], "_Candidate"]:
        """The candidate of the lowest score: loss, steps breaking ties; or steps to the target."""
        scored = []
        for candidate, (loss, steps) in zip(candidates, self.measured(candidates), strict=True):
            missed = 0.0 if self.target is None else max(loss - self.target, 0.0)
            excess = math.log(loss - float(self.fit.law.L_0)) + TIE * math.log(steps)
            score = (excess,) if self.target is None else (missed, steps, loss)
            scored.append((score, candidate))
        return min(scored, key=lambda entry: entry[0])


@dataclass(frozen=True)
class _Candidate:
    schedule: BatchSchedule
    rate: Rate


def best_schedule(
    fit: CurveFit,
    tokens: int,
    *,
    optimise: Optimise = "batch",
    rate: Rate | None = None,
    batch: int | None = None,
    stages: int = 4,
    multiple_of: int = 1,
    min_batch: float | None = None,
    max_batch: float | None = None,
    target_loss: float | None = None,
) -> Recommendation:
    """The schedule with the lowest predicted loss for a budget, or the fewest steps to a loss.

    Args:
        fit: a fit that identifies how noise is forgotten.
        tokens: budget.
        optimise: "batch" at the rate given, "lr" at a constant batch, or "both".
        rate: over these tokens; its peak bounds the rates searched. By default constant at the
            largest rate measured.
        batch: the constant batch of "lr"; by default the best of them.
        stages: how many constant stages at most.
        multiple_of: batches are multiples of it.
        min_batch: by default the smallest batch measured.
        max_batch: by default the largest batch measured.
        target_loss: in nats; with it the fewest steps that reach it within the tokens.

    Raises:
        InputError: the fit does not identify what is optimised, an argument is out of range, or
            the target is below every prediction.
    """
    if optimise not in get_args(Optimise):
        raise InputError(f"optimise: {optimise!r} is unknown; choose batch, lr or both")
    if optimise != "lr" and batch is not None:
        raise InputError(f"batch: {batch} given, but it is optimised; give it with optimise 'lr'")
    if batch is not None and batch < 1:
        raise InputError(f"batch: {batch} given; write 1 sequence or more")
    check_drive(fit, optimise != "lr", True)
    if optimise != "batch" and "p" in fit.unidentified:
        raise InputError(f"fit: p is {fit.unidentified['p']}; add runs at other learning rates")
    rate = rate or Rate(fit.rates[1], tokens)
    low = fit.batches[0] if min_batch is None else min_batch
    high = fit.batches[1] if max_batch is None else max_batch
    search = _Search(fit, tokens, _choices(low, high, multiple_of), stages, target_loss)
    constants = [
        BatchSchedule.constant(b) for b in ([batch] if batch is not None else search.choices)
    ]
    score, chosen = search.best([_Candidate(schedule, rate) for schedule in constants])
    for _ in range(ROUNDS):
        before = score
        if optimise != "batch":
            rates = _rates(rate, fit.rates[0])
            options = [chosen, *(replace(chosen, rate=r) for r in rates)]
            options += [replace(chosen, schedule=s) for s in constants]
            score, chosen = search.best(options)
        if optimise != "lr":
            score, chosen = _improved(search, chosen)
        if score >= before or optimise == "batch":
            break
    loss, steps = search.measured([chosen])[0]
    if target_loss is not None and loss > target_loss:
        raise InputError(
            f"target_loss: {target_loss:g} is below {loss:.5g}, the lowest predicted for these "
            "tokens and batches; raise one of them"
        )
    return _compared(search, chosen, loss, steps)


def _choices(low: float, high: float, multiple_of: int) -> tuple[int, ...]:
    """Multiples between the bounds, about four to the doubling."""
    if multiple_of < 1 or not 0 < low <= high:
        raise InputError(
            f"batch: {low:g} to {high:g} in multiples of {multiple_of}; write a multiple of 1 or "
            "more and bounds above 0, the smaller first"
        )
    first, last = math.ceil(low / multiple_of - 1e-9), math.floor(high / multiple_of + 1e-9)
    if last < max(first, 1):
        raise InputError(
            f"multiple_of: no multiple of {multiple_of} lies within batches {low:g} to {high:g}; "
            "lower it or widen the bounds"
        )
    first = max(first, 1)
    count = 2 + int(4 * math.log2(last / first))
    return tuple(sorted({round(x) * multiple_of for x in np.geomspace(first, last, count)}))


def _rates(rate: Rate, least: float) -> list[Rate]:
    """The family of rates up to this one's peak that a trainer knows."""
    longest = rate.total - rate.warmup
    decays = [(0, SHAPES[0]), *itertools.product((round(x * longest) for x in SHARES), SHAPES)]
    return [
        replace(rate, peak=peak * rate.peak, decay=decay, shape=shape, floor=0.0)
        for peak in PEAKS
        if peak == 1 or peak * rate.peak >= least
        for decay, shape in decays
    ]


def _improved(search: _Search, chosen: _Candidate) -> tuple[tuple[float, ...], _Candidate]:
    """The best of constants, late switches and the free optimum in stages; then moved."""
    rate, tokens = chosen.rate, search.tokens
    ideal = free_batches(search.fit, tokens, rate, search.choices, search.target)
    places = (GRID[1:] + GRID[:-1]) / 2 * tokens
    followed = BatchSchedule.follow(
        lambda count: math.exp(np.interp(count, places, np.log(ideal))),
        tokens,
        search.stages,
        allowed=search.choices,
    )
    schedules = [followed, *map(BatchSchedule.constant, search.choices)]
    if search.stages > 1:
        ladder = search.choices[:: max(1, len(search.choices) // 6)]
        schedules += [
            BatchSchedule.late_switch(first, last, round(share * tokens))
            for first, last in itertools.combinations(ladder, 2)
            for share in (0.3, 0.5, 0.7, 0.8, 0.9, 0.95)
        ]
    _, best = search.best([chosen, *(_Candidate(s, rate) for s in schedules)])
    ends = [_moved(search, start) for start in (best, _Candidate(followed, rate))]
    return min(ends, key=lambda end: end[0])


def _moved(search: _Search, chosen: _Candidate) -> tuple[tuple[float, ...], _Candidate]:
    """Downhill, one start or batch at a time."""
    score, chosen = search.best([chosen])
    for _ in range(ROUNDS):
        before = score
        moved = [replace(chosen, schedule=s) for s in _neighbours(chosen.schedule, search)]
        score, chosen = search.best([chosen, *moved])
        if score >= before:
            break
    return score, chosen


def _neighbours(schedule: BatchSchedule, search: _Search) -> list[BatchSchedule]:
    """Schedules with one start or one batch moved, or a stage put between two."""
    starts, batches = schedule.starts, schedule.batches
    moved = []
    for i in range(len(batches)):
        place = search.choices.index(batches[i]) if batches[i] in search.choices else None
        for step in (-4, -1, 1, 4):
            if place is not None and 0 <= place + step < len(search.choices):
                other = search.choices[place + step]
                moved.append(BatchSchedule(starts, (*batches[:i], other, *batches[i + 1 :])))
        if i:
            end = starts[i + 1] if i + 1 < len(starts) else search.tokens
            between = min(
                search.choices, key=lambda b: abs(b * b / batches[i - 1] / batches[i] - 1)
            )
            first = starts[i] - (starts[i] - starts[i - 1]) // 10
            if len(batches) < search.stages and between not in batches and first > starts[i - 1]:
                inserted = (*starts[:i], first, *starts[i:])
                moved.append(BatchSchedule(inserted, (*batches[:i], between, *batches[i:])))
            for share in (-0.3, -0.1, -0.03, 0.03, 0.1, 0.3):
                side = end - starts[i] if share > 0 else starts[i] - starts[i - 1]
                start = starts[i] + round(share * side)
                start = round(start, 4 - len(str(start)))  # to be read and typed
                if starts[i - 1] < start < end:
                    moved.append(BatchSchedule((*starts[:i], start, *starts[i + 1 :]), batches))
    return moved


def _compared(search: _Search, chosen: _Candidate, loss: float, steps: int) -> Recommendation:
    fit, large = search.fit, search.choices[-1]
    constant = BatchSchedule.constant(large)
    rate = chosen.rate

    def large_loss(log_tokens: float) -> float:
        factor = math.exp(log_tokens) / search.tokens
        total, warmup, decay = (round(factor * x) for x in (rate.total, rate.warmup, rate.decay))
        scaled = replace(rate, total=total, warmup=warmup, decay=min(decay, total - warmup))
        path = plan_path(constant, round(math.exp(log_tokens)), fit.seq_len, scaled)
        return float(law_losses(fit.law, stack([path], fit.seq_len))[0, 0])

    needed = _first_below(large_loss, loss, math.log(search.tokens), large * fit.seq_len)
    plan = resolve(chosen.schedule, search.tokens, fit.seq_len)
    return Recommendation(
        schedule=chosen.schedule,
        rate=rate,
        tokens=plan.tokens,
        steps=steps,
        predicted_loss=loss,
        large_batch=large,
        large_loss=large_loss(math.log(search.tokens)),
        saved_at_equal_steps=1 - plan.tokens / (steps * large * fit.seq_len),
        saved_at_equal_loss=None if needed is None else 1 - plan.tokens / needed,
    )


def _first_below(function, level: float, middle: float, least: float) -> float | None:
    """e^x at which a falling function of x first meets a level, to 1e-4; None beyond ×1000."""
    low, high = math.log(2 * least), middle + math.log(1000)
    if function(high) > level:
        return None
    for _ in range(20):
        x = (low + high) / 2
        low, high = (low, x) if function(x) <= level else (x, high)
    return math.exp(high)
