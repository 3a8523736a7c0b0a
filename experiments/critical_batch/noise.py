"""What the gradient noise scale of the runs shows, beside b/a (McCandlish et al., 1812.06162)."""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from bss.contests.claims import Asked, Claim, Question, judged
from bss.contests.contrasts import Effect
from bss.contests.effects import beyond
from bss.contests.scatter import Scatter, scaled, shared
from bss.laws.critical.judged import exponent, largest, over_groups, residuals
from bss.laws.critical.values import CriticalBatch
from bss.laws.fitting.power import PowerFit, fit_power, unidentified
from experiments.critical_batch.statements import (
    BEYOND,
    EXPONENT,
    FACTOR,
    SLOW,
    TO_SLOW,
    joined,
    with_interval,
    within_factor,
)

TABLE = "results/critical_batch/noise_scale.csv"
IS_BEND = Question(
    f"The gradient noise scale is b/a of S = a + b/B, within × {FACTOR:g}", "paper", unit=BEYOND
)
DATA = Question(
    "The gradient noise scale grows with data at a fixed model", "derived", 1, EXPONENT, SLOW
)
SIZE = Question(
    f"At fixed data the gradient noise scale grows slower than N^{SLOW:g}", "derived", unit=TO_SLOW
)
MORE_DATA = Question(
    "The gradient noise scale's exponent in data exceeds that in model size",
    "derived",
    1,
    EXPONENT,
    SLOW,
)
POINT = ["params", "budget_tokens"]


def claims_of(table: pd.DataFrame, curves: Sequence[CriticalBatch]) -> list[Claim]:
    """Every claim of the noise scale, one family.

    Args:
        table: columns size, seq_len, params, budget_tokens, batch, noise_scale, B_crit, cbs.
        curves: those of the designs of model and data, which a joint law takes.
    """
    known = known_scales(table)
    return judged([*_ratios(known), *_exponents(by_point(known, curves))])


def known_scales(table: pd.DataFrame) -> pd.DataFrame:
    """The rows with a noise scale, a b/a and a critical batch."""
    rows = table.dropna(subset=["noise_scale", "B_crit", "cbs"])
    return rows.loc[rows["noise_scale"] > 0]


def _ratios(known: pd.DataFrame) -> list[Asked]:
    """By batch: curves that share runs count as one, as everywhere."""
    cells: dict[int, dict[tuple, list[float]]] = {}
    for row in known.to_dict("records"):
        here = cells.setdefault(row["batch"], {}).setdefault((row["size"], row["seq_len"]), [])
        here.append(math.log(row["noise_scale"] / row["B_crit"]))
    groups = {
        batch: np.array([np.mean(logs) for logs in cells[batch].values()])
        for batch in sorted(cells)
    }
    about = shared({batch: logs - logs.mean() for batch, logs in groups.items()})
    family = []
    for batch, logs in groups.items():
        n = len(logs)
        own = Scatter(float(logs.var(ddof=1)), n - 1) if n > 1 else None
        one, many = (scaled(scatter, 1 / n) for scatter in (own, about.get(batch)))
        effect = Effect(float(logs.mean()), n, one, many)
        note = f"ratio {math.exp(effect.estimate):.2f}, {len(logs)} models or contexts"
        note = f"McCandlish et al.; {note}"
        family.append(IS_BEND.asked(f"batch {batch}", within_factor(effect), TABLE, note))
    return family


def _exponents(wide: pd.DataFrame) -> list[Asked]:
    law = joint_law(wide)
    if law is None:
        return []
    pool = largest(shared(_rests(wide), lost=len(law.exponents) + 1))
    means, models = np.exp(np.log(wide).mean(axis=1)), wide.index.get_level_values("params")
    where = f"{law.points} points jointly"
    batches = f"mean over batches {wide.columns[0]} to {wide.columns[-1]}"
    errors = "own by leaving out models, pooled the scatter about each batch's own law"
    family = []
    for question, weights in ((DATA, (0, 1)), (SIZE, (1, 0)), (MORE_DATA, (-1, 1))):
        own = over_groups(_variables(wide), means, models.tolist(), weights)
        effect = replace(exponent(law, pool, weights), own=own)
        note = joined(with_interval(effect), batches, errors)
        effect = beyond(effect, 0, SLOW) if question == SIZE else effect
        family.append(question.asked(where, effect, TABLE, note))
    return family


def by_point(known: pd.DataFrame, curves: Sequence[CriticalBatch]) -> pd.DataFrame:
    """Noise scales [point, batch] of some curves, at the batches that each of them has."""
    points = {(at.curve.params, at.curve.tokens, at.curve.seq_len) for at in curves}
    keys = zip(known["params"], known["budget_tokens"], known["seq_len"], strict=True)
    chosen = known.loc[np.array([key in points for key in keys], bool)]
    wide = chosen.pivot_table(index=POINT, columns="batch", values="noise_scale")
    return wide.dropna(axis=1)


def joint_law(wide: pd.DataFrame) -> PowerFit | None:
    """The law in N and D of the geometric mean over batches; None where there is none."""
    x = _variables(wide)
    if not wide.columns.size or unidentified(x):
        return None
    return fit_power(np.exp(np.log(wide).mean(axis=1)), x, unit=1e6)


def _rests(wide: pd.DataFrame) -> dict[int, np.ndarray]:
    """By batch, what is left beside a joint law of its own."""
    x = _variables(wide)
    return {
        int(batch): residuals(fit_power(wide[batch], x, unit=1e6), x, wide[batch])
        for batch in wide.columns
    }


def _variables(wide: pd.DataFrame) -> dict[str, np.ndarray]:
    return {
        name: wide.index.get_level_values(level).to_numpy(float)
        for name, level in zip(("params", "tokens"), POINT, strict=True)
    }
