"""Choosing runs: what narrows the goal most for its price, and what checks the law.

A run's worth is the log by which it narrows the goal's interval, less that by which its price
would if it were spent on all runs of the table once more: those make an interval narrower as the
root of their number, so a price of a share p of what was spent is worth ½·log(1 + p). Nothing is
worth its price once every worth is below 0 (derived here). Under a budget runs are chosen by
narrowing over cost.
"""

from dataclasses import dataclass

import numpy as np

from bss.design.belief import Belief
from bss.design.goals import SHARES
from bss.errors import InputError

CHECKS, CHECKS_OF_MANY = 3, 8
"""Of so many runs one checks the law: of those that are picked, and of those of a budget."""
DOUBTED = 0.5  # standard deviations that forms lie apart, from which a run is a check of them
MOVES = 1e-3  # log of the interval's width, below which no candidate moves a goal
EXCHANGES = 20


@dataclass(frozen=True)
class Choice:
    """One run that is chosen.

    Attributes:
        run: its index.
        checks: whether it is there to check the law.
        doubt: how many standard deviations of its outcome the forms lie apart.
        worth: whether it narrows the goal by more than its price; a check is not asked.
        before, after: the goal's interval before it and after it, with those above done.
    """

    run: int
    checks: bool
    doubt: float
    worth: bool
    before: tuple[float, float]
    after: tuple[float, float]


def narrowest(
    belief: Belief, cost: np.ndarray, seeds: np.ndarray, spent: float, pick: int
) -> tuple[list[Choice], str]:
    """The runs to do next, checks last, and from where on nothing is worth its price.

    Args:
        belief: of the goal and of candidates [m], with nothing added.
        cost: [m].
        seeds: [m], runs of each.
        spent: cost of what was done already.
        pick: how many, where there are as many candidates.

    Raises:
        InputError: no candidate moves the goal.
    """
    most = float(belief.narrowing(seeds).max())
    if most < MOVES:
        raise InputError(
            f"--goal: no candidate moves it, the best by {most:.2%} of its interval; give others, "
            "nearer to what is asked"
        )
    pick = min(pick, len(cost))
    picks = _best(belief, cost, seeds, spent, [], pick - pick // CHECKS)
    picks = _exchanged(belief, cost, seeds, spent, picks)
    checks: list[int] = []
    while len(picks) < pick:
        now = belief.after(picks, seeds)
        doubt = now.doubt(seeds)
        doubt[now.added] = 0.0
        worth = np.where(doubt < DOUBTED, 0.0, doubt) / cost
        if worth.max() > 0:
            checks.append(int(worth.argmax()))
            picks = [*picks, checks[-1]]
        else:
            picks = _best(belief, cost, seeds, spent, picks, len(picks) + 1)
    return _told(belief, cost, seeds, spent, picks, checks)


def _worth(now: Belief, cost: np.ndarray, seeds: np.ndarray, spent: float) -> np.ndarray:
    """[m], what each run is worth after those that were added."""
    paid = spent + cost[now.added].sum()
    worth = now.narrowing(seeds) - 0.5 * np.log1p(cost / paid)
    worth[now.added] = -np.inf
    return worth


def _best(
    belief: Belief,
    cost: np.ndarray,
    seeds: np.ndarray,
    spent: float,
    picks: list[int],
    count: int,
) -> list[int]:
    """The picks, and up to so many the run that is worth most each time; two at first.

    As a second run at one place often tells what the first alone does not.
    """
    if not picks and count > 1:
        picks = _pair(belief, cost, seeds, spent)
    now = belief.after(picks, seeds)
    while len(now.added) < count:
        run = int(_worth(now, cost, seeds, spent).argmax())
        now.add(run, float(seeds[run]))
    return now.added


def _pair(belief: Belief, cost: np.ndarray, seeds: np.ndarray, spent: float) -> list[int]:
    """The two runs that are worth most together."""
    goal, (single, across) = belief.goal, belief.outcomes(seeds)
    square, product = SHARES @ goal**2, (goal * SHARES[:, None]).T @ goal
    gain = np.outer(square, single) + np.outer(single, square) - 2 * across * product
    gain /= np.maximum(np.outer(single, single) - across**2, 1e-30)
    narrowing = -0.5 * np.log1p(-np.minimum(gain / belief.variance, 1 - 1e-9))
    worth = narrowing - 0.5 * np.log1p((cost[:, None] + cost) / spent)
    np.fill_diagonal(worth, -np.inf)
    return [int(i) for i in np.unravel_index(worth.argmax(), worth.shape)]


def _exchanged(
    belief: Belief, cost: np.ndarray, seeds: np.ndarray, spent: float, picks: list[int]
) -> list[int]:
    """One run for another as long as that makes all of them worth more together."""
    for i in range(EXCHANGES if len(picks) > 1 else 0):
        out = picks[i % len(picks)]
        others = [run for run in picks if run != out]
        worth = _worth(belief.after(others, seeds), cost, seeds, spent)
        run = int(worth.argmax())
        if worth[run] > worth[out] + 1e-9:
            picks = [*others, run]
    return picks


def _told(
    belief: Belief,
    cost: np.ndarray,
    seeds: np.ndarray,
    spent: float,
    picks: list[int],
    checks: list[int],
) -> tuple[list[Choice], str]:
    """Each run with the interval before and after it, and from where on none is worth its price."""
    now, told, enough = belief.after([], seeds), [], ""
    for run in picks:
        worth = _worth(now, cost, seeds, spent)[run] > 0
        if not worth and not enough and run not in checks:
            enough = _enough(now, cost, seeds, spent, run)
        before, doubt = now.interval, float(now.doubt(seeds)[run])
        now.add(run, float(seeds[run]))
        told.append(Choice(run, run in checks, doubt, bool(worth), before, now.interval))
    if not enough and len(picks) < len(cost):
        worth = _worth(now, cost, seeds, spent)
        enough = _enough(now, cost, seeds, spent, int(worth.argmax())) if worth.max() <= 0 else ""
    return told, enough


def _enough(now: Belief, cost: np.ndarray, seeds: np.ndarray, spent: float, run: int) -> str:
    """What the best run that is left does, where it is not worth its price."""
    price = float(cost[run] / (spent + cost[now.added].sum()))
    narrows, usual = -np.expm1(-now.narrowing(seeds)[run]), 1 - (1 + price) ** -0.5
    after = f"after {len(now.added)} of them" if now.added else "as it is"
    return (
        f"when to stop: {after} nothing is worth its price: the best run narrows the interval by "
        f"{100 * narrows:.2g}%, and its cost, spent on all runs once more, by {100 * usual:.2g}%"
    )


def within(belief: Belief, cost: np.ndarray, budget: float, *, of_law: bool = False) -> list[int]:
    """The runs [m] that are done under a budget, one seed each.

    Args:
        belief: of the goal and of candidates [m], with nothing added.
        cost: [m].
        budget: in the unit of the cost.
        of_law: choose by what a run tells of the law alone (D-optimality), not by the narrowing of
            the goal over the cost, with a run in eight that checks the law.
    """
    now, one, picks = belief.after([], cost), np.ones(len(cost)), []
    possible = cost <= budget
    while possible.any():
        checks = len(picks) % CHECKS_OF_MANY == CHECKS_OF_MANY - 1
        worth = (now.doubt(one) if checks else now.narrowing(one)) / cost
        worth = np.where(possible, now.information(one) if of_law else worth, -np.inf)
        run = int(worth.argmax())
        picks.append(run)
        now.add(run)
        budget -= cost[run]
        possible[run] = False
        possible &= cost <= budget
    return picks
