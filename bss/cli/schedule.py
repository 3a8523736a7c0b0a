"""bss schedule: derive a batch-size schedule from a fit, ready to train or to export."""

from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from bss.cells import Table
from bss.cli.kinds import POLICIES_OF, read_fit
from bss.cli.options import Count, Repeated
from bss.cli.output import Output, ShowPlot
from bss.cli.plan import (
    ExportOptions,
    OptimizerOptions,
    check_peak,
    plan_output,
    warn_about,
)
from bss.cli.step_time import TimeOptions
from bss.errors import InputError
from bss.laws import CurveFit
from bss.laws.functional.curves import stack
from bss.laws.functional.forecast import untested
from bss.laws.functional.paths import plan_path
from bss.policies import POLICIES, policy_named
from bss.policies.functional_best import assumed_rate
from bss.policies.outlook import outlook
from bss.policies.policy import Basis, Limits, Policy, schedule_and_rate
from bss.registry import attempt
from bss.schedules import rates
from bss.schedules.batch import BatchSchedule
from bss.schedules.plan import Plan, resolve
from bss.tables import Reading, read_points
from bss.units import parse_tokens


def schedule(
    *,
    fit: Annotated[Path, Parameter(name="--from")],
    tokens: Count,
    policy: str | None = None,
    settings: Annotated[Repeated, Parameter(name="--set")] = (),
    points: Path | None = None,
    stages: int = 4,
    multiple_of: int = 1,
    min_batch: float | None = None,
    max_batch: float | None = None,
    lr: float | None = None,
    warmup: str = "0",
    decay: str = "0",
    optimise: Literal["batch", "lr", "both"] | None = None,
    loss: float | None = None,
    minimize: Literal["tokens", "time", "cost"] | None = None,
    time: TimeOptions = TimeOptions(),
    optimizer: OptimizerOptions = OptimizerOptions(),
    export: ExportOptions = ExportOptions(),
    show: ShowPlot = ShowPlot(),
) -> Output:
    """Derive the schedule and its plan.

    Args:
        fit: JSON of `bss fit --json`
        tokens: token budget, e.g. 10M
        policy: name of a policy, or package.module:ATTRIBUTE; by default that of the kind of fit
        settings: NAME=VALUE, a setting of the policy; may be repeated
        points: a table of `bss points`, for a policy that reads one
        stages: constant stages at most
        multiple_of: batches are multiples of it
        min_batch: in sequences; by default the smallest batch measured
        max_batch: in sequences; by default the largest batch measured
        lr: peak learning rate of the plan; without it the plan has none
        warmup: of the learning rate: tokens, or a percentage of the budget
        decay: of the learning rate: tokens, or a percentage of the budget
        optimise: what is optimised, with a curve fit; by default batch
        loss: with a curve fit: minimize the steps to this loss, in nats
        minimize: with a fit of E(S) and --step-time: tokens, time or cost to each loss

    Examples:
        bss schedule --from FIT.json --tokens 1M --stages 3
        bss schedule --from FIT.json --tokens 1M --policy late-switch --set at=0.8
        bss schedule --from FIT.json --tokens 1M --minimize time --step-time "50ms + 2ms*B"
    """
    fitted = read_fit(fit, "schedule", POLICIES_OF)
    policy, settings = _minimizing(policy, settings, minimize, time)
    name = policy or POLICIES_OF[fitted.KIND]
    rate = _rate(lr, warmup, decay, tokens)
    chosen = _policy(name, settings, {"optimise": optimise, "loss": loss})
    if fitted.seq_len is None:
        raise InputError("--from: the table had no sequence length; fit it again with --seq-len")
    seq_len = int(fitted.seq_len)
    if isinstance(fitted, CurveFit):
        rate = rate or assumed_rate(fitted, tokens)
    measured = points and read_points(points, Reading(seq_len=seq_len))
    basis = Basis(seq_len, fitted, measured, rate)
    limits = Limits(stages, multiple_of, min_batch=min_batch, max_batch=max_batch)
    derive = partial(schedule_and_rate, chosen, basis, tokens, limits)
    batch, rate = attempt("policy", name, derive) if ":" in name else derive()
    if not isinstance(batch, BatchSchedule):
        raise InputError(f"policy: {name} gave {batch!r}; expected a BatchSchedule")
    plan = resolve(batch, tokens, seq_len, rate=rate, coupling=optimizer.coupling(tokens))
    warn_about(plan)
    shown = plan_output(plan, export)
    payload = {
        "kind": "schedule",
        "policy": name,
        "batch": str(batch),
        "law": fitted.law_name,
        "steps": plan.steps,
        "tokens": plan.tokens,
        "plan": {name: value for name, value in shown.json.items() if name != "export"},
    }
    payload |= {"export": shown.text} if shown.text else {}
    tables, warnings = [*shown.tables], []
    if isinstance(fitted, CurveFit) and rate is not None:
        expected = asdict(
            outlook(fitted, batch, tokens, rate, limits.within(basis.measured).ladder())
        )
        payload |= {"optimised": optimise or "batch", "lr": asdict(rate), **expected}
        payload["extrapolation"] = tokens / fitted.tokens
        tables.append(Table.of_records("expected by the law", [{"lr": rate.peak, **expected}]))
        warnings = _untested(fitted, plan, rate)
    notes = [shown.answer, *shown.notes]
    answer = f'--batch "{batch}"'
    return replace(
        shown, json=payload, answer=answer, tables=tables, warnings=warnings, notes=notes
    )


