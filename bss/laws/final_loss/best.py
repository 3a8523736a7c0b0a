"""Best batches and learning rates of every measured (N, D), and of any other, by the fitted law.

A best batch is where draws of the law's losses over batches are least: their expectation, and an
interval of their shares. The runs of the (N, D) alone give a measured one, which is reported if
the two intervals do not meet. Elsewhere B_opt follows a power law through the best batches.
Best learning rates are those of the least draws too, and grow as powers of N, D and the batch.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from bss.laws.base import (
    DRAWS,
    SPANS,
    BestBatch,
    Estimate,
    ToleranceRange,
    bounded,
    disjoint,
    interval,
    tails,
    too_wide,
)
from bss.laws.final_loss.law import LossLaw
from bss.laws.final_loss.points import VARIED
from bss.laws.minimum import FEWEST, FORM_SD, measured_minimum, parabola_vertex
from bss.laws.power import unidentified

TOLERANCES = (0.003, 0.005)  # nats: repeated runs differ by as much, if no seeds measure it
MOSTLY = 0.6  # share of best batches inside their (N, D), above which the others have values
SURE = 2.6  # ratio of the ends of an interval, up to which they have
SYMBOLS = {"params": "N", "tokens": "D", "batch": "B"}
NEAR_BEST = 0.03  # nats above the best batch, up to which batches count: runs are near it
COARSER = 2  # of the grid's rates, one in so many is drawn for all batches of a (N, D) together:
# their best ones move by .006 (rms of log) on a published table, and cost a third
MINIMA = 5  # best batches from which they have a power law, and are drawn with replacement


@dataclass(frozen=True)
class CellOptimum:
    """The best batch at one size N and budget D; batches in tokens.

    Attributes:
        params, tokens: N and D.
        batch: B_opt; without a value if it is unidentified, with the reason, and a bound if any.
        measured: the same by the runs of this (N, D) alone, a parabola in log B.
    """

    params: float
    tokens: float
    batch: BestBatch = field(metadata={"key": "B_opt_tokens"})
    measured: BestBatch


@dataclass(frozen=True)
class BestBatchLaw:
    """The power law through best batches: B_opt in tokens at N and D.

    Attributes:
        variables: of `params` and `tokens` those that vary.
        centre: [K], logarithms of the variables about which it is.
        theta: [1 + K], log B_opt at the centre and the exponents.
        draws: [R, 1 + K], the same of draws of all best batches.
        misfit: standard deviation of log B_opt of a (N, D) about it.
        points: number of best batches.
    """

    variables: tuple[str, ...]
    centre: np.ndarray
    theta: np.ndarray
    draws: np.ndarray
    misfit: float
    points: int

    def at(self, params: float, tokens: float) -> np.ndarray:
        """Return [1 + R], log B_opt and draws of it at a (N, D) that was not measured."""
        sizes = {"params": params, "tokens": tokens}
        row = np.append(1.0, np.log([sizes[name] for name in self.variables]) - self.centre)
        apart = self.misfit * np.random.default_rng(0).standard_normal(len(self.draws))
        return np.append(row @ self.theta, self.draws @ row + apart)

    def exponent(self, name: str, level: float) -> Estimate | None:
        """Return the exponent of a variable with its interval; None if it has none."""
        if name not in self.variables:
            return None
        i = 1 + self.variables.index(name)
        return interval(float(self.theta[i]), self.draws[:, i], level=level)


def drawn_optimum(
    law: LossLaw, params: float, tokens: float, ends: tuple[float, float]
) -> np.ndarray:
    """Return [1 + R], log of the batch of least loss and draws of it.

    Batches are searched to an octave beyond these ends, in tokens.
    """
    batch = np.exp(np.linspace(np.log(ends[0] / 2), np.log(ends[1] * 2), len(law.grid[0])))
    seed = [law.seed, round(params), round(tokens)]
    return drawn_minimum(batch, law.draws(params, tokens, batch), seed)


def drawn_minimum(grid: np.ndarray, losses: np.ndarray, seed: list[int]) -> np.ndarray:
    """Return [1 + R], logs of where expected losses and draws [1 + R, G] over a grid are least."""
    found = parabola_vertex(np.log(grid), losses)
    found[1:] += FORM_SD * np.random.default_rng(seed).standard_normal(len(found) - 1)
    return found


def best_batches(law: LossLaw, level: float) -> tuple[list[CellOptimum], BestBatchLaw | None]:
    """Return the best batch of each measured (N, D), and the power law through them.

    A (N, D) whose batches do not bracket the best one has the value of the law if most of the
    table's do, and if the law's interval is narrow.
    """
    points, optima, minima = law.points, [], []
    reach = float(points.batch.min()), float(points.batch.max())
    own = [_of_cell(law, *one, level) for one in zip(points.cells, points.sizes, strict=True)]
    mostly = np.mean([batch.value is not None for batch, _ in own]) > MOSTLY
    for i, (params, tokens) in enumerate(points.sizes):
        batch, draws = own[i]
        alone = _measured(law, points.cells[i], level)
        if mostly and batch.status in ("at_boundary", "too_few_batches"):
            wider = drawn_optimum(law, params, tokens, reach)
            other = _within(law, wider, reach, level)
            batch, draws = (other, wider) if _is_sure(other) else (batch, draws)
        if batch.value is not None and alone.value is not None and disjoint(batch, alone):
            batch = alone
        if alone.status == "within_noise" and not _is_sure(batch):
            batch = replace(alone, method="law")
        if batch.value is not None:
            minima.append((params, tokens, np.append(np.log(batch.value), draws[1:])))
            batch = replace(batch, ranges=tolerances(law, params, tokens, batch.value))
        optima.append(CellOptimum(params, tokens, batch, alone))
    return optima, _power_law(minima, law.seed)


def _is_sure(batch: BestBatch) -> bool:
    """Whether a best batch has a value and a narrow interval."""
    return batch.value is not None and (batch.high or np.inf) < SURE * (batch.low or 0.0)


def _of_cell(
    law: LossLaw, rows: np.ndarray, size: tuple[float, float], level: float
) -> tuple[BestBatch, np.ndarray]:
    """B_opt of a measured (N, D) by the law, and its logarithm with draws [1 + R]."""
    points = law.points
    usable = rows[~points.diverged[rows]]
    ends = float(points.batch[usable].min()), float(points.batch[usable].max())
    draws = drawn_optimum(law, *size, ends)
    best = _within(law, draws, ends, level)
    count = len(np.unique(points.batch[usable]))
    none = replace(best, low=None, high=None)
    if not points.with_lr and points.single_lr(usable):
        why = "all batches share one learning rate, so theirs is not B_opt; retune at two"
        return none.unknown("single_lr", why), draws
    if count < FEWEST:
        return none.unknown("too_few_batches", f"{count} batches measured"), draws
    return best, draws


def _within(law: LossLaw, draws: np.ndarray, ends: tuple[float, float], level: float) -> BestBatch:
    """By log B_opt with its draws [1 + R], if it lies within these ends."""
    best = _of_draws(BestBatch(None, level=level, method="law"), draws)
    least = float(law.points.seq_len or 1.0)
    return bounded(best, np.exp(draws[1:]), ends, unit="tokens", least=least)


def _of_draws(none: BestBatch, draws: np.ndarray) -> BestBatch:
    """With the value and the interval of log B_opt and its draws [1 + R]."""
    value, low, high = np.exp([draws[0], *np.quantile(draws[1:], tails(none.level))]).tolist()
    return replace(none, value=value, low=min(low, value), high=max(high, value))


def elsewhere(none: BestBatch, draws: np.ndarray, seq_len: float | None) -> BestBatch:
    """Return a best batch at a (N, D) that was not measured, by log B_opt and draws [1 + R]."""
    best = replace(_of_draws(none, draws), status="ok").at_least(float(seq_len or 1.0))
    return best.unknown("interval_too_wide", SPANS) if too_wide(best) else best


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
    x, above, spans = np.log(batch) + np.log(best / least), loss - loss.min(), []
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


def _power_law(minima: Sequence[tuple[float, float, np.ndarray]], seed: int) -> BestBatchLaw | None:
    if len(minima) < MINIMA:
        return None
    params, tokens = np.log([one[:2] for one in minima]).T
    sizes = separable({"params": params, "tokens": tokens})
    if not sizes:
        return None
    centre = np.array([(x.min() + x.max()) / 2 for x in sizes.values()])
    x, logs = np.stack([*sizes.values()], axis=1) - centre, np.array([one[2] for one in minima])
    theta = regressions(np.arange(len(minima)), x, logs, seed)
    residuals = logs[:, 0] - theta[0, 0] - x @ theta[0, 1:]
    freedom = max(len(minima) - len(theta[0]), 1)
    misfit = float(np.sqrt(np.sum(residuals**2) / freedom))
    draws = np.round(theta[1 : 1 + DRAWS], 6)
    return BestBatchLaw(tuple(sizes), centre, theta[0], draws, misfit, len(minima))


def separable(sizes: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the logarithms [n] of sizes whose exponents can be separated, the last ones first."""
    varied = {name: x for name, x in sizes.items() if np.ptp(x) > np.log(VARIED)}
    while len(varied) > 1 and unidentified({name: np.exp(x) for name, x in varied.items()}):
        varied.pop(next(iter(varied)))
    return varied


