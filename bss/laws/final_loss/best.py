"""The best batch and rate of every measured (N, D), and of any other, by the law of losses.

A best batch is where draws of the law's losses over batches are least: their median, and an
interval of their shares. Beside it is the one measured by the runs of the (N, D) alone. Elsewhere
B_opt follows a power law through the best batches of the measured (N, D).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from statistics import NormalDist
from typing import Any

import numpy as np

from bss.laws.base import (
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
from bss.laws.final_loss.law import LossLaw, draw, mean_of
from bss.laws.minimum import FEWEST, measured_minimum, parabola_vertex
from bss.laws.power import unidentified

DRAWS = 200
TYPICAL = 0.003  # nats, standard deviation of a final loss where no seeds tell it
SHARED, OF_A_CELL = 0.04, 0.12
"""Standard deviations of log B_opt by what no form and departure holds: of all (N, D) and of each,
and of the shape of one, which many tell (measured on planted tables of other laws)."""
TOLERANCES = (0.003, 0.005)  # nats
MOSTLY = 0.6  # share of best batches inside their (N, D), from which the others may be told
SURE = 2.6  # width of an interval up to which they are
VAGUE = 4.0  # width of one from which a batch has to be surely better than others
MINIMA = 5  # from which they have a power law
NEAR = 0.03  # nats above the best, up to which a batch tells how the best rate follows it
MOST = 6  # batches of a (N, D) that do
RESAMPLED = 4  # (N, D) from which they are drawn with replacement
OFF = (0.5, 2.0)
CLOSE = np.log(1.5)  # by which batches are farther than the nearest, that tell what was tried
NORMAL = np.array([NormalDist().inv_cdf((i + 0.5) / 9) for i in range(9)])
SYMBOLS = {"params": "N", "tokens": "D"}


@dataclass(frozen=True)
class CellOptimum:
    """The best batch at one size N and budget D; batches in tokens.

    Attributes:
        params, tokens: N and D.
        batch: B_opt; None where it is unidentified, with the reason, and a bound if any.
        measured: the same by the runs of this (N, D) alone, a parabola in log B.
        given_up: per measured batch, the loss above that of B_opt by the law; empty without one.
    """

    params: float
    tokens: float
    batch: BestBatch = field(metadata={"key": "B_opt_tokens"})
    measured: BestBatch
    given_up: dict[float, float]

    def encoded(self, plain: dict[str, Any]) -> dict[str, Any]:
        """JSON has no numbers for keys."""
        entries = [{"batch_tokens": b, "loss": x} for b, x in self.given_up.items()]
        return plain | {"given_up": entries}

    @classmethod
    def decoded(cls, entry: dict[str, Any]) -> dict[str, Any]:
        """The fields again."""
        return entry | {"given_up": {at["batch_tokens"]: at["loss"] for at in entry["given_up"]}}


@dataclass(frozen=True)
class BestBatchLaw:
    """The power law through best batches: B_opt in tokens at N and D.

    Attributes:
        variables: of `params` and `tokens` those that vary.
        centre: [K], logarithms of the variables about which it is.
        theta: [1 + K], log B_opt at the centre and the exponents.
        draws: [R, 1 + K], the same of draws of all best batches.
        misfit: standard deviation of log B_opt of a (N, D) about it.
        points: best batches behind it.
    """

    variables: tuple[str, ...]
    centre: np.ndarray
    theta: np.ndarray
    draws: np.ndarray
    misfit: float
    points: int

    def at(self, params: float, tokens: float) -> np.ndarray:
        """[1 + 9·R], log B_opt and draws of that of a new (N, D)."""
        sizes = {"params": params, "tokens": tokens}
        row = np.append(1.0, np.log([sizes[name] for name in self.variables]) - self.centre)
        spread = np.outer(np.ones(len(self.draws)), self.misfit * NORMAL)
        return np.append(row @ self.theta, (self.draws @ row)[:, None] + spread)


def drawn_optimum(
    law: LossLaw, params: float, tokens: float, ends: tuple[float, float]
) -> np.ndarray:
    """[1 + R], log of the batch of least loss and draws of it, to an octave beyond these ends."""
    batch = np.exp(np.linspace(np.log(ends[0]) - np.log(2), np.log(ends[1]) + np.log(2), 61))
    posterior = law.posterior(params, tokens, batch)
    losses = np.vstack([mean_of(posterior), draw(posterior, DRAWS)])
    draws = parabola_vertex(np.log(batch), losses)
    common, alone = np.random.default_rng(2), np.random.default_rng([int(params), int(tokens)])
    own = np.hypot(SHARED, OF_A_CELL / np.sqrt(len(law.points.cells)))
    draws[1:] += SHARED * common.standard_normal(DRAWS) + own * alone.standard_normal(DRAWS)
    return draws


def best_batches(law: LossLaw, level: float) -> tuple[list[CellOptimum], BestBatchLaw | None]:
    """That of each measured (N, D), and the power law through those that are told.

    One that its own batches do not hold is told by the law all the same, in a table that holds
    most of its best batches, where the law is sure of it.
    """
    points, optima, told = law.points, [], []
    found = [_of_cell(law, *one, level) for one in zip(points.cells, points.sizes, strict=True)]
    is_inside = np.mean([batch.value is not None for batch, _ in found]) > MOSTLY
    reach = float(points.batch.min()), float(points.batch.max())
    for (params, tokens), rows, (batch, draws) in zip(
        points.sizes, points.cells, found, strict=True
    ):
        alone = _measured(law, rows, level)
        if is_inside and batch.status in ("at_boundary", "too_few_batches"):
            again = drawn_optimum(law, params, tokens, reach)
            other = _interval(law, again, reach, level)
            if other.value is not None and (other.high or 0) < SURE * (other.low or 0):
                batch, draws = other, again
        if batch.value is not None and alone.value is not None and disjoint(batch, alone):
            batch = alone
        if alone.status == "within_noise" and (batch.high or 0) > VAGUE * (batch.low or 1):
            batch = replace(alone, method="law")
        lost = {}
        if batch.value is not None:
            told.append((params, tokens, np.append(np.log(batch.value), draws[1:])))
            batch = replace(batch, ranges=tolerances(law, params, tokens, batch.value))
            sizes = np.unique(points.batch[rows])
            given_up = law.given_up(params, tokens, sizes).round(6).tolist()
            lost = dict(zip(sizes.tolist(), given_up, strict=True))
        optima.append(CellOptimum(params, tokens, batch, alone, lost))
    return optima, _power(told)


def _of_cell(
    law: LossLaw, rows: np.ndarray, size: tuple[float, float], level: float
) -> tuple[BestBatch, np.ndarray]:
    """B_opt of a measured (N, D) by the law, and the log of it with its draws [1 + R]."""
    points = law.points
    usable = rows[~points.diverged[rows]]
    ends = float(points.batch[usable].min()), float(points.batch[usable].max())
    draws = drawn_optimum(law, *size, ends)
    best = _interval(law, draws, ends, level)
    count = len(np.unique(points.batch[usable]))
    if not points.with_lr and points.single_lr(usable):
        why = "all batches share one rate: the best one at it is not B_opt; retune at two"
        return replace(best, low=None, high=None).unknown("single_lr", why), draws
    if count < FEWEST:
        few = replace(best, low=None, high=None)
        return few.unknown("too_few_batches", f"{count} batches measured"), draws
    return best, draws


def _interval(
    law: LossLaw, draws: np.ndarray, ends: tuple[float, float], level: float
) -> BestBatch:
    """Of log B_opt with its draws [1 + R], as far as it lies within these ends."""
    best = _of_draws(BestBatch(None, level=level, method="law"), draws)
    least = float(law.points.seq_len or 1.0)
    return bounded(best, np.exp(draws[1:]), ends, unit="tokens", least=least)


def _of_draws(none: BestBatch, draws: np.ndarray) -> BestBatch:
    """With the value and interval of log B_opt and its draws [1 + R]."""
    value, low, high = np.exp([draws[0], *np.quantile(draws[1:], tails(none.level))]).tolist()
    return replace(none, value=value, low=min(low, value), high=max(high, value))


def _measured(law: LossLaw, rows: np.ndarray, level: float) -> BestBatch:
    """By the runs of one (N, D) alone, each batch at its best rate."""
    points = law.points
    rows = rows[~points.diverged[rows]]
    batch, at = np.unique(points.batch[rows], return_inverse=True)
    loss = np.full(len(batch), np.inf)
    np.minimum.at(loss, at, points.loss[rows])
    noise = points.noise if np.isfinite(points.noise) else TYPICAL
    least = float(points.seq_len or 1.0)
    how = {"typical": noise, "unit": "tokens", "least": least, "level": level}
    return measured_minimum(batch, loss, **how).batch


def tolerances(
    law: LossLaw, params: float, tokens: float, best: float
) -> tuple[ToleranceRange, ...]:
    """The batches within `TOLERANCES` of the best one, the law's curve moved to it."""
    batch, loss, least = law.curve(params, tokens)
    x, above, spans = np.log(batch) + np.log(best / least), loss - loss.min(), []
    for nats in TOLERANCES:
        near = np.flatnonzero(above <= nats)
        low = _crossing(x, above - nats, int(near[0]), -1)
        high = _crossing(x, above - nats, int(near[-1]), 1)
        spans.append(ToleranceRange(low, high, nats))
    return tuple(spans)


