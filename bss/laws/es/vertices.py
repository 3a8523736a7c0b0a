"""The best batch of each target by its own runs; the runs that fit none; whose best batch is given.

Tokens to a target over batches are a valley (bss.points.valley). Where it tells a best batch, a
fit gives that of a law that agrees with it, else its own; where it tells none, no law may tell one
(derived here).
"""

import math
from dataclasses import replace

import numpy as np
from scipy import stats

from bss.laws.es.design import Design
from bss.laws.es.values import EsFit, OutlierRun, TargetFit
from bss.laws.fitting.estimate import BestBatch, Estimate, Evidence, of_valley, sure
from bss.points.batch_means import BatchMeans, paired_seeds
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
    return of_valley(valley, rises=ALIKE, least=1.0)


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
    if len(here) - len(sizes) > TELLING:
        off, scatter = _beside(rows, here, log)
        far = np.flatnonzero(np.abs(off) > FAR * scatter)
        candidates += [(int(here[i]), float(off[i]), float(abs(off[i]) / scatter[i])) for i in far]
    if not candidates:
        return []
    row, off, times = max(candidates, key=lambda one: one[2])
    without = valley_at(rows, target, level, rows.run == rows.run[row])
    moves = without.batch / valley.batch if without is not None else None
    name, batch = str(rows.name[row]), float(rows.batch[row])
    return [OutlierRun(name, batch, float(target), off, times, moves)]


def _beside(rows: Design, here: np.ndarray, log: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """How far each row [n] is from the others by batch and seed, and the standard error of that.

    Of a row that others do not predict, e.g. the only one of its batch, 0 and infinity.
    """
    batch = np.unique(rows.batch[here], return_inverse=True)[1]
    seed = paired_seeds(batch, rows.seed[here])
    design = np.concatenate([np.eye(batch.max() + 1)[batch], np.eye(seed.max() + 1)[seed]], axis=1)
    slope = rows.slope[here]  # errors of losses
    basis, sizes, _ = np.linalg.svd(design * slope[:, None], full_matrices=False)
    basis = basis[:, sizes > 1e-9 * sizes[0]]
    rest = log * slope - basis @ (basis.T @ (log * slope))
    alone = 1 - (basis**2).sum(axis=1)  # what the others leave open of each
    predicted = alone > 1e-9
    alone = np.where(predicted, alone, 1.0)
    freedom = max(len(here) - 1 - basis.shape[1], 1)
    squares = np.maximum((rest @ rest - rest**2 / alone) / freedom, 1e-12)
    off, scatter = rest / alone / slope, np.sqrt(squares / alone) / slope
    return np.where(predicted, off, 0.0), np.where(predicted, scatter, np.inf)


def asked_for(fit: EsFit) -> EsFit:
    """A law that was asked for, without a best batch where the runs have none."""
    fits = [_sure(at) for at in fit.fits]
    own = [(at, at.batches.get("B_opt")) for at in fits]
    name = fit.law.name
    fits = [_with_best(at, obeyed(at.vertex, best, name)) if best else at for at, best in own]
    return replace(fit, fits=tuple(fits))


def agreed(fits: list[EsFit], valleys: dict[float, Valley | None]) -> EsFit:
    """The first of the fits with the best batches of all, as the vertices let them stand."""
    targets, warnings = [], list(fits[0].warnings)
    for i, at in enumerate(fits[0].fits):
        by_law = {fit.law.name: fit.fits[i].batches.get("B_opt") for fit in fits}
        own = {name: one for name, one in by_law.items() if one is not None}
        values = [one.value for one in own.values() if one.value is not None]
        mean = Estimate(float(np.exp(np.mean(np.log(values)))) if values else None)
        best, said = settled(at.vertex, mean if own else None, " + ".join(own))
        if said:
            warnings.append(f"target {at.target_loss:g}: {said}")
        target = _with_best(_sure(at), best)
        if best.source == at.vertex.source:
            target = _measured(target, valleys[at.target_loss], fits[0].seq_len)
        targets.append(target)
    return replace(fits[0], fits=tuple(targets), warnings=tuple(warnings))


def by_vertices(fit: EsFit, valleys: dict[float, Valley | None]) -> EsFit:
    """A fit whose best batches, fewest tokens and steps there are the valleys' own."""
    own = [(_with_best(at, at.vertex), valleys[at.target_loss]) for at in fit.fits]
    return replace(fit, fits=tuple(_measured(*pair, fit.seq_len) for pair in own))


def settled(vertex: BestBatch, by_law: Estimate | None, law: str) -> tuple[BestBatch, str]:
    """B_opt of a law where it agrees with the vertex, else the vertex; and what is said of it.

    The interval is the vertex's: a law that is a little wrong is sure of it all the same.
    """
    if vertex.value is None or by_law is None:
        return vertex, ""
    value = by_law.value
    if value is not None and (vertex.low or 0) <= value <= (vertex.high or math.inf):
        return replace(vertex, value=value, source=law), ""
    number = "none" if value is None else f"{value:.3g}"
    span = f"{vertex.value:.3g} ({vertex.low:.3g} – {vertex.high:.3g})"
    return vertex, f"the {law} law has B_opt {number}, the runs' own valley {span}, which is given"


def obeyed(vertex: BestBatch, by_law: Estimate, law: str) -> BestBatch:
    """B_opt of a law that was asked for; none where the least is at an end, or nowhere."""
    if vertex.status in ("end", "flat"):
        return replace(vertex, source=law)
    numbers = {name: getattr(by_law, name) for name in ("value", "low", "high", "note")}
    status = "identified" if by_law.value is not None else "too wide"
    return replace(vertex, status=status, source=law, **numbers)


def _sure(at: TargetFit) -> TargetFit:
    """A target's fit without the batches whose intervals identify nothing."""
    return replace(at, batches={name: sure(one) for name, one in at.batches.items()})


def _with_best(at: TargetFit, best: BestBatch) -> TargetFit:
    """A target's fit with this B_opt; it has no steps there where there is none."""
    steps = at.S_opt if best.value is not None else None
    intervals = {n: one for n, one in at.intervals.items() if n != "S_opt" or steps is not None}
    return replace(at, batches=at.batches | {"B_opt": best}, S_opt=steps, intervals=intervals)


def _measured(at: TargetFit, valley: Valley | None, seq_len: int) -> TargetFit:
    """A target's fit with the fewest tokens of its valley, and the steps there."""
    if valley is None:
        return at
    tokens, best = math.exp(valley.value) * seq_len, at.batches["B_opt"].value
    error = valley.scatter / math.sqrt(max(at.points, 1)) * stats.norm.ppf((1 + valley.level) / 2)
    fewest = Estimate(tokens, tokens * math.exp(-error), tokens * math.exp(error), valley.level)
    steps = None if best is None else tokens / (best * seq_len)
    intervals = {n: one for n, one in at.intervals.items() if n == "S_min"} | {"E_min": fewest}
    return replace(at, E_min=tokens, S_opt=steps, intervals=intervals)
