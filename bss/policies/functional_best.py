"""The best schedule under a fitted law of loss curves, at equal tokens or at equal loss.

Candidates are fixed batch sizes, late switches, and the free optimum (bss.policies.free_batches) in
a few stages. LR schedules are searched over peak, decay and its shape. Every prediction is of a
whole plan (derived here).
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, get_args

import numpy as np

from bss.errors import InputError, check
from bss.laws import CurveFit
from bss.laws.functional.curves import stack
from bss.laws.functional.forecast import check_identified
from bss.laws.functional.law import law_losses
from bss.laws.functional.paths import plan_path
from bss.policies.free_batches import GRID, TIE, free_batches
from bss.policies.policy import Basis, Limits
from bss.schedules.batch import BatchSchedule
from bss.schedules.rates import Rate, Shape

Optimise = Literal["batch", "lr", "both"]
SHARES = (0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0)
PEAKS = (1.0, 0.7, 0.5, 0.35, 0.25)
SHAPES: tuple[Shape, ...] = ("linear", "1-sqrt", "cosine")
ROUNDS = 12
CHUNK = 32


@dataclass(frozen=True)
class _Search:
    """The settings shared by all compared schedules."""

    fit: CurveFit
    tokens: int
    choices: tuple[int, ...]
    stages: int
    target: float | None

    def measured(self, candidates: Sequence["_Candidate"]) -> list[tuple[float, int]]:
        """Return the predicted loss and the steps of each, in chunks of one shape."""
        paths = [plan_path(c.schedule, self.tokens, self.fit.seq_len, c.rate) for c in candidates]
        losses: list[float] = []
        for begin in range(0, len(paths), CHUNK):
            part = [*paths[begin : begin + CHUNK], *paths[:1] * CHUNK][:CHUNK]
            losses += law_losses(self.fit.law, stack(part, self.fit.seq_len))[:, 0].tolist()
        steps = [round(float(path.steps.sum())) for path in paths]
        return list(zip(losses, steps, strict=False))

    def best(self, candidates: Sequence["_Candidate"]) -> tuple[tuple[float, ...], "_Candidate"]:
        """Return the candidate with the lowest score: loss, then steps; or steps to the target."""

        def score(loss: float, steps: int) -> tuple[float, ...]:
            if self.target is not None:
                return max(loss - self.target, 0.0), steps, loss
            return (math.log(loss - float(self.fit.law.L_0)) + TIE * math.log(steps),)

        scores = [score(*measured) for measured in self.measured(candidates)]
        return min(zip(scores, candidates, strict=True), key=lambda entry: entry[0])


class _Candidate(NamedTuple):
    schedule: BatchSchedule
    rate: Rate


@dataclass(frozen=True)
class FunctionalBest:
    """A schedule with the lowest predicted loss for a budget, or the fewest steps to a loss.

    Attributes:
        optimise: "batch" at the LR of the basis, "lr" at the best fixed batch size, or "both".
        target_loss: In nats. If given, the steps to reach it within the tokens are minimized.

    Raises:
        InputError: If `optimise` is invalid.
    """

    optimise: Optimise = "batch"
    target_loss: float | None = None

    def __post_init__(self):
        check(self.optimise in get_args(Optimise), "optimise", self.optimise, "batch, lr or both")

    def __call__(self, basis: Basis, tokens: int, limits: Limits) -> BatchSchedule:
        """Return the batch schedule of `search`."""
        return self.search(basis, tokens, limits)[0]

    def search(self, basis: Basis, tokens: int, limits: Limits) -> tuple[BatchSchedule, Rate]:
        """Return the batch schedule and the LR schedule; the latter may be optimised too.

        The fit must identify how fast noise decays. The peak LR of the basis (default:
        `assumed_rate`) is the largest one searched.

        Raises:
            InputError: If the fit does not identify the effect of what is optimised, or the target
                is below every prediction.
        """
        fit = basis.fitted(CurveFit)
        check_identified(fit, batch_changes=self.optimise != "lr")
        if self.optimise != "batch" and "p" in fit.unidentified:
            raise InputError(f"fit: p is {fit.unidentified['p']}; add runs at other LRs")
        ladder = limits.within(basis.measured).ladder()
        search = _Search(fit, tokens, ladder, limits.stages, self.target_loss)
        chosen = self._optimised(search, basis.rate or assumed_rate(fit, tokens))
        loss, _ = search.measured([chosen])[0]
        if self.target_loss is not None and loss > self.target_loss:
            raise InputError(
                f"target_loss: {self.target_loss:g} is below {loss:.5g}, the lowest predicted for "
                "these tokens and batches; raise one of them"
            )
        return chosen.schedule, chosen.rate

    def _optimised(self, search: "_Search", rate: Rate) -> "_Candidate":
        """Choose the LR schedule of fixed batch sizes, then improve both schedules alternately."""
        constants = [BatchSchedule.constant(batch) for batch in search.choices]
        score, chosen = search.best([_Candidate(schedule, rate) for schedule in constants])
        for _ in range(ROUNDS):
            before = score
            if self.optimise != "batch":
                rates = _rates(rate, search.fit.rates[0])
                options = [chosen, *(chosen._replace(rate=r) for r in rates)]
                options += [chosen._replace(schedule=s) for s in constants]
                score, chosen = search.best(options)
            settled = self.optimise == "batch" or score >= before
            if self.optimise != "lr" and settled:
                score, chosen = _improved(search, chosen)
            if score >= before or self.optimise == "batch":
                break
        return chosen


def assumed_rate(fit: CurveFit, tokens: int) -> Rate:
    """Return the default LR schedule: constant, at the largest peak LR measured."""
    return Rate(fit.rates[1], tokens)


def _rates(rate: Rate, least: float) -> list[Rate]:
    """Return LR schedules up to the peak of this one, over decays and shapes."""
    longest = rate.total - rate.warmup
    decays = [(0, SHAPES[0]), *itertools.product((round(x * longest) for x in SHARES), SHAPES)]
    return [
        replace(rate, peak=peak * rate.peak, decay=decay, shape=shape, floor=0.0)
        for peak in PEAKS
        if peak == 1 or peak * rate.peak >= least
        for decay, shape in decays
    ]


def _improved(search: _Search, chosen: _Candidate) -> tuple[tuple[float, ...], _Candidate]:
    """Return the best of this candidate and the fixed and switched ones, at one LR schedule."""
    rate, tokens = chosen.rate, search.tokens
    ideal = free_batches(search.fit, tokens, rate, search.choices, search.target)
    places = (GRID[1:] + GRID[:-1]) / 2 * tokens
    followed = BatchSchedule.follow(
        lambda count: math.exp(np.interp(count, places, np.log(ideal))),
        tokens,
        search.stages,
        allowed=search.choices,
    )
    schedules = [followed, *map(BatchSchedule.constant, search.choices)]
    if search.stages > 1:
        ladder = search.choices[:: max(1, len(search.choices) // 6)]
        schedules += [
            BatchSchedule.late_switch(first, last, round(share * tokens))
            for first, last in itertools.combinations(ladder, 2)
            for share in (0.3, 0.5, 0.7, 0.8, 0.9, 0.95)
        ]
    return search.best([chosen, *(_Candidate(schedule, rate) for schedule in schedules)])