def _crossing(x: np.ndarray, above: np.ndarray, i: int, step: int) -> float | None:
    """The batch at which a wall is crossed, from the last point below it; None without a wall."""
    j = i + step
    if not 0 <= j < len(x):
        return None
    share = above[i] / (above[i] - above[j]) if above[i] != above[j] else 0.0
    return float(np.exp(x[i] + share * (x[j] - x[i])))


def _power(told: list[tuple[float, float, np.ndarray]]) -> BestBatchLaw | None:
    """Least squares through best batches, of the estimates and of each draw."""
    if len(told) < MINIMA:
        return None
    params, tokens = np.log([one[:2] for one in told]).T
    sizes = {"params": params, "tokens": tokens}
    varied = {name: x for name, x in sizes.items() if np.ptp(x) > np.log(1.05)}
    if not varied or unidentified({name: np.exp(x) for name, x in varied.items()}):
        varied = {n: x for n, x in varied.items() if n == "tokens"} or dict([*varied.items()][:1])
    if not varied:
        return None
    centre = np.array([(x.min() + x.max()) / 2 for x in varied.values()])
    design = np.stack([np.ones(len(told)), *varied.values()], axis=1)
    design[:, 1:] -= centre
    logs = np.array([one[2] for one in told])
    weight = 1 / (SHARED**2 + logs[:, 1:].var(axis=1))
    root = np.sqrt(weight)[:, None]
    theta = np.linalg.lstsq(design * root, logs * root, rcond=None)[0]
    missed = logs[:, 0] - design @ theta[:, 0]
    freedom = max(len(told) - design.shape[1], 1)
    misfit = float(np.sqrt(np.sum(missed**2 * weight) / weight.mean() / freedom))
    return BestBatchLaw(
        tuple(varied), centre, theta[:, 0], np.round(theta[:, 1:].T, 6), misfit, len(told)
    )


