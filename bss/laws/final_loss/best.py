"""Best batches and LRs of every measured (N, D), and of any other, by the fitted law.

A best batch is where draws of the law's losses over batches are lowest: their expectation, and an
interval of their shares. The runs of the (N, D) alone give a measured one, which is reported if
the two intervals do not meet. Elsewhere B_opt follows a power law through the best batches.
Best LRs are found in the same way, and grow as powers of N, D and the batch.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

from bss.laws.base import (
    SPANS,
    BestBatch,
    Estimate,
    ToleranceRange,
    bounded,
    check_positive,
    disjoint,
    interval,
    too_wide,
)
from bss.laws.final_loss.law import LossLaw
from bss.laws.final_loss.points import VARIED
from bss.laws.final_loss.residual_gp import RUN_NOISE
from bss.laws.minimum import FEWEST, FORM_SD, measured_minimum, parabola_vertex
from bss.laws.power import PowerFit, fit_power, unidentified
from bss.values import Positive

TOLERANCES = (0.003, RUN_NOISE)  # nats: repeated runs differ by as much, if no seeds tell
MOSTLY = 0.6  # share of best batches inside their (N, D), above which the others have values
SURE = 2.6  # ratio of the ends of an interval, up to which they have
SYMBOLS = {"params": "N", "tokens": "D", "batch": "B"}
NEAR_BEST = 0.03  # nats above the best batch, up to which batches count: runs are near it


@dataclass(frozen=True)
class CellOptimum:
    """The best batch at one size N and budget D; batches in tokens.

    Attributes:
        params, tokens: N and D.
        batch: B_opt; without a value if it is unidentified, with the reason, and a bound if any.
        measured: the same by the runs of this (N, D) alone, a parabola in log B.
    """

    may_lack: ClassVar[tuple[str, ...]] = ()

    params: Positive
    tokens: Positive
    batch: BestBatch = field(metadata={"key": "B_opt_tokens"})
    measured: BestBatch

    def check(self, where: str) -> None:
        """Raise InputError if the JSON that it was read from is damaged."""
        check_positive({"B_opt_tokens": self.batch, "measured": self.measured}, where)


def drawn_optimum(
    law: LossLaw, params: float, tokens: float, ends: tuple[float, float]
) -> np.ndarray:
    """Return [1 + R], log of the batch of lowest loss and draws of it.

    Batches are searched to an octave beyond these ends, in tokens.
    """
    batch = np.exp(np.linspace(np.log(ends[0] / 2), np.log(ends[1] * 2), len(law.grid[0])))
    seed = [law.seed, round(params), round(tokens)]
    return drawn_minimum(batch, law.draws(params, tokens, batch), seed)


def drawn_minimum(grid: np.ndarray, losses: np.ndarray, seed: list[int]) -> np.ndarray:
    """Return [1 + R], logs of where expected losses and draws [1 + R, G] over a grid are lowest."""
    found = parabola_vertex(np.log(grid), losses)
    found[1:] += FORM_SD * np.random.default_rng(seed).standard_normal(len(found) - 1)
    return found


def best_batches(law: LossLaw, level: float) -> tuple[list[CellOptimum], PowerFit | None]:
    """Return the best batch of each measured (N, D), and the power law through them.

    If the batches of an (N, D) do not bracket the best batch, the law's optimum is used. This needs
    a narrow interval of the law, and best batches at more than a share MOSTLY of all (N, D).
    """
    points = law.points
    optima = []
    minima = []
    reach = (float(points.batch.min()), float(points.batch.max()))
    own = [_of_cell(law, *one, level) for one in zip(points.cells, points.sizes, strict=True)]
    mostly = np.mean([batch.value is not None for batch, _ in own]) > MOSTLY
    for i, (params, tokens) in enumerate(points.sizes):
        batch, draws = own[i]
        alone = _measured(law, points.cells[i], level)
        if mostly and batch.status in ("at_boundary", "too_few_batches"):
            wider = drawn_optimum(law, params, tokens, reach)
            other = _within(law, wider, reach, level)
            if _is_sure(other):
                batch = other
                draws = wider
        if batch.value is not None and alone.value is not None and disjoint(batch, alone):
            batch = alone
        if alone.status == "within_noise" and not _is_sure(batch):
            batch = replace(alone, method="law")
        if batch.value is not None:
            minima.append(((params, tokens), batch.value, float(draws[1:].std())))
            batch = replace(batch, ranges=tolerances(law, params, tokens, batch.value))
        optima.append(CellOptimum(params, tokens, batch, alone))
    enough = minima if len(minima) >= FEWEST else ()
    return optima, power_law(("params", "tokens"), enough, level)


def _is_sure(batch: BestBatch) -> bool:
    """Whether a best batch has a value and a narrow interval."""
    return batch.value is not None and (batch.high or np.inf) < SURE * (batch.low or 0.0)


def _of_cell(
    law: LossLaw, rows: np.ndarray, size: tuple[float, float], level: float
) -> tuple[BestBatch, np.ndarray]:
    """B_opt of a measured (N, D) by the law, and its logarithm with draws [1 + R]."""
    points = law.points
    usable = rows[~points.diverged[rows]]
    ends = (float(points.batch[usable].min()), float(points.batch[usable].max()))
    draws = drawn_optimum(law, *size, ends)
    best = _within(law, draws, ends, level)
    count = len(np.unique(points.batch[usable]))
    none = replace(best, low=None, high=None)
    if not points.with_lr and np.ptp(points.lr[usable]) == 0 < np.ptp(points.batch[usable]):
        why = "all batches share one learning rate, so theirs is not B_opt; retune at two"
        return none.unknown("single_lr", why), draws
    if count < FEWEST:
        return none.unknown("too_few_batches", f"{count} batches measured"), draws
    return best, draws


def _within(law: LossLaw, draws: np.ndarray, ends: tuple[float, float], level: float) -> BestBatch:
    """By log B_opt with its draws [1 + R], if it lies within these ends."""
    found = of_draws(draws, level)
    best = BestBatch(found.value, found.low, found.high, level, method="law")
    least = float(law.points.seq_len or 1.0)
    return bounded(best, np.exp(draws[1:]), ends, unit="tokens", least=least)


def of_draws(draws: np.ndarray, level: float) -> Estimate:
    """Return the value and the interval of a logarithm and its draws [1 + R]."""
    return interval(float(np.exp(draws[0])), np.exp(draws[1:]), level=level)


def _measured(law: LossLaw, rows: np.ndarray, level: float) -> BestBatch:
    """By the runs of one (N, D) alone, each batch at its best learning rate."""
    points = law.points
    rows = rows[~points.diverged[rows]]
    batch, at = np.unique(points.batch[rows], return_inverse=True)
    loss = np.full(len(batch), np.inf)
    np.minimum.at(loss, at, points.loss[rows])
    noise = points.noise if np.isfinite(points.noise) else TOLERANCES[0]
    least = float(points.seq_len or 1.0)
    how = {"typical": noise, "unit": "tokens", "least": least, "level": level}
    return measured_minimum(batch, loss, **how).batch


def tolerances(
    law: LossLaw, params: float, tokens: float, best: float
) -> tuple[ToleranceRange, ...]:
    """Return the batches within `TOLERANCES` of the best one, the law's curve moved to it."""
    batch, loss, least = law.curve(params, tokens)
    x = np.log(batch) + np.log(best / least)
    above = loss - loss.min()
    spans = []
    for nats in TOLERANCES:
        near = np.flatnonzero(above <= nats)
        low = _crossing(x, above - nats, int(near[0]), -1)
        high = _crossing(x, above - nats, int(near[-1]), 1)
        spans.append(ToleranceRange(low, high, nats))
    return tuple(spans)


