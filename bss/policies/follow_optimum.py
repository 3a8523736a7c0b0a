"""The batch schedule that follows B_opt along the loss trajectory of a law E(S).

This is the heuristic of Zhou et al. (arXiv 2601.05034) [paper: built on B_min and B_opt; secondary:
the batch grows stepwise with consumed tokens]. After t tokens the loss is the L with E_min(L) = t,
so the schedule uses B_opt(L). In the joint loss model B grows as t^{α/(1+α)} (derived here).

The schedule is not optimal under the law. In the joint model the noise depends on the current batch
size only, so a late switch reaches a lower loss at constant LR (derived here). Compare both in an
experiment.
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
    E_min, B_opt = numbers["E_min"], numbers["B_opt"]
    known = np.isfinite(E_min) & (np.diff(E_min, prepend=0) > 0)
    return np.log(E_min[known] * fit.seq_len), np.log(B_opt[known])
