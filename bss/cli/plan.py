"""bss plan: the batch and the rate of every step, before anything is trained."""

import argparse
import math
import sys
from pathlib import Path
from typing import Any, get_args

from bss.cells import estimate
from bss.cli.kinds import read_fit
from bss.cli.output import Output, Table, add_output_arguments, drawing, number
from bss.errors import InputError
from bss.exports import EXPORTS, export
from bss.schedules.batch import BatchSchedule
from bss.schedules.config import ScheduleConfig
from bss.schedules.coupling import LR_RULES, Coupling
from bss.schedules.momentum import BETA1_RULES, told
from bss.schedules.plan import Plan, resolve
from bss.schedules.rates import RATES, Shape
from bss.schedules.second_moment import short_second_moments
from bss.training.running.bucketing import Ladder
from bss.units import format_tokens, parse_tokens

OWN_DIVISORS = Ladder()
MOMENTS = {"beta1": "first", "beta2": "second"}
EXPORT_CHOICES = f"{', '.join(EXPORTS)}, or module:ATTRIBUTE"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command line of `bss plan`."""
    add = parser.add_argument
    add("--tokens", required=True, help="budget, as 10M")
    add("--seq-len", type=int, required=True, help="tokens per sequence")
    add("--batch", required=True, help='in sequences, as "0:8 2M:16 6M:32"')
    add("--lr", type=float, required=True, help="peak learning rate")
    add("--warmup", default="0", help="tokens, or a percentage of the budget")
    add("--decay", default="0", help="tokens, or a percentage of the budget")
    add("--shape", default="linear", choices=get_args(Shape))
    add("--rate", default="wsd", help=f"{', '.join(RATES)}, or module:ATTRIBUTE; wsd by default")
    add("--floor", type=float, default=0.0, help="last rate as a fraction of the peak")
    add("--buckets", help="ladder of bucket sizes, as 8,32")
    text = (
        f"{', '.join(LR_RULES)}, a power, module:ATTRIBUTE, or from:FIT of a table whose rates vary"
    )
    add("--lr-coupling", default="none", help=text)
    add_optimizer_arguments(parser)
    add_export_arguments(parser)
    add_output_arguments(parser, run, plot=True)


def add_optimizer_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds what a plan sets besides batch and rate."""
    add = parser.add_argument
    for name, moment in MOMENTS.items():
        add(f"--{name}", type=float, help=f"of Adam's {moment} moment, per step")
        half_life = "its half-life, in tokens or a percentage of the budget"
        add(f"--{name}-half-life", help=f"in place of --{name}: {half_life}")
    text = f"{', '.join(BETA1_RULES)}, a percentage of the run's steps, or module:ATTRIBUTE"
    add("--beta1-coupling", default="none", help=f"beta1 by the steps of the run: {text}")
    add("--weight-decay", type=float, help="decoupled, of a step")


def add_export_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds --export and --approximate."""
    text = f"print what configures a trainer, or a row a step: {EXPORT_CHOICES}"
    parser.add_argument("--export", metavar="TRAINER", help=text)
    text = "export the nearest, where the trainer cannot do all that the plan does"
    parser.add_argument("--approximate", action="store_true", help=text)


def run(options: argparse.Namespace) -> Output:
    """Resolves the plan.

    Examples:
        bss plan --tokens 10B --seq-len 2048 --batch "0:256 2B:512" --lr 1e-3
        bss plan --tokens 10B --seq-len 2048 --batch 256 --lr 1e-3 --export levanter
    """
    plan, ladder = resolve_options(options), parse_buckets(options.buckets)
    warn_of(plan)
    return plan_output(plan, plan_entry(plan, ladder), options, ladder)


def plan_output(
    plan: Plan,
    payload: dict[str, Any],
    options: argparse.Namespace,
    ladder: Ladder = OWN_DIVISORS,
) -> Output:
    """A plan's table, totals and picture, or what --export asks for in their place."""
    if options.approximate and not options.export:
        raise InputError("--approximate: is of an export; name the trainer by --export")
    text = options.export and export(plan, options.export, approximate=options.approximate).rstrip()
    totals = (
        f"{plan.steps:,} steps, {plan.tokens:,} tokens, {plan.remainder_tokens:,} left over, "
        f"{len(ladder.capacity(plan))} compiled programs"
    )
    return Output(
        payload | ({"export": text} if text else {}),
        [_table(plan, ladder)],
        [totals, *filter(None, [told(plan.coupling.beta1_rule)])],
        text,
        drawing("schedules.schedule_figure", plan),
    )


def resolve_options(options: argparse.Namespace) -> Plan:
    """The plan that the options describe; a mistake is told by its option."""
    tokens = parse_budget(options.tokens)
    check_peak(options.lr)
    schedule = ScheduleConfig(
        tokens,
        BatchSchedule.parse(options.batch, total=tokens),
        options.rate,
        parse_tokens(options.warmup, field="--warmup", total=tokens),
        parse_tokens(options.decay, field="--decay", total=tokens),
        options.shape,
        options.floor,
    )
    for name in schedule.foreign:
        raise InputError(f"--{name}: --rate {options.rate} has none; leave it out")
    if schedule.warmup > tokens:
        raise InputError(f"--warmup {schedule.warmup}: longer than the {tokens} tokens; shorten it")
    scaled = {"lr": fitted_coupling(options.lr_coupling)}
    coupling = coupling_of(options, tokens, **scaled, reference_batch=schedule.batch.batches[0])
    rate = schedule.learning_rate(options.lr)
    return resolve(schedule.batch, tokens, options.seq_len, rate=rate, coupling=coupling)


