"""bss schedule: derive a batch-size schedule from a fit, ready to train or to export."""

from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from bss.cells import Table
from bss.cli.options import Count, Number, Positive, Repeated, Trust
from bss.cli.output import Output, ShowPlot
from bss.cli.plan import (
    ExportOptions,
    OptimizerOptions,
    check_lr_batch,
    plan_output,
    rate_of,
    warn_about,
)
from bss.cli.step_time import TimeOptions
from bss.errors import InputError
from bss.laws import CurveFit, read_fit
from bss.policies import policy_named
from bss.policies.beyond import beyond_measured
from bss.policies.functional_best import assumed_rate, expected_losses
from bss.policies.policy import Basis, Limits
from bss.registry import attempt
from bss.schedules.batch import BatchSchedule
from bss.schedules.buckets import BucketSizes
from bss.schedules.coupling import LR_RULES
from bss.schedules.plan import resolve

POLICIES_OF = {"es": "follow-optimum", "loss": "best-batch", "curve": "functional-best"}
"""The default policy, by kind of fit that has a best batch size."""


def schedule(
    *,
    fit: Annotated[Path, Parameter(name="--from")],
    tokens: Count,
    policy: str | None = None,
    settings: Annotated[Repeated, Parameter(name="--set")] = (),
    stages: Count = 4,
    multiple_of: Count = 1,
    min_batch: Number | None = None,
    max_batch: Number | None = None,
    lr: Positive | None = None,
    warmup: str = "0",
    decay: str = "0",
    lr_coupling: str = next(iter(LR_RULES)),
    lr_batch: Count | None = None,
    minimize: Literal["tokens", "time", "cost"] | None = None,
    time: TimeOptions = TimeOptions(),
    optimizer: OptimizerOptions = OptimizerOptions(),
    export: ExportOptions = ExportOptions(),
    files: Trust = Trust(),
    show: ShowPlot = ShowPlot(),
) -> Output:
    """Derive the schedule and its plan.

    Args:
        fit: JSON of `bss fit --json`
        tokens: token budget, e.g. 10M
        policy: name of a policy, or package.module:ATTRIBUTE; the default depends on the fit
        settings: NAME=VALUE, a setting of the policy; may be repeated
        stages: constant stages at most
        multiple_of: batches are multiples of it
        min_batch: in sequences; by default the smallest batch measured
        max_batch: in sequences; by default the largest batch measured
        lr: peak learning rate of the plan; without it the plan has none
        warmup: of the learning rate: tokens, or a percentage of the budget
        decay: of the learning rate: tokens, or a percentage of the budget
        lr_coupling: scale the LR with the batch: none, linear, sqrt, a power such as 0.35, or
            module:ATTRIBUTE
        lr_batch: batch that --lr belongs to, with --lr-coupling; by default the first
        minimize: with a fit of E(S) and --step-time: tokens, time or cost to each loss

    Examples:
        bss schedule --from FIT.json --tokens 1M --stages 3 --lr 4e-3 --lr-coupling sqrt
        bss schedule --from FIT.json --tokens 1M --policy late-switch --set at=0.8
        bss schedule --from FIT.json --tokens 1M --minimize time --step-time "50ms + 2ms*B"
    """
    fitted = read_fit(fit, POLICIES_OF, "--from")
    name = policy or ("soonest" if minimize else POLICIES_OF[fitted.KIND])
    chosen = policy_named(name, [*settings, *_time_settings(policy, minimize, time)])
    if lr is None and (warmup, decay) != ("0", "0"):
        raise InputError("--warmup and --decay need --lr, the peak LR, e.g. 4e-3")
    _check_coupling(lr, lr_coupling, lr_batch)
    rate = None if lr is None else rate_of(lr, tokens, warmup, decay)
    if fitted.seq_len is None:
        raise InputError("--from: the table had no sequence length; fit it again with --seq-len")
    seq_len = int(fitted.seq_len)
    if isinstance(fitted, CurveFit):
        rate = rate or assumed_rate(fitted, tokens)
    basis = Basis(seq_len, fitted, rate)
    limits = Limits(stages, multiple_of, min_batch=min_batch, max_batch=max_batch)
    derive = partial(chosen, basis, tokens, limits)
    batch = attempt("policy", name, derive) if ":" in name else derive()
    if not isinstance(batch, BatchSchedule):
        raise InputError(f"policy: {name} gave {batch!r}; expected a BatchSchedule")
    reference = batch.batches[0] if lr_batch is None else lr_batch
    coupling = optimizer.coupling(tokens, lr=lr_coupling, reference_batch=reference)
    plan = resolve(batch, tokens, seq_len, rate=rate, coupling=coupling)
    warn_about(plan)
    warnings = beyond_measured(fitted, batch, tokens, rate)
    shown = plan_output(plan, export, BucketSizes(), warnings)
    text = {"export": shown.text} if shown.text else {}
    payload = {"kind": "schedule", "policy": name, "batch": str(batch), "law": fitted.law_name}
    payload |= {"plan": {key: x for key, x in shown.json.items() if key not in text}, **text}
    payload["warnings"] = warnings
    tables = [*shown.tables]
    if isinstance(fitted, CurveFit) and rate is not None:
        ladder = limits.within(basis.measured).ladder()
        expected = {"lr": rate.peak, **expected_losses(fitted, batch, tokens, rate, ladder)}
        payload |= {**expected, "lr": asdict(rate), "extrapolation": tokens / fitted.tokens}
        tables.append(Table.of_records("expected by the law", [expected]))
    notes, answer = [shown.answer, *shown.notes], f'--batch "{batch}"'
    return replace(
        shown, json=payload, answer=answer, tables=tables, warnings=warnings, notes=notes
    )


def _check_coupling(lr: float | None, rule: str, batch: int | None) -> None:
    """Raise InputError for options of the scaling of a learning rate that lack another."""
    if rule != "none" and lr is None:
        raise InputError(f"--lr-coupling {rule}: needs --lr, the peak LR at --lr-batch, e.g. 4e-3")
    check_lr_batch(batch, rule)


def _time_settings(policy: str | None, minimize: str | None, time: TimeOptions) -> list[str]:
    """Return the settings of the policy soonest, by --minimize and --step-time."""
    if minimize is None and time.step_time is None:
        return []
    if minimize is None or time.step_time is None or policy is not None:
        raise InputError("--minimize: needs --step-time and no --policy; give these two only")
    return [f"minimize={minimize}", f"step_time={time.step_time}", f"devices={time.devices}"]