def exponents(
    power: BestBatchLaw | None, optima: Sequence[CellOptimum], level: float
) -> dict[str, Estimate]:
    """x and y of B_opt ∝ N^x·D^y, and y - x; a note where the best batches do not tell it."""
    count = sum(at.batch.value is not None for at in optima)
    note = f"unidentified: {count} best batches inside their (N, D)"
    estimates = {}
    for i, (name, symbol) in enumerate(SYMBOLS.items()):
        varies = len({at.params if i == 0 else at.tokens for at in optima}) > 1
        why = note if varies else "unidentified: it does not vary"
        estimates[symbol] = Estimate(None, level=level, note=why)
        if power is not None and name in power.variables:
            j = 1 + power.variables.index(name)
            estimates[symbol] = interval(float(power.theta[j]), power.draws[:, j], level=level)
    estimates["D_less_N"] = Estimate(None, level=level, note=note)
    if power is not None and len(power.variables) == 2:
        less = power.draws[:, 2] - power.draws[:, 1]
        value = float(power.theta[2] - power.theta[1])
        estimates["D_less_N"] = interval(value, less, level=level)
    return estimates


def bounded_elsewhere(none: BestBatch, draws: np.ndarray, seq_len: float | None) -> BestBatch:
    """A best batch where nothing was measured, by log B_opt with its draws [1 + R]."""
    best = replace(_of_draws(none, draws), status="ok").at_least(float(seq_len or 1.0))
    return best.unknown("interval_too_wide", SPANS) if too_wide(best) else best