def _crossing(x: np.ndarray, above: np.ndarray, i: int, step: int) -> float | None:
    """The batch at which the loss crosses a tolerance, from point i on; None if it does not."""
    j = i + step
    if not 0 <= j < len(x):
        return None
    share = above[i] / (above[i] - above[j]) if above[i] != above[j] else 0.0
    return float(np.exp(x[i] + share * (x[j] - x[i])))


def power_law(
    names: Sequence[str], minima: Sequence[tuple[tuple[float, ...], float, float]], level: float
) -> PowerFit | None:
    """Return the power law through optima in sizes of these names, the last ones if collinear.

    Args:
        names: of the sizes.
        minima: of each optimum its sizes, its value, and the standard deviation of its logarithm.
        level: of intervals.
    """
    if not minima:
        return None
    sizes, values, errors = zip(*minima, strict=True)
    columns = dict(zip(names, np.array(sizes).T, strict=True))
    x = {name: column for name, column in columns.items() if not unidentified({name: column})}
    while len(x) > 1 and unidentified(x):
        x.pop(next(iter(x)))
    return fit_power(values, x, errors=errors, level=level) if x else None


def exponents(
    power: PowerFit | None, names: Sequence[str], level: float, why: str
) -> dict[str, Estimate]:
    """Return exponents by symbol, "N", "D" or "B"; a note if they are not identified."""
    found = dict(zip(power.variables, power.exponents, strict=True)) if power else {}
    none = Estimate(None, level=level, note=f"unidentified: {why}")
    return {SYMBOLS[name]: found.get(name, none) for name in names}


