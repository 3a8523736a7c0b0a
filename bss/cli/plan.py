"""bss plan: the batch size and learning rate of every step, before anything is trained."""

import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cyclopts import Group, Parameter

from bss.cells import Table
from bss.cli.options import Count, Number, Sizes
from bss.cli.output import Output, ShowPlot, figure
from bss.cli.peak_lr import PeakLR, best_peak
from bss.errors import InputError
from bss.schedules.buckets import BucketSizes
from bss.schedules.coupling import LR_RULES, Coupling
from bss.schedules.lengths import Budget
from bss.schedules.momentum import told
from bss.schedules.plan import Plan
from bss.schedules.plan import plan as make_plan
from bss.schedules.rates import RATES, LRSchedule, Shape, WarmupStableDecay, wsd
from bss.schedules.second_moment import short_second_moments
from bss.units import format_tokens, parse_tokens


@Parameter(name="*", group=Group("Optimizer", sort_key=4))
@dataclass(frozen=True)
class OptimizerOptions:
    """Betas and weight decay of a plan.

    Attributes:
        beta1: of Adam's first moment, per step
        beta1_half_life: instead of --beta1: in tokens or a percentage of the budget
        beta2: of Adam's second moment, per step
        beta2_half_life: instead of --beta2: in tokens or a percentage of the budget
        beta1_coupling: beta1 by the steps of the run: none, or a percentage of them
        weight_decay: decoupled, per step
    """

    beta1: Number | None = None
    beta1_half_life: str | None = None
    beta2: Number | None = None
    beta2_half_life: str | None = None
    beta1_coupling: str = "none"
    weight_decay: Number | None = None

    def coupling(self, tokens: int, **others: Any) -> Coupling:
        """Return the coupling for a budget; InputError for options that exclude each other."""
        given = {name: value for name, value in vars(self).items() if value is not None}
        for name in {"beta1_half_life", "beta2_half_life"} & given.keys():
            beta = name.removesuffix("_half_life")
            option = f"--{name.replace('_', '-')}"
            if beta in given:
                raise InputError(f"--{beta} and {option}: leave one of them out")
            given[name] = parse_tokens(given[name], field=option, total=tokens)
        return Coupling(beta1_rule=given.pop("beta1_coupling"), **given, **others)


@Parameter(name="*", group=Group("Export", sort_key=5))
@dataclass(frozen=True)
class ExportOptions:
    """The plan as settings of another trainer.

    Attributes:
        export: megatron, levanter, maxtext, huggingface, deepspeed, lightning, composer, olmo-core,
            torchtitan, your own
            loop in jax, torch or python, csv (a row per step), or module:ATTRIBUTE
        approximate: export the nearest plan, where the trainer cannot do all of this one
    """

    export: str | None = None
    approximate: bool = False

    def __post_init__(self) -> None:
        if self.approximate and not self.export:
            raise InputError("--approximate: needs --export TRAINER; name one or leave it out")


def check_lr_batch(batch: int | None, rule: str) -> None:
    """Raise InputError for --lr-batch without a rule that scales the LR from it."""
    if batch is not None and rule == "none":
        raise InputError(f"--lr-batch {batch}: needs --lr-coupling, e.g. sqrt")


@Parameter(name="*", group=Group("Learning rate", sort_key=3))
@dataclass(frozen=True)
class LROptions:
    """The learning-rate schedule.

    Attributes:
        warmup: tokens, a percentage of the budget, or a number like 2000steps or 80samples
        decay: at the end, in the same form
        horizon: where the LR schedule ends, in the same form, if it is beyond the end of the run;
            percentages are then shares of it
        shape: of the decay
        lr_schedule: wsd, another named schedule, or module:ATTRIBUTE
        floor: last learning rate as a fraction of the peak
        lr_coupling: scale the LR with the batch: none, linear, sqrt, a power such as 0.35, or
            module:ATTRIBUTE
        lr_batch: batch that --lr belongs to, with --lr-coupling; by default the first
    """

    warmup: str = "0"
    decay: str = "0"
    horizon: str | None = None
    shape: Shape = "linear"
    lr_schedule: str = next(iter(RATES))
    floor: Number = 0.0
    lr_coupling: str = next(iter(LR_RULES))
    lr_batch: Count | None = None

    def __post_init__(self) -> None:
        check_lr_batch(self.lr_batch, self.lr_coupling)


