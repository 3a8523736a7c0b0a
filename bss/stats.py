"""Paired comparisons of final losses over seeds, and the effects that they can detect.

Runs of one seed share initialisation and data order, so differences are paired by seed. P values
are of Student's paired t test, adjusted by Holm within one table. The best constant-batch run is
chosen by held-out loss; the compared loss is the test loss, if every run has one.
"""

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy.optimize import brentq
from scipy.stats import linregress, nct, ttest_1samp
from scipy.stats import t as student

from bss.errors import InputError

LEVEL = 0.95
POWER = 0.8
CONSTANT_ROLES = ("constant", "average")
ROLES = (*CONSTANT_ROLES, "schedule", "late", "policy")
K = TypeVar("K", bound=Hashable)


class LrPhase(NamedTuple):
    """The LR phase in which a run ends: as a title, and in two words."""

    title: str
    short: str


LR_PHASES = {
    "constant": LrPhase("constant learning rate", "constant LR"),
    "averaged": LrPhase("constant learning rate, weights averaged", "averaged weights"),
    "decay": LrPhase("decayed to zero", "decayed"),
    "cosine": LrPhase("cosine to zero", "cosine"),
}
"""By the value of the column `ending`."""


@dataclass(frozen=True)
class Difference:
    """A mean difference over paired seeds.

    Attributes:
        mean: The mean; NaN without a shared seed.
        se: Its standard error; None with fewer than two seeds, like all that follows.
        low, high: Its 95% confidence interval by the paired t test, before any adjustment.
        p, p_adjusted: Two-sided p value, and after Holm within the table.
        n: Paired seeds.
    """

    mean: float
    se: float | None = None
    low: float | None = None
    high: float | None = None
    p: float | None = None
    p_adjusted: float | None = None
    n: int = 0

    @property
    def sign(self) -> int:
        """1 or -1 if the adjusted p value is below 5%, else 0."""
        significant = self.p_adjusted is not None and self.p_adjusted < 1 - LEVEL
        return int(np.sign(self.mean)) if significant else 0


def paired(differences: ArrayLike) -> Difference:
    """Return the mean of differences [seed] and its t test; NaN for a missing seed.

    Examples:
        >>> one = paired([-0.010, -0.012, -0.008])
        >>> round(one.low, 4), round(one.p, 3)
        (-0.015, 0.013)
    """
    values = np.asarray(differences, float)
    values = values[~np.isnan(values)]
    n = len(values)
    mean = float(values.mean()) if n else math.nan
    if n < 2:
        return Difference(mean, n=n)
    if not np.ptp(values):  # SciPy returns NaN for equal values
        return Difference(mean, 0.0, mean, mean, p := float(mean == 0), p, n)
    test: Any = ttest_1samp(values, 0.0)
    interval = test.confidence_interval(LEVEL)
    p = float(test.pvalue)
    se = float(values.std(ddof=1)) / math.sqrt(n)
    return Difference(mean, se, float(interval.low), float(interval.high), p, p, n)


def half_interval(differences: np.ndarray) -> np.ndarray:
    """Return half the 95% confidence interval of the mean of [seed, ...]; NaN with one seed."""
    seeds = len(differences)
    if seeds < 2:
        return np.full(differences.shape[1:], np.nan)
    reach = float(student.ppf((1 + LEVEL) / 2, seeds - 1))
    return reach * differences.std(axis=0, ddof=1) / math.sqrt(seeds)


def mean_interval(differences: np.ndarray) -> np.ndarray:
    """Return the mean of [seed, ...] and the ends of its 95% confidence interval, [3, ...]."""
    mean = differences.mean(axis=0)
    half = half_interval(differences)
    return np.stack([mean, mean - half, mean + half])