@dataclass(frozen=True)
class BestLR:
    """At one N and D; batches in tokens, LRs per step.

    Attributes:
        params, tokens: N and D.
        batch: of the lowest loss over batches and LRs.
        lr: the best one at that batch; without a value if those tried do not bracket it.
    """

    may_lack: ClassVar[tuple[str, ...]] = ()

    params: Positive
    tokens: Positive
    batch: Positive
    lr: Estimate

    def check(self, where: str) -> None:
        """Raise InputError if the JSON that it was read from is damaged."""
        check_positive({"lr": self.lr}, where)


@dataclass(frozen=True)
class BestLRs:
    """Best LRs.

    Attributes:
        optima: of each measured (N, D).
        exponents: x, y, p of the best learning rate ∝ N^x·D^y·B^p, by "N", "D", "B"; at fixed N
            and D it follows the batch by the last.
    """

    optima: tuple[BestLR, ...]
    exponents: dict[str, Estimate]


def best_lrs(law: LossLaw, batches: Sequence[float | None], level: float) -> BestLRs:
    """Return the best LRs of all (N, D).

    Args:
        law: with LRs.
        batches: per (N, D) the best batch in tokens; None for the best batch of the law.
        level: of intervals.
    """
    points = law.points
    optima = []
    for size, rows, given in zip(points.sizes, points.cells, batches, strict=True):
        batch = given or law.curve(*size)[2]
        best = best_lr(law, *size, batch, level)
        optima.append(BestLR(*size, batch, _bracketed(law, rows, batch, best)))
    return BestLRs(tuple(optima), _exponents(law, level))


def best_lr(law: LossLaw, params: float, tokens: float, batch: float, level: float) -> Estimate:
    """Return the best learning rate, with an interval from draws of the losses over LRs.

    It has no value if the loss falls to the end of the grid.
    """
    grid = law.grid[1]
    losses = law.draws(params, tokens, batch, grid)
    value, *draws = np.exp(drawn_minimum(grid, losses, [law.seed])).tolist()
    best = interval(value, np.array(draws), level=level)
    rounding = 1.001  # an LR so near an end of the grid is the end
    first = grid[0] * rounding
    last = grid[-1] / rounding
    low = best.low if (best.low or 0) > first else None
    high = best.high if (best.high or np.inf) < last else None
    kept = replace(best, low=low, high=high)
    if not first < value < last:
        why = "the loss falls to the last learning rate"
        return replace(kept, value=None, note=f"unidentified: {why}")
    if too_wide(kept):
        return replace(kept, value=None, note=f"unidentified: {SPANS}")
    return kept


def _bracketed(law: LossLaw, rows: np.ndarray, batch: float, best: Estimate) -> Estimate:
    """Without a value if no lower and higher one was tried at a batch near by of the (N, D)."""
    ratio = np.exp(np.abs(np.log(law.points.batch[rows] / batch)))
    tried = law.points.lr[rows[ratio <= ratio.min() * VARIED]]
    if best.value is None or tried.min() < best.value < tried.max():
        return best
    note = f"unidentified: {best.value:.3g} is outside the LRs tried near this batch size"
    return replace(best, value=None, note=f"{note}, {tried.min():.3g} to {tried.max():.3g}")


def _exponents(law: LossLaw, level: float) -> dict[str, Estimate]:
    """Powers through the best LRs at batches near the best of their (N, D)."""
    every = [one for i in range(len(law.points.cells)) for one in _lrs_of_cell(law, i)]
    why = "the LRs tried do not bracket the best LRs"
    return exponents(power_law([*SYMBOLS], every, level), [*SYMBOLS], level, why)


def _lrs_of_cell(law: LossLaw, cell: int) -> list[tuple[tuple[float, ...], float, float]]:
    """N, D and B of batches, the best learning rate of each, and the SD of its logarithm.

    They are of batches near the best one whose best LR was bracketed; none if fewer than two.
    """
    points = law.points
    rates = np.log(law.grid[1])
    size = points.sizes[cell]
    rows = points.cells[cell]
    batches, which = np.unique(points.batch[rows], return_inverse=True)
    tuned = law.over(*size, batches, law.grid[1])
    best = parabola_vertex(rates, tuned)
    above = tuned.min(axis=1) - tuned.min()
    tried = [np.log(points.lr[rows[which == i]]) for i in range(len(batches))]
    inside = [x.min() < at < x.max() for x, at in zip(tried, best, strict=True)]
    kept = np.flatnonzero((above < NEAR_BEST) & inside)
    if len(kept) < 2:
        return []
    coarse = law.grid[1][::2]  # half of the grid: draws cost most of a fit
    draws = law.draws(*size, batches[kept][:, None], coarse)
    draws = draws.reshape(len(draws), len(kept), -1)
    spread = np.hypot(parabola_vertex(np.log(coarse), draws).std(axis=0), FORM_SD)
    every = zip(batches[kept].tolist(), np.exp(best[kept]).tolist(), spread.tolist(), strict=True)
    return [((*size, batch), lr, sd) for batch, lr, sd in every]
