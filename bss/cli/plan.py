"""bss plan: the batch and the rate of every step, before anything is trained."""

import argparse
import math
import sys
from typing import Any, get_args

from bss.cli.output import Output, Table, add_output_arguments, drawing, number
from bss.errors import InputError
from bss.exports import EXPORTS, export
from bss.schedules.batch import BatchSchedule
from bss.schedules.config import ScheduleConfig
from bss.schedules.coupling import LR_RULES, Coupling
from bss.schedules.plan import Plan, resolve
from bss.schedules.rates import RATES, Shape
from bss.schedules.second_moment import short_second_moments
from bss.training.running.bucketing import Ladder
from bss.units import format_tokens, parse_tokens

OWN_DIVISORS = Ladder()
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
    add("--lr-coupling", default="none", help=f"{', '.join(LR_RULES)}, or module:ATTRIBUTE")
    add("--beta2-half-life", help="of Adam's second moment, in tokens; else beta2 is per step")
    add("--export", help=f"print what configures a trainer: {EXPORT_CHOICES}")
    add_output_arguments(parser, run, plot=True)


def run(options: argparse.Namespace) -> Output:
    """Resolves the plan."""
    plan, ladder = resolve_options(options), parse_buckets(options.buckets)
    warn_of_second_moments(plan)
    return plan_output(plan, plan_entry(plan, ladder), options.export, ladder)


def plan_output(
    plan: Plan,
    payload: dict[str, Any],
    trainer: str | None,
    ladder: Ladder = OWN_DIVISORS,
) -> Output:
    """A plan's table, totals and picture, or another trainer's settings in their place."""
    text = export(plan, trainer) if trainer else None
    totals = (
        f"{plan.steps:,} steps, {plan.tokens:,} tokens, {plan.remainder_tokens:,} left over, "
        f"{len(ladder.capacity(plan))} compiled programs"
    )
    return Output(
        payload | ({"export": text} if text else {}),
        [_table(plan, ladder)],
        [totals],
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
    given = options.beta2_half_life
    coupling = Coupling(
        lr=options.lr_coupling,
        reference_batch=schedule.batch.batches[0],
        beta2_half_life=given and parse_tokens(given, field="--beta2-half-life"),
    )
    rate = schedule.learning_rate(options.lr)
    return resolve(schedule.batch, tokens, options.seq_len, rate=rate, coupling=coupling)


def warn_of_second_moments(plan: Plan) -> None:
    """Says on stderr what `bss.schedules.second_moment` tells of a plan."""
    for message in short_second_moments([plan]).values():
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
        bucket = ladder.bucket(segment["batch"])
        rates = {name: segment.pop(name) for name in ("lr_start", "lr_end")}
        segment |= {"bucket": bucket, "accumulation": segment["batch"] // bucket, **rates}
    return {**entry, "programs": len(ladder.capacity(plan))}


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
    return Table.of(f"plan of {format_tokens(plan.budget)} tokens", plan.segments, cells)
