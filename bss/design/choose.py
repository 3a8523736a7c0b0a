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
    offered, pick = _Offered(belief, cost, seeds, spent), min(pick, len(cost))
    picks = offered.exchanged(offered.best([], pick - pick // CHECKS))
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
            picks = offered.best(picks, len(picks) + 1)
    return offered.told(picks, checks)


@dataclass(frozen=True)
class _Offered:
    """What is chosen among: see `narrowest`."""

    belief: Belief
    cost: np.ndarray
    seeds: np.ndarray
    spent: float

    def price(self, now: Belief, run: int | slice = slice(None)) -> np.ndarray:
        """Of a run or of all, as a share of what is spent with those that were added."""
        return self.cost[run] / (self.spent + self.cost[now.added].sum())

    def worth(self, now: Belief) -> np.ndarray:
        """[m], what each run is worth after those that were added."""
        worth = now.narrowing(self.seeds) - 0.5 * np.log1p(self.price(now))
        worth[now.added] = -np.inf
        return worth

    def best(self, picks: list[int], count: int) -> list[int]:
        """The picks, and up to so many the run that is worth most each time; two at first.

        As a second run at one place often tells what the first alone does not.
        """
        now = self.belief.after(picks or (self.pair() if count > 1 else []), self.seeds)
        while len(now.added) < count:
            run = int(self.worth(now).argmax())
            now.add(run, float(self.seeds[run]))
        return now.added

    def pair(self) -> list[int]:
        """The two runs that are worth most together."""
        goal, (single, across) = self.belief.goal, self.belief.outcomes(self.seeds)
        square, product = SHARES @ goal**2, (goal * SHARES[:, None]).T @ goal
        gain = np.outer(square, single) + np.outer(single, square) - 2 * across * product
        gain /= np.maximum(np.outer(single, single) - across**2, 1e-30)
        narrowing = -0.5 * np.log1p(-np.minimum(gain / self.belief.variance, 1 - 1e-9))
        worth = narrowing - 0.5 * np.log1p((self.cost[:, None] + self.cost) / self.spent)
        np.fill_diagonal(worth, -np.inf)
        return [int(i) for i in np.unravel_index(worth.argmax(), worth.shape)]

    def exchanged(self, picks: list[int]) -> list[int]:
        """One run for another as long as that makes all of them worth more together."""
        for i in range(EXCHANGES if len(picks) > 1 else 0):
            out = picks[i % len(picks)]
            others = [run for run in picks if run != out]
            worth = self.worth(self.belief.after(others, self.seeds))
            run = int(worth.argmax())
            if worth[run] > worth[out] + 1e-9:
                picks = [*others, run]
        return picks

    def told(self, picks: list[int], checks: list[int]) -> tuple[list[Choice], str]:
        """Each run with the interval before and after it, and where none is worth its price."""
        now, told, enough = self.belief.after([], self.seeds), [], ""
        for run in picks:
            worth = self.worth(now)[run] > 0
            if not worth and not enough and run not in checks:
                enough = self.enough(now, run)
            before, doubt = now.interval, float(now.doubt(self.seeds)[run])
            now.add(run, float(self.seeds[run]))
            told.append(Choice(run, run in checks, doubt, bool(worth), before, now.interval))
        if not enough and len(picks) < len(self.cost):
            worth = self.worth(now)
            enough = self.enough(now, int(worth.argmax())) if worth.max() <= 0 else ""
        return told, enough

    def enough(self, now: Belief, run: int) -> str:
        """What the best run that is left does, where it is not worth its price."""
        narrows = -np.expm1(-now.narrowing(self.seeds)[run])
        usual = 1 - (1 + float(self.price(now, run))) ** -0.5
        after = f"after {len(now.added)} of them" if now.added else "as it is"
        return (
            f"when to stop: {after} nothing is worth its price: the best run narrows the interval "
            f"by {100 * narrows:.2g}%, and its cost, spent on all runs once more, by "
            f"{100 * usual:.2g}%"
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
