"""bss schedule: derive a batch-size schedule from a fit, ready to train or to export."""

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from bss.cells import Table
from bss.cli.noise import NoiseOptions, is_table, ramp_of, switches_of, with_switches
from bss.cli.options import Count, NamedLaw, Number, Positive, Repeated, Trust
from bss.cli.output import Output, ShowPlot
from bss.cli.plan import (
    ExportOptions,
    OptimizerOptions,
    check_lr_batch,
    plan_output,
    rate_of,
    warn_about,
)
from bss.cli.reading import GroupOption
from bss.cli.step_time import TimeOptions
from bss.cli.steps import derived_of, sale_of, why_not_steps, with_sale
from bss.errors import InputError
from bss.laws import CurveFit
from bss.policies import parse_settings
from bss.policies.derive import POLICIES_OF, DerivedSchedule, default_policy
from bss.policies.from_noise import NoiseRamp
from bss.policies.functional_best import assumed_rate
from bss.schedules.batch import BatchSchedule
from bss.schedules.buckets import BucketSizes
from bss.schedules.coupling import LR_RULES
from bss.schedules.lengths import Budget, check_plain
from bss.schedules.notation import split_unit
from bss.schedules.plan import Plan
from bss.schedules.plan import plan as make_plan
from bss.schedules.rates import WarmupStableDecay

STAGES = 4
"""Constant stages at most, of a schedule from a fit."""


def schedule(
    *,
    fit: Annotated[Path, Parameter(name="--from")],
    tokens: str,
    policy: str | None = None,
    settings: Annotated[Repeated, Parameter(name="--set")] = (),
    stages: Count | None = None,
    multiple_of: Count = 1,
    min_batch: Number | None = None,
    max_batch: Number | None = None,
    lr: Positive | None = None,
    warmup: str = "0",
    decay: str = "0",
    lr_coupling: str = next(iter(LR_RULES)),
    lr_batch: Count | None = None,
    minimize: Literal["tokens", "time", "cost", "steps"] | None = None,
    tolerance: Positive | None = None,
    of: GroupOption = GroupOption(),
    noise: NoiseOptions = NoiseOptions(),
    time: TimeOptions = TimeOptions(),
    optimizer: OptimizerOptions = OptimizerOptions(),
    export: ExportOptions = ExportOptions(),
    named_law: NamedLaw = NamedLaw(),
    files: Trust = Trust(),
    show: ShowPlot = ShowPlot(),
) -> Output:
    """Derive the schedule and its plan.

    Args:
        fit: JSON of `bss fit --json`; or a table of noise scales over tokens, CSV or Parquet, or
            a directory of runs with them
        tokens: token budget, e.g. 10M or 200Ksamples
        policy: name of a policy, or package.module:ATTRIBUTE; the default depends on the fit
        settings: NAME=VALUE, a setting of the policy; may be repeated
        stages: constant stages at most; by default 4, with noise scales one for each doubling
        multiple_of: batches are multiples of it
        min_batch: in sequences; by default the smallest batch measured
        max_batch: in sequences; by default the largest batch measured
        lr: peak learning rate of the plan; without it the plan has none
        warmup: of the learning rate: tokens, a percentage of the budget, or 2000steps
        decay: of the learning rate, at its end, in the same form
        lr_coupling: scale the LR with the batch: none, linear, sqrt, a power such as 0.35, or
            module:ATTRIBUTE
        lr_batch: batch that --lr belongs to, with --lr-coupling; by default the first
        minimize: with a fit of E(S) and --step-time: tokens, time or cost to each loss; steps: the
            default with a fit of loss curves and an LR that decays, and with E(S) of decayed losses
        tolerance: with --minimize steps: nats above the best fixed batch, by default 0.005; with a
            fit of branches: penalty that is allowed, in nats

    Examples:
        bss schedule --from NOISE.csv --tokens 10B --seq-len 2048
        bss schedule --from FIT.json --tokens 1M --stages 3 --lr 4e-3 --lr-coupling sqrt
        bss schedule --from FIT.json --tokens 1M --minimize time --step-time "50ms + 2ms*B"
    """
    _check_lr(lr, (warmup, decay), (lr_coupling, lr_batch))
    limits = _limits(multiple_of, stages, min_batch, max_batch)
    fitted = sale = rate = None
    label = ""
    if is_table(fit):
        if policy or settings or minimize or time.step_time or of.group:
            raise InputError("--from: a table of noise scales takes no policy; give a fit for one")
        ramp = ramp_of(fit, tokens, noise, {**limits, "stages": stages})
        derived: DerivedSchedule = ramp
        budget = Budget.read(ramp.schedule, tokens, ramp.seq_len, field="--tokens")
    else:
        label, fitted = of.read(named_law, fit, POLICIES_OF, "--from")
        budget = _budget(fitted, tokens)
        rate = _rate_before(fitted, lr, budget, warmup, decay)
        named = policy or default_policy(fitted, rate, minimize)
        if minimize == "steps" or (not policy and named == "fewest-steps"):
            _refuse_settings(policy, settings)
            sale = sale_of(fitted, budget.tokens, rate if lr else None, limits, tolerance)
            rate = sale.rate
            derived = derived_of(sale)
        else:
            given = {**parse_settings(settings), **_tolerated(fitted, tolerance)}
            how = {"settings": given | _time_settings(policy, minimize, time), **limits}
            derived = fitted.schedule(budget.tokens, lr=rate, policy=named, **how)
    if rate is None and lr is not None:
        rate = rate_of(lr, replace(budget, schedule=derived.schedule), warmup, decay)
    plan = _planned(derived, budget, rate, optimizer, (lr_coupling, lr_batch))
    shown = plan_output(plan, export, BucketSizes())
    if isinstance(derived, NoiseRamp):
        return with_switches(derived, _output(derived, shown, {}, switches_of(derived)))
    output = _described(fitted, derived, plan, shown, label)
    if sale is not None:
        return with_sale(sale, time.read(), output)
    return output if policy or minimize else _with_note(output, why_not_steps(fitted))


