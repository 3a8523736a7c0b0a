"""A law E(S) as a batch schedule: B_opt along the loss trajectory.

The heuristic of Zhou et al. (arXiv 2601.05034) [paper: built on B_min and B_opt; secondary: the
batch grows stepwise with consumed tokens]: where t tokens have brought the loss to the L at which
E_min(L) = t, train with B_opt(L). On the surface B grows as t^{α/(1+α)} (derived here). It is not
the law's own optimum: in the surface the noise depends on the current batch only, so that a late
switch does better at constant LR (derived here); recommend both to an experiment.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from bss.errors import InputError
from bss.laws import EsFit
from bss.policies.policy import Basis, Limits, through
from bss.schedules.batch import BatchSchedule


@dataclass(frozen=True)
class FollowOptimum:
    """Reads a fitted law E(S) that identifies B_opt."""

    def __call__(self, basis: Basis, tokens: int, limits: Limits) -> BatchSchedule:
        """The schedule that follows B_opt.

        Raises:
            InputError: there is no such fit, or it identifies B_opt at no target.
        """
        ideal = optimal_batch(basis.fitted(EsFit))
        return limits.within(basis.measured).follow(ideal, tokens)


def optimal_batch(fit: EsFit) -> Callable[[float], float]:
    """B_opt in sequences as a function of tokens consumed: B_opt(L) where E_min(L) = tokens.

    A joint law gives it at every loss, a law per target at its targets, between and beyond which it
    is a power law of tokens.

    Raises:
        InputError: the fit identifies B_opt at no target.
    """
    if not any("B_opt" in target.batches for target in fit.fits):
        raise InputError(f"fit: the {fit.law.name} has no B_opt; leave the law out of `bss fit es`")
    identified = [(at.E_min, at.best.value) for at in fit.fits if at.best.value is not None]
    if not identified:
        raise InputError(
            f"fit: B_opt is identified at no target{_why(fit)}; measure batches on both sides of "
            "the minimum, or give a schedule"
        )
    by_law = all(at.best.method == fit.law.name for at in fit.fits)
    if fit.law.joint and by_law:
        return through(*_along_losses(fit))
    tokens, batch = np.array(sorted(identified)).T
    power = np.polyfit(np.log(tokens), np.log(batch), 1)[0] if len(tokens) > 1 else 0.0
    return through(np.log(tokens), np.log(batch), float(power))


def _why(fit: EsFit) -> str:
    """Return the reason at the lowest target, in brackets."""
    best = fit.fits[-1].best
    return f" ({best.why})" if best.note else ""


def _along_losses(fit: EsFit) -> tuple[np.ndarray, np.ndarray]:
    """Logs of E_min in tokens and of B_opt of a joint law, at losses down to near its floor."""
    highest = fit.fits[0].target_loss
    parameters = fit.parameters(highest)
    floor = fit.law.loss(parameters, math.inf, math.inf)
    excess = np.geomspace(1e3, 1e-6, 2000) * (highest - floor)
    numbers = fit.law.numbers(parameters, floor + excess)
    E_min, B_opt = numbers["E_min"], numbers["B_opt"]
    known = np.isfinite(E_min) & (np.diff(E_min, prepend=0) > 0)
    return np.log(E_min[known] * fit.seq_len), np.log(B_opt[known])
