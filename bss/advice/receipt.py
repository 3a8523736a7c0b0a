"""Costs of a batch size in use: tokens, steps, days and price, for it and its multiples.

A batch size with the excess loss ΔL needs D·exp(ΔL/s) tokens to reach the loss of the best batch
size, to first order (derived here). There s = −dL/dlog D at the optimum. ΔL depends on the ratio to
the best batch size. Outside the sizes for which losses are known, ΔL is of the nearest size and
budget.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from bss.advice.fit_advice import FitAdvice
from bss.errors import check
from bss.laws.base import Estimate
from bss.rules import Setting
from bss.units import rounded_tokens

if TYPE_CHECKING:
    from bss.laws.step_time import StepTime

FACTORS = (0.5, 1.0, 2.0, 4.0)
MORE = 0.01  # tokens, relative to those of the best batch size


@dataclass(frozen=True)
class Receipt:
    """The costs of a batch size.

    Attributes:
        batch_tokens: the batch size in tokens.
        seq_len: tokens per sequence.
        ratio: of the batch size to the best one; None if that is only a bound.
        best: the best batch size in tokens, with its interval.
        rows: at multiples of the batch size, with the keys factor, batch_tokens, sequences, loss
            (above the optimum, nats), tokens (to the best batch size's loss at the budget), steps,
            days and cost. None if unknown.
        largest: the largest batch size in tokens that needs at most 1% more tokens than the best
            one, with the interval of the best one. None if the losses do not reach that far.
        losses_of: the size and budget of the losses, if they differ from the run's.
    """

    batch_tokens: float
    seq_len: int
    ratio: float | None
    best: Estimate
    rows: tuple[dict[str, Any], ...]
    largest: Estimate
    losses_of: str = ""

    @property
    def lines(self) -> list[str]:
        """The batch size relative to the best one, and the largest within 1% of the tokens."""
        first = f"Your batch: {_both(self.batch_tokens, self.seq_len)}"
        if self.ratio:
            inside = (self.best.low or 0) <= self.batch_tokens <= (self.best.high or np.inf)
            place = "inside" if inside else "outside"
            first += f", {self.ratio:.2g} × the best; {place} the 90% interval of the optimum"
        second = f"Largest batch within {MORE:.0%} of the tokens: unknown"
        if self.largest.value:
            ends = [rounded_tokens(end) for end in (self.largest.low, self.largest.high) if end]
            second = f"Largest batch within {MORE:.0%} of the tokens: "
            second += f"{_both(self.largest.value, self.seq_len)}; 90% interval {' to '.join(ends)}"
        return [first, second]

    def to_dict(self) -> dict[str, Any]:
        """Return the receipt for JSON."""
        largest = {end: getattr(self.largest, end) for end in ("value", "low", "high")}
        return {
            "batch_tokens": self.batch_tokens,
            "sequences": self.batch_tokens / self.seq_len,
            "ratio": self.ratio,
            "rows": [*self.rows],
            "largest_within_1_percent": largest,
            "losses_of": self.losses_of or None,
        }


def receipt(
    setting: Setting,
    best: Estimate,
    losses: FitAdvice,
    batch_tokens: float,
    step_time: "StepTime | None" = None,
    price: float = 1.0,
    losses_of: str = "",
) -> Receipt:
    """Return what a batch size costs.

    Args:
        setting: the planned run.
        best: its best batch size in tokens.
        losses: losses at multiples of the best batch size, with their slope.
        batch_tokens: the batch size that is used, in tokens.
        step_time: seconds per step; None without.
        price: of a device-hour.
        losses_of: the size and budget of the losses, if they differ from the run's.

    Raises:
        InputError: If the batch size is less than one sequence or more than the budget.
    """
    fits = setting.seq_len <= batch_tokens <= setting.tokens
    expected = f"{setting.seq_len} (one sequence) to {setting.tokens:g} tokens (the budget)"
    check(fits, "batch_tokens", batch_tokens, expected)
    rows = []
    for factor in FACTORS:
        size = factor * batch_tokens
        loss = losses.loss_at(size / best.value) if best.value else None
        row = {"factor": factor, "batch_tokens": size, "sequences": size / setting.seq_len}
        rows.append({**row, "loss": loss, **_costs(setting, losses, size, loss, step_time, price)})
    ratio = batch_tokens / best.value if best.value else None
    largest = _largest(best, losses)
    return Receipt(batch_tokens, setting.seq_len, ratio, best, tuple(rows), largest, losses_of)


def _costs(
    setting: Setting,
    losses: FitAdvice,
    size: float,
    loss: float | None,
    step_time: "StepTime | None",
    price: float,
) -> dict[str, float | None]:
    """Return tokens, steps, days and cost to the loss of the best batch size; None if unknown."""
    found: dict[str, float | None] = dict.fromkeys(("tokens", "steps", "days", "cost"))
    if loss is None or not losses.slope:
        return found
    tokens = setting.tokens * float(np.exp(loss / losses.slope))
    steps = max(1, round(tokens / size))
    found |= {"tokens": tokens, "steps": steps}
    if step_time is not None:
        sequences = np.array([size / setting.seq_len])
        seconds = float(step_time(sequences)[0])
        if np.isfinite(seconds):
            found["days"] = steps * seconds / 86400
            devices = float(step_time.devices_at(sequences)[0])
            found["cost"] = steps * seconds / 3600 * devices * price
    return found


def _largest(best: Estimate, losses: FitAdvice) -> Estimate:
    """Return the largest batch size within 1% of the tokens of the best one."""
    if best.value is None or not losses.slope:
        return Estimate(None)
    factor = losses.largest_within(losses.slope * float(np.log1p(MORE)))
    if factor is None:
        return Estimate(None)
    ends = (end and end * factor for end in (best.value, best.low, best.high))
    return Estimate(*ends, level=best.level)


def _both(batch_tokens: float, seq_len: int) -> str:
    """Return a batch size in tokens and in sequences."""
    sequences = batch_tokens / seq_len
    count = f"{sequences:,.0f}" if sequences >= 100 or sequences == round(sequences) else None
    return f"{rounded_tokens(batch_tokens)} tokens ({count or f'{sequences:.3g}'} sequences)"
