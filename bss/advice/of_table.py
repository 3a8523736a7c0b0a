"""What the law of final losses says of constant batches, within what it was tested for."""

import math
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path

import numpy as np

from bss.advice.fit_advice import ALIKE, FAREST, FitAdvice
from bss.files import read_json
from bss.laws import TableFit
from bss.laws.base import Estimate, ToleranceRange
from bss.laws.final_loss.best import CellOptimum
from bss.laws.final_loss.points import SAME_BUDGET
from bss.laws.final_loss.values import TestedRange
from bss.rules import Setting
from bss.units import rounded_tokens

NEAR = 1.25  # (N, D) within this factor of the one asked count as measured
MOST = 3  # cells of a fit that are told
SIZES = ("params", "tokens", "tokens_per_param")
PUBLISHED = Path(str(files("bss.laws"))) / "published" / "steplaw_dense.json"
"""The fit of a published table: 170 final losses of arXiv 2503.04715, 17 (N, D). Made by `bss fit
table results/published/steplaw_dense_best.csv --resamples 100 --json`; a test makes it again."""
NAME = "published final losses, arXiv 2503.04715, 215M to 1.07B parameters, 4B to 100B tokens"
BASIS = (
    "the published runs are said to decay by cosine, with beta2 0.95 per step at every batch; "
    "where beta2 keeps a half-life in tokens the best batch can be smaller (128 → 64 in "
    "results/published/marin_beta2.csv)"
)


def published(setting: Setting) -> FitAdvice:
    """What the committed fit says, by which advice is given without one's own.

    None of its runs is the asker's.
    """
    fit = TableFit.from_dict(read_json(PUBLISHED, "install bss again"))
    advice = fit_advice(fit, setting, "cosine", NAME)
    return replace(advice, measured=False, notes=(*advice.notes, BASIS))


def fit_advice(fit: TableFit, setting: Setting, ending: str, name: str) -> FitAdvice:
    """B_opt, the batches as good, and what others lose; nothing where the fit was not tested.

    The batches are told a little farther than the losses: below the smallest model and budget as
    far as the fit was tested beyond the largest.
    """
    N, D = setting.params, setting.tokens
    where = [_Distance.of(fit, setting, size) for size in SIZES]
    best, runs = fit.best_batch(N, D), _runs(fit, setting)
    value = best.value if best.value and math.isfinite(best.value) else None
    if all(at.batch.value is None for at in fit.optima):
        value = None
    far = ", ".join(at.text for at in where if not at.near)
    if value is None or far:
        reason = f"not tested there: {far}" if far else _why_none(fit, setting, best)
        measured = not far and min(_apart(at, setting) for at in fit.optima) < math.log(NEAR)
        ends = (best.low, best.high) if measured and best.value is None else (None, None)
        none = Estimate(None, *ends, level=best.level, note=reason)
        distance = max(at.times for at in where[:2])  # of N and of D
        if value is None and best.low and best.high and math.isfinite(best.high):
            value = math.sqrt(best.low * best.high)  # its interval is too wide for a value
        voice = value if distance <= FAREST else None
        return FitAdvice(
            name, none, extrapolated=voice, distance=distance, measured=measured, runs=runs
        )
    law = fit.law
    shift = law.curve(N, D)[2] / value  # B_opt may be the power law's, not the law's
    alike = best.within(ALIKE) or ToleranceRange(None, None, ALIKE)
    seen = fit.tested["batch_tokens"]
    known = all(at.tested for at in where) and 0 < shift < math.inf

    def lost(batch: float) -> float | None:
        if not (known and seen.low <= batch <= seen.high):
            return None
        return max(float(law.excess_loss(N, D, np.array([batch * shift]))[0]), 0.0)

    measured = min(_apart(at, setting) for at in fit.optima) < math.log(NEAR)
    notes = [f"losses are not known: {at.text}" for at in where if not at.tested]
    if setting.lr is not None:
        notes.append(f"losses are of rates tuned at each batch, not of {setting.lr:g} at all")
    return FitAdvice(
        name, best, alike.low, alike.high, lost, measured=measured, runs=runs, notes=tuple(notes)
    )