def regressions(cell: np.ndarray, x: np.ndarray, logs: np.ndarray, seed: int) -> np.ndarray:
    """Return [1 + R, 1 + K], least squares in x [n, K] of values and draws of them [n, 1 + R].

    Draws resample cells, [n] integers from 0, with replacement. A value counts by its variance.
    """
    variance, count = FORM_SD**2 + logs[:, 1:].var(axis=1), int(cell.max()) + 1
    design = np.concatenate([np.ones((len(x), 1)), x], axis=1)
    generator, found = np.random.default_rng(seed), []
    for i, values in enumerate(logs.T):
        times = np.ones(count)
        if i and count >= MINIMA:
            times = generator.multinomial(count, np.full(count, 1 / count))
        root = np.sqrt(times[cell] / variance)
        found.append(np.linalg.lstsq(design * root[:, None], values * root, rcond=None)[0])
    return np.array(found)


def exponents(
    power: BestBatchLaw | None, optima: Sequence[CellOptimum], level: float
) -> dict[str, Estimate]:
    """Return x and y of B_opt ∝ N^x·D^y, by "N" and "D"; a note if they are not identified."""
    count, found = sum(at.batch.value is not None for at in optima), {}
    for name, symbol in (("params", "N"), ("tokens", "D")):
        varies = len({getattr(at, name) for at in optima}) > 1
        why = f"{count} best batches inside their (N, D)" if varies else "it does not vary"
        none = Estimate(None, level=level, note=f"unidentified: {why}")
        found[symbol] = (power and power.exponent(name, level)) or none
    return found


