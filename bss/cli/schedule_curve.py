"""bss schedule from a fit of loss curves: the schedule that the law predicts to be best."""

import argparse
from typing import Any

from bss.cli.output import Output, number
from bss.cli.plan import parse_budget, plan_notes, plan_table
from bss.errors import InputError
from bss.laws.functional.values import CurveFit
from bss.policies.functional_best import Recommendation, best_schedule
from bss.schedules.export import export
from bss.schedules.plan import resolve
from bss.schedules.rates import Rate
from bss.units import format_tokens

FAR = 2.0  # budgets over the longest fitted run from which a reader is warned


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What `bss schedule` takes besides for such a fit."""
    add = parser.add_argument
    add("--optimise", choices=("batch", "lr", "both"), help="of a `fit curve`: by default batch")
    add("--batch", type=int, help="of a `fit curve`: the constant batch of --optimise lr")
    add("--loss", type=float, help="of a `fit curve`: the fewest steps to this loss, in nats")


def refuse_options(options: argparse.Namespace) -> None:
    """Refuses, for a fit of another kind, the options of this one.

    Raises:
        InputError: naming the option.
    """
    for name in ("optimise", "batch", "loss"):
        if getattr(options, name) is not None:
            raise InputError(f"--{name}: takes a fit of `bss fit curve`; leave it out, or give one")


def run(options: argparse.Namespace, entry: dict[str, Any], rate: Rate | None) -> Output:
    """Searches the schedule.

    Args:
        options: of the command line.
        entry: the fit's JSON.
        rate: what --lr, --warmup and --decay describe; None without --lr.
    """
    fit = CurveFit.from_dict(entry)
    tokens = parse_budget(options.tokens)
    best = best_schedule(
        fit,
        tokens,
        optimise=options.optimise or "batch",
        rate=rate,
        batch=options.batch,
        stages=options.stages,
        multiple_of=options.multiple_of,
        min_batch=options.min_batch,
        max_batch=options.max_batch,
        target_loss=options.loss,
    )
    plan = resolve(best.schedule, tokens, fit.seq_len, rate=best.rate)
    text = export(plan, options.export) if options.export else None
    told = best.to_dict()
    payload = {
        "kind": "schedule",
        "law": "curve",
        "optimised": options.optimise or "batch",
        "batch": told.pop("schedule"),
        "lr": told.pop("rate"),
        **told,
        "extrapolation": tokens / fit.tokens,
        "plan": plan.to_dict(),
        **({"export": text} if text else {}),
    }

    def figure():
        from bss.plots import plan_figure

        return plan_figure(plan)

    notes = [f'--batch "{best.schedule}"', *_lines(best), *plan_notes(plan)]
    low, high = fit.batches
    if not all(low <= batch <= high for batch in best.schedule.batches):
        notes.append(f"warning: beyond the batches that were measured, {low:g} to {high:g}")
    if tokens <= fit.since:
        notes.append(f"warning: the fit is of losses after {format_tokens(fit.since)} tokens")
    if tokens > FAR * fit.tokens:
        notes.append(
            f"warning: {tokens / fit.tokens:,.3g} times the longest run of the fit, "
            f"{format_tokens(fit.tokens)}; the law extrapolates"
        )
    return Output(payload, [plan_table(plan)], notes, text, figure)


def _lines(best: Recommendation) -> list[str]:
    rate = best.rate
    decay = f", {rate.shape} decay over the last {rate.decay:,.0f} tokens" if rate.decay else ""
    saved = best.saved_at_equal_loss
    at_loss = "it never gets there" if saved is None else f"{saved:.1%} at equal loss"
    return [
        f"learning rate {number(rate.peak)}{decay}",
        f"predicted loss {best.predicted_loss:.4f}; batch {best.large_batch} throughout: "
        f"{best.large_loss:.4f}",
        f"tokens saved against it: {best.saved_at_equal_steps:.1%} at equal steps, {at_loss}",
    ]
