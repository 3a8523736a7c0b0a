"""Exports as settings: Levanter, MaxText, Megatron-LM, and a table.

- marin-levanter 0.2.227: `optim/config.py` and `schedule.py`. YAML with the batch schedule and the
  LR in steps of the plan.
- MaxText 0.2.5: `configs/base.yml`, `utils/maxtext_utils.py` (create_learning_rate_schedule) and
  `utils/rampup_batch.py`. YAML with the batch size of one device and the LR in steps of the plan.
  The batch size grows by equal increments after equal numbers of samples.
- megatron-core 0.19.2: `training/config/training_config.py`, `core/optimizer_param_scheduler.py`,
  and `core/num_microbatches_calculator.py` for the schedule string. Command-line flags, one per
  line, with lengths in samples (sequences). The thresholds of the schedule string are in tokens,
  rounded down to samples, and take effect at the first step at or after them. The schedule string
  came with megatron-core 0.18.0. Until 0.17.1 there is `--rampup-batch-size` alone, whose batch
  grows by equal increments after equal samples.
- CSV has one row per step, for a trainer that reads it or for a custom plot.
"""

import itertools
import math
from collections.abc import Iterator

import numpy as np

from bss.errors import InputError
from bss.exports.base import (
    Export,
    adam,
    differences,
    lengths,
    moves_at_a_change,
    peak,
    rate_by_steps,
    shape_of,
    stages,
    with_batches,
)
from bss.schedules.plan import Plan
from bss.schedules.rates import WarmupStableDecay


def _levanter(plan: Plan) -> Iterator[str]:
    yield "trainer:"
    yield f"  num_train_steps: {plan.steps}"
    yield "  train_batch_size:"
    yield from (f"    - {{start: {s.start_step}, value: {s.batch}}}" for s in plan.segments)
    yield "optimizer:"
    yield "  type: adam"
    yield from adam(plan, "  beta1: {!r}", "  beta2: {!r}", "  weight_decay: {!r}")
    if rate := stages(plan):
        yield from _levanter_rate(plan, rate)


def _levanter_rate(plan: Plan, rate: WarmupStableDecay) -> Iterator[str]:
    def steps(count: int) -> str:
        # Levanter reads numbers up to 1 as a fraction of the run, so one step needs care.
        return str(count) if count != 1 else repr(1.5 / plan.steps)

    warmup, decay = lengths(plan, rate)
    yield f"  learning_rate: {peak(plan, rate)!r}"
    yield f"  warmup: {steps(warmup)}"
    yield f"  min_lr_ratio: {rate.floor!r}"
    yield f"  lr_schedule: {shape_of(rate) if decay else 'constant'}"
    if decay:
        yield f"  decay: {steps(decay)}"
    yield from differences(plan, rate, "Levanter", "at a step's start")


LEVANTER = Export("Levanter", _levanter, cannot=lambda plan: rate_by_steps(plan, "Levanter"))


def _maxtext(plan: Plan) -> Iterator[str]:
    segments = plan.segments
    ramp = _ramp(plan)
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
        yield from _maxtext_rate(plan, rate)


def _maxtext_rate(plan: Plan, rate: WarmupStableDecay) -> Iterator[str]:
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
    first = plan.segments[0].batch
    last = plan.segments[-1].batch
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


MAXTEXT = Export("MaxText", _maxtext, cannot=_cannot, nearest=_nearest)


SHAPES = {"linear": "linear", "1-sqrt": "minus_sqrt", "cosine": "cosine"}


def _megatron(plan: Plan) -> Iterator[str]:
    schedule = " ".join(f"{s.start_tokens}:{s.batch}" for s in plan.segments)
    yield f"--seq-length {plan.seq_len}"
    yield f"--train-samples {plan.tokens // plan.seq_len}"
    yield f'--step-batch-size-schedule "{schedule}"'
    yield from _megatron_before(plan)
    yield from adam(plan, "--adam-beta1 {!r}", "--adam-beta2 {!r}", "--weight-decay {!r}")
    if rate := stages(plan):
        yield from _megatron_rate(plan, rate)


def _megatron_before(plan: Plan) -> Iterator[str]:
    """Yield comments with the flags of a Megatron-LM that has no schedule string."""
    batches = [segment.batch for segment in plan.segments]
    samples = _rampup_samples(plan)
    needs = "# --step-batch-size-schedule needs megatron-core 0.18 or later. Earlier versions"
    if len(batches) > 1 and samples is None:
        yield f"{needs} cannot follow this plan:"
        yield "# their --rampup-batch-size grows by equal increments after equal samples."
        return
    yield f"{needs} take instead:"
    yield f"# --global-batch-size {batches[-1]}"
    if samples is not None:
        yield f"# --rampup-batch-size {batches[0]} {batches[1] - batches[0]} {samples}"