@dataclass(frozen=True)
class BestLR:
    """At one N and D; batches in tokens, learning rates per step.

    Attributes:
        params, tokens: N and D.
        batch: of the least loss over batches and learning rates.
        lr: the best one at that batch; without a value if those tried do not bracket it.
    """

    params: float
    tokens: float
    batch: float
    lr: Estimate


@dataclass(frozen=True)
class BestLRs:
    """Best learning rates.

    Attributes:
        optima: of each measured (N, D).
        exponents: x, y, p of the best learning rate ∝ N^x·D^y·B^p, by "N", "D", "B"; at fixed N
            and D it follows the batch by the last.
    """

    optima: tuple[BestLR, ...]
    exponents: dict[str, Estimate]


def best_lrs(law: LossLaw, batches: Sequence[float | None], level: float) -> BestLRs:
    """Return the best learning rates of all (N, D).

    Args:
        law: with learning rates.
        batches: per (N, D) the best batch in tokens; None for that of the law.
        level: of intervals.
    """
    points, optima = law.points, []
    for size, rows, given in zip(points.sizes, points.cells, batches, strict=True):
        batch = given or law.curve(*size)[2]
        best = best_lr(law, *size, batch, level)
        optima.append(BestLR(*size, batch, _bracketed(law, rows, batch, best)))
    return BestLRs(tuple(optima), _exponents(law, level))


