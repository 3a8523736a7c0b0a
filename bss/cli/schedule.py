"""bss schedule: a fitted law into a batch schedule, ready to train or to export."""

import argparse
import json
from pathlib import Path
from typing import Any

from bss.cli import schedule_curve
from bss.cli.output import Output, add_output_arguments
from bss.cli.plan import TRAINERS, check_peak, parse_budget, plan_notes, plan_table
from bss.errors import InputError
from bss.laws.es.values import EsFit
from bss.policies.recommend import recommend
from bss.schedules import rates
from bss.schedules.export import export
from bss.schedules.plan import resolve
from bss.units import parse_tokens


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command line of `bss schedule`."""
    add = parser.add_argument
    add("--from", dest="fit", type=Path, required=True, help="a fit, as `bss fit --json` prints it")
    add("--tokens", required=True, help="budget, as 10M")
    add("--stages", type=int, default=4, help="constant stages at most")
    add("--multiple-of", type=int, default=1, help="batches are multiples of it")
    add("--min-batch", type=float, help="by default the smallest batch measured")
    add("--max-batch", type=float, help="by default the largest batch measured")
    add("--lr", type=float, help="peak learning rate of the plan; without it the plan has none")
    add("--warmup", default="0", help="of that rate: tokens, or a percentage of the budget")
    add("--decay", default="0", help="of that rate: tokens, or a percentage of the budget")
    schedule_curve.add_arguments(parser)
    add("--export", choices=TRAINERS, help="print another trainer's settings")
    add_output_arguments(parser, plot=True)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> Output:
    """Derives the schedule and its plan."""
    entry = read_fit(options.fit)
    tokens = parse_budget(options.tokens)
    rate = _rate(options, tokens)
    if entry.get("kind") == "curve":
        return schedule_curve.run(options, entry, rate)
    schedule_curve.refuse_options(options)
    fit = EsFit.from_dict(entry)
    schedule = recommend(
        fit,
        tokens,
        options.stages,
        multiple_of=options.multiple_of,
        min_batch=options.min_batch,
        max_batch=options.max_batch,
    )
    plan = resolve(schedule, tokens, fit.seq_len, rate=rate)
    text = export(plan, options.export) if options.export else None
    payload = {
        "kind": "schedule",
        "batch": str(schedule),
        "law": fit.law,
        "steps": plan.steps,
        "tokens": plan.tokens,
        "plan": plan.to_dict(),
        **({"export": text} if text else {}),
    }
    notes = [f'--batch "{schedule}"', *plan_notes(plan)]
    return Output(payload, [plan_table(plan)], notes, text, lambda: _figure(plan))


def _rate(options: argparse.Namespace, tokens: int) -> rates.Rate | None:
    warmup = parse_tokens(options.warmup, field="--warmup", total=tokens)
    decay = parse_tokens(options.decay, field="--decay", total=tokens)
    if options.lr is None:
        if warmup or decay:
            raise InputError("--warmup and --decay shape the rate of --lr; give its peak, as 4e-3")
        return None
    check_peak(options.lr)
    return rates.wsd(options.lr, tokens, warmup, decay)


def read_fit(path: Path) -> dict[str, Any]:
    """The JSON object of a fit.

    Raises:
        InputError: where the file cannot be read, or holds no JSON object.
    """
    try:
        entry: Any = json.loads(path.read_text())
    except FileNotFoundError:
        raise InputError(f"--from {path}: no such file; save one with `bss fit … --json`") from None
    except (json.JSONDecodeError, UnicodeDecodeError):
        raise InputError(f"--from {path}: not JSON; save a fit with `bss fit … --json`") from None
    if not isinstance(entry, dict):
        raise InputError(f"--from {path}: expected one JSON object, as `bss fit … --json` prints")
    return entry


def _figure(plan):
    from bss.plots import plan_figure

    return plan_figure(plan)
