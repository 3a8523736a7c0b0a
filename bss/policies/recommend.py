"""A fitted law E(S) as a batch schedule, and the best constant batch for a horizon.

The heuristic of Zhou et al. (arXiv 2601.05034) [paper: built on B_min and B_opt; secondary: the
batch grows stepwise with consumed tokens]: where t tokens have brought the loss to the L at which
E_min(L) = t, train with B_opt(L). On the surface B grows as t^{α/(1+α)} (derived here). It is not
the law's own optimum: in the surface the noise depends on the current batch only, so that a late
switch does better at constant LR (derived here); recommend both to an experiment.
"""

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd

from bss.errors import InputError
from bss.laws.es import FAMILIES
from bss.laws.es.values import EsFit, tokens_to_target
from bss.schedules.batch import BatchSchedule


def recommend(
    fit: EsFit,
    tokens: int,
    stages: int = 4,
    *,
    multiple_of: int = 1,
    allowed_batches: Sequence[int] | None = None,
    min_batch: float | None = None,
    max_batch: float | None = None,
) -> BatchSchedule:
    """The schedule that follows B_opt along the loss trajectory.

    Args:
        fit: of a law that has a B_opt.
        tokens: budget of the run.
        stages: how many constant stages at most.
        multiple_of: batches are multiples of it ...
        allowed_batches: ... unless the batches to choose from are given, in sequences.
        min_batch: lower limit; by default the smallest batch measured.
        max_batch: upper limit; by default the largest batch measured.

    Raises:
        InputError: the fit identifies B_opt at no target, or an argument is not positive.
    """
    ideal = optimal_batch(fit)
    measured = [batch for batch in fit.measured_batches if batch > 0]
    low = min_batch if min_batch is not None else min(measured, default=1)
    high = max_batch if max_batch is not None else max(measured, default=math.inf)
    if not 0 < low <= high:
        raise InputError(f"min_batch: {low:g} must be positive and at most max_batch, {high:g}")
    if allowed_batches is None and multiple_of > high:
        raise InputError(
            f"multiple_of: {multiple_of} is above the largest batch, {high:g}; lower it, or give "
            "max_batch to go beyond the batches measured"
        )
    return BatchSchedule.follow(
        lambda count: min(max(ideal(count), low), high),
        tokens,
        stages,
        multiple_of=multiple_of,
        allowed=allowed_batches,
    )


def optimal_batch(fit: EsFit):
    """B_opt in sequences as a function of tokens consumed: B_opt(L) where E_min(L) = tokens.

    A joint law gives it at every loss, a law per target at its targets, between and beyond which it
    is a power law of tokens.

    Raises:
        InputError: the fit identifies B_opt at no target.
    """
    if "B_opt" not in fit.law.batches:
        known = " or ".join(law.name for law in FAMILIES if "B_opt" in law.batches)
        raise InputError(f"fit: the {fit.law.name} has no B_opt; fit the {known} law")
    identified = [
        (target.E_min, target.batches["B_opt"].value)
        for target in fit.fits
        if target.status == "converged" and target.batches["B_opt"].value is not None
    ]
    if not identified:
        raise InputError(
            f"fit: the {fit.law.name} law identifies B_opt at no target; measure batches on both "
            "sides of the minimum, or give a schedule"
        )
    if fit.law.joint:
        highest = fit.fits[0].target_loss
        parameters = fit.parameters(highest)
        floor = fit.law.loss(parameters, math.inf, math.inf)
        excess = np.geomspace(1e3, 1e-6, 2000) * (highest - floor)
        found = fit.law.quantities(parameters, floor + excess)
        E_min, B_opt = found["E_min"], found["B_opt"]
        known = np.isfinite(E_min) & (np.diff(E_min, prepend=0) > 0)
        log_tokens, log_batch = np.log(E_min[known] * fit.seq_len), np.log(B_opt[known])
        return lambda count: math.exp(np.interp(math.log(max(count, 1)), log_tokens, log_batch))
    log_tokens, log_batch = np.log(np.array(sorted(identified))).T
    return lambda count: math.exp(_power_law(math.log(max(count, 1)), log_tokens, log_batch))


def follow_measured(
    points: pd.DataFrame, tokens: int, stages: int = 4, *, multiple_of: int = 1
) -> BatchSchedule:
    """The schedule that follows the best measured batch of each target; no law is assumed.

    For a design in which no law identifies B_opt (derived here). At a target it is the batch with
    the fewest tokens (geometric mean over its runs); between targets a power law of tokens;
    outside them constant.

    Args:
        points: table of points.
        tokens: budget of the run.
        stages: how many constant stages at most.
        multiple_of: batches are multiples of it.

    Raises:
        InputError: no target was reached.
    """
    reached = points[points["reached"].astype(bool)]
    if reached.empty:
        raise InputError("points: no target was reached; train longer or raise the targets")
    best = []
    for _, at_target in reached.groupby("target_loss"):
        needed = {
            batch: float(np.log(rows["tokens_to_target"]).mean())
            for batch, rows in at_target.groupby("batch")
        }
        batch, least = min(needed.items(), key=lambda item: item[1])
        best.append((least, math.log(float(str(batch)))))
    log_tokens, log_batch = np.array(sorted(best)).T
    return BatchSchedule.follow(
        lambda count: math.exp(np.interp(math.log(max(count, 1)), log_tokens, log_batch)),
        tokens,
        stages,
        multiple_of=multiple_of,
    )


