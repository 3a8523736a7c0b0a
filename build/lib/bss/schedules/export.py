"""A Plan as settings of other trainers: Megatron-LM, Levanter, MaxText.

Those whose batch and rate Python sets, Hugging Face, DeepSpeed, OLMo-core and torchtitan, are in
bss.schedules.callbacks.

Counts come from the plan, exact. What a trainer cannot express is said in a comment line of the
text. Names and meanings are those of the files below, whose own parsers and schedules are run by
slow tests where they are installed; options move, so check them against the version you run:

- megatron-core 0.19.2: `training/config/training_config.py`, `core/optimizer_param_scheduler.py`,
  and `core/num_microbatches_calculator.py` for the schedule string: thresholds in tokens, rounded
  down to samples, in force from the first step at or after them.
- marin-levanter 0.2.227: `optim/config.py` and `schedule.py`: batch schedule and learning rate in
  steps.
- MaxText 0.2.5: `configs/base.yml`, `utils/maxtext_utils.py` (create_learning_rate_schedule) and
  `utils/rampup_batch.py`: a batch grows once a number of samples, by equal increments.
"""

import itertools
import math
from collections.abc import Callable, Iterator

from bss.errors import InputError
from bss.schedules import callbacks
from bss.schedules.coupling import Settings
from bss.schedules.plan import Plan
from bss.schedules.rates import Rate
from bss.units import format_tokens

MEGATRON_SHAPES = {"linear": "linear", "1-sqrt": "minus_sqrt", "cosine": "cosine"}


def export(plan: Plan, trainer: str) -> str:
    """The settings of a trainer that come closest to a plan, as text.

    Args:
        plan: from position 0.
        trainer: "megatron" (flags), "levanter" or "maxtext" (YAML), "huggingface", "deepspeed",
            "olmo-core" or "torchtitan" (Python).

    Raises:
        InputError: the trainer is unknown, the plan is a branch, or the trainer cannot be given
            its learning rate.
    """
    by_settings = {"megatron": megatron, "levanter": levanter, "maxtext": maxtext}
    by_code = {
        "huggingface": _with_changes(callbacks.huggingface, "The callback"),
        "deepspeed": _with_changes(callbacks.deepspeed, "The callback"),
        "olmo-core": _with_changes(callbacks.olmo_core, "OLMo-core"),
        "torchtitan": _with_changes(callbacks.torchtitan, "torchtitan"),
    }
    trainers = by_settings | by_code
    if trainer not in trainers:
        raise InputError(f"export: {trainer!r} is unknown; choose one of {', '.join(trainers)}")
    if plan.start:
        raise InputError(f"export: the plan starts at {plan.start}; export a plan from position 0")
    if plan.rate is not None and not hasattr(plan.rate, "code"):
        raise InputError(
            "export: the plan's learning rate is a function of its own, without code; name it as "
            "package.module:ATTRIBUTE"
        )
    if plan.rate is not None and trainer in by_settings and _stages(plan) is None:
        raise InputError(
            f"export: {trainer} has no settings for this learning rate; export it as code, to "
            f"{', '.join(by_code)}"
        )
    return "\n".join((*_about(plan), *trainers[trainer](plan))) + "\n"


def megatron(plan: Plan) -> Iterator[str]:
    """Command-line flags of Megatron-LM, one a line, all lengths in samples (sequences)."""
    first, rate = plan.at(0).settings, _stages(plan)
    schedule = " ".join(f"{s.start_tokens}:{s.batch}" for s in plan.segments)
    yield f"--seq-length {plan.seq_len}"
    yield f"--train-samples {plan.tokens // plan.seq_len}"
    yield f'--step-batch-size-schedule "{schedule}"'
    yield f"--adam-beta1 {first.beta1!r}"
    yield f"--adam-beta2 {first.beta2!r}"
    yield f"--weight-decay {first.weight_decay!r}"
    if rate:
        yield from _megatron_rate(plan, rate)
    yield from _changes(plan, "Megatron-LM")


def levanter(plan: Plan) -> Iterator[str]:
    """YAML for Levanter; batch schedule and learning rate in steps of the plan."""
    first = plan.at(0).settings
    yield "trainer:"
    yield f"  num_train_steps: {plan.steps}"
    yield "  train_batch_size:"
    yield from (f"    - {{start: {s.start_step}, value: {s.batch}}}" for s in plan.segments)
    yield "optimizer:"
    yield "  type: adam"
    yield f"  beta1: {first.beta1!r}"
    yield f"  beta2: {first.beta2!r}"
    yield f"  weight_decay: {first.weight_decay!r}"
    if rate := _stages(plan):
        yield from _levanter_rate(plan, rate)
    yield from _changes(plan, "Levanter")