def fitted_coupling(rule: str) -> str:
    """A rule, or the power of B that the best rate of a fit follows, of `from:FIT`; it is told.

    Raises:
        InputError: the fit's runs do not tell it.
    """
    if not rule.startswith("from:"):
        return rule
    fit = read_fit(Path(rule.removeprefix("from:")), "plan", ("table",))
    power = fit.best_lrs and fit.best_lrs.exponents["B"]
    if power is None or power.value is None:
        why = "its table has no batch of several rates" if power is None else power.note
        raise InputError(f"--lr-coupling {rule}: {why}; name a rule, as sqrt")
    print(f"rate ∝ B^{estimate(power)}, {power.level:.0%} interval: {rule}", file=sys.stderr)
    return f"{power.value:.4g}"


def coupling_of(options: argparse.Namespace, tokens: int, **others: Any) -> Coupling:
    """The coupling of the options of `add_optimizer_arguments`, and what else it has."""
    given: dict[str, Any] = {}
    for name in MOMENTS:
        option, text = f"--{name}-half-life", getattr(options, f"{name}_half_life")
        given[name] = getattr(options, name)
        if text and given[name] is not None:
            raise InputError(f"--{name}: per step, or {option} in tokens; leave one of them out")
        if text and name == "beta1" and options.beta1_coupling != "none":
            raise InputError(f"{option}: or --beta1-coupling; leave one of them out")
        given[f"{name}_half_life"] = text and parse_tokens(text, field=option, total=tokens)
    given |= {"beta1_rule": options.beta1_coupling, "weight_decay": options.weight_decay}
    return Coupling(**given, **others)


def warn_of(plan: Plan, *, second_moment: bool = True) -> None:
    """Says on stderr which stages are not trained, and what second moments are too short."""
    short = short_second_moments([plan]).values() if second_moment else ()
    for message in (*plan.unseen(), *short):
        print(f"warning: {message}", file=sys.stderr)


def parse_budget(text: str) -> int:
    """The count of --tokens, at least 1."""
    tokens = parse_tokens(text, field="--tokens")
    if not tokens:
        raise InputError(f"--tokens {text}: expected a budget above 0, as 10M")
    return tokens


def check_peak(lr: float) -> None:
    """Refuses a peak learning rate that is zero, negative, infinite or NaN."""
    if not 0 < lr < math.inf:
        raise InputError(f"--lr {lr}: expected a positive number, as 4e-3")


def parse_buckets(text: str | None) -> Ladder:
    """The buckets of "8,32"."""
    if text is None:
        return OWN_DIVISORS
    try:
        return Ladder(tuple(int(part) for part in text.split(",")))
    except ValueError:
        raise InputError(f"--buckets {text!r}: expected integers, as 8,32") from None


def plan_entry(plan: Plan, ladder: Ladder = OWN_DIVISORS) -> dict[str, Any]:
    """A plan and its buckets for JSON; "programs" is the number of buckets in use."""
    entry = plan.to_dict()
    for segment in entry["segments"]:
        segment |= _besides(plan, segment["batch"])
        bucket = ladder.bucket(segment["batch"])
        rates = {name: segment.pop(name) for name in ("lr_start", "lr_end")}
        segment |= {"bucket": bucket, "accumulation": segment["batch"] // bucket, **rates}
    ruled = told(plan.coupling.beta1_rule)
    programs = {"programs": len(ladder.capacity(plan))}
    return {**entry, **programs, **({"beta1_coupling": ruled} if ruled else {})}


def _besides(plan: Plan, batch: int) -> dict[str, float]:
    """Of beta2 and weight decay, what the plan sets, at a batch."""
    settings = plan.coupling.settings(1.0, batch, plan.seq_len)
    return {name: getattr(settings, name) for name in plan.coupling.given}


def _table(plan: Plan, ladder: Ladder) -> Table:
    """The segments of a plan, a row each."""
    cells = {
        "from tokens": lambda s: f"{s.start_tokens:,}",
        "to tokens": lambda s: f"{s.end_tokens:,}",
        "batch": lambda s: s.batch,
        "batch tokens": lambda s: format_tokens(s.batch * plan.seq_len),
        "steps": lambda s: f"{s.steps:,}",
        "bucket × n": lambda s: f"{ladder.bucket(s.batch)} × {s.batch // ladder.bucket(s.batch)}",
    }
    if plan.rate:
        cells["lr"] = lambda s: f"{number(s.lr_start)} → {number(s.lr_end)}"
    for name in plan.coupling.given:
        cells[name.replace("_", " ")] = lambda s, name=name: number(_besides(plan, s.batch)[name])
    return Table.of(f"plan of {format_tokens(plan.budget)} tokens", plan.segments, cells)
