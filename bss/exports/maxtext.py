"""Export to MaxText: YAML with the batch size of one device and the LR in steps of the plan.

MaxText 0.2.5: `configs/base.yml`, `utils/maxtext_utils.py` (create_learning_rate_schedule) and
`utils/rampup_batch.py`. The batch size grows by equal increments after equal numbers of samples.
"""

import itertools
import math
from collections.abc import Iterator

from bss.exports.base import (
    Export,
    adam,
    differences,
    lengths,
    peak,
    rate_by_steps,
    shape_of,
    stages,
    with_batches,
)
from bss.schedules.plan import Plan
from bss.schedules.rates import Rate


def _yaml(plan: Plan) -> Iterator[str]:
    segments, ramp = plan.segments, _ramp(plan)
    yield f"steps: {plan.steps}"
    yield f"max_target_length: {plan.seq_len}"
    yield "gradient_accumulation_steps: 1"
    yield f"per_device_batch_size: {segments[-1 if ramp else 0].batch}.0  # by devices, if several"
    if ramp:
        yield "enable_rampup_batch_size: true"
        yield f"per_device_batch_size_start: {segments[0].batch}.0  # by devices, if several"
        step = segments[1].batch - segments[0].batch
        yield f"per_device_batch_size_increment: {step}.0  # by devices, if several"
        yield f"global_rampup_samples: {ramp}"
    yield from adam(plan, "adam_b1: {!r}", "adam_b2: {!r}", "adam_weight_decay: {!r}")
    if rate := stages(plan):
        yield from _rate(plan, rate)


def _rate(plan: Plan, rate: Rate) -> Iterator[str]:
    warmup, decay = lengths(plan, rate)
    yield f"learning_rate: {peak(plan, rate)!r}"
    yield "lr_schedule_type: wsd"
    yield f"warmup_steps_fraction: {_fraction(warmup, plan.steps)!r}"
    yield f"wsd_decay_steps_fraction: {_fraction(decay, plan.steps)!r}"
    yield f"wsd_decay_style: {shape_of(rate)}"
    yield f"learning_rate_final_fraction: {rate.floor!r}"
    yield from differences(plan, rate, "MaxText", "at a step's start, the floor at the last")


def _fraction(count: int, steps: int) -> float:
    """Return the smallest fraction of the steps that MaxText rounds down to a count.

    MaxText refuses fractions whose sum is above 1.

    Examples:
        >>> int(49 * (1 / 49)), int(49 * _fraction(1, 49))
        (0, 1)
    """
    fraction = count / steps
    return fraction if int(steps * fraction) == count else math.nextafter(fraction, 1.0)


def _ramp(plan: Plan) -> int | None:
    """Return the ramp-up samples with which MaxText follows the plan, or None if it cannot.

    MaxText divides the samples equally among the batch sizes and rounds each share up to steps.
    """
    batches = [segment.batch for segment in plan.segments]
    increments = {after - before for before, after in itertools.pairwise(batches)}
    if len(increments) != 1 or min(increments) < 0:
        return None
    ramped = plan.segments[:-1]
    share = min(segment.batch * segment.steps for segment in ramped)
    short = any(share <= segment.batch * (segment.steps - 1) for segment in ramped)
    return None if short else share * len(ramped)


def _cannot(plan: Plan) -> Iterator[str]:
    yield from rate_by_steps(plan, "MaxText")
    if len(plan.segments) > 1 and not _ramp(plan):
        which = f"equal increments after equal samples, not as {plan.schedule}"
        yield f"MaxText's batch grows by {which}"


def _nearest(plan: Plan) -> Plan:
    """Return the ramp, or single batch size, with the smallest mean |log ratio| to the plan."""
    if len(plan.segments) == 1 or _ramp(plan):
        return plan
    first, last = plan.segments[0].batch, plan.segments[-1].batch
    candidates = [with_batches(plan, [0], [max(round(plan.tokens / plan.seq_len / plan.steps), 1)])]
    for n in range(1, 17) if last > first else ():
        if (last - first) % n == 0:
            batches = range(first, last + 1, (last - first) // n)
            share = plan.segments[-1].start_tokens / plan.seq_len / n
            taken = [math.ceil(share / batch) * batch * plan.seq_len for batch in batches[:-1]]
            candidates.append(with_batches(plan, itertools.accumulate(taken, initial=0), batches))
    places = [plan.tokens * (2 * i + 1) // 512 for i in range(256)]

    def apart(other: Plan) -> float:
        return sum(abs(math.log(other.schedule(at) / plan.schedule(at))) for at in places)

    return min(candidates, key=apart)


MAXTEXT = Export("MaxText", _yaml, cannot=_cannot, nearest=_nearest)