def holm(p: Sequence[float]) -> np.ndarray:
    """Return p values [N] adjusted for the number of tests (Holm 1979).

    Examples:
        >>> holm([0.01, 0.04, 0.03]).tolist()
        [0.03, 0.06, 0.06]
    """
    order = np.argsort(p)
    steps = np.asarray(p, float)[order] * np.arange(len(order), 0, -1)
    adjusted = np.empty(len(order))
    adjusted[order] = np.minimum(1, np.maximum.accumulate(steps))
    return adjusted


def compare(losses: pd.DataFrame, pairs: Sequence[tuple[K, K]]) -> dict[tuple[K, K], Difference]:
    """Return the first minus the second compared run of each pair, adjusted by Holm over the pairs.

    Args:
        losses: [compared run, seed]; NaN if a run was not trained.
        pairs: Names in the index.
    """
    found = {(a, b): paired((losses.loc[a] - losses.loc[b]).to_numpy()) for a, b in pairs}
    tested = {pair: one.p for pair, one in found.items() if one.p is not None}
    adjusted = zip(tested, holm([*tested.values()]), strict=True)
    return found | {pair: replace(found[pair], p_adjusted=float(p)) for pair, p in adjusted}


def minimum_detectable_effect(sd: float, n: int) -> float:
    """Return the mean difference that a paired t test at 95% detects in 80% of studies.

    Args:
        sd: Standard deviation of one paired difference, positive.
        n: Paired seeds, 2 or more.

    Examples:
        >>> round(minimum_detectable_effect(0.008, 8), 4)
        0.0092
    """
    if not sd > 0 or n < 2:
        raise InputError(f"sd {sd:g}, n {n}; expected a positive sd and 2 seeds or more")
    least = float(student.ppf((1 + LEVEL) / 2, n - 1))

    def missing(shift: float) -> float:
        other = np.nan_to_num(nct.cdf(-least, n - 1, shift))  # SciPy: NaN where it underflows
        return float(nct.sf(least, n - 1, shift) + other) - POWER

    highest = least
    while missing(highest) < 0:
        highest *= 2
    shift: Any = brentq(missing, 0, highest)
    return float(shift) * sd / math.sqrt(n)


@dataclass(frozen=True)
class Slope:
    """A slope in log–log, with the confidence interval of ordinary linear regression.

    The interval measures how straight the line is; a bend at small x shifts it as a whole.
    """

    value: float
    low: float
    high: float
    level: float = 0.90


def slope(x: ArrayLike, y: ArrayLike, *, level: float = 0.90) -> Slope:
    """Fit log y against log x, [N], positive; the exponent of a power law.

    At least two x must be distinct; the interval of two points is infinite.
    """
    log_x = np.log(np.asarray(x, float))
    log_y = np.log(np.asarray(y, float))
    line: Any = linregress(log_x, log_y)
    freedom = len(log_x) - 2
    error = line.stderr if np.ptp(log_y) else 0.0  # SciPy: NaN for equal values
    reach = float(student.ppf((1 + level) / 2, freedom) * error) if freedom else math.inf
    value = float(line.slope)
    return Slope(value, value - reach, value + reach, level)


@dataclass(frozen=True)
class ComparedRun:
    """One compared run in one LR phase, over its seeds.

    Attributes:
        name, batch: Its name, and its batch schedule as text.
        role: One of ROLES.
        losses: Final loss of each seed in nats per token.
        eval_loss: Mean held-out loss.
        tokens, steps: Consumed and taken by each run.
        best: Whether it is the best constant-batch run.
        to_best: Its loss minus the best constant-batch run's; None without such a run.
    """

    name: str
    batch: str
    role: str
    losses: dict[int, float]
    eval_loss: float
    tokens: int
    steps: int
    best: bool
    to_best: Difference | None

    @property
    def loss(self) -> float:
        """The mean final loss."""
        return float(np.mean(list(self.losses.values())))

    @property
    def difference(self) -> float:
        """Its loss minus the best constant-batch run's, the mean over paired seeds."""
        return math.nan if self.to_best is None else self.to_best.mean

    @property
    def error(self) -> float | None:
        """Half the 95% confidence interval of the difference; None with fewer than two seeds."""
        if self.to_best is None or self.to_best.high is None:
            return None
        return self.to_best.high - self.to_best.mean

    @property
    def result(self) -> str:
        """ "best constant", "lower" or "higher" than that one after Holm, or "inconclusive"."""
        if self.best:
            return "best constant"
        sign = self.to_best.sign if self.to_best else 0
        return {-1: "lower", 0: "inconclusive", 1: "higher"}[sign]


