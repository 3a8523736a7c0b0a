"""Rows that the law of final losses is fitted to, and what of a table is inside of what."""

import math
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Annotated, Any, ClassVar

import numpy as np

from bss.errors import InputError
from bss.laws.base import check_lengths
from bss.laws.final_loss.residual_gp import CLIFF, NOISE_GROWS, SAME_BUDGET, ResidualGP, noise_sd
from bss.values import Positive, Range

VARIED = 1.5  # a range that counts as a variation: (largest / smallest)
WIDE = NOISE_GROWS  # excess, as a share of the best loss, at which a row weighs .7, or .35 with LRs
STEEP = 1.5  # power of the weight with LRs, by the planted cliff of tests/laws/final_loss
DIVERGED = CLIFF  # the same, from which a row brackets no best batch
NEAR = 0.1  # nats above the best of the (N, D), up to which rows measure errors
SIZES = ("params", "tokens", "batch", "lr", "count")
Measured = Annotated[np.ndarray, Range(0, inside=True)]


@dataclass(frozen=True)
class LossPoints:
    """Mean final losses of the runs of one (N, D, B) at its best LR, or of one (N, D, B, LR).

    Attributes:
        params, tokens: [n], non-embedding parameters N, training tokens D.
        batch: [n], B in tokens.
        lr: [n], peak LR per step; NaN if the table has none.
        loss: [n] in nats.
        count: [n], runs that were averaged.
        with_lr: whether the LR is a variable of the law.
        noise: standard deviation of a loss over repetitions, in nats; NaN if none is known.
        seq_len: tokens per sequence; None if it is not known, or not one.
    """

    may_lack: ClassVar[tuple[str, ...]] = ()

    params: Measured
    tokens: Measured
    batch: Measured
    lr: Annotated[np.ndarray, Range(0, inside=True, nan=True)]
    loss: Annotated[np.ndarray, Range()]
    count: Measured
    with_lr: bool
    noise: Annotated[float, Range(0, nan=True)]
    seq_len: Positive | None

    def check(self, where: str) -> None:
        """Raise InputError if the JSON that it was read from contradicts itself."""
        check_lengths({name: getattr(self, name) for name in (*SIZES, "loss")}, where)
        if self.with_lr and np.isnan(self.lr).any():
            raise InputError(f"{where}lr has a value that is no number")

    def encoded(self, plain: dict[str, Any]) -> dict[str, Any]:
        """JSON, with each size once: `rows` count from 0 into `values`; [] for one value."""
        for name in SIZES:
            values, rows = np.unique(getattr(self, name), return_inverse=True)
            listed = [None if math.isnan(x) else x for x in values.tolist()]
            plain[name] = {"values": listed, "rows": rows.tolist() if len(values) > 1 else []}
        return plain

    @classmethod
    def decoded(cls, entry: dict[str, Any]) -> dict[str, Any]:
        """The fields again."""
        first = np.zeros(len(entry["loss"]), int)
        sizes = {n: (np.array(entry[n]["values"], float), entry[n]["rows"]) for n in SIZES}
        for name, (values, rows) in sizes.items():
            if any(type(row) is not int or not 0 <= row < len(values) for row in rows):
                raise InputError(f"fit.law.points.{name}.rows has a row that is not in its values")
            if values.ndim != 1 or (not rows and len(values) != 1):
                raise InputError(f"fit.law.points.{name} has rows that do not go with its values")
        return entry | {n: x[rows or first].tolist() for n, (x, rows) in sizes.items()}

    def at(self, rows: np.ndarray) -> "LossPoints":
        """Some of the rows."""
        columns = {f.name: getattr(self, f.name) for f in fields(self)}
        chosen = {n: x[rows] for n, x in columns.items() if isinstance(x, np.ndarray)}
        return replace(self, **chosen)

    @cached_property
    def cell(self) -> np.ndarray:
        """[n], which (N, D) a row is of, counted from 0; budgets within 3% are one."""
        order = np.lexsort([self.tokens, self.params])
        same_model = np.diff(self.params[order]) == 0
        same_budget = np.diff(np.log(self.tokens[order])) < SAME_BUDGET
        cell = np.empty(len(order), int)
        cell[order] = np.concatenate([[0], np.cumsum(~(same_model & same_budget))])
        return cell

    @cached_property
    def cells(self) -> list[np.ndarray]:
        """The rows of each (N, D)."""
        return [np.flatnonzero(self.cell == cell) for cell in range(self.cell.max() + 1)]

    @cached_property
    def excess(self) -> np.ndarray:
        """[n], nats above the lowest loss of the (N, D)."""
        least = np.full(self.cell.max() + 1, np.inf)
        np.minimum.at(least, self.cell, self.loss)
        return self.loss - least[self.cell]

    @property
    def least(self) -> np.ndarray:
        """[n] nats, the lowest loss of the (N, D)."""
        return self.loss - self.excess

    @property
    def weight(self) -> np.ndarray:
        """[n], by the distance from the cell's best, never by a residual.

        A row on a cliff has almost 0. With LRs rows far above the best are at LRs that are far off,
        and a planted cliff moved the best LR by 0.6 octaves if they weighed as much as without.
        """
        wide = (self.excess / (WIDE * self.least)) ** 2
        if self.with_lr:
            return (1 + wide) ** -STEEP
        # 1 over a standard deviation that rises at a cliff as that of `noise_sd`.
        return (1 + wide + (self.excess / self._cliff(self.least)) ** 6) ** -0.5

    def _cliff(self, least: np.ndarray) -> np.ndarray:
        """Excess losses of a cliff, by the lowest losses of the (N, D), all in nats.

        Without LRs a loss is high because of few steps before it is so because of divergence.
        """
        return np.full_like(least, CLIFF) if self.with_lr else DIVERGED * least

    @property
    def diverged(self) -> np.ndarray:
        """[n], whether a loss is so far above the best of its (N, D) that it may have diverged."""
        return self.excess > DIVERGED * self.least

    @cached_property
    def uncentred(self) -> np.ndarray:
        """[n, 3] logarithms of N, D and B, or [n, 4] with the LR."""
        columns = [self.params, self.tokens, self.batch, *([self.lr] if self.with_lr else [])]
        return np.log(np.stack(columns, axis=1))

    @cached_property
    def centres(self) -> np.ndarray:
        """[3] or [4], the middle of the logarithms."""
        return (self.uncentred.min(axis=0) + self.uncentred.max(axis=0)) / 2

    @cached_property
    def logs(self) -> np.ndarray:
        """[n, 3] or [n, 4], logarithms about their middle."""
        return self.uncentred - self.centres

    @cached_property
    def gp(self) -> ResidualGP:
        """The process of the residuals of a form, given the residuals of the rows."""
        return ResidualGP.of(self.logs, self.noise_sd(self.excess, self.least, self.count))

    def noise_sd(
        self, excess: np.ndarray, least: np.ndarray, count: np.ndarray | float = 1.0
    ) -> np.ndarray:
        """Return the noise of the mean of `count` runs, in nats.

        Args:
            excess: above the lowest losses of the (N, D), in nats.
            least: these lowest losses.
            count: runs that are averaged.
        """
        return noise_sd(excess, count, self._cliff(least))

    @property
    def varies(self) -> tuple[bool, bool]:
        """Whether N does, and D."""
        models, budgets = (np.ptp(self.logs[:, :2], axis=0) > np.log(VARIED)).tolist()
        return models, budgets

    @property
    def one_lr(self) -> bool:
        """Whether all runs have the same LR, which is then tuned for none, or for some."""
        return bool(np.ptp(self.lr) == 0)  # NaN without LRs

    @property
    def sizes(self) -> list[tuple[float, float]]:
        """N and D of each (N, D)."""
        return [(float(self.params[rows[0]]), float(self.tokens[rows[0]])) for rows in self.cells]

    def outside(self, logs: np.ndarray) -> np.ndarray:
        """Return [m], whether log N or log D of points [m, 2 or more] are outside of the rows'.

        A size within 3% of the largest or smallest is inside.
        """
        sizes = logs[:, :2]
        rows = self.logs[:, :2]
        away = np.maximum(sizes - rows.max(axis=0), rows.min(axis=0) - sizes)
        return away.max(axis=1) > SAME_BUDGET