def maxtext(plan: Plan) -> Iterator[str]:
    """YAML for MaxText; batch in sequences of one device, learning rate in steps of the plan."""
    first, segments = plan.at(0).settings, plan.segments
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
    yield f"adam_b1: {first.beta1!r}"
    yield f"adam_b2: {first.beta2!r}"
    yield f"adam_weight_decay: {first.weight_decay!r}"
    if rate := _stages(plan):
        warmup, decay = _rate_steps(plan, rate)
        shape = rate.shape if rate.shape in ("linear", "cosine") else "linear"
        yield f"learning_rate: {_peak(plan, rate)!r}"
        yield "lr_schedule_type: wsd"
        yield f"warmup_steps_fraction: {_fraction(warmup, plan.steps)!r}"
        yield f"wsd_decay_steps_fraction: {_fraction(decay, plan.steps)!r}"
        yield f"wsd_decay_style: {shape}"
        yield f"learning_rate_final_fraction: {rate.floor!r}"
        yield from _rate_by_steps(
            plan, rate, "MaxText", shape, "at a step's start, the floor at the last"
        )
    if len(segments) > 1 and not ramp:
        yield f"# MaxText's batch grows by equal increments after equal samples: not {_told(plan)}."
    yield from _changes(plan, "MaxText")


def _megatron_rate(plan: Plan, rate: Rate) -> Iterator[str]:
    """Flags of the rate, taken at a step's first sample; the plan's is that of its middle.

    Both are the same where the warm-up begins at the rate of half a batch, and warm-up and decay
    end half a batch earlier.
    """
    peak, first, last = _peak(plan, rate), plan.segments[0].batch, plan.segments[-1].batch
    warmup = max(int(rate.warmup / plan.seq_len - first / 2), 0)
    total, decay = int(rate.total / plan.seq_len - last / 2), int(rate.decay) // plan.seq_len
    yield f"--lr {peak!r}"
    yield f"--lr-warmup-samples {warmup}"
    if warmup:
        yield f"--lr-warmup-init {peak * first * plan.seq_len / 2 / rate.warmup!r}"
    if rate.decay:
        yield f"--min-lr {rate.floor * peak!r}"
        yield "--lr-decay-style WSD"
        yield f"--lr-decay-samples {max(total, warmup + 1)}"
        yield f"--lr-wsd-decay-style {MEGATRON_SHAPES.get(rate.shape, 'exponential')}"
        yield f"--lr-wsd-decay-samples {decay}"
        if rate.shape not in MEGATRON_SHAPES:
            yield "# Its exponential is 2*0.5^x - 1 between lr and min-lr, not floor^x."
    else:
        yield "--lr-decay-style constant"
        yield f"--lr-decay-samples {max(total, warmup + 1)}"  # unused, but longer than the warm-up
    lengths = (rate.warmup, *((rate.total, rate.decay) if rate.decay else ()))
    halves = (first % 2 and rate.warmup, last % 2 and rate.decay)
    if any(length % plan.seq_len for length in lengths) or any(halves):
        yield "# Lengths of the rate are rounded down to whole samples."
    if _moves_at_a_change(plan, rate):
        yield "# The batch changes in the warm-up or the decay: half a batch there is another's."


def _with_changes(
    code: Callable[[Plan], Iterator[str]], name: str
) -> Callable[[Plan], Iterator[str]]:
    """Code that sets batch and rate, and what else the plan changes with the batch."""
    others = ("beta1", "beta2", "weight_decay")
    return lambda plan: itertools.chain(code(plan), _changes(plan, name, others))


def _fraction(count: int, steps: int) -> float:
    """The least fraction of the steps that MaxText rounds down to a count; it refuses sums over 1.

    Examples:
        >>> int(49 * (1 / 49)), int(49 * _fraction(1, 49))
        (0, 1)
    """
    fraction = count / steps
    return fraction if int(steps * fraction) == count else math.nextafter(fraction, 1.0)