def _rampup_samples(plan: Plan) -> int | None:
    """Return the samples of Megatron-LM's ramp-up that switch at the plan's steps, if any do.

    At a step after c samples, n increments over s samples have come int(c / (s / n)) times.
    """
    batches = [segment.batch for segment in plan.segments]
    increments = {after - before for before, after in itertools.pairwise(batches)}
    if len(increments) != 1 or min(increments) < 0:
        return None
    count = len(batches) - 1
    starts = [segment.start_tokens // plan.seq_len for segment in plan.segments]
    most = min(count * start // k for k, start in enumerate(starts) if k)
    for samples in (most, most - 1):  # a quotient just below a whole number is rounded down
        share = samples / count
        switches = all(
            int(start / share) == k and int((start - batches[k - 1]) / share) == k - 1
            for k, start in enumerate(starts)
            if k
        )
        if switches:
            return samples
    return None


def _megatron_rate(plan: Plan, rate: WarmupStableDecay) -> Iterator[str]:
    """Yield the LR flags. Megatron-LM evaluates the LR at the first sample of a step.

    The plan evaluates it at the middle of a step. To get equal values, the warm-up starts at the
    LR of half a batch, and warm-up and decay end half a batch earlier.
    """
    lr = peak(plan, rate)
    first = plan.segments[0].batch
    last = plan.segments[-1].batch
    warmup = max(int(rate.warmup / plan.seq_len - first / 2), 0)
    total = int(rate.total / plan.seq_len - last / 2)
    decay = int(rate.decay) // plan.seq_len
    yield f"--lr {lr!r}"
    yield f"--lr-warmup-samples {warmup}"
    if warmup:
        yield f"--lr-warmup-init {lr * first * plan.seq_len / 2 / rate.warmup!r}"
    if rate.decay:
        yield f"--min-lr {rate.floor * lr!r}"
    yield f"--lr-decay-style {'WSD' if rate.decay else 'constant'}"
    yield f"--lr-decay-samples {max(total, warmup + 1)}"  # longer than the warm-up, if unused too
    if rate.decay:
        yield f"--lr-wsd-decay-style {SHAPES.get(rate.shape, 'exponential')}"
        yield f"--lr-wsd-decay-samples {decay}"
    lengths = (rate.warmup, *((rate.total, rate.decay) if rate.decay else ()))
    halves = (first % 2 and rate.warmup, last % 2 and rate.decay)
    if any(length % plan.seq_len for length in lengths) or any(halves):
        yield "# Warm-up and decay are rounded down to whole samples."
    if moves_at_a_change(plan, rate):
        yield "# The batch changes in the warm-up or the decay: LRs are off by up to half a batch."


def _megatron_cannot(plan: Plan) -> Iterator[str]:
    rate = stages(plan)
    if rate and rate.decay and rate.shape not in SHAPES:
        yield "Megatron-LM's exponential decay is 2*0.5^x - 1 between lr and min-lr, not floor^x"


MEGATRON = Export("Megatron-LM", _megatron, cannot=_megatron_cannot)


MOST_ROWS = 2_000_000


def _rows(plan: Plan) -> str:
    """Return CSV rows: step, tokens before it, batch (sequences), and what the plan sets; with
    tokens per sequence, if they change.

    Raises:
        InputError: If the plan has more steps than a table has rows.
    """
    if plan.steps > MOST_ROWS:
        raise InputError(
            f"export csv: {plan.steps:,} steps are more than the {MOST_ROWS:,} rows of a table; "
            "leave --export out for a row per stage, or export code, e.g. to huggingface"
        )
    names = ["step", "tokens", "batch", *(["seq_len"] if plan.seq_lens else [])]
    names += [*(["rate"] if plan.rate else []), *plan.coupling.given]
    lines = [",".join(names)]
    for segment in plan.segments:
        steps = np.arange(segment.steps)
        size = segment.size
        settings = plan.coupling.settings(1.0, segment.batch, segment.seq_len)
        tokens = segment.start_tokens + size * steps
        columns = [segment.start_step + steps, tokens, segment.batch]
        if plan.seq_lens:
            columns.append(segment.seq_len)
        if plan.rate:
            columns.append(plan.rate(tokens + size / 2) * settings.lr)
        columns += [getattr(settings, name) for name in plan.coupling.given]
        filled = [np.broadcast_to(column, segment.steps).tolist() for column in columns]
        lines += [",".join(map(str, row)) for row in zip(*filled, strict=True)]
    return "\n".join(lines) + "\n"


CSV = Export("CSV", text=_rows, lengths=True)
