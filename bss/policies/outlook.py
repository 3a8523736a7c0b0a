"""The prediction of a fitted law of loss curves for the schedule of any policy."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from scipy.optimize import brentq

from bss.laws import CurveFit
from bss.laws.functional.forecast import schedule_losses
from bss.schedules.batch import BatchSchedule
from bss.schedules.plan import resolve
from bss.schedules.rates import Rate


@dataclass(frozen=True)
class Outlook:
    """The prediction for a schedule, compared with the best fixed batch size (derived here).

    Attributes:
        predicted_loss: Final loss in nats.
        constant_batch: Fixed batch size with the lowest predicted loss, at the same LR.
        constant_loss: Its predicted loss at equal tokens.
        saved_at_equal_steps: Tokens saved relative to the fixed batch size at equal steps, as a
            share of the tokens of the fixed one.
        saved_at_equal_loss: The same at equal predicted loss; None if the fixed batch size does not
            reach it.
    """

    predicted_loss: float
    constant_batch: int
    constant_loss: float
    saved_at_equal_steps: float
    saved_at_equal_loss: float | None


def outlook(
    fit: CurveFit, schedule: BatchSchedule, tokens: int, rate: Rate, constants: Sequence[int]
) -> Outlook:
    """Predict a schedule and the best of several fixed batch sizes.

    Raises:
        InputError: If the fit does not identify the effect of a change of batch size or LR.
    """
    losses = [
        float(schedule_losses(fit, BatchSchedule.constant(size), tokens, rate)[0])
        for size in constants
    ]
    batch = constants[losses.index(min(losses))]
    constant = BatchSchedule.constant(batch)

    def constant_loss(log_tokens: float) -> float:
        factor = math.exp(log_tokens) / tokens
        total, warmup, decay = (round(factor * x) for x in (rate.total, rate.warmup, rate.decay))
        scaled = replace(rate, total=total, warmup=warmup, decay=min(decay, total - warmup))
        return float(schedule_losses(fit, constant, round(math.exp(log_tokens)), scaled)[0])

    loss = float(schedule_losses(fit, schedule, tokens, rate)[0])
    per_step = batch * fit.seq_len
    needed = _first_below(constant_loss, loss, math.log(tokens), per_step)
    plan = resolve(schedule, tokens, fit.seq_len)
    return Outlook(
        predicted_loss=loss,
        constant_batch=batch,
        constant_loss=min(losses),
        saved_at_equal_steps=1 - plan.tokens / (plan.steps * per_step),
        saved_at_equal_loss=None if needed is None else 1 - plan.tokens / needed,
    )


def _first_below(
    function: Callable[[float], float], level: float, middle: float, least: float
) -> float | None:
    """Return e^x with function(x) = level, for a falling function; None beyond 1000 × e^middle."""
    low, high = math.log(2 * least), middle + math.log(1000)
    if function(high) > level:
        return None
    if function(low) <= level:
        return math.exp(low)
    return math.exp(brentq(lambda x: function(x) - level, low, high, xtol=1e-6))
