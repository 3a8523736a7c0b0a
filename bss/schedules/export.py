"""A Plan as settings of other trainers: Megatron-LM, OLMo-core, Levanter.

Counts come from the plan, exact. What a trainer cannot express is said in a comment line of the
text. Names and meanings are those of the files below; options move, so check them against the
version you run:

- Megatron-LM: `megatron/training/config/training_config.py` (commit 008e9cd),
  `megatron/core/optimizer_param_scheduler.py` (00caa53), and
  `megatron/core/num_microbatches_calculator.py` for the schedule string: thresholds in tokens,
  rounded down to samples, in force from the first step at or after them.
- OLMo-core: `src/olmo_core/train/callbacks/batch_size_scheduler.py` (commit ce0b9f4),
  `src/olmo_core/optim/scheduler.py` of v2, `src/olmo_core/train/common.py` (1263823).
- Levanter: `lib/levanter/src/levanter/optim/config.py` of marin (commit 0f45aa1) and
  `src/levanter/schedule.py` (0d4b06d): batch schedule and learning rate in steps.
"""

import itertools

from bss.errors import InputError
from bss.schedules.coupling import Settings
from bss.schedules.plan import Plan
from bss.schedules.rates import Rate
from bss.units import format_tokens

MEGATRON_SHAPES = {"linear": "linear", "1-sqrt": "minus_sqrt", "cosine": "cosine"}


def export(plan: Plan, trainer: str) -> str:
    """The settings of a trainer that come closest to a plan, as text.

    Args:
        plan: from position 0.
        trainer: "megatron" (flags), "olmo-core" (Python) or "levanter" (YAML).

    Raises:
        InputError: the trainer is unknown, or the plan is a branch.
    """
    trainers = {"megatron": megatron, "olmo-core": olmo_core, "levanter": levanter}
    if trainer not in trainers:
        raise InputError(f"export: {trainer!r} is unknown; choose one of {', '.join(trainers)}")
    if plan.start:
        raise InputError(f"export: the plan starts at {plan.start}; export a plan from position 0")
    return trainers[trainer](plan)


def megatron(plan: Plan) -> str:
    """Command-line flags of Megatron-LM, one a line, all lengths in samples (sequences)."""
    first = plan.at(0).settings
    lines = _about(plan)
    schedule = " ".join(f"{s.start_tokens}:{s.batch}" for s in plan.segments)
    lines += [
        f"--seq-length {plan.seq_len}",
        f"--train-samples {plan.tokens // plan.seq_len}",
        f'--step-batch-size-schedule "{schedule}"',
        f"--adam-beta1 {first.beta1!r}",
        f"--adam-beta2 {first.beta2!r}",
        f"--weight-decay {first.weight_decay!r}",
    ]
    rate = plan.rate
    if isinstance(rate, Rate):
        peak = _peak(plan, rate)
        lines += [f"--lr {peak!r}", f"--lr-warmup-samples {_samples(plan, rate.warmup)}"]
        if rate.decay:
            shape = MEGATRON_SHAPES.get(rate.shape, "exponential")
            lines += [
                f"--min-lr {rate.floor * peak!r}",
                "--lr-decay-style WSD",
                f"--lr-decay-samples {_samples(plan, rate.total)}",
                f"--lr-wsd-decay-style {shape}",
                f"--lr-wsd-decay-samples {_samples(plan, rate.decay)}",
            ]
        else:
            lines += ["--lr-decay-style constant"]
        lines += ["# Megatron-LM takes the rate at a step's first sample; the plan, at its middle."]
        if any(length % plan.seq_len for length in (rate.warmup, rate.decay, rate.total)):
            lines += ["# Lengths of the rate are rounded down to whole samples."]
        if rate.decay and rate.shape not in MEGATRON_SHAPES:
            lines += ["# Its exponential is 2*0.5^x - 1 between lr and min-lr, not floor^x."]
    return _text(lines + _changes(plan, "Megatron-LM"))


def olmo_core(plan: Plan) -> str:
    """A Python snippet with OLMo-core's configs; batches and all lengths in tokens.

    OLMo-core refuses a rate in steps beside a batch schedule, so the rate is in tokens.
    """
    first, batches = plan.at(0).settings, [s.batch * plan.seq_len for s in plan.segments]
    starts = ", ".join(f"Duration.tokens({s.start_tokens})" for s in plan.segments)
    rate, lr = plan.rate, ""
    if isinstance(rate, Rate):
        lr = f"lr={_peak(plan, rate)!r}, "
    lines = [
        *_about(plan),
        f"sequence_length = {plan.seq_len}",
        f"data_loader = NumpyDataLoaderConfig(global_batch_size={batches[0]}, ...)  # tokens",
        f"max_duration = Duration.tokens({plan.tokens})",
        f"batch_size = BatchSizeSchedulerCallback(batch_sizes={batches}, schedule=[{starts}])",
        f"optim = AdamWConfig({lr}betas=({first.beta1!r}, {first.beta2!r}), "
        f"weight_decay={first.weight_decay!r})",
    ]
    if isinstance(rate, Rate):
        lines += _olmo_scheduler(plan, rate)
    for before, after in itertools.pairwise(batches):
        if max(before, after) % min(before, after):
            lines += [
                f"# OLMo-core refuses the change from {before} to {after} tokens: "
                "it changes the batch by whole factors only."
            ]
    if any(after > before for before, after in itertools.pairwise(batches)):
        lines += [
            "# OLMo-core delays an increase until the batches done are a multiple of its factor."
        ]
    if len(batches) > 1 and plan.coupling.lr != "sqrt":
        lines += [
            "# OLMo-core multiplies lr by the square root of every batch change; the plan's "
            f"coupling is {plan.coupling.lr!r}."
        ]
    return _text(lines + _changes(plan, "OLMo-core", ("beta1", "beta2", "weight_decay")))