def best_lr(law: LossLaw, params: float, tokens: float, batch: float, level: float) -> Estimate:
    """Return the best learning rate; without a value if the loss falls to the end of the grid."""
    losses = law.draws(params, tokens, batch, law.grid[1])
    return _optimum(law.grid[1], losses, law.seed, level, "learning rate")


def best_batch_at(law: LossLaw, params: float, tokens: float, lr: float, level: float) -> Estimate:
    """Return the best batch in tokens at a given learning rate."""
    losses = law.draws(params, tokens, law.grid[0], lr)
    return _optimum(law.grid[0], losses, law.seed, level, "batch")


def _optimum(grid: np.ndarray, losses: np.ndarray, seed: int, level: float, what: str) -> Estimate:
    """Where expected losses and draws [1 + R, G] over a grid are least, if inside of it."""
    value, *draws = np.exp(drawn_minimum(grid, losses, [seed])).tolist()
    best = interval(value, np.array(draws), level=level)
    first, last = grid[0] * 1.001, grid[-1] / 1.001
    low = best.low if (best.low or 0) > first else None
    high = best.high if (best.high or np.inf) < last else None
    kept = replace(best, low=low, high=high)
    if not first < value < last:
        return replace(kept, value=None, note=f"unidentified: the loss falls to the last {what}")
    if too_wide(kept):
        return replace(kept, value=None, note=f"unidentified: {SPANS}")
    return kept


def _bracketed(law: LossLaw, rows: np.ndarray, batch: float, best: Estimate) -> Estimate:
    """Without a value if no lower and higher one was tried at a batch near by of the (N, D)."""
    ratio = np.exp(np.abs(np.log(law.points.batch[rows] / batch)))
    tried = law.points.lr[rows[ratio <= ratio.min() * VARIED]]
    if best.value is None or tried.min() < best.value < tried.max():
        return best
    note = f"unidentified: {best.value:.3g} is outside the learning rates tried at such a batch"
    return replace(best, value=None, note=f"{note}, {tried.min():.3g} to {tried.max():.3g}")


def _exponents(law: LossLaw, level: float) -> dict[str, Estimate]:
    """Powers through the best learning rates at batches near the best of their (N, D)."""
    found = [one for i in range(len(law.points.cells)) if (one := _lrs_of_cell(law, i)) is not None]
    note = "unidentified: the learning rates tried do not bracket the best ones"
    estimates = dict.fromkeys("NDB", Estimate(None, level=level, note=note))
    if not found:
        return estimates
    cell = np.repeat(np.arange(len(found)), [len(x) for x, _ in found])
    columns = np.log(np.concatenate([x for x, _ in found])).T
    sizes = separable(dict(zip(SYMBOLS, columns, strict=True)))
    logs = np.concatenate([logs for _, logs in found])
    theta = regressions(cell, np.stack([*sizes.values()], axis=1), logs, law.seed)
    for name, draws in zip(sizes, theta.T[1:], strict=True):
        estimates[SYMBOLS[name]] = interval(float(draws[0]), draws[1:], level=level)
    return estimates


def _lrs_of_cell(law: LossLaw, cell: int) -> tuple[np.ndarray, np.ndarray] | None:
    """N, D and B [m, 3] of batches, and the logs of their best learning rates [m, 1 + R].

    Of batches whose best one was bracketed, near the best batch; None if they are fewer than two.
    """
    points, rates = law.points, np.log(law.grid[1])
    size, rows = points.sizes[cell], points.cells[cell]
    batches, which = np.unique(points.batch[rows], return_inverse=True)
    tuned = law.over(*size, batches, law.grid[1])
    best, above = parabola_vertex(rates, tuned), tuned.min(axis=1) - tuned.min()
    tried = [np.log(points.lr[rows[which == i]]) for i in range(len(batches))]
    inside = [x.min() < at < x.max() for x, at in zip(tried, best, strict=True)]
    kept = batches[(above < NEAR_BEST) & inside]
    if len(kept) < 2:
        return None
    coarse = slice(None, None, COARSER)
    draws = law.draws(*size, kept[:, None], law.grid[1][coarse])
    draws = draws.reshape(len(draws), len(kept), -1)
    sizes = np.stack(np.broadcast_arrays(*size, kept), axis=1)
    return sizes, parabola_vertex(rates[coarse], draws).T
