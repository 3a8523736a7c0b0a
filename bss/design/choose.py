"""Choosing runs: what narrows the goal most for its price, and what checks the law.

A run's worth is the log by which it narrows the goal's interval, less that by which its price
would if it were spent on all runs of the table once more: those make an interval narrower as the
root of their number, so a price of a share p of what was spent is worth ½·log(1 + p). Nothing is
worth its price once every worth is below 0 (derived here). Under a budget runs are chosen by
narrowing over cost.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from bss.design.belief import Belief
from bss.errors import InputError

CHECKS = 1 / 3
"""Of the runs that are picked, those that check the law."""
CHECKS_OF_MANY = 1 / 8
DOUBTED = 0.5  # standard deviations that forms lie apart, from which a run is worth a check
MOVES = 1e-3  # log of the interval's width, below which no candidate moves a goal
EXCHANGES = 20


@dataclass(frozen=True)
class Choice:
    """One run that is chosen.

    Attributes:
        run: its index.
        checks: whether it is there to check the law.
        doubt: how many standard deviations of its outcome the forms lie apart.
        before, after: the goal's interval before it and after it, with those above done.
    """

    run: int
    checks: bool
    doubt: float
    before: tuple[float, float]
    after: tuple[float, float]


def narrowest(
    belief: Belief, cost: np.ndarray, seeds: np.ndarray, spent: float, pick: int
) -> tuple[list[Choice], str]:
    """The runs to do next, at most so many, and why there are no more; the checks come last.

    Args:
        belief: of the goal and of candidates [m], with nothing added.
        cost: [m].
        seeds: [m], runs of each.
        spent: cost of what was done already.
        pick: how many at most.

    Raises:
        InputError: no candidate moves the goal.
    """
    most = float(belief.narrowing(seeds).max())
    if most < MOVES:
        raise InputError(
            f"--goal: no candidate moves it, the best by {most:.2%} of its interval; give others, "
            "nearer to what is asked"
        )
    picks, why = _greedy(belief, cost, seeds, spent, pick - int(pick * CHECKS))
    picks = _exchanged(belief, cost, seeds, spent, picks)
    now, checks = belief.after(picks, seeds), 0
    while len(picks) < pick and not why:
        worth = np.where(np.isin(np.arange(len(cost)), picks), 0.0, now.doubt(seeds))
        worth = np.where(worth < DOUBTED, 0.0, worth) / cost
        if worth.max() <= 0:
            more, why = _greedy(now, cost, seeds, spent + cost[picks].sum(), 1)
            picks += more
        else:
            picks.append(int(worth.argmax()))
            checks += 1
        now = belief.after(picks, seeds)
    return _told(belief, seeds, picks, len(picks) - checks), why


def _worth(now: Belief, cost: np.ndarray, seeds: np.ndarray, spent: float) -> np.ndarray:
    worth = now.narrowing(seeds) - 0.5 * np.log1p(cost / spent)
    worth[now.added] = -np.inf
    return worth


def _greedy(
    belief: Belief, cost: np.ndarray, seeds: np.ndarray, spent: float, pick: int
) -> tuple[list[int], str]:
    picks: list[int] = []
    now = belief.after(belief.added, seeds)
    while len(picks) < pick:
        worth = _worth(now, cost, seeds, spent + cost[picks].sum())
        run = int(worth.argmax())
        if worth[run] <= 0:
            return picks, _enough(now, cost, seeds, spent + float(cost[picks].sum()))
        picks.append(run)
        now.add(run, float(seeds[run]))
    return picks, ""


def _enough(now: Belief, cost: np.ndarray, seeds: np.ndarray, spent: float) -> str:
    """Why nothing more is worth its price, by the best that is left."""
    run = int(_worth(now, cost, seeds, spent).argmax())
    narrows, price = -np.expm1(-now.narrowing(seeds)[run]), cost[run] / spent
    return (
        f"nothing left is worth its price: the best narrows the interval by {narrows:.2%} for "
        f"{price:.2%} of what all runs cost, which would narrow it by "
        f"{1 - (1 + price) ** -0.5:.2%} if it were spent on all of them once more"
    )


def _exchanged(
    belief: Belief, cost: np.ndarray, seeds: np.ndarray, spent: float, picks: list[int]
) -> list[int]:
    """One run for another as long as that makes all of them worth more together."""
    for i in range(EXCHANGES if len(picks) > 1 else 0):
        others = picks[: i % len(picks)] + picks[i % len(picks) + 1 :]
        now = belief.after(others, seeds)
        worth = _worth(now, cost, seeds, spent + cost[others].sum())
        run = int(worth.argmax())
        if worth[run] > worth[picks[i % len(picks)]] + 1e-9:
            picks = [*others, run]
    return picks


def _told(belief: Belief, seeds: np.ndarray, picks: list[int], narrow: int) -> list[Choice]:
    """Each run with the interval before and after it, in their order."""
    now, told = belief.after([], seeds), []
    for i, run in enumerate(picks):
        before, doubt = now.interval, float(now.doubt(seeds)[run])
        now.add(run, float(seeds[run]))
        told.append(Choice(run, i >= narrow, doubt, before, now.interval))
    return told


def within(
    belief: Belief,
    cost: np.ndarray,
    budget: float,
    by: Callable[[Belief, np.ndarray], np.ndarray] = Belief.narrowing,
    checks: float = CHECKS_OF_MANY,
) -> list[int]:
    """The runs [m] that are done under a budget, one seed each, by what they are worth over cost.

    Args:
        belief: of the goal and of candidates [m].
        cost: [m].
        budget: in the unit of the cost.
        by: what a run is worth: narrowing of the goal, or information.
        checks: of the runs, those that check the law.
    """
    now, picks, left, one = belief.after([], cost), [], budget, np.ones(len(cost))
    possible = cost <= left
    while possible.any():
        check = int((len(picks) + 1) * checks) > int(len(picks) * checks)
        worth = np.where(possible, (now.doubt(one) if check else by(now, one)) / cost, -np.inf)
        run = int(worth.argmax())
        picks.append(run)
        now.add(run)
        left -= cost[run]
        possible[run] = False
        possible &= cost <= left
    return picks
