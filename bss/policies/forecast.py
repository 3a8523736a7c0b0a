"""Predicted decayed losses of batch schedules: by a law of loss curves, or by E(S).

A fit of E(S) to decayed losses knows fixed batch sizes alone. For a ramp, two states of equal loss
are taken as equal. After a switch to batch B at loss L the run goes on as one of batch B that has
had the tokens E_B(L) (derived here).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from bss.laws import CurveFit, EsFit, LossFit
from bss.laws.functional.data import Curves, plan_path, stack
from bss.laws.functional.law import CurveLaw, law_losses
from bss.schedules.batch import BatchSchedule
from bss.schedules.rates import WarmupStableDecay

CHUNK = 32  # schedules that are predicted together, so that one shape is compiled
POINTS = 40  # losses at which the tokens of a law of all targets are computed
FIRST = 0.05  # of the tokens: no stage ends before them
DECAYED = "decayed"


class Forecast(Protocol):
    """Predicts losses in nats at the end of schedules."""

    def losses(self, schedules: Sequence[BatchSchedule]) -> np.ndarray:
        """Return the losses [n] of schedules."""
        ...

    def drawn(self, schedules: Sequence[BatchSchedule]) -> np.ndarray:
        """Return the losses [R, n] by each draw of the law."""
        ...


def why_not(fit: Any, rate: Any) -> str:
    """Return why a fit predicts no decayed loss of a ramp; "" if it does.

    Args:
        fit: Of any kind.
        rate: LR as a function of tokens, which a fit of loss curves needs.
    """
    if isinstance(fit, CurveFit):
        return "" if decays(rate) else "the LR does not decay; give --decay, e.g. 20%"
    if isinstance(fit, LossFit):
        return (
            "final losses are of whole runs at one batch size, so the decayed loss of a ramp is "
            "unknown; use loss curves (`bss fit curve`) or decayed points (`bss fit es`)"
        )
    if not isinstance(fit, EsFit):
        return f"a fit of kind {fit.KIND} does not predict the decayed loss of a ramp"
    if not fit.lr_phase:
        return "the fit has no lr_phase; fit its points again"
    if fit.lr_phase != DECAYED:
        return f"the losses of the fit are of LR phase {fit.lr_phase}, not decayed"
    if not fit.law.joint and sum(bool(at.parameters) for at in fit.fits) <= 1:
        return "the law is identified at one target loss at most; fit two"
    return ""


def decays(rate: Any) -> bool:
    """Return whether an LR schedule has a decay; unknown ones are taken as without one."""
    return bool(getattr(getattr(rate, "stages", None), "decay", 0))


def forecast_of(fit: CurveFit | EsFit, tokens: int, rate: WarmupStableDecay | None) -> Forecast:
    """Return the forecast of a fit, for which `why_not` is empty."""
    if isinstance(fit, EsFit):
        return EsForecast(fit, tokens)
    return CurveForecast(fit, tokens, rate)


@dataclass(frozen=True)
class CurveForecast:
    """By the functional scaling law, under an LR schedule.

    Attributes:
        fit: Of loss curves.
        tokens: Budget.
        rate: LR as a function of tokens.
    """

    fit: CurveFit
    tokens: int
    rate: Any

    def losses(self, schedules: Sequence[BatchSchedule]) -> np.ndarray:
        """See `Forecast`."""
        return self._by(self.fit.law, self._curves(schedules), len(schedules))

    def drawn(self, schedules: Sequence[BatchSchedule]) -> np.ndarray:
        """See `Forecast`."""
        curves = self._curves(schedules)
        rows = [self._by(CurveLaw(*row), curves, len(schedules)) for row in self.fit.draws]
        return np.array(rows).reshape(-1, len(schedules))

    def _curves(self, schedules: Sequence[BatchSchedule]) -> list[Curves]:
        """Return the paths of schedules, CHUNK at a time; the last ones repeat the first."""
        paths = [plan_path(one, self.tokens, self.fit.seq_len, self.rate) for one in schedules]
        parts = [paths[begin : begin + CHUNK] for begin in range(0, len(paths), CHUNK)]
        filled = [[*part, *paths[:1] * CHUNK][:CHUNK] for part in parts]
        return [stack(part, self.fit.seq_len) for part in filled]

    def _by(self, law: CurveLaw, curves: Sequence[Curves], count: int) -> np.ndarray:
        """Return predicted losses [count] by one law."""
        losses = np.concatenate([law_losses(law, part)[:, 0] for part in curves])
        return np.asarray(losses)[:count]


@dataclass(frozen=True)
class EsForecast:
    """By E(S) of decayed losses.

    Attributes:
        fit: Of E(S).
        tokens: Budget.
    """

    fit: EsFit
    tokens: int

    def losses(self, schedules: Sequence[BatchSchedule]) -> np.ndarray:
        """See `Forecast`."""
        return self._of(schedules, refits=False)[0]

    def drawn(self, schedules: Sequence[BatchSchedule]) -> np.ndarray:
        """See `Forecast`."""
        return self._of(schedules, refits=True)

    def _of(self, schedules: Sequence[BatchSchedule], *, refits: bool) -> np.ndarray:
        """Return losses [R, n], by the law or by its refits."""
        batches = sorted({batch for one in schedules for batch in one.batches})
        grid = self._grid(batches)
        logs = self._logs(np.array(batches, float), grid, refits=refits)
        places = {batch: i for i, batch in enumerate(batches)}
        found = [
            [_end(one, self.tokens, {b: row[places[b]] for b in one.batches}, grid)
             for one in schedules]
            for row in logs
        ]  # fmt: skip
        return np.array(found).reshape(-1, len(schedules))

    def _grid(self, batches: Sequence[int]) -> np.ndarray:
        """Return losses [K], the highest first, at which tokens are known."""
        if not self.fit.law.joint:
            return np.array([at.target_loss for at in self.fit.fits if at.parameters])
        sizes = np.array(batches, float)
        highest = self.fit.losses(sizes, FIRST * self.tokens).max()
        lowest = self.fit.losses(sizes, self.tokens).min()
        return np.linspace(highest, lowest, POINTS)

    def _logs(self, batches: np.ndarray, grid: np.ndarray, *, refits: bool) -> np.ndarray:
        """Return log tokens [R, B, K] to each loss at each batch size."""
        each = []
        for loss in grid.tolist():
            drawn = self.fit.token_draws(batches, loss) if refits else None
            each.append(self.fit.tokens(batches, loss)[:, None] if drawn is None else drawn)
        return np.moveaxis(np.log(np.array(each)), 0, -1).swapaxes(0, 1)


def _end(
    schedule: BatchSchedule, tokens: int, logs: dict[int, np.ndarray], grid: np.ndarray
) -> float:
    """Return the loss at the end of a schedule, by log tokens [K] to losses [K] of each batch."""
    ends = (*schedule.starts[1:], tokens)
    loss = np.inf
    for batch, start, end in zip(schedule.batches, schedule.starts, ends, strict=True):
        reached = np.isfinite(logs[batch])
        if reached.sum() <= 1:
            return np.inf
        at = logs[batch][reached]
        known = grid[reached]
        had = np.exp(_line(-loss, -known, at)) if np.isfinite(loss) else 0.0
        loss = _line(np.log(had + end - start), at, known)
    return float(loss)


def _line(x: float, xs: np.ndarray, ys: np.ndarray) -> float:
    """Return y at x on lines through points with ascending x; the outer lines go on beyond them."""
    i = int(np.clip(np.searchsorted(xs, x), 1, len(xs) - 1))
    slope = (ys[i] - ys[i - 1]) / (xs[i] - xs[i - 1])
    return float(ys[i] + slope * (x - xs[i]))
