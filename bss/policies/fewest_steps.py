"""The batch schedule with the fewest steps to the decayed loss of the best fixed batch size.

Once the LR decays, a ramp is not expected to reach a lower loss than the best fixed batch size at
equal tokens. It reaches the same loss in fewer steps. So this policy compares fixed batch sizes and
ramps of two or three stages. It takes the fewest steps whose predicted loss is within a tolerance
of the best fixed batch size's (derived here).
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bss.errors import InputError, check
from bss.laws import CurveFit, EsFit
from bss.laws.base import interval
from bss.laws.functional.values import check_identified
from bss.policies.forecast import FIRST, forecast_of, why_not
from bss.policies.policy import Basis, Limits
from bss.schedules.batch import BatchSchedule
from bss.schedules.plan import resolve
from bss.schedules.rates import WarmupStableDecay

TOLERANCE = 0.005
"""Nats above the best fixed batch size: less than the spread of two seeds of small models."""
SHARES = (FIRST, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)  # of the tokens, for switches
SIZES = 6  # batch sizes of ramps, spread over the allowed ones
NEAR = 16  # candidates on each side of the chosen one, which a draw of the law may prefer
GAIN = "no gain in loss is expected at equal tokens once the LR decays: a ramp saves steps"


@dataclass(frozen=True)
class FewestSteps:
    """A schedule with the fewest steps whose predicted decayed loss is within a tolerance.

    Attributes:
        tolerance: Nats above the predicted loss of the best fixed batch size.
    """

    tolerance: float = TOLERANCE

    def __call__(self, basis: Basis, tokens: int, limits: Limits) -> BatchSchedule:
        """Return the schedule.

        Raises:
            InputError: If the fit predicts no decayed losses.
        """
        fit: Any = basis.fit
        if reason := why_not(fit, basis.rate):
            raise InputError(f"policy fewest-steps: {reason}")
        return Sale(fit, tokens, basis.rate, limits, self.tolerance).schedule


class Sale:
    """The benefit of a ramp: steps and loss of the ramp and of the best fixed batch size.

    Attributes:
        schedule: the schedule with the fewest steps within the tolerance.
        fixed: the fixed batch size with the lowest predicted loss.
    """

    def __init__(
        self,
        fit: CurveFit | EsFit,
        tokens: int,
        rate: WarmupStableDecay | None,
        limits: Limits,
        tolerance: float = TOLERANCE,
    ) -> None:
        check(0 < tolerance < np.inf, "tolerance", tolerance, "nats above 0, e.g. 0.005")
        if isinstance(fit, CurveFit):
            check_identified(fit, batch_changes=True)
        self.fit = fit
        self.tokens = tokens
        self.rate = rate
        self.tolerance = tolerance
        ladder = limits.within(fit.batches).ladder()
        self.candidates = _candidates(ladder, tokens, limits.stages)
        self.constant = np.array([len(one.batches) == 1 for one in self.candidates])
        plans = [resolve(one, tokens, fit.seq_len) for one in self.candidates]
        self.steps = np.array([plan.steps for plan in plans])
        self.forecast = forecast_of(fit, tokens, rate)
        self.losses = self.forecast.losses(self.candidates)
        self.best, self.chosen = self._choice(self.losses, np.arange(len(plans)))
        self.schedule = self.candidates[self.chosen]
        self.fixed = self.candidates[self.best]

    def _choice(self, losses: np.ndarray, index: np.ndarray) -> tuple[int, int]:
        """Return the best fixed batch size and the fewest steps, among candidates of an index."""
        fixed = np.where(self.constant[index], losses, np.inf)
        best = int(fixed.argmin())
        within = losses <= losses[best] + self.tolerance
        chosen = int(np.where(within, self.steps[index], np.inf).argmin())
        return int(index[best]), int(index[chosen])

    def rows(self, step_time: Any = None) -> list[dict[str, Any]]:
        """Return tokens, steps, loss and hours of the best fixed batch size and of the ramp.

        An interval of steps is over the draws of the law. One is for the best fixed batch size, the
        other for the fewest steps among candidates near the chosen one.

        Args:
            step_time: Seconds per step, a `bss.laws.step_time.StepTime`.
        """
        order = np.argsort(self.steps, kind="stable")
        place = int(np.flatnonzero(order == self.chosen)[0])
        near = order[max(0, place - NEAR) : place + NEAR]
        index = np.unique([*np.flatnonzero(self.constant), *near])
        losses = self.forecast.drawn([self.candidates[i] for i in index])
        choices = np.array([self._choice(row, index) for row in losses], int).reshape(-1, 2)
        found = []
        for column, (name, number) in enumerate((("best fixed", self.best), ("ramp", self.chosen))):
            plan = resolve(self.candidates[number], self.tokens, self.fit.seq_len)
            row: dict[str, Any] = {"role": name, "batch": str(self.candidates[number])}
            row |= {"tokens": plan.tokens, "steps": plan.steps}
            at = np.flatnonzero(index == number)
            own = losses[:, at[0]] if len(losses) else np.empty(0)
            row |= _with_ends("loss", float(self.losses[number]), own, self.fit.level)
            row |= _ends("steps", plan.steps, self.steps[choices[:, column]], self.fit.level)
            if step_time is not None:
                row["hours"] = _hours(plan, step_time)
                hours = [self._hours_of(i, step_time) for i in choices[:, column]]
                row |= _ends("hours", row["hours"], np.array(hours), self.fit.level)
            found.append(row)
        return found

    def _hours_of(self, number: int, step_time: Any) -> float:
        plan = resolve(self.candidates[number], self.tokens, self.fit.seq_len)
        return _hours(plan, step_time)

    @property
    def answer(self) -> str:
        """The savings of the ramp, in one line."""
        steps = self.steps[self.chosen]
        least = self.steps[self.best]
        above = self.losses[self.chosen] - self.losses[self.best]
        return (
            f"{steps:,} steps against {least:,} of the best fixed batch {self.fixed} at the same "
            f"tokens ({1 - steps / least:.0%} fewer), {above:+.4f} nats"
        )


def _hours(plan: Any, step_time: Any) -> float:
    """Return the hours that the steps of a plan take."""
    seconds = [
        float(step_time(np.array(segment.batch))) * segment.steps for segment in plan.segments
    ]
    return sum(seconds) / 3600


def _with_ends(name: str, value: float, draws: np.ndarray, level: float) -> dict[str, Any]:
    return {name: value, **_ends(name, value, draws, level)}


def _ends(name: str, value: float, draws: np.ndarray, level: float) -> dict[str, Any]:
    """Return the ends of an interval by name; none without draws."""
    if not len(draws):
        return {f"{name}_low": None, f"{name}_high": None}
    found = interval(value, draws.astype(float), level=level)
    return {f"{name}_low": found.low, f"{name}_high": found.high}


def _candidates(ladder: Sequence[int], tokens: int, stages: int) -> list[BatchSchedule]:
    """Return all fixed batch sizes, and growing ramps of two or three stages between some."""
    found = [BatchSchedule.constant(batch) for batch in ladder]
    places = np.unique(np.linspace(0, len(ladder) - 1, SIZES).round().astype(int))
    sizes = [ladder[i] for i in places]
    for count in range(2, min(stages, 3) + 1):
        for batches in itertools.combinations(sizes, count):
            for shares in itertools.combinations(SHARES, count - 1):
                starts = (0, *(round(share * tokens) for share in shares))
                found.append(BatchSchedule(starts, batches))
    return found