@dataclass(frozen=True)
class BestRate:
    """At one N and D; batches in tokens, rates per step.

    Attributes:
        params, tokens: N and D.
        batch: of the least loss over batches and rates.
        lr: the best rate at that batch; None where the rates tried do not tell it.
        off_lr: nats given up at that batch at half and twice the best rate.
        off_batch: nats given up at half and twice the batch, with the rate tuned to it.
        batch_at: by what factor the best batch is another at half and at twice the best rate.
    """

    params: float
    tokens: float
    batch: float
    lr: Estimate
    off_lr: tuple[Estimate, Estimate]
    off_batch: tuple[Estimate, Estimate]
    batch_at: tuple[float, float]


@dataclass(frozen=True)
class BestRates:
    """Best rates.

    Attributes:
        optima: of each measured (N, D).
        exponents: x, y, p of the best rate ∝ N^x·D^y·B^p, by "N", "D", "B"; at fixed N and D the
            rate follows the batch by the last.
    """

    optima: tuple[BestRate, ...]
    exponents: dict[str, Estimate]


def best_rates(law: LossLaw, batches: Sequence[float | None], level: float) -> BestRates:
    """The best rates of all (N, D).

    Args:
        law: the law.
        batches: per (N, D) the best batch in tokens; None for that of the law.
        level: of intervals.
    """
    points, optima, told = law.points, [], []
    for (params, tokens), rows, given in zip(points.sizes, points.cells, batches, strict=True):
        batch = given or law.curve(params, tokens)[2]
        optima.append(_rate_of_cell(law, rows, params, tokens, batch, level))
        told.append(_followed(law, rows, params, tokens))
    return BestRates(tuple(optima), _rate_exponents([one for one in told if one], level))


def best_lr(law: LossLaw, params: float, tokens: float, batch: float, level: float) -> Estimate:
    """The best rate with its interval; without a value where the rates tried do not tell it."""
    rates = law.grid[1]
    draws = draw(law.posterior(params, tokens, batch, rates), DRAWS)
    return _optimum(rates, float(law.best_lr(params, tokens, batch)), draws, level, "rates")


def batch_at(law: LossLaw, params: float, tokens: float, lr: float, level: float) -> Estimate:
    """The best batch in tokens at a given rate."""
    batch = law.grid[0]
    draws = draw(law.posterior(params, tokens, batch, lr), DRAWS)
    mean = law.over(params, tokens, batch, np.array([lr]))[:, 0]
    value = float(np.exp(parabola_vertex(np.log(batch), mean)))
    return _optimum(batch, value, draws, level, "batches")


def _optimum(
    grid: np.ndarray, value: float, draws: np.ndarray, level: float, what: str
) -> Estimate:
    """Where draws of losses [R, G] over a grid are least; no end or value at those of the grid."""
    best = interval(value, np.exp(parabola_vertex(np.log(grid), draws)), level=level)
    low = best.low if (best.low or 0) > grid[0] * 1.001 else None
    high = best.high if (best.high or np.inf) < grid[-1] / 1.001 else None
    kept = replace(best, low=low, high=high)
    if not grid[0] * 1.001 < value < grid[-1] / 1.001:
        return replace(kept, value=None, note=f"unidentified: the loss falls to the last {what}")
    if too_wide(kept):
        return replace(kept, value=None, note=f"unidentified: {SPANS}")
    return kept


def _bracketed(law: LossLaw, rows: np.ndarray, batch: float, best: Estimate) -> Estimate:
    """Without a value where no rates on both sides of it were tried at a batch of a (N, D)."""
    apart = np.abs(np.log(law.points.batch[rows] / batch))
    tried = law.points.lr[rows[apart <= apart.min() + CLOSE]]
    if best.value is None or tried.min() < best.value < tried.max():
        return best
    said = f"unidentified: {best.value:.3g} is outside the rates tried at such a batch"
    return replace(best, value=None, note=f"{said}, {tried.min():.3g} to {tried.max():.3g}")


