"""A design on a table whose runs are all known: what it would have chosen, and what came of it.

A small random part is done first, the cheaper a run the more often; then the law is fitted and a
third of what is left of the budget is chosen by it, three times. What came of it is told by the
runs that were not done, and by the goal's interval, beside runs chosen at random, by an even grid,
and by what they tell of the law (D-optimality), each at the same cost (derived here).
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd

from bss.design.belief import Belief
from bss.design.candidates import Candidates
from bss.design.choose import CHECKS_OF_MANY, within
from bss.design.goals import Goal, Runs
from bss.design.law import Law, fit_quickly
from bss.laws.fitting.bootstrap import rms

METHODS = ("design", "D-optimal", "random", "grid")
START, START_ROWS = 0.1, 60
"""Share of the budget that random runs take first, and how many they are at most."""
REFITS = 3
NEAR = 0.1
"""Nats above the best of their (N, D), up to which runs are judged."""
SEEDS = (0, 1, 2, 3, 4)


@dataclass(frozen=True)
class Replayed:
    """What came of one choice.

    Attributes:
        method: of choosing.
        seed: of what is random.
        runs: how many were done.
        spent: share of what all runs cost.
        judged: runs that were not done, by which it is judged.
        rmse: of their losses, in nats.
        r2: of them, with the mean of each (N, D) removed from both.
        value, low, high: the goal and its interval, a logarithm where it is a batch.
    """

    method: str
    seed: int
    runs: int
    spent: float
    judged: int
    rmse: float
    r2: float
    value: float
    low: float
    high: float

    @property
    def width(self) -> float:
        """Of the interval."""
        return self.high - self.low


def replayed(
    table: pd.DataFrame,
    candidates: Candidates,
    goal: Goal,
    share: float,
    *,
    asked: np.ndarray,
    seeds: tuple[int, ...] = SEEDS,
    methods: tuple[str, ...] = METHODS,
    progress: Callable[[str], None] = lambda text: None,
) -> Iterator[Replayed]:
    """Each method with each seed.

    Args:
        table: a checked table of final losses, [n] runs.
        candidates: the same runs.
        goal: of the design.
        share: of what all runs cost that may be spent.
        asked: [n], whether a run's (N, D) is among those judged.
        seeds: of what is random.
        methods: of choosing.
        progress: is told what is being done.

    Raises:
        InputError: so few runs can be afforded that there is no law of them.
    """
    cost = candidates.cost
    for method in methods:
        for seed in seeds:
            progress(f"{method}, seed {seed}")
            generator, budget = np.random.default_rng(seed), share * float(cost.sum())
            if method in ("random", "grid"):
                rows = (_random if method == "random" else _even)(cost, budget, generator)
                law = fit_quickly(table.iloc[rows])
            else:
                rows, law = _chosen(table, candidates, goal, budget, method, generator)
            spent = float(cost[rows].sum() / cost.sum())
            result = _judged(table, asked, rows, law)
            none = Runs(*(None if x is None else x[:0] for x in candidates.runs))
            belief = Belief.of(law, goal, none)
            yield Replayed(
                method, seed, len(rows), spent, *result, belief.value, *belief.interval
            )


def _random(cost: np.ndarray, budget: float, generator: np.random.Generator) -> list[int]:
    return _affordable(generator.permutation(len(cost)), cost, budget)


def _even(cost: np.ndarray, budget: float, generator: np.random.Generator) -> list[int]:
    """Every k-th of the runs in the order of the table, with the least k that can be paid."""
    shift = generator.random()
    for k in range(1, len(cost) + 1):
        rows = np.arange(int(shift * k), len(cost), k)
        if cost[rows].sum() <= budget:
            return rows.tolist()
    return []


def _affordable(order: np.ndarray, cost: np.ndarray, budget: float) -> list[int]:
    """The runs in this order but for those that there is not enough left for."""
    rows = []
    for i in order.tolist():
        if cost[i] <= budget:
            rows.append(i)
            budget -= cost[i]
    return rows


def _chosen(
    table: pd.DataFrame,
    candidates: Candidates,
    goal: Goal,
    budget: float,
    method: str,
    generator: np.random.Generator,
) -> tuple[list[int], Law]:
    """By the law, which is fitted again `REFITS` times."""
    cost = candidates.cost
    first = np.argsort(generator.exponential(size=len(cost)) * cost)
    rows = _affordable(first, cost, START * budget)[:START_ROWS]
    law = fit_quickly(table.iloc[rows])
    by = Belief.narrowing if method == "design" else Belief.information
    checks = CHECKS_OF_MANY if method == "design" else 0.0
    for i in range(REFITS):
        left = budget - cost[rows].sum()
        others = np.setdiff1d(np.flatnonzero(cost <= left), rows)
        runs = Runs(*(None if x is None else x[others] for x in candidates.runs))
        belief = Belief.of(law, goal, runs)
        picks = within(belief, cost[others], left / (REFITS - i), by, checks)
        rows = [*rows, *others[picks].tolist()]
        law = fit_quickly(table.iloc[rows])
    return rows, law


def _judged(
    table: pd.DataFrame, asked: np.ndarray, rows: list[int], law: Law
) -> tuple[int, float, float]:
    """How many runs that were not done judge, their error in nats, and R² within (N, D)."""
    loss, cell = table["loss"], [table["params"], table["tokens"]]
    left = asked & (loss - loss.groupby(cell).transform("min") <= NEAR).to_numpy()
    left[rows] = False
    seen = table.loc[left]
    if seen.empty:
        return 0, float("nan"), float("nan")
    lr = seen["lr"] if "lr" in seen else None
    expected = pd.Series(law.losses(seen["params"], seen["tokens"], seen["batch_tokens"], lr))
    both = pd.DataFrame({"loss": seen["loss"].to_numpy(), "expected": expected.to_numpy()})
    cells = [seen["params"].to_numpy(), seen["tokens"].to_numpy()]
    within = both - both.groupby(cells).transform("mean")
    missed = ((within["loss"] - within["expected"]) ** 2).sum() / (within["loss"] ** 2).sum()
    return len(seen), rms(both["loss"] - both["expected"]), 1 - float(missed)