def _why_none(fit: TableFit, setting: Setting, best: Estimate) -> str:
    """Why the best batch has no value: that of the nearest measured (N, D) if it has none."""
    nearest = min(fit.optima, key=lambda at: _apart(at, setting))
    ends = "unidentified: the loss falls to the end of the search"
    return nearest.batch.note or best.note or ends


@dataclass(frozen=True)
class _Distance:
    """How far a size lies outside of those measured.

    Attributes:
        tested: whether left-out runs were as far in that direction.
        near: whether they were so in either.
        times: how many times outside; 1 within.
        text: for people.
    """

    tested: bool
    near: bool
    times: float
    text: str

    @classmethod
    def of(cls, fit: TableFit, setting: Setting, size: str) -> "_Distance":
        """Of one of `SIZES`; D/N moves by N or D, and was tested as far as the farther."""
        value, seen = getattr(setting, size), fit.tested.get(size) or _ratios(fit)
        above, below = value / seen.high, seen.low / value
        times, slack = max(above, below, 1.0), 1 + SAME_BUDGET
        side, end = ("above", seen.high) if above > 1 else ("below", seen.low)
        name = size.replace("tokens_per_param", "tokens per parameter")
        where = f"{name} {_rounded(value)} is {times:.3g} times {side} those measured"
        tested = above <= seen.reach * slack and below <= slack
        return cls(tested, times <= seen.reach * slack, times, f"{where}, {_rounded(end)}")


def _ratios(fit: TableFit) -> TestedRange:
    """The D/N that were measured."""
    ratio = fit.law.points.tokens / fit.law.points.params
    reach = max(fit.tested[size].reach for size in ("params", "tokens"))
    return TestedRange(float(ratio.min()), float(ratio.max()), reach)


def _rounded(count: float) -> str:
    """A count to three digits, for people."""
    return rounded_tokens(count) if count >= 1000 else f"{count:.3g}"


def _apart(at: CellOptimum, setting: Setting) -> float:
    """How far a measured (N, D) is from the one asked, in logarithms."""
    return math.hypot(math.log(at.params / setting.params), math.log(at.tokens / setting.tokens))


def _runs(fit: TableFit, setting: Setting) -> tuple[str, ...]:
    """Return the runs that measured (N, D) without a best batch lack, the nearest first."""
    nearest = np.argsort([_apart(at, setting) for at in fit.optima])
    open_ended = [text for cell in nearest if (text := _wanted(fit, int(cell)))]
    return tuple(open_ended[:MOST])


def _wanted(fit: TableFit, cell: int) -> str:
    """The runs that one (N, D) lacks; empty where its best batch is told."""
    points, at = fit.law.points, fit.optima[cell]
    rows = np.flatnonzero(points.cell == cell)
    batch, least = np.unique(points.batch[rows]), points.batch[rows[np.argmin(points.loss[rows])]]
    where = f"at {_rounded(at.params)} and {_rounded(at.tokens)} tokens"
    if at.batch.status == "single_lr":
        i = max(int(np.flatnonzero(batch == least)[0]), 1)
        pair = " and ".join(f"{b:,.0f}" for b in batch[i - 1 : i + 1])
        return f"other rates at batches {pair} {where}: all batches share one"
    if at.batch.value is not None:
        return ""
    if len(batch) == 1 or at.batch.status != "at_boundary":
        return f"batches {least / 2:,.0f} and {2 * least:,.0f} {where}: {_reason(at)}"
    low, high = float(batch.min()), float(batch.max())
    ends = (low / 4, low / 2) if at.batch.low is None else (2 * high, 4 * high)
    return f"batches {ends[0]:,.0f} and {ends[1]:,.0f} {where}: {_reason(at)}"


def _reason(at: CellOptimum) -> str:
    return at.batch.note.removeprefix("unidentified: ") or "no batch on both sides of the best"
