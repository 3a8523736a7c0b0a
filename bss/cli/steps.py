"""bss schedule --minimize steps: what a ramp saves against the best fixed batch size."""

from dataclasses import replace
from typing import Any

from bss.cells import Table
from bss.cli.output import Output
from bss.errors import InputError
from bss.laws import CurveFit
from bss.policies.beyond import beyond_measured
from bss.policies.derive import DerivedSchedule
from bss.policies.fewest_steps import GAIN, TOLERANCE, Sale
from bss.policies.forecast import why_not
from bss.policies.policy import Limits
from bss.schedules.rates import WarmupStableDecay, wsd

DECAY = 0.2
"""Share of the tokens in the decay, if no LR is given: the usual one of our runs."""


def sale_of(
    fit: Any,
    tokens: int,
    rate: WarmupStableDecay | None,
    limits: dict[str, Any],
    tolerance: float | None,
) -> Sale:
    """Return the fewest steps of a fit of loss curves, or of E(S) of decayed losses.

    Raises:
        InputError: If the fit is of another kind, or its losses do not decay.
    """
    if rate is None and isinstance(fit, CurveFit):
        rate = wsd(fit.rates[1], tokens, 0, round(DECAY * tokens))
    if reason := why_not(fit, rate):
        raise InputError(f"--minimize steps: {reason}")
    return Sale(fit, tokens, rate, Limits(**limits), tolerance or TOLERANCE)


def derived_of(sale: Sale) -> DerivedSchedule:
    """Return the schedule of a sale, as other policies have it."""
    expected = {
        "predicted_loss": float(sale.losses[sale.chosen]),
        "constant_batch": sale.fixed.constant_batch,
        "constant_loss": float(sale.losses[sale.best]),
    }
    beyond = tuple(beyond_measured(sale.fit, sale.schedule, sale.tokens, sale.rate))
    name = "fewest-steps"
    return DerivedSchedule(
        sale.schedule, sale.fit.law_name, f"policy {name}", beyond, name, expected
    )


def with_sale(sale: Sale, step_time: Any, shown: Output) -> Output:
    """Return the output of a schedule with its steps against the best fixed batch size."""
    rows = sale.rows(step_time)
    title = f"at the same tokens, {sale.fit.level:.0%} intervals of the fit"
    known = {"minimize": "steps", "tolerance": sale.tolerance, "compared": rows}
    return replace(
        shown,
        json={**shown.json, **known},
        answer=f"{shown.answer}\n{sale.answer}",
        tables=[Table.of_records(title, rows), *shown.tables],
        notes=[*shown.notes, GAIN],
    )


def why_not_steps(fit: Any) -> str:
    """Return why the steps are not minimized by default."""
    if isinstance(fit, CurveFit):
        return "loss is minimized, as the LR does not decay; with --decay steps are minimized"
    return f"steps are not minimized: {why_not(fit, None)}"
