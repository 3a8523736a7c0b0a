"""Batch schedules of a law E(S): B_opt along the loss trajectory, the soonest, the cheapest.

`FollowOptimum` is the heuristic of Zhou et al. (arXiv 2601.05034) [paper: built on B_min and B_opt;
secondary: the batch grows stepwise with consumed tokens]. After t tokens the loss is the L with
E_min(L) = t, so the schedule uses B_opt(L). In the joint loss model B grows as t^{α/(1+α)} (derived
here).

The schedule is not optimal under the law. In the joint model the noise depends on the current batch
size only, so a late switch reaches a lower loss at constant LR (derived here). Compare both in an
experiment.

`Soonest` uses the batch size that reaches the loss L from the start soonest, or at the lowest cost
(derived here). `follow_measured` has no law: it uses the best measured batch size of each target.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd

from bss.errors import InputError, check
from bss.laws import EsFit
from bss.laws.step_time import CRITERIA, StepTime, best_batches
from bss.policies.policy import Basis, Limits, through
from bss.schedules.batch import BatchSchedule


@dataclass(frozen=True)
class FollowOptimum:
    """A schedule that follows B_opt of a fitted law E(S)."""

    def __call__(self, basis: Basis, tokens: int, limits: Limits) -> BatchSchedule:
        """Return the schedule.

        Raises:
            InputError: If the basis has no fit of E(S), or B_opt is not identified at any target.
        """
        ideal = optimal_batch(basis.fitted(EsFit))
        return limits.within(basis.measured).follow(ideal, tokens)


def optimal_batch(fit: EsFit) -> Callable[[float], float]:
    """Return B_opt in sequences as a function of tokens consumed: B_opt(L) with E_min(L) = tokens.

    A joint law defines it at every loss. Other laws define it at their targets; between and beyond
    the targets it is a power law of tokens.

    Raises:
        InputError: If B_opt is not identified at any target.
    """
    if not any("B_opt" in target.batches for target in fit.fits):
        raise InputError(f"fit: the {fit.law.name} has no B_opt; leave the law out of `bss fit es`")
    identified = [(at.E_min, at.best.value) for at in fit.fits if at.best.value is not None]
    if not identified:
        best = fit.fits[-1].best
        why = f" ({best.why})" if best.note else ""
        raise InputError(
            f"fit: B_opt is identified at no target{why}; measure batches on both sides of the "
            "minimum, or give a schedule"
        )
    by_law = all(at.best.method == fit.law.name for at in fit.fits)
    if fit.law.joint and by_law:
        return through(*_along_losses(fit))
    tokens, batch = np.array(sorted(identified)).T
    power = np.polyfit(np.log(tokens), np.log(batch), 1)[0] if len(tokens) > 1 else 0.0
    return through(np.log(tokens), np.log(batch), float(power))


def _along_losses(fit: EsFit) -> tuple[np.ndarray, np.ndarray]:
    """Return log E_min (tokens) and log B_opt of a joint law, at losses down to near its floor."""
    highest = fit.fits[0].target_loss
    parameters = fit.parameters(highest)
    floor = fit.law.loss(parameters, math.inf, math.inf)
    excess = np.geomspace(1e3, 1e-6, 2000) * (highest - floor)
    numbers = fit.law.quantities(parameters, floor + excess)
    E_min = numbers["E_min"]
    B_opt = numbers["B_opt"]
    known = np.isfinite(E_min) & (np.diff(E_min, prepend=0) > 0)
    return np.log(E_min[known] * fit.seq_len), np.log(B_opt[known])


@dataclass(frozen=True)
class Soonest:
    """A schedule from a fitted law E(S) and seconds per step.

    Between the targets of the fit the batch size is a power law of tokens.

    Attributes:
        minimize: "tokens", "time" or "cost".
        step_time: Seconds per step as text, e.g. "0.05 + 0.002*B", or a CSV file.
        devices: Number of devices per step, if the table has no such column.

    Raises:
        InputError: If a setting is invalid.
    """

    minimize: str = "time"
    step_time: str = ""
    devices: float = 1.0

    def __post_init__(self) -> None:
        check(self.minimize in CRITERIA, "minimize", self.minimize, f"one of {', '.join(CRITERIA)}")
        check(0 < self.devices < np.inf, "devices", self.devices, "a positive number")

    def __call__(self, basis: Basis, tokens: int, limits: Limits) -> BatchSchedule:
        """Return the schedule.

        Raises:
            InputError: If a fit of E(S) or the step times are missing.
        """
        fit = basis.fitted(EsFit)
        if not self.step_time:
            raise InputError("step_time: missing; write seconds per step, e.g. '0.05 + 0.002*B'")
        times = StepTime.read(self.step_time, self.devices)
        rows = [best_batches(fit, at.target_loss, times).set_index("criterion") for at in fit.fits]
        best = sorted(tuple(row.loc[self.minimize, ["tokens", "batch"]]) for row in rows)
        at, batch = np.log(np.array(best, float)).T
        power = float(np.polyfit(at, batch, 1)[0]) if len(at) > 1 else 0.0
        return limits.within(basis.measured).follow(through(at, batch, power), tokens)


def follow_measured(points: pd.DataFrame, tokens: int, limits: Limits) -> BatchSchedule:
    """Return the schedule through the best measured batch size of each target, without a law.

    It is used if no law identifies B_opt (derived here). At a target it has the batch size with the
    fewest tokens (geometric mean over its runs). Between targets it is a power law of tokens,
    outside them constant. A run that missed the target counts with the tokens that it consumed if
    these exceed the mean of the runs that reached it; otherwise it is ignored.

    Args:
        points: A table of points.
        tokens: Token budget.
        limits: Limits of the schedule.

    Raises:
        InputError: If no run reached a target.
    """
    reached = points["reached"].to_numpy(bool)
    cell = ["target_loss", "batch"]
    if not reached.any():
        raise InputError("points: no target was reached; train longer or raise the targets")
    logs = points[cell].assign(log=np.log(points["tokens_to_target"].to_numpy(float)))
    typical = logs[reached].groupby(cell)["log"].mean().rename("typical")
    logs = logs.join(typical, on=cell)
    means = logs[reached | (logs["log"] > logs["typical"])].groupby(cell)["log"].mean()
    best = means[means.groupby("target_loss").idxmin()].sort_values()
    ideal = through(best.to_numpy(), np.log(best.index.get_level_values("batch").to_numpy(float)))
    return limits.within(points["batch"].unique()).follow(ideal, tokens)
