"""bss schedule: a fitted law into a batch schedule, ready to train or to export."""

import argparse
from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

from bss.cli.kinds import KINDS, read_fit
from bss.cli.output import Output, add_output_arguments, number
from bss.cli.plan import (
    add_export_arguments,
    add_optimizer_arguments,
    check_peak,
    coupling_of,
    parse_budget,
    plan_entry,
    plan_output,
    warn_of,
)
from bss.errors import InputError
from bss.laws import CurveFit
from bss.laws.functional.curves import stack
from bss.laws.functional.forecast import untested
from bss.laws.functional.paths import plan_path
from bss.policies import POLICIES, policy_named
from bss.policies.functional_best import assumed_rate
from bss.policies.outlook import Outlook, outlook
from bss.policies.policy import Basis, Limits, Policy, schedule_and_rate
from bss.registry import attempt
from bss.schedules import rates
from bss.schedules.batch import BatchSchedule
from bss.schedules.plan import Plan, resolve
from bss.tables import Reading, read_points
from bss.units import parse_tokens

SEARCHED = {"optimise": "optimise", "loss": "target_loss"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command line of `bss schedule`."""
    add = parser.add_argument
    add("--from", dest="fit", type=Path, required=True, help="a fit, as `bss fit --json` prints it")
    add("--tokens", required=True, help="budget, as 10M")
    add("--policy", help=f"{', '.join(POLICIES)}, or package.module:ATTRIBUTE; default by the fit")
    add("--set", action="append", default=[], metavar="NAME=VALUE", help="a setting of the policy")
    add("--points", type=Path, help="a table of `bss points`, for a policy that reads one")
    add("--stages", type=int, default=4, help="constant stages at most")
    add("--multiple-of", type=int, default=1, help="batches are multiples of it")
    add("--min-batch", type=float, help="by default the smallest batch measured")
    add("--max-batch", type=float, help="by default the largest batch measured")
    add("--lr", type=float, help="peak learning rate of the plan; without it the plan has none")
    add("--warmup", default="0", help="of that rate: tokens, or a percentage of the budget")
    add("--decay", default="0", help="of that rate: tokens, or a percentage of the budget")
    add("--optimise", choices=("batch", "lr", "both"), help="of a `fit curve`: by default batch")
    add("--loss", type=float, help="of a `fit curve`: the fewest steps to this loss, in nats")
    add_optimizer_arguments(parser)
    add_export_arguments(parser)
    add_output_arguments(parser, run, plot=True)


def run(options: argparse.Namespace) -> Output:
    """Derives the schedule and its plan.

    Examples:
        bss schedule --from FIT.json --tokens 1M --stages 3
        bss schedule --from FIT.json --tokens 1M --policy late-switch --set at=0.8
    """
    readable = [name for name, kind in KINDS.items() if kind.policy]
    fit = read_fit(options.fit, "schedule", readable)
    kind = KINDS[fit.KIND]
    tokens = parse_budget(options.tokens)
    rate = _rate(options, tokens)
    name = options.policy or kind.policy
    policy = _policy(options, name)
    if fit.seq_len is None:
        raise InputError("--from: the table had no sequence length; fit it again with --seq-len")
    seq_len = int(fit.seq_len)
    if kind.predicts_schedules:
        rate = rate or assumed_rate(fit, tokens)
    points = options.points and read_points(options.points, Reading(seq_len=seq_len))
    basis = Basis(seq_len, fit, points, rate)
    within = {"min_batch": options.min_batch, "max_batch": options.max_batch}
    limits = Limits(options.stages, options.multiple_of, **within)
    derive = partial(schedule_and_rate, policy, basis, tokens, limits)
    schedule, rate = attempt("policy", name, derive) if ":" in name else derive()
    if not isinstance(schedule, BatchSchedule):
        raise InputError(f"policy: {name} gave {schedule!r}; expected a BatchSchedule")
    plan = resolve(schedule, tokens, seq_len, rate=rate, coupling=coupling_of(options, tokens))
    warn_of(plan)
    payload = {
        "kind": "schedule",
        "policy": name,
        "batch": str(schedule),
        "law": fit.law_name,
        "steps": plan.steps,
        "tokens": plan.tokens,
        "plan": plan_entry(plan),
    }
    output = plan_output(plan, payload, options)
    printed = f'--batch "{schedule}"'
    if not kind.predicts_schedules or rate is None:
        return replace(output, notes=[printed, *output.notes])
    constants = limits.within(basis.measured).ladder()
    output = replace(output, json={**output.json, "optimised": options.optimise or "batch"})
    told = _with_outlook(output, fit, plan, rate, constants)
    return replace(told, notes=[printed, *told.notes])


def _with_outlook(
    output: Output, fit: CurveFit, plan: Plan, rate: rates.Rate, constants: Sequence[int]
) -> Output:
    """What is printed, and the losses that a law of curves expects of the plan."""
    tokens = plan.budget
    expected = outlook(fit, plan.schedule, tokens, rate, constants)
    payload = {
        **output.json,
        "lr": asdict(rate),
        **asdict(expected),
        "extrapolation": tokens / fit.tokens,
    }
    path = plan_path(plan.schedule, tokens, plan.seq_len, rate)
    curves = stack([path], plan.seq_len)
    warnings = [f"warning: beyond what was tested: {what}" for what in untested(fit, curves)[0]]
    notes = [*_expected(expected, rate), *output.notes, *warnings]
    return replace(output, json=payload, notes=notes)


def _policy(options: argparse.Namespace, name: str) -> Policy:
    """The policy with its settings; those of a search have options of their own."""
    given = [option for option in SEARCHED if getattr(options, option) is not None]
    settings = [f"{SEARCHED[option]}={getattr(options, option)}" for option in given]
    if given and not hasattr(POLICIES[name], "optimise"):
        search = KINDS["curve"].policy
        raise InputError(
            f"--{given[0]}: is of --policy {search}, for a fit of `bss fit curve`; leave it out"
        )
    return policy_named(name, [*options.set, *settings])


def _rate(options: argparse.Namespace, tokens: int) -> rates.Rate | None:
    warmup = parse_tokens(options.warmup, field="--warmup", total=tokens)
    decay = parse_tokens(options.decay, field="--decay", total=tokens)
    if options.lr is None:
        if warmup or decay:
            raise InputError("--warmup and --decay shape the rate of --lr; give its peak, as 4e-3")
        return None
    check_peak(options.lr)
    return rates.wsd(options.lr, tokens, warmup, decay)


def _expected(expected: Outlook, rate: rates.Rate) -> list[str]:
    decay = f", {rate.shape} decay over the last {rate.decay:,.0f} tokens" if rate.decay else ""
    saved = expected.saved_at_equal_loss
    at_loss = "it never gets there" if saved is None else f"{saved:.1%} at equal loss"
    return [
        f"learning rate {number(rate.peak)}{decay}",
        f"predicted loss {expected.predicted_loss:.4f}; the best constant batch, "
        f"{expected.constant_batch}: {expected.constant_loss:.4f}",
        f"tokens saved against it: {expected.saved_at_equal_steps:.1%} at equal steps, {at_loss}",
    ]
