"""What the gradient noise scale of the runs shows, beside b/a (McCandlish et al., 1812.06162)."""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from bss.laws.critical.judged import largest
from bss.laws.critical.values import CriticalBatch
from bss.laws.fitting.judged import exponent, over_groups, residuals
from bss.laws.fitting.power import PowerLaw, fit_power, unidentified
from bss.points.claims import Claim
from bss.points.contrasts import Measured
from bss.points.effects import beyond
from bss.points.scatter import Scatter, scaled, shared
from experiments.critical_batch.asked import (
    EXPONENT,
    FACTOR,
    LOG_RATIO,
    SLOW,
    Asked,
    joined,
    judged,
    told,
)

TABLE = "results/critical_batch/noise_scale.csv"
IS_BEND = f"The gradient noise scale is b/a of S = a + b/B, within × {FACTOR:g}"
DATA = "The gradient noise scale grows with data at a fixed model"
SIZE = f"At fixed data the gradient noise scale grows slower than N^{SLOW:g}"
MORE_DATA = "The gradient noise scale's exponent in data exceeds that in model size"
POINT = ["params", "budget_tokens"]


def claims_of(table: pd.DataFrame, curves: Sequence[CriticalBatch]) -> list[Claim]:
    """Every claim of the noise scale, one family.

    Args:
        table: columns size, seq_len, params, budget_tokens, batch, noise_scale, B_crit, cbs.
        curves: those of the designs of model and data, which a joint law takes.
    """
    known = known_scales(table)
    return judged([*_ratios(known), *_exponents(by_point(known, curves))], TABLE)


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
    own = {
        batch: Scatter(float(logs.var(ddof=1)), len(logs) - 1)
        for batch, logs in groups.items()
        if len(logs) > 1
    }
    family = []
    for batch, logs in groups.items():
        one, many = (scaled(found.get(batch), 1 / len(logs)) for found in (own, about))
        effect = Measured(float(logs.mean()), len(logs), one, many)
        note = f"ratio {math.exp(effect.estimate):.2f}, {len(logs)} models or contexts"
        family.append(
            Asked(
                IS_BEND, "paper", f"batch {batch}", beyond(effect, 0, math.log(FACTOR)), -1,
                f"{LOG_RATIO}, beyond × {FACTOR:g}", f"McCandlish et al.; {note}",
            )
        )  # fmt: skip
    return family


def _exponents(wide: pd.DataFrame) -> list[Asked]:
    law = joint_law(wide)
    if law is None:
        return []
    pool = largest(shared(_rests(wide), lost=len(law.exponents) + 1))
    weights = {"data": (0, 1), "size": (1, 0), "gap": (-1, 1)}
    means, models = np.exp(np.log(wide).mean(axis=1)), wide.index.get_level_values("params")
    plain = {
        name: replace(
            exponent(law, pool, w), own=over_groups(_variables(wide), means, models.tolist(), w)
        )
        for name, w in weights.items()
    }
    batches = f"mean over batches {wide.columns[0]} to {wide.columns[-1]}"
    notes = {
        name: joined(
            told(effect),
            batches,
            "own by leaving out models, pooled the scatter about each batch's own law",
        )
        for name, effect in plain.items()
    }
    where, size = f"{law.points} points jointly", beyond(plain["size"], 0, SLOW)
    return [
        Asked(DATA, "derived", where, plain["data"], 1, EXPONENT, notes["data"], SLOW),
        Asked(SIZE, "derived", where, size, -1, f"{EXPONENT}, beyond {SLOW:g}", notes["size"]),
        Asked(MORE_DATA, "derived", where, plain["gap"], 1, EXPONENT, notes["gap"], SLOW),
    ]


def by_point(known: pd.DataFrame, curves: Sequence[CriticalBatch]) -> pd.DataFrame:
    """Noise scales [point, batch] of some curves, at the batches that each of them has."""
    points = {(at.curve.params, at.curve.tokens, at.curve.seq_len) for at in curves}
    keys = zip(known["params"], known["budget_tokens"], known["seq_len"], strict=True)
    chosen = known.loc[np.array([key in points for key in keys], bool)]
    wide = chosen.pivot_table(index=POINT, columns="batch", values="noise_scale")
    return wide.dropna(axis=1)


def joint_law(wide: pd.DataFrame) -> PowerLaw | None:
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