def _untested(fit: CurveFit, plan: Plan, rate: rates.Rate) -> list[str]:
    """Warnings of what in a plan is outside the ranges that the fit was tested in."""
    path = plan_path(plan.schedule, plan.budget, plan.seq_len, rate)
    curves = stack([path], plan.seq_len)
    return [f"beyond what was tested: {what}" for what in untested(fit, curves)[0]]


def _policy(name: str, settings: Sequence[str], searched: dict[str, object]) -> Policy:
    """The policy with its settings; --optimise and --loss are those of a search."""
    given = {option: value for option, value in searched.items() if value is not None}
    fields = {"optimise": "optimise", "loss": "target_loss"}
    if given and not hasattr(POLICIES[name], "optimise"):
        search = POLICIES_OF["curve"]
        raise InputError(
            f"--{next(iter(given))}: needs --policy {search} and a fit of `bss fit curve`; "
            "leave it out"
        )
    own = [f"{fields[option]}={value}" for option, value in given.items()]
    return policy_named(name, [*settings, *own])


def _minimizing(
    policy: str | None, settings: Repeated, minimize: str | None, time: TimeOptions
) -> tuple[str | None, Repeated]:
    """Return the policy of --minimize with its settings, or those given without the option."""
    if minimize is None:
        if time.step_time is not None:
            raise InputError("--step-time: needs --minimize tokens, time or cost; add it")
        return policy, settings
    if policy is not None or time.step_time is None:
        why = "sets the policy; leave --policy out" if policy else "needs --step-time"
        raise InputError(f"--minimize {minimize}: {why}")
    given = {"minimize": minimize, "step_time": time.step_time, "devices": time.devices}
    return "soonest", (*settings, *(f"{name}={value}" for name, value in given.items()))


def _rate(lr: float | None, warmup: str, decay: str, tokens: int) -> rates.Rate | None:
    """The learning-rate schedule of the options; None without a peak."""
    start = parse_tokens(warmup, field="--warmup", total=tokens)
    end = parse_tokens(decay, field="--decay", total=tokens)
    if lr is None:
        if start or end:
            raise InputError("--warmup and --decay need --lr, the peak learning rate, e.g. 4e-3")
        return None
    check_peak(lr)
    return rates.wsd(lr, tokens, start, end)