def plan(
    *,
    tokens: str,
    seq_len: Count | None = None,
    batch: str,
    lr: PeakLR,
    params: Count | None = None,
    rate: LROptions = LROptions(),
    buckets: Sizes = (),
    optimizer: OptimizerOptions = OptimizerOptions(),
    export: ExportOptions = ExportOptions(),
    show: ShowPlot = ShowPlot(),
) -> Output:
    """Print, plot or export a plan.

    Args:
        tokens: token budget, e.g. 10M; or 255000steps or 1440samples
        seq_len: tokens per sequence; left out where --batch has the lengths
        batch: in sequences: 8; "0:8 2M:16" from token counts on; "0:8 20000steps:16"; a
            linear ramp "128-512:50%" or "128-512:20000steps"; Megatron's "16 8 300000:512"; or
            with lengths of sequences, "0:1024x4096 252M:1024x8192"
        lr: peak learning rate; with --lr-coupling that of --lr-batch, by default of the first
            batch; or from:FIT, the best one by a fit of `bss fit lr`
        params: non-embedding parameters, for --lr from:FIT
        buckets: micro-batch sizes that are compiled, e.g. 8,32

    Examples:
        bss plan --tokens 10B --seq-len 2048 --batch "0:256 2B:512" --lr 1e-3
        bss plan --tokens 10B --seq-len 2048 --batch 256 --lr from:LR.json --params 350M
        bss plan --tokens 100steps --seq-len 4096 --batch "8 8 160:16" --lr 1e-3 --export megatron
    """
    run = Budget.read(batch, tokens, seq_len, field="--tokens")
    if not run.tokens:
        raise InputError(f"--tokens {tokens}: expected a count above 0, e.g. 10M")
    reference = run.schedule.batches[0] if rate.lr_batch is None else rate.lr_batch
    best = None
    if isinstance(lr, Path):
        best = best_peak(lr, params, run.tokens, reference)
        lr = best.peak
    learning_rate = _learning_rate(rate, lr, run)
    coupling = optimizer.coupling(run.tokens, lr=rate.lr_coupling, reference_batch=reference)
    resolved = make_plan(run.schedule, run.tokens, run.seq_len, lr=learning_rate, coupling=coupling)
    warn_about(resolved)
    shown = plan_output(resolved, export, BucketSizes(buckets))
    if best is None:
        return shown
    known = {**shown.json, "peak_lr": best.to_dict()}
    return replace(shown, json=known, notes=[*shown.notes, best.line], warnings=best.warnings)


def _learning_rate(rate: LROptions, lr: float, run: Budget) -> LRSchedule:
    """Return the LR schedule of the options, with lengths in tokens."""
    whole = run.over(rate.horizon, "--horizon")
    learning_rate = LRSchedule(
        rate.lr_schedule,
        peak=lr,
        warmup=whole.from_start(rate.warmup, "--warmup"),
        decay=whole.to_end(rate.decay, "--decay"),
        shape=rate.shape,
        floor=rate.floor,
        horizon=None if rate.horizon is None else whole.tokens,
    )
    for name in learning_rate.foreign:
        raise InputError(f"--{name}: --lr-schedule {rate.lr_schedule} has none; leave it out")
    if int(learning_rate.warmup) > whole.tokens:
        too_long = f"--warmup {rate.warmup}: longer than the {whole.tokens} tokens; shorten it"
        raise InputError(too_long)
    return learning_rate


def plan_output(plan: Plan, options: ExportOptions, buckets: BucketSizes) -> Output:
    """Return a plan's table, totals and figure, or the export in their place.

    In JSON "programs" is the number of micro-batches in use, and "devices" the largest number of
    devices that every batch divides into.
    """
    entry = plan.to_dict()
    rule = told(plan.coupling.beta1_rule)
    for segment in entry["segments"]:
        length = segment.get("seq_len", plan.seq_len)
        settings = plan.coupling.settings(1.0, segment["batch"], length)
        segment |= {name: getattr(settings, name) for name in plan.coupling.given}
        bucket = buckets.bucket(segment["batch"])
        rates = {name: segment.pop(name) for name in ("lr_start", "lr_end")}
        segment |= {"bucket": bucket, "accumulation": segment["batch"] // bucket, **rates}
    shapes = {(buckets.bucket(one.batch), one.seq_len) for one in plan.segments}
    programs = len(shapes)
    entry["programs"] = programs
    if rule:
        entry["beta1_coupling"] = rule
    text = None
    if options.export:
        text = plan.export(options.export, approximate=options.approximate).rstrip()
        entry["export"] = text
    title = f"plan of {format_tokens(plan.budget)} tokens"
    answer = (
        f"{plan.steps:,} steps, {plan.tokens:,} tokens, {plan.remainder_tokens:,} not trained, "
        f"{programs} compiled programs, at most {plan.devices} devices"
    )
    return Output(
        entry,
        answer,
        [Table.of_records(title, entry["segments"], headers={"bucket": "micro-batch"})],
        notes=[rule] if rule else [],
        text=text,
        figure=figure("schedules.schedule_figure", plan),
    )


def warn_about(plan: Plan, *, second_moment: bool = True) -> None:
    """Print to stderr: stages never reached or very short, second moments that are too short."""
    short = short_second_moments([plan]).values() if second_moment else ()
    for message in (*plan.unseen(), *plan.brief(), *plan.delayed(), *short):
        print(f"warning: {message}", file=sys.stderr)


def rate_of(lr: float, run: Budget, warmup: str, decay: str) -> WarmupStableDecay:
    """Return the LR schedule of the options --lr, --warmup and --decay."""
    start = run.from_start(warmup, "--warmup")
    return wsd(lr, run.tokens, start, run.to_end(decay, "--decay"), "linear")