def _power_law(x: float, log_tokens: np.ndarray, log_batch: np.ndarray) -> float:
    """Linear in log-log between the points; beyond them the line through all of them."""
    if len(log_tokens) == 1:
        return float(log_batch[0])
    if log_tokens[0] <= x <= log_tokens[-1]:
        return float(np.interp(x, log_tokens, log_batch))
    slope = np.polyfit(log_tokens, log_batch, 1)[0]
    end = 0 if x < log_tokens[0] else -1
    return float(log_batch[end] + slope * (x - log_tokens[end]))


def law_optimum(
    fit: EsFit,
    tokens: int,
    *,
    settle: float = 0.1,
    batches: Sequence[int] | None = None,
) -> BatchSchedule:
    """The schedule that a joint law itself calls best: one late switch (derived here).

    In such a law, progress accumulates with the steps, and the noise is that of the current
    batch alone. So a growing schedule is best with its smallest batch until the end and a large one
    just long enough for the noise of the small one to be forgotten. The law does not know how
    long that is: `settle` says it. The pair of batches is searched.

    Args:
        fit: of a joint law.
        tokens: budget of the run.
        settle: the last stage as a fraction of the tokens.
        batches: to choose among; by default the batches measured.

    Raises:
        InputError: a law per target, or a settle that is no fraction.
    """
    law = fit.law
    if not law.joint:
        known = " or ".join(law.name for law in FAMILIES if law.joint)
        raise InputError(
            f"fit: the {law.name} law has no loss at a changing batch; fit the {known}"
        )
    if not 0 < settle < 1:
        raise InputError(f"settle: {settle:g} is not between 0 and 1; write a fraction of tokens")
    parameters = fit.parameters(fit.fits[0].target_loss)
    choices = sorted(batches or [round(batch) for batch in fit.measured_batches])
    switch = round((1 - settle) * tokens)

    def progress(batch: int, count: int) -> float:
        return count / (batch * fit.seq_len) * law.clock(parameters, batch)

    def loss(first: int, last: int) -> float:
        total = progress(first, switch) + progress(last, tokens - switch)
        return law.loss(parameters, total / law.clock(parameters, last), last)

    pairs = [(first, last) for first in choices for last in choices]
    first, last = min(pairs, key=lambda pair: loss(*pair))
    return BatchSchedule.late_switch(first, last, switch)


def best_constant(fit: EsFit, tokens: int, batches: Sequence[int] | None = None) -> int:
    """The constant batch with the lowest loss after a number of tokens, as the law has it.

    Args:
        fit: any fitted law.
        tokens: the horizon.
        batches: to choose among; by default the batches measured.

    Raises:
        InputError: no batches to choose among, or a law that is unidentified at every target.
    """
    choices = sorted(batches or [round(batch) for batch in fit.measured_batches])
    if not choices:
        raise InputError("batches: none to choose among; give at least one")
    losses = [predicted_loss(fit, tokens, batch) for batch in choices]
    return choices[int(np.argmin(losses))]


def predicted_loss(fit: EsFit, tokens: int, batch: float) -> float:
    """The loss after so many tokens at a constant batch, in nats.

    A joint law has it in closed form. A law per target is interpolated between its targets, in
    log tokens, and continued beyond the outer ones with their slope (derived here).

    Raises:
        InputError: the law is unidentified at every target.
    """
    if tokens <= 0:
        raise InputError(f"tokens: {tokens} is not positive; give the horizon in tokens")
    if fit.law.joint:
        parameters = fit.parameters(fit.fits[0].target_loss)
        return float(fit.law.loss(parameters, tokens / (batch * fit.seq_len), batch))
    targets = [target.target_loss for target in fit.fits if target.parameters]
    if not targets:
        raise InputError(
            f"fit: the {fit.law.name} law is unidentified at every target; add batches"
        )
    needed = np.array([float(tokens_to_target(fit, [batch], loss)[0]) for loss in targets])
    met = np.isfinite(needed)
    if met.sum() < 2:
        # With one target there is no slope: fewer tokens to it is all that can be compared.
        return targets[0] + math.log(needed[0] / tokens) if met.any() else math.inf
    x, y = np.log(needed[met]), np.array(targets)[met]
    i = int(np.clip(np.searchsorted(x, math.log(tokens)), 1, len(x) - 1))
    slope = (y[i] - y[i - 1]) / (x[i] - x[i - 1])
    return float(y[i] + slope * (math.log(tokens) - x[i]))
