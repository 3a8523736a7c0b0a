"""A design on a table whose runs are all known: what it would have chosen, and what came of it.

A small random part is done first, some of it the cheaper the more often; then the law is fitted
and a part of what is left of the budget is chosen by it, three times. What came of it is told by
the runs that were not done, and by the goal's interval, beside runs chosen at random, by an even
grid, and by what they tell of the law (D-optimality), each at the same cost (derived here).
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from bss.design.belief import NORMAL, Belief
from bss.design.candidates import Candidates
from bss.design.choose import within
from bss.design.goals import Goal
from bss.design.law import Law
from bss.laws import TableFit, fit_table
from bss.laws.final_loss.rated.fit import fit_rated
from bss.laws.final_loss.rated.law import RatedLaw
from bss.laws.final_loss.rated.points import rated_points
from bss.laws.final_loss.table import runs_of
from bss.laws.fitting.bootstrap import rms
from bss.laws.fitting.estimate import Options

METHODS = ("design", "D-optimal", "random", "grid")
START, CHEAP, FEWEST = 0.1, 60, 12
"""Share of the budget that random runs take first, how many of them are drawn by cost, and how
many are needed for a law, whatever they cost."""
STAGES = (0.15, 0.4, 1.0)  # of what is left, chosen by each fit; later ones know more
THIN = 3  # of a grid, at most
NEAR = 0.1
"""Nats above the best of their (N, D), up to which runs are judged."""
SEEDS = (0, 1, 2, 3, 4)
RESAMPLES = 40  # of a table of one rate, whose law has no other posterior


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
        width: of an interval by the departures and the widening that a law of all runs has, as few
            runs tell those badly, and by luck.
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
    width: float


def replayed(
    table: pd.DataFrame,
    candidates: Candidates,
    goal: Goal,
    share: float,
    *,
    asked: np.ndarray,
    seeds: tuple[int, ...] = SEEDS,
    methods: tuple[str, ...] = METHODS,
    whole: RatedLaw | TableFit | None = None,
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
        whole: the law of all runs; None to fit it.
        progress: is told what is being done.

    Raises:
        InputError: so few runs can be afforded that there is no law of them.
    """
    cost, whole = candidates.cost, whole or fit_quickly(table)
    for method in methods:
        for seed in seeds if method != "grid" else (0,):
            progress(f"{method}, seed {seed}")
            budget, generator = share * float(cost.sum()), np.random.default_rng(seed)
            rows, law = _Spending(table, candidates, goal, budget, generator).done(method)
            spent = float(cost[rows].sum() / cost.sum())
            result, none = _judged(table, asked, rows, Law.of(law)), candidates.runs.at(slice(0))
            belief, alike = (Belief.of(x, goal, none) for x in (Law.of(law), _alike(law, whole)))
            yield Replayed(
                method,
                seed,
                len(rows),
                spent,
                *result,
                belief.value,
                *belief.interval,
                2 * NORMAL * alike.variance**0.5,
            )


@dataclass(frozen=True)
class _Spending:
    """A budget for some runs of a table, with what is random in choosing them."""

    table: pd.DataFrame
    candidates: Candidates
    goal: Goal
    budget: float
    generator: np.random.Generator

    def done(self, method: str) -> tuple[list[int], RatedLaw | TableFit]:
        """The runs that a method does, and the law of them."""
        cost = self.candidates.cost
        if method == "grid":
            rows = _even(self.table, cost, self.budget)
        elif method == "random":
            rows = _affordable(self.generator.permutation(len(cost)), cost, self.budget)
        else:
            return self.chosen(of_law=method == "D-optimal")
        return rows, fit_quickly(self.table.iloc[rows])

    def chosen(self, *, of_law: bool) -> tuple[list[int], RatedLaw | TableFit]:
        """By the law, which is fitted again after each of `STAGES`."""
        cost, budget = self.candidates.cost, self.budget
        first = np.argsort(self.generator.exponential(size=len(cost)) * cost)
        rows = _affordable(first, cost, START * budget)[:CHEAP]
        rows = rows if len(rows) >= FEWEST else _affordable(first, cost, budget)[:FEWEST]
        others = self.generator.permutation(np.setdiff1d(np.arange(len(cost)), rows))
        rows += _affordable(others, cost, START * budget - cost[rows].sum())
        law = fit_quickly(self.table.iloc[rows])
        for share in STAGES:
            left = budget - cost[rows].sum()
            others = np.setdiff1d(np.flatnonzero(cost <= left), rows)
            belief = Belief.of(Law.of(law), self.goal, self.candidates.runs.at(others))
            picks = within(belief, cost[others], share * left, of_law=of_law)
            rows = [*rows, *others[picks].tolist()]
            law = fit_quickly(self.table.iloc[rows])
        return rows, law


def _even(table: pd.DataFrame, cost: np.ndarray, budget: float) -> list[int]:
    """Every k-th batch and rate of each (N, D), with the least k up to `THIN` that can be paid.

    Where none can, the costliest (N, D) are left out, as who extrapolates does.
    """
    cells = [rows for _, rows in table.groupby(["params", "tokens"])]
    cells = sorted(cells, key=lambda rows: cost[rows.index[0]])
    every = [[i for rows in cells for i in _thinned(rows, k)] for k in range(1, THIN + 1)]
    whole = next((rows for rows in every if cost[rows].sum() <= budget), every[-1])
    paid = np.cumsum(cost[whole]) <= budget
    return np.array(whole)[paid].tolist()


def _thinned(rows: pd.DataFrame, k: int) -> list[int]:
    """Rows of every k-th batch of a (N, D), and of each of them every k-th rate."""
    batches = np.unique(rows["batch_tokens"])[k // 2 :: k]
    each = [rows.loc[rows["batch_tokens"] == batch] for batch in batches]
    by = ["lr"] if "lr" in rows else []
    return [i for one in each for i in one.sort_values([*by, "tokens"]).index[k // 2 :: k].tolist()]


def _affordable(order: np.ndarray, cost: np.ndarray, budget: float) -> list[int]:
    """The runs in this order but for those that there is not enough left for."""
    rows, left = [], budget
    for i in order.tolist():
        if cost[i] <= left:
            rows.append(i)
            left -= float(cost[i])
    return rows


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
    lr = seen.get("lr")
    expected = pd.Series(law.losses(seen["params"], seen["tokens"], seen["batch_tokens"], lr))
    both = pd.DataFrame({"loss": seen["loss"].to_numpy(), "expected": expected.to_numpy()})
    cells = [seen["params"].to_numpy(), seen["tokens"].to_numpy()]
    inside = (both - both.groupby(cells).transform("mean")).to_numpy()
    missed = float(np.sum((inside[:, 0] - inside[:, 1]) ** 2) / np.sum(inside[:, 0] ** 2))
    return len(seen), rms(both["loss"] - both["expected"]), 1 - missed


def fit_quickly(table: pd.DataFrame) -> RatedLaw | TableFit:
    """The law of a checked table of losses, with as few refits as its posterior needs.

    Raises:
        InputError: as `bss.laws.fit_table` does.
    """
    points, _ = rated_points(runs_of(table))
    if points is not None:
        return fit_rated(points)
    return fit_table(table, options=Options(resamples=RESAMPLES))


def _alike(fit: RatedLaw | TableFit, whole: RatedLaw | TableFit) -> Law:
    """A fit with what a law of all runs says of departures from it and of its intervals."""
    if isinstance(fit, RatedLaw) and isinstance(whole, RatedLaw):
        fit = replace(fit, departures=whole.departures, widened=whole.widened)
    return Law.of(fit)