def _rate_of_cell(
    law: LossLaw, rows: np.ndarray, params: float, tokens: float, batch: float, level: float
) -> BestRate:
    rates, sizes = np.log(law.grid[1]), np.array([1.0, *OFF])
    posterior = law.posterior(params, tokens, (batch * sizes)[:, None], law.grid[1])
    draws = draw(posterior, DRAWS).reshape(DRAWS, len(sizes), -1)
    mean = mean_of(posterior).reshape(len(sizes), -1)
    lr = float(np.exp(parabola_vertex(rates, mean[0])))

    def at(losses: np.ndarray, factor: float) -> np.ndarray:
        """Losses [...] at the batch, at a rate that is so much the best one, of [..., G]."""
        x = np.clip(np.log(lr * factor), rates[0], rates[-1])
        i = int(np.clip(np.searchsorted(rates, x) - 1, 0, len(rates) - 2))
        share = (x - rates[i]) / (rates[i + 1] - rates[i])
        return (1 - share) * losses[..., i] + share * losses[..., i + 1]

    def more(value: float, of: np.ndarray) -> Estimate:
        return interval(float(value), of, level=level)

    least, tuned, first = draws.min(axis=2), mean.min(axis=1), at(draws[:, 0], 1.0)
    off_lr = [more(float(at(mean[0], f)) - tuned[0], at(draws[:, 0], f) - first) for f in OFF]
    off_batch = [more(tuned[i] - tuned[0], least[:, i] - least[:, 0]) for i in (1, 2)]
    losses = law.over(params, tokens, law.grid[0], lr * sizes)
    at_rate = np.exp(parabola_vertex(np.log(law.grid[0]), losses.T))
    best = _optimum(law.grid[1], lr, draws[:, 0], level, "rates")
    return BestRate(
        params,
        tokens,
        batch,
        _bracketed(law, rows, batch, best),
        (off_lr[0], off_lr[1]),
        (off_batch[0], off_batch[1]),
        (float(at_rate[1] / at_rate[0]), float(at_rate[2] / at_rate[0])),
    )


def _followed(
    law: LossLaw, rows: np.ndarray, params: float, tokens: float
) -> tuple[np.ndarray, np.ndarray] | None:
    """Of one (N, D): logs of N, D, B [m, 3] of batches near the best, and the logs of their best
    rates with draws of them [1 + R, m]; None where fewer than two are told."""
    points = law.points
    batches, rates = np.unique(points.batch[rows]), np.log(law.grid[1])
    at = [np.log(points.lr[rows[points.batch[rows] == batch]]) for batch in batches]
    low, high = (np.array([end(x) for x in at]) for end in (min, max))
    tuned = law.over(params, tokens, batches, law.grid[1])
    best, above = parabola_vertex(rates, tuned), tuned.min(axis=1) - tuned.min()
    able = np.flatnonzero((above < NEAR) & (low < best) & (best < high))
    if len(able) < 2:
        return None
    able = np.sort(able[np.argsort(above[able])[:MOST]])
    posterior = law.posterior(params, tokens, batches[able][:, None], law.grid[1])
    draws = parabola_vertex(rates, draw(posterior, DRAWS).reshape(DRAWS, len(able), -1))
    sizes = np.log(np.broadcast_arrays(params, tokens, batches[able]))
    return sizes.T, np.concatenate([best[None, able], draws])


def _rate_exponents(told: list[tuple[np.ndarray, np.ndarray]], level: float) -> dict[str, Estimate]:
    """Least squares over all batches told, each (N, D) as much; draws of rates and of (N, D)."""
    missing = Estimate(None, level=level, note="unidentified: the rates tried do not tell it")
    estimates = dict.fromkeys("NDB", missing)
    if not told:
        return estimates
    spread = np.ptp(np.concatenate([one[0] for one in told]), axis=0)
    columns = [2] if len(told) == 1 else np.flatnonzero(spread > np.log(1.5)).tolist()
    generator, found = np.random.default_rng(0), []
    for r in range(DRAWS + 1):
        picked = list(range(len(told)))
        if r and len(told) >= RESAMPLED:
            picked = generator.integers(len(told), size=len(told)).tolist()
        rows = np.concatenate([told[i][0][:, columns] for i in picked])
        best = np.concatenate([told[i][1][r] for i in picked])
        each = np.concatenate([np.full(len(told[i][0]), len(told[i][0]) ** -0.5) for i in picked])
        design = np.concatenate([np.ones((len(rows), 1)), rows], axis=1)
        found.append(np.linalg.lstsq(design * each[:, None], best * each, rcond=None)[0][1:])
    for column, draws in zip(columns, np.array(found).T, strict=True):
        estimates["NDB"[column]] = interval(float(draws[0]), draws[1:], level=level)
    return estimates