def _ramp(plan: Plan) -> int | None:
    """The samples in which MaxText ramps the batch as the plan does; None where it cannot.

    It takes each batch for as many steps as first consume an equal share of them.
    """
    batches = [segment.batch for segment in plan.segments]
    increments = {after - before for before, after in itertools.pairwise(batches)}
    if len(increments) != 1 or min(increments) < 0:
        return None
    stages = plan.segments[:-1]
    share = min(segment.batch * segment.steps for segment in stages)
    short = any(share <= segment.batch * (segment.steps - 1) for segment in stages)
    return None if short else share * len(stages)


def _told(plan: Plan) -> str:
    return " ".join(f"{segment.start_step}:{segment.batch}" for segment in plan.segments)


def _rate_steps(plan: Plan, rate: Rate) -> tuple[int, int]:
    """Steps of the warm-up and of the decay."""
    warmup = plan.step_at(min(int(rate.warmup), plan.budget))
    start = plan.step_at(min(int(rate.total - rate.decay), plan.budget))
    return warmup, plan.steps - start if rate.decay else 0


def _rate_by_steps(plan: Plan, rate: Rate, trainer: str, shape: str, where: str) -> Iterator[str]:
    """What differs where a trainer's rate is a function of steps."""
    if rate.decay and shape != rate.shape:
        yield f"# {trainer} has no {rate.shape} decay; the decay here is {shape}."
    if rate.decay and rate.total != plan.tokens:
        yield f"# {trainer} ends the decay at the last step; the plan, at {rate.total}."
    if _moves_at_a_change(plan, rate):
        yield f"# {trainer}'s rate moves by steps; the plan's by tokens, across a batch change."
    edges = (rate.warmup, rate.total - rate.decay if rate.decay else 0)
    if any(plan.tokens_at(plan.step_at(int(edge))) != edge for edge in edges if edge < plan.tokens):
        yield f"# {trainer}'s lengths of the rate are whole steps, rounded."
    yield f"# {trainer} takes the rate {where}; the plan, at its middle."


def _moves_at_a_change(plan: Plan, rate: Rate) -> bool:
    """Whether the batch changes within the warm-up or the decay."""
    stable = (rate.warmup, rate.total - rate.decay if rate.decay else plan.budget)
    return any(not stable[0] <= s.start_tokens <= stable[1] for s in plan.segments[1:])


def _levanter_rate(plan: Plan, rate: Rate) -> Iterator[str]:
    def steps(count: int) -> str:
        # Levanter reads numbers up to 1 as a fraction of the run, so one step needs care.
        return str(count) if count != 1 else repr(1.5 / plan.steps)

    warmup, decay = _rate_steps(plan, rate)
    shape = rate.shape if rate.shape in ("linear", "cosine") else "linear"
    yield f"  learning_rate: {_peak(plan, rate)!r}"
    yield f"  warmup: {steps(warmup)}"
    yield f"  min_lr_ratio: {rate.floor!r}"
    yield f"  lr_schedule: {shape if decay else 'constant'}"
    if decay:
        yield f"  decay: {steps(decay)}"
    yield from _rate_by_steps(plan, rate, "Levanter", shape, "at a step's start")


def _stages(plan: Plan) -> Rate | None:
    """Warm-up, stable part and decay of the plan's rate, where it is made of these."""
    return getattr(plan.rate, "stages", None)


def _about(plan: Plan) -> Iterator[str]:
    yield (
        f"# {plan.schedule} over {format_tokens(plan.budget)} tokens: {plan.steps} steps of "
        f"sequences of {plan.seq_len} tokens; {plan.remainder_tokens} tokens remain"
    )
    if plan.rate is None:
        yield "# The plan has no learning rate."


def _changes(
    plan: Plan, trainer: str, fields: tuple[str, ...] = ("lr", "beta1", "beta2", "weight_decay")
) -> Iterator[str]:
    """Comments on what the plan changes with the batch and the trainer does not."""
    for field in fields:
        values = [getattr(_settings_at(plan, s.batch), field) for s in plan.segments]
        if len(set(values)) > 1:
            name = "lr as multiples of the rate" if field == "lr" else field
            told = ", ".join(f"{v:.6g}" for v in values)
            yield f"# {trainer} cannot change this at a batch change; {name} would be {told}."


def _settings_at(plan: Plan, batch: int) -> Settings:
    return plan.coupling.settings(1.0, batch, plan.seq_len)


def _peak(plan: Plan, rate: Rate) -> float:
    """The peak rate at the plan's first batch."""
    return rate.peak * _settings_at(plan, plan.segments[0].batch).lr
