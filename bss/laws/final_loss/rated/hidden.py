"""What a rate that was not tuned may hide: how far best batches and losses are off by it.

Where each (N, D, B) has one rate nobody knows how far it is from the best. A rate off by a factor
of e^ε moves the best batch by about e^(SHIFT·ε) and costs about COST·ε² nats: medians over the
41 (N, D) of a published table (results/published/steplaw_rates.csv) by `bss fit table`. The best
rate there moves with N, D and B by the powers FOLLOWS, which tells how far one that was tuned at
another size may be off (derived here).
"""

from dataclasses import replace
from statistics import NormalDist

import numpy as np

from bss.laws.final_loss.elsewhere import CellOptimum
from bss.laws.final_loss.points import LossPoints
from bss.laws.fitting.estimate import BestBatch

SHIFT, COST = 0.43, 0.025
FOLLOWS = (-0.65, 0.11, 0.34)
USUAL = 0.35  # ε of a rate that nobody tuned in the table: half an octave
SOURCE = "the valley of a published table (results/published/steplaw_rates.csv)"


def hidden(points: LossPoints) -> tuple[np.ndarray, list[str]]:
    """[cells], ε by which rates may be off, 0 where several were tried; and what is said of it."""
    count = points.cell.max() + 1
    if not np.isfinite(points.lr).any() or (points.rates > 1).all():
        return np.zeros(count), []
    sizes = np.log(np.stack([points.params, points.tokens, points.batch], axis=1))
    usual = np.log(points.lr) - sizes @ np.array(FOLLOWS)  # the best rates' common level
    tuned, off = points.rates > 1, np.zeros(count)
    if tuned.any():
        level = float(np.median(usual[tuned]))
        error = np.where(tuned, 0.0, np.maximum(np.abs(usual - level), USUAL))
        where = "at some sizes and batches only"
    else:
        error, where = np.full(len(usual), USUAL), "at none"
    np.maximum.at(off, points.cell, error)
    if not tuned.any() and points.shared_rate(np.arange(len(usual))):
        where = "at none, one rate for all"
    text = (
        f"several rates were tried {where}: intervals hold what a rate off by a factor of "
        f"{np.exp(off.max()):.2g} may hide, {np.exp(SHIFT * off.max()):.2g} times the best batch "
        f"and {COST * off.max() ** 2:.2g} nats, by {SOURCE}"
    )
    return off, [text]


def widened(best: BestBatch, off: float) -> BestBatch:
    """A best batch whose interval holds what rates off by so much may hide."""
    if not off or best.value is None or best.low is None or best.high is None:
        return best
    more = NormalDist().inv_cdf((1 + best.level) / 2) * SHIFT * off
    ends = (np.hypot(np.log(best.value / end), more) for end in (best.low, best.high))
    low, high = (float(x) for x in ends)
    return replace(best, low=best.value * np.exp(-low), high=best.value * np.exp(high))


def of_optima(optima: tuple[CellOptimum, ...], off: np.ndarray) -> tuple[CellOptimum, ...]:
    """Each best batch with the interval that its rates ask for."""
    pairs = zip(optima, off.tolist(), strict=True)
    return tuple(replace(at, batch=widened(at.batch, x)) for at, x in pairs)