def levanter(plan: Plan) -> str:
    """YAML for Levanter; batch schedule and learning rate in steps of the plan."""
    first = plan.at(0).settings
    batches = [f"    - {{start: {s.start_step}, value: {s.batch}}}" for s in plan.segments]
    lines = [
        *_about(plan),
        "trainer:",
        f"  num_train_steps: {plan.steps}",
        "  train_batch_size:",
        *batches,
        "optimizer:",
        "  type: adam",
        f"  beta1: {first.beta1!r}",
        f"  beta2: {first.beta2!r}",
        f"  weight_decay: {first.weight_decay!r}",
    ]
    if isinstance(plan.rate, Rate):
        lines += _levanter_rate(plan, plan.rate)
    return _text(lines + _changes(plan, "Levanter"))


def _olmo_scheduler(plan: Plan, rate: Rate) -> list[str]:
    units, warmup = "units=SchedulerUnits.tokens", int(rate.warmup)
    if not rate.decay:
        kind = f"ConstantWithWarmup({units}, warmup={warmup})" if warmup else "ConstantScheduler()"
        lines = [f"scheduler = {kind}"]
    elif rate.shape == "cosine" and rate.warmup + rate.decay == rate.total:
        lines = [
            f"scheduler = CosWithWarmup({units}, warmup={warmup}, "
            f"alpha_f={rate.floor!r}, t_max={int(rate.total)})"
        ]
    else:
        lines = [
            f"scheduler = WSD({units}, warmup={warmup}, decay={int(rate.decay)}, "
            f"decay_fraction=None, decay_min_lr={rate.floor * _peak(plan, rate)!r})"
        ]
        if rate.shape != "linear":
            lines += [f"# OLMo-core's WSD decays linearly only; the plan's shape is {rate.shape}."]
        if rate.total != plan.tokens:
            lines += [
                f"# OLMo-core ends the decay at max_duration; the plan, at {int(rate.total)}."
            ]
    return [*lines, "# OLMo-core takes the rate at a step's last token; the plan, at its middle."]


def _levanter_rate(plan: Plan, rate: Rate) -> list[str]:
    def steps(count: int) -> str:
        # Levanter reads numbers up to 1 as a fraction of the run, so one step needs care.
        return str(count) if count != 1 else repr(1.5 / plan.steps)

    warmup = plan.step_at(min(int(rate.warmup), plan.budget))
    decay = plan.steps - plan.step_at(min(int(rate.total - rate.decay), plan.budget))
    shape = rate.shape if rate.shape in ("linear", "cosine") else "linear"
    lines = [
        f"  learning_rate: {_peak(plan, rate)!r}",
        f"  warmup: {steps(warmup)}",
        f"  min_lr_ratio: {rate.floor!r}",
        f"  lr_schedule: {shape if rate.decay and decay else 'constant'}",
    ]
    if rate.decay and decay:
        lines += [f"  decay: {steps(decay)}"]
        if shape != rate.shape:
            lines += [f"# Levanter has no {rate.shape} decay; the decay here is linear."]
        if rate.total != plan.tokens:
            lines += [f"# Levanter ends the decay at the last step; the plan, at {rate.total}."]
    edges = (rate.warmup, rate.total - rate.decay if rate.decay else plan.budget)
    if any(s.start_tokens < edges[0] or s.start_tokens > edges[1] for s in plan.segments[1:]):
        lines += ["# Levanter's rate moves by steps; the plan's by tokens, across a batch change."]
    return [*lines, "# Levanter takes the rate at a step's start; the plan, at its middle."]


def _about(plan: Plan) -> list[str]:
    lines = [
        f"# {plan.schedule} over {format_tokens(plan.budget)} tokens: {plan.steps} steps of "
        f"sequences of {plan.seq_len} tokens; {plan.remainder_tokens} tokens remain"
    ]
    if plan.rate is None:
        lines += ["# The plan has no learning rate."]
    elif not isinstance(plan.rate, Rate):
        lines += ["# The plan's learning rate is a function of its own and is not exported."]
    return lines


def _changes(
    plan: Plan, trainer: str, fields: tuple[str, ...] = ("lr", "beta1", "beta2", "weight_decay")
) -> list[str]:
    """Comments on what the plan changes with the batch and the trainer does not."""
    lines = []
    for field in fields:
        values = [getattr(_settings_at(plan, s.batch), field) for s in plan.segments]
        if len(set(values)) > 1:
            name = "lr as multiples of the rate" if field == "lr" else field
            told = ", ".join(f"{v:.6g}" for v in values)
            lines += [f"# {trainer} cannot change this at a batch change; {name} would be {told}."]
    return lines


def _settings_at(plan: Plan, batch: int) -> Settings:
    return plan.coupling.settings(1.0, batch, plan.seq_len)


def _peak(plan: Plan, rate: Rate) -> float:
    """The peak rate at the plan's first batch."""
    return rate.peak * _settings_at(plan, plan.segments[0].batch).lr


def _samples(plan: Plan, tokens: float) -> int:
    return int(tokens) // plan.seq_len


def _text(lines: list[str]) -> str:
    return "\n".join(lines) + "\n"
