"""Final losses with the rate that each was trained at, one row per (N, D, B, rate)."""

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from bss.errors import InputError
from bss.laws.final_loss.forms.form import CentredPoints
from bss.laws.final_loss.points import cells_of_sizes

if TYPE_CHECKING:
    import pandas as pd  # which reading a fit does not load

FEWEST = 12  # rows of three rates or more, from which the rate is in the law
MIXED = 1000.0  # a gap between the rates of one (N, D), as between rates per step and per token
ABOUT = 4.0  # the factor by which a rate may lie outside those tried otherwise
VARIED = 1.5  # a range that counts as a variation: (largest / smallest)
WIDE = 0.06  # excess, as a share of the best loss, at which a row weighs .35


@dataclass(frozen=True)
class RatedPoints:
    """Mean final losses of the runs of one (N, D, B, rate), [n] each.

    Attributes:
        params, tokens, batch: N, D, and B in tokens.
        lr: the peak rate, per step.
        loss: in nats.
        count: runs that were averaged.
    """

    params: np.ndarray
    tokens: np.ndarray
    batch: np.ndarray
    lr: np.ndarray
    loss: np.ndarray
    count: np.ndarray

    @cached_property
    def cell(self) -> np.ndarray:
        """[n], which (N, D) a row is of, counted from 0."""
        return cells_of_sizes(self.params, self.tokens)

    @cached_property
    def excess(self) -> np.ndarray:
        """[n], nats above the least loss of the cell."""
        least = np.full(self.cell.max() + 1, np.inf)
        np.minimum.at(least, self.cell, self.loss)
        return self.loss - least[self.cell]

    @property
    def weight(self) -> np.ndarray:
        """[n], by the distance from the cell's best, never by a residual; on a cliff almost 0."""
        return (1 + (self.excess / (WIDE * (self.loss - self.excess))) ** 2) ** -1.5

    @cached_property
    def logs(self) -> np.ndarray:
        """[n, 4], logarithms of N, D, B and the rate."""
        return np.log(np.stack([self.params, self.tokens, self.batch, self.lr], axis=1))

    @cached_property
    def centres(self) -> np.ndarray:
        """[4], the middle of the logarithms."""
        return (self.logs.min(axis=0) + self.logs.max(axis=0)) / 2

    @property
    def design(self) -> CentredPoints:
        """As forms see them."""
        models, budgets = (np.ptp(self.logs[:, :2], axis=0) > np.log(VARIED)).tolist()
        ones = np.ones(len(self.loss))
        logs = self.logs - self.centres
        return CentredPoints(logs, self.centres, self.loss, self.cell, (models, budgets), ones)


def rated_points(runs: "pd.DataFrame") -> tuple[RatedPoints | None, list[str]]:
    """The rows with their rates, if these vary enough for a law; and warnings.

    Args:
        runs: as `bss.laws.final_loss.table.runs_of` gives them: params, tokens, batch_tokens, rate
            (0 where there is none), loss and how many runs were averaged, count.

    Raises:
        InputError: rates per step and per token are mixed.
    """
    names = ("params", "tokens", "batch_tokens", "rate", "loss", "count")
    N, D, B, lr, loss, count = (runs[name].to_numpy(float) for name in names)
    points = RatedPoints(N, D, B, lr, loss, count)
    if not (points.lr > 0).all():
        return None, []
    _refuse_mixed(points)
    several = int((_counts(runs, ["params", "tokens", "batch_tokens"]) > 1).sum())
    if not several:
        confounded = "each batch has one rate of its own: batch and rate are confounded, so its "
        confounded += "best batch is that of this coupling; train two rates at one batch or more"
        return None, [confounded] if (_counts(runs, ["params", "tokens"]) > 1).any() else []
    if len(points.loss) < FEWEST or len(np.unique(points.lr)) < 3:
        return None, []
    texts = []
    if several == 1:
        texts.append(
            "rates were tried at one batch of one (params, tokens) only: how the best rate "
            "follows the batch rests on what is usual; try two rates at another batch"
        )
    return points, texts


def _counts(runs: "pd.DataFrame", by: list[str]) -> np.ndarray:
    """How many rates each group of rows has."""
    return np.array([len(set(rows["rate"])) for _, rows in runs.groupby(by)])


def _refuse_mixed(points: RatedPoints) -> None:
    """Refuses rates per token: each, times its batch in tokens, is about one of the others."""
    found, per_token = "", []
    for cell in range(points.cell.max() + 1):
        here = points.cell == cell
        rates = np.unique(points.lr[here])
        gaps = rates[1:] / rates[:-1]
        if len(gaps) and gaps.max() > MIXED:
            i = int(gaps.argmax())
            below = here & (points.lr <= rates[i])
            per_step = points.lr[below] * points.batch[below]
            per_token += [*(rates[i + 1] / ABOUT < per_step), *(per_step < rates[-1] * ABOUT)]
            found = f"{rates[i]:.3g} and {rates[i + 1]:.3g} in one (params, tokens)"
    if found and all(per_token):
        raise InputError(
            f"lr: {found}, and the lower rates times batch_tokens are about the higher: some are "
            "per token; give all per step, or leave the others out"
        )