def _with_note(output: Output, note: str) -> Output:
    """Return the output with a further line at its end."""
    return replace(output, notes=[*output.notes, note])


def _limits(
    multiple_of: int, stages: int | None, low: float | None, high: float | None
) -> dict[str, Any]:
    """Return the limits of a schedule as policies take them."""
    sizes = {"min_batch": low, "max_batch": high}
    return {"multiple_of": multiple_of, "stages": stages or STAGES, **sizes}


def _planned(
    derived: DerivedSchedule,
    budget: Budget,
    rate: WarmupStableDecay | None,
    optimizer: OptimizerOptions,
    coupled: tuple[str, int | None],
) -> Plan:
    """Return the plan of a schedule, whose LR is coupled by a rule from a batch size."""
    rule, batch = coupled
    reference = derived.schedule.batches[0] if batch is None else batch
    coupling = optimizer.coupling(budget.tokens, lr=rule, reference_batch=reference)
    plan = make_plan(derived, budget.tokens, budget.seq_len, lr=rate, coupling=coupling)
    warn_about(plan)
    return plan


def _described(fit: Any, derived: DerivedSchedule, plan: Plan, shown: Output, label: str) -> Output:
    """Return the output of a schedule from the fit of a group, with what the law expects of it."""
    rate = plan.rate
    shown = replace(shown, notes=[*filter(None, (label,)), *shown.notes])
    if not isinstance(fit, CurveFit) or not isinstance(rate, WarmupStableDecay):
        return _output(derived, shown, {}, {})
    expected = {"lr": rate.peak, **derived.expected}
    more = {"lr": asdict(rate), "extrapolation": plan.budget / fit.tokens}
    return _output(derived, shown, expected, {**expected, **more})


