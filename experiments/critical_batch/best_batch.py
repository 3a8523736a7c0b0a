"""Data against model size: best batches of published final losses, critical ones beside them.

Best is the vertex of a parabola in log B at each (N, D) of arXiv 2503.04715, whose rates were tuned
at every batch (derived here). The parabola goes by least squares through the batches about the
least loss; the least of the measured batches itself is noisier: near it losses differ by less than
their own scatter. B_opt ∝ N^x·D^y goes through the vertices by least squares in logs.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy import stats

from bss.laws import CriticalFit
from bss.laws.critical.values import CriticalBatch
from bss.laws.power import PowerFit, fit_power, unidentified
from bss.stats import LEVEL
from bss.tables.storage import read_table

TABLE = "results/published/steplaw_dense_best.csv"
ROOT = Path(__file__).parents[2]
NEAREST = 5  # batches that a parabola goes through
PUBLISHED_LENGTH = 512  # tokens in a sequence of the published steps
BEST, CRITICAL, OURS = (
    "best, arXiv 2503.04715",
    "critical, arXiv 2410.21676",
    "critical, our runs",
)


@dataclass(frozen=True)
class Vertex:
    """Where the parabola is least.

    Attributes:
        batch: in the unit of the batches; NaN where the losses have no minimum.
        scatter: standard deviation of the losses about it, in nats; NaN with three batches.
        freedom: degrees of freedom behind the scatter.
        leverage: standard error of log batch per nat of scatter.
        interior: whether the least loss is at neither end of the batches, and the vertex among
            those of the parabola.
    """

    batch: float
    scatter: float
    freedom: int
    leverage: float
    interior: bool


def vertex(batch: ArrayLike, loss: ArrayLike) -> Vertex:
    """The vertex of a parabola in log batch through the NEAREST batches about the least loss.

    They are the nearest by their order; all where there are fewer, and the outer ones where the
    least is near an end.

    Args:
        batch: [n] distinct and positive.
        loss: [n] finite, in nats.
    """
    order = np.argsort(np.asarray(batch, float))
    x, y = np.log(np.asarray(batch, float))[order], np.asarray(loss, float)[order]
    first = max(0, min(int(np.argmin(y)) - NEAREST // 2, len(order) - NEAREST))
    x, y = x[first : first + NEAREST], y[first : first + NEAREST]
    centre, count = float(np.mean(x)), len(x)
    none = Vertex(math.nan, math.nan, max(count - 3, 0), math.nan, interior=False)
    if count < 3:
        return none
    design = np.vander(x - centre, 3)
    curvature, slope, _ = theta = np.linalg.lstsq(design, y, rcond=None)[0]
    if curvature <= 0:
        return none
    at = -slope / (2 * curvature)
    by_theta = np.array([slope / (2 * curvature**2), -1 / (2 * curvature), 0.0])
    rest = y - design @ theta
    inside = x[0] < at + centre < x[-1]
    return Vertex(
        batch=math.exp(at + centre),
        scatter=math.sqrt(rest @ rest / (count - 3)) if count > 3 else math.nan,
        freedom=count - 3,
        leverage=math.sqrt(by_theta @ np.linalg.inv(design.T @ design) @ by_theta),
        interior=bool(inside and 0 < np.argmin(y) < count - 1),
    )


def pooled_scatter(vertices: list[Vertex]) -> float:
    """The scatter of losses over cells that scatter alike, in nats; NaN where none has one.

    A parabola through five batches leaves two degrees of freedom, too few for an error of its own.
    """
    known = [at for at in vertices if at.freedom and math.isfinite(at.scatter)]
    freedom = sum(at.freedom for at in known)
    squares = sum(at.scatter**2 * at.freedom for at in known)
    return math.sqrt(squares / freedom) if freedom else math.nan


def cells() -> pd.DataFrame:
    """The best batch of every (N, D) of the published table, where it is interior.

    Returns:
        params, tokens, batch_tokens with its interval low to high at 95% (the scatter about the
        parabolas pooled), and least_tokens, the batch of the least loss itself.
    """
    table, _ = read_table(ROOT / TABLE)
    groups = list(table.groupby(["params", "tokens"]))
    vertices = [vertex(rows["batch"], rows["loss"]) for _, rows in groups]
    freedom = sum(at.freedom for at in vertices)
    margin = float(stats.t.ppf((1 + LEVEL) / 2, freedom)) * pooled_scatter(vertices)
    rows = [
        {
            "params": float(rows["params"].iloc[0]),
            "tokens": float(rows["tokens"].iloc[0]),
            "batch_tokens": at.batch * rows["seq_len"].iloc[0],
            "factor": np.exp(margin * at.leverage),
            "least_tokens": float(rows["batch"][rows["loss"].idxmin()] * rows["seq_len"].iloc[0]),
        }
        for (_, rows), at in zip(groups, vertices, strict=True)
        if at.interior
    ]
    best = pd.DataFrame(rows)
    low, high = best["batch_tokens"] / best["factor"], best["batch_tokens"] * best["factor"]
    return best.assign(low=low, high=high).drop(columns="factor")


def points(
    best: pd.DataFrame, ours: Mapping[str, CriticalFit], published: CriticalFit
) -> pd.DataFrame:
    """Best and critical batches in tokens, with their sources.

    Args:
        best: as `cells` gives it.
        ours: our fits by design; those in tokens are left out.
        published: the fit of the published steps.

    Returns:
        source, params, tokens, batch_tokens, low, high, and `definition`, which is empty but
        where a critical batch is called so by another definition.
    """
    sequences = [fit for fit in ours.values() if fit.unit == "sequences"]
    rows = [*_critical(CRITICAL, [published], PUBLISHED_LENGTH), *_critical(OURS, sequences)]
    critical = pd.DataFrame(rows).drop_duplicates(["source", "params", "tokens", "definition"])
    best = best.drop(columns="least_tokens").assign(source=BEST, definition="")
    return pd.concat([critical, best], ignore_index=True)


def _critical(
    source: str, fits: Iterable[CriticalFit], length: float | None = None
) -> Iterable[dict[str, Any]]:
    for fit in fits:
        for i, at in enumerate(fit.fits):
            size = length or at.curve.seq_len
            own = {"source": source, "params": at.curve.params, "tokens": at.curve.tokens}
            yield own | {"definition": ""} | _in_tokens(at, size)
            for other in fit.definitions:
                value = other.values[i]
                if value is not None:
                    yield own | {"definition": other.name, "batch_tokens": value * size}


def _in_tokens(at: CriticalBatch, size: float) -> dict[str, float]:
    ends = {"batch_tokens": at.cbs.value, "low": at.cbs.low, "high": at.cbs.high}
    return {name: np.nan if end is None else end * size for name, end in ends.items()}


def laws(points: pd.DataFrame) -> dict[str, PowerFit]:
    """The power law of each source in N and D, or in D where its points do not separate them."""
    fitted = {}
    own = points.loc[(points["definition"] == "") & points["batch_tokens"].notna()]
    for source, rows in own.groupby("source", sort=False):
        x = {name: rows[name].to_numpy(float) for name in ("params", "tokens")}
        x = x if not unidentified(x) else {"tokens": x["tokens"]}
        fitted[str(source)] = fit_power(rows["batch_tokens"].to_numpy(float), x)
    return fitted
