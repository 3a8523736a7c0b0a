"""The best batch of each target by its own runs, without a law; and the runs that fit none.

Tokens to a target over batches are a valley (bss.points.valley). Where it is told, a law's B_opt
is held against it; where it is not, no law may tell one (derived here).
"""

import math

import numpy as np

from bss.laws.best_batch import BestBatch, Evidence, of_valley
from bss.laws.es.design import Design
from bss.laws.es.values import OutlierRun
from bss.points.batch_means import BatchMeans
from bss.points.valley import FEWEST, Valley, valleys

TYPICAL = 0.004  # nats, a run's usual scatter
ALIKE = (0.02, 0.05)  # of the tokens: batches as good
NAMED = 0.5  # probability from which a run is named
FAR = 8.0  # times the scatter of the others, for a run beside others of its batch
TELLING = 4  # degrees of freedom behind that scatter


def valley_at(
    rows: Design, target: float, level: float, out: np.ndarray | None = None
) -> Valley | None:
    """The valley of log sequences to a target; None with fewer than three batches that reach it.

    Args:
        rows: of the runs.
        target: in nats.
        level: of the interval.
        out: [N], rows to leave out.
    """
    here = rows.target == target
    here &= ~out if out is not None else here
    if len(np.unique(rows.batch[here & rows.reached])) < FEWEST:
        return None
    # A loss's scatter is that of its tokens times the slope of the curve there.
    usual = float(np.median(rows.slope[here & rows.reached]))
    cell = BatchMeans.of_runs(
        rows.batch[here],
        np.log(rows.sequences[here]),
        bound=~rows.reached[here],
        seed=rows.seed[here],
        relative=usual / rows.slope[here],
        typical=TYPICAL / usual,
        tokens=True,
    )
    return valleys([cell], level)[0]


def best_at(rows: Design, target: float, valley: Valley | None, level: float) -> BestBatch:
    """What the valley says of B_opt, in sequences."""
    if valley is None:
        count = len(rows.reaching(target))
        why = f"unidentified: {count} batches reach this loss, a vertex needs {FEWEST}"
        return BestBatch(None, None, None, level, why, "too few", "vertex", (), Evidence(0))
    return of_valley(valley, rises=ALIKE)


def outliers(rows: Design, target: float, valley: Valley | None, level: float) -> list[OutlierRun]:
    """The runs that do not fit the others at a target: alone at their batch, or beside others.

    Args:
        rows: of the runs.
        target: in nats.
        valley: that of the target.
        level: of the intervals.
    """
    if valley is None:
        return []
    here = np.flatnonzero((rows.target == target) & rows.reached)
    log, sizes = np.log(rows.sequences[here]), np.unique(rows.batch[here])
    candidates = []
    for at, size in enumerate(np.unique(rows.batch[rows.target == target])):
        mine = here[rows.batch[here] == size]
        if valley.outlier[at] > NAMED and len(mine):
            off = float(valley.missed[at])
            run = mine[np.argmax(np.abs(np.log(rows.sequences[mine]) - log.mean()))]
            candidates.append((int(run), off, abs(off) / valley.scatter))
    for i, row in enumerate(here if len(here) - len(sizes) > TELLING else ()):
        others = np.arange(len(here)) != i
        if (rows.batch[here[others]] == rows.batch[row]).any():
            off, scatter = _beside(rows, here, log, others, i)
            if abs(off) > FAR * scatter:
                candidates.append((int(row), off, abs(off) / scatter))
    if not candidates:
        return []
    row, off, times = max(candidates, key=lambda one: one[2])
    without = valley_at(rows, target, level, rows.run == rows.run[row])
    moves = without.batch / valley.batch if without is not None else None
    name, batch = str(rows.name[row]), float(rows.batch[row])
    return [OutlierRun(name, batch, float(target), off, times, moves)]


def _beside(
    rows: Design, here: np.ndarray, log: np.ndarray, others: np.ndarray, i: int
) -> tuple[float, float]:
    """How far a row is from the others by batch and seed, and the standard error of that."""
    batch, seed = (np.unique(x[here], return_inverse=True)[1] for x in (rows.batch, rows.seed))
    design = np.concatenate([np.eye(batch.max() + 1)[batch], np.eye(seed.max() + 1)[seed]], axis=1)
    scaled, weighed = design * rows.slope[here, None], log * rows.slope[here]  # errors of losses
    means = np.linalg.lstsq(scaled[others], weighed[others], rcond=None)[0]
    rest = weighed[others] - scaled[others] @ means
    freedom = max(int(others.sum()) - int(np.linalg.matrix_rank(design[others])), 1)
    leverage = scaled[i] @ np.linalg.pinv(scaled[others].T @ scaled[others]) @ scaled[i]
    scatter = math.sqrt(max(float(rest @ rest) / freedom, 1e-12) * (1 + leverage))
    return float(log[i] - design[i] @ means), scatter / float(rows.slope[here[i]])