def _tolerated(fit: Any, tolerance: float | None) -> dict[str, float]:
    """Return the tolerance as a setting of the policy of branches."""
    if tolerance is None:
        return {}
    if fit.KIND != "branches":
        raise InputError(
            "--tolerance: needs --minimize steps with a fit of loss curves, or a fit of branches"
        )
    return {"tolerance": tolerance}


def _check_lr(lr: float | None, lengths: tuple[str, str], coupling: tuple[str, int | None]) -> None:
    """Raise InputError for lengths or a coupling of an LR schedule without its peak."""
    if lr is None and lengths != ("0", "0"):
        raise InputError("--warmup and --decay need --lr, the peak LR, e.g. 4e-3")
    rule, batch = coupling
    if rule != "none" and lr is None:
        raise InputError(f"--lr-coupling {rule}: needs --lr, the peak LR at --lr-batch, e.g. 4e-3")
    check_lr_batch(batch, rule)


def _refuse_settings(policy: str | None, settings: Sequence[str]) -> None:
    """Raise InputError for a policy, or settings of one, where the steps are minimized."""
    given = [name for name, x in (("--policy", policy), ("--set", settings)) if x]
    if given:
        raise InputError(
            f"{' and '.join(given)}: not used where steps are minimized, as by --minimize steps or "
            "by default under a --decay; give --tolerance, or a --policy without --minimize steps"
        )


def _budget(fit: Any, tokens: str) -> Budget:
    """Return the token budget; its schedule is not derived yet."""
    if fit.seq_len is None:
        raise InputError("--from: the table had no sequence length; fit it again with --seq-len")
    if split_unit(tokens)[1] == "steps":
        check_plain(tokens, "--tokens", "the batches, which are derived here")
    one = BatchSchedule.constant(1)
    budget = Budget.read(one, tokens, int(fit.seq_len), field="--tokens")
    if not budget.tokens:
        raise InputError(f"--tokens {tokens}: expected a count above 0, e.g. 10M")
    return budget


def _rate_before(
    fit: Any, lr: float | None, budget: Budget, warmup: str, decay: str
) -> WarmupStableDecay | None:
    """Return the LR schedule; None if it depends on batches that are not derived yet.

    Without a peak LR, a fit of loss curves has one.

    Raises:
        InputError: If it does, and the fit derives the batches from the LR.
    """
    if lr is None:
        return assumed_rate(fit, budget.tokens) if isinstance(fit, CurveFit) else None
    units = [split_unit(length)[1] for length in (warmup, decay)]
    if "steps" not in units and "samples" not in units:
        return rate_of(lr, budget, warmup, decay)
    if isinstance(fit, CurveFit):
        why = "the batches, which are derived at this LR"
        check_plain(warmup, "--warmup", why)
        check_plain(decay, "--decay", why)
    return None


def _output(
    derived: DerivedSchedule, shown: Output, expected: dict[str, Any], more: dict[str, Any]
) -> Output:
    """Return the schedule, its plan, and what the law expects of it."""
    text = {"export": shown.text} if shown.text else {}
    payload = {"kind": "schedule", "policy": derived.policy, "batch": str(derived)}
    payload |= {"law": derived.law, **more, **text, "warnings": [*derived.warnings]}
    payload["plan"] = {key: x for key, x in shown.json.items() if key not in text}
    tables = [*shown.tables]
    if expected:
        tables.append(Table.of_records("expected by the law", [expected]))
    return replace(
        shown,
        json=payload,
        answer=f'--batch "{derived}"',
        tables=tables,
        warnings=[*derived.warnings],
        notes=[shown.answer, *shown.notes],
    )


def _time_settings(policy: str | None, minimize: str | None, time: TimeOptions) -> dict[str, Any]:
    """Return the settings of the policy soonest, by --minimize and --step-time."""
    if minimize is None and time.step_time is None:
        return {}
    if minimize is None or time.step_time is None or policy is not None:
        raise InputError("--minimize: needs --step-time and no --policy; give these two only")
    return {"minimize": minimize, "step_time": time.step_time, "devices": time.devices}
