"""A law E(S) as a batch schedule: B_opt along the loss trajectory.

The heuristic of Zhou et al. (arXiv 2601.05034) [paper: built on B_min and B_opt; secondary: the
batch grows stepwise with consumed tokens]: where t tokens have brought the loss to the L at which
E_min(L) = t, train with B_opt(L). On the surface B grows as t^{α/(1+α)} (derived here). It is not
the law's own optimum: in the surface the noise depends on the current batch only, so that a late
switch does better at constant LR (derived here); recommend both to an experiment.
"""

from dataclasses import dataclass

from bss.laws.es.values import EsFit
from bss.policies.policy import Basis, Limits
from bss.policies.recommend import optimal_batch
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