@dataclass(frozen=True)
class Comparison:
    """A table of final losses, one row per run and LR phase.

    Attributes:
        table: Columns `name`, `batch` (a schedule as text), `ending` (a key of LR_PHASES), `role`
            (a key of ROLES), `seed`, `tokens`, `steps`, `eval_loss`, `test_loss`, `peak_lr`, and
            others.
    """

    table: pd.DataFrame

    @cached_property
    def column(self) -> str:
        """The loss that is compared: test_loss, or eval_loss if a run has no test loss."""
        tested = np.isfinite(self.table["test_loss"].to_numpy(float)).all()
        return "test_loss" if tested else "eval_loss"

    def losses(self, phase: str) -> pd.DataFrame:
        """Return the compared losses of an LR phase, [compared run, seed], in the table's order.

        Raises:
            InputError: If a seed of a compared run occurs twice.
        """
        rows = self.table.loc[self.table["ending"] == phase]
        for name, seed in rows.loc[rows.duplicated(["name", "seed"]), ["name", "seed"]].to_numpy():
            raise InputError(
                f"{name!r}, LR phase {phase!r}: seed {seed} occurs twice; keep one run, or one "
                "peak LR"
            )
        wide = rows.pivot(index="name", columns="seed", values=self.column)
        return wide.loc[rows["name"].unique()]

    def tuned(self) -> "Comparison":
        """Keep each compared run's best peak LR: the lowest held-out loss, averaged over seeds.

        The column `trials` counts the peak LRs.
        """
        tables = []
        for _, rows in self.table.groupby(["name", "ending"], sort=False):
            means: Any = rows.groupby("peak_lr", sort=False)["eval_loss"].mean()
            tables.append(rows[rows["peak_lr"] == means.idxmin()].assign(trials=len(means)))
        return Comparison(pd.concat(tables, ignore_index=True))

    def phase(self, phase: str) -> list[ComparedRun]:
        """Return the compared runs of an LR phase, lowest loss first."""
        rows = self.table.loc[self.table["ending"] == phase]
        losses = self.losses(phase)
        first = rows.drop_duplicates("name").set_index("name")
        held_out = rows.groupby("name", sort=False)["eval_loss"].mean()
        constant = held_out[first["role"].isin(CONSTANT_ROLES)]
        best = constant.idxmin() if len(constant) else None
        others = [(name, best) for name in first.index if name != best]
        to_best = compare(losses, others) if best is not None else {}
        if best is not None:
            to_best[best, best] = Difference(0.0, n=int(losses.loc[best].count()))
        found = [
            ComparedRun(
                str(row.name), str(row["batch"]), str(row["role"]),
                losses.loc[row.name].dropna().to_dict(), float(held_out[row.name]),
                int(row["tokens"]), int(row["steps"]), row.name == best,
                to_best.get((row.name, best)),
            )
            for _, row in first.iterrows()
        ]  # fmt: skip
        return sorted(found, key=lambda one: one.loss)

    def best(self, phase: str) -> str:
        """Return the name of the best constant-batch run of an LR phase."""
        return next(one.name for one in self.phase(phase) if one.best)

    def by_phase(self) -> dict[str, list[ComparedRun]]:
        """Return the compared runs of every LR phase in the table, in the order of LR_PHASES."""
        return {phase: self.phase(phase) for phase in LR_PHASES if phase in {*self.table["ending"]}}
