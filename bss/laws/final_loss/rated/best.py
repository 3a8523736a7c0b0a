"""What the law of (N, D, B, rate) says of rates: the best ones, what others cost, how they follow.

From draws of the losses over batches and rates at each measured (N, D), by all forms.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from bss.laws.final_loss.fitted import vertex
from bss.laws.final_loss.rated.law import Posterior, RatedLaw
from bss.laws.fitting.estimate import SPANS, Estimate, interval, tails, too_wide

DRAWS = 200
NEAR = 0.03  # nats above the best, up to which a batch tells how the best rate follows it
MOST = 6  # batches of a (N, D) that do
FEWEST = 4  # (N, D) from which they are drawn with replacement
OFF = (0.5, 2.0)
CLOSE = np.log(1.5)  # by which batches are farther than the nearest, that tell what was tried


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
    """Attributes:
    optima: of each measured (N, D).
    exponents: x, y, p of the best rate ∝ N^x·D^y·B^p, by "N", "D", "B"; at fixed N and D the rate
        follows the batch by the last.
    """

    optima: tuple[BestRate, ...]
    exponents: dict[str, Estimate]


def best_rates(law: RatedLaw, batches: Sequence[float | None], level: float) -> BestRates:
    """The best rates of all cells.

    Args:
        law: the law.
        batches: per cell of its points the best batch in tokens; None for that of the law.
        level: of intervals.
    """
    points, optima, told = law.points, [], []
    for cell, given in enumerate(batches):
        rows = np.flatnonzero(points.cell == cell)
        params, tokens = float(points.params[rows[0]]), float(points.tokens[rows[0]])
        batch = given or law.best(params, tokens)[0]
        optima.append(_of_cell(law, rows, params, tokens, batch, level))
        told.append(_followed(law, rows, params, tokens))
    return BestRates(tuple(optima), _exponents(law, [one for one in told if one], level))


def drawn(posterior: Sequence[Posterior], count: int) -> np.ndarray:
    """[count, m] losses, of each form as many draws as its weight says."""
    generator, parts, left = np.random.default_rng(0), [], count
    for i, one in enumerate(posterior):
        some = left if i == len(posterior) - 1 else min(round(one.weight * count), left)
        left -= some
        roots, axes = np.linalg.eigh(one.covariance)
        normal = generator.standard_normal((some, len(roots)))
        parts.append(one.mean + normal @ (axes * np.sqrt(np.maximum(roots, 0.0))).T)
    return np.concatenate(parts)


def best_lr(law: RatedLaw, params: float, tokens: float, batch: float, level: float) -> Estimate:
    """The best rate with its interval; without a value where the rates tried do not tell it."""
    rates = law.grid[1]
    draws = drawn(law.posterior(params, tokens, batch, rates), DRAWS)
    return _rate(law, float(law.best_lr(params, tokens, batch)), draws, level)


def batch_at(law: RatedLaw, params: float, tokens: float, lr: float, level: float) -> Estimate:
    """The best batch in tokens at a given rate."""
    batch = np.log(law.grid[0])
    draws = drawn(law.posterior(params, tokens, law.grid[0], lr), DRAWS)
    mean = law.losses(params, tokens, law.grid[0], lr)
    return _inside(interval(float(np.exp(vertex(batch, mean))), np.exp(vertex(batch, draws)),
                            level=level), law.grid[0], "batches")  # fmt: skip


def _rate(law: RatedLaw, value: float, draws: np.ndarray, level: float) -> Estimate:
    best = np.exp(vertex(np.log(law.grid[1]), draws))
    return _inside(interval(value, best, level=level), law.grid[1], "rates")


def _bracketed(law: RatedLaw, rows: np.ndarray, batch: float, best: Estimate) -> Estimate:
    """Without a value where no rates on both sides of it were tried at a batch of a (N, D)."""
    apart = np.abs(np.log(law.points.batch[rows] / batch))
    tried = law.points.lr[rows[apart <= apart.min() + CLOSE]]
    if best.value is None or tried.min() < best.value < tried.max():
        return best
    said = f"unidentified: {best.value:.3g} is outside the rates tried at such a batch"
    return replace(best, value=None, note=f"{said}, {tried.min():.3g} to {tried.max():.3g}")


def _inside(best: Estimate, grid: np.ndarray, what: str) -> Estimate:
    """Without an end, or a value, where these are those of the search."""
    low = best.low if (best.low or 0) > grid[0] * 1.001 else None
    high = best.high if (best.high or np.inf) < grid[-1] / 1.001 else None
    kept = replace(best, low=low, high=high)
    if not grid[0] * 1.001 < (best.value or 0) < grid[-1] / 1.001:
        return replace(kept, value=None, note=f"unidentified: the loss falls to the last {what}")
    if too_wide(kept):
        return replace(kept, value=None, note=f"unidentified: {SPANS}")
    return kept


def _of_cell(
    law: RatedLaw, rows: np.ndarray, params: float, tokens: float, batch: float, level: float
) -> BestRate:
    rates = np.log(law.grid[1])
    sizes = np.array([1.0, *OFF])
    posterior = law.posterior(params, tokens, (batch * sizes)[:, None], law.grid[1])
    draws = drawn(posterior, DRAWS).reshape(DRAWS, len(sizes), -1)
    mean = sum(one.weight * one.mean for one in posterior)
    mean = np.reshape(mean, (len(sizes), -1))
    lr = float(np.exp(vertex(rates, mean[0])))

    def at(losses: np.ndarray, factor: float) -> np.ndarray:
        """[..., ] losses at the batch, at a rate that is so much the best one."""
        x = np.clip(np.log(lr * factor), rates[0], rates[-1])
        i = int(np.clip(np.searchsorted(rates, x) - 1, 0, len(rates) - 2))
        share = (x - rates[i]) / (rates[i + 1] - rates[i])
        return (1 - share) * losses[..., i] + share * losses[..., i + 1]

    def more(values: np.ndarray, of: np.ndarray) -> Estimate:
        return interval(float(values), of, level=level)

    off_lr = [more(at(mean[0], f) - mean[0].min(), at(draws[:, 0], f) - at(draws[:, 0], 1.0))
              for f in OFF]  # fmt: skip
    least, tuned = draws.min(axis=2), mean.min(axis=1)
    off_batch = [more(tuned[i] - tuned[0], least[:, i] - least[:, 0]) for i in (1, 2)]
    grid = law.grid[0][:, None]
    losses = law.losses(params, tokens, grid, lr * np.array([1.0, *OFF]))
    at_rate = np.exp([vertex(np.log(law.grid[0]), x) for x in losses.T])
    return BestRate(
        params,
        tokens,
        batch,
        _bracketed(law, rows, batch, _rate(law, lr, draws[:, 0], level)),
        (off_lr[0], off_lr[1]),
        (off_batch[0], off_batch[1]),
        (float(at_rate[1] / at_rate[0]), float(at_rate[2] / at_rate[0])),
    )


def _followed(
    law: RatedLaw, rows: np.ndarray, params: float, tokens: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
    """Of one (N, D): logs of N, D, B [m, 3] of batches near the best, and of their best rates [m],
    and draws of these [R, m]; None where fewer than two are told."""
    points = law.points
    batches, rates = np.unique(points.batch[rows]), np.log(law.grid[1])
    at = [np.log(points.lr[rows[points.batch[rows] == batch]]) for batch in batches]
    low, high = (np.array([end(x) for x in at]) for end in (min, max))
    tuned = law.losses(params, tokens, batches[:, None], law.grid[1])
    best, above = vertex(rates, tuned), tuned.min(axis=1) - tuned.min()
    able = np.flatnonzero((above < NEAR) & (low < best) & (best < high))
    if len(able) < 2:
        return None
    able = np.sort(able[np.argsort(above[able])[:MOST]])
    posterior = law.posterior(params, tokens, batches[able][:, None], law.grid[1])
    draws = drawn(posterior, DRAWS).reshape(DRAWS, len(able), -1)
    sizes = np.log(np.broadcast_arrays(params, tokens, batches[able]))
    return sizes.T, best[able], vertex(rates, draws)


def _exponents(
    law: RatedLaw, told: list[tuple[np.ndarray, np.ndarray, np.ndarray]], level: float
) -> dict[str, Estimate]:
    """Least squares over all batches told, each (N, D) as much; draws of rates and of (N, D)."""
    missing = Estimate(None, level=level, note="unidentified: the rates tried do not tell it")
    if not told:
        return dict.fromkeys("NDB", missing)
    logs = np.concatenate([one[0] for one in told])
    varied = [name for name, x in zip("NDB", np.ptp(logs, axis=0), strict=True) if x > np.log(1.5)]
    columns = ["NDB".index(name) for name in varied]
    if len(told) == 1:  # within one (N, D) only the batch varies
        varied, columns = ["B"], [2]
    generator, found = np.random.default_rng(0), []
    for r in range(DRAWS + 1):
        picked = range(len(told))
        if r and len(told) >= FEWEST:
            picked = generator.integers(len(told), size=len(told))
        rows = np.concatenate([told[i][0][:, columns] for i in picked])
        best = np.concatenate([told[i][2][r - 1] if r else told[i][1] for i in picked])
        each = np.concatenate([np.full(len(told[i][1]), len(told[i][1]) ** -0.5) for i in picked])
        design = np.concatenate([np.ones((len(rows), 1)), rows], axis=1)
        found.append(np.linalg.lstsq(design * each[:, None], best * each, rcond=None)[0][1:])
    estimates = dict.fromkeys("NDB", missing)
    for i, name in enumerate(varied):
        draws = np.array(found[1:])[:, i]
        low, high = np.quantile(draws, tails(level)).tolist()
        value = float(found[0][i])
        estimates[name] = Estimate(value, min(low, value), max(high, value), level)
    return estimates
