"""Whose best batch a fit of E(S) gives: a law's where the runs' own valley agrees, else theirs.

Where the valley tells no best batch, no law may tell one (derived here).
"""

import math
from dataclasses import replace

import numpy as np
from scipy import stats

from bss.laws.best_batch import BestBatch
from bss.laws.es.values import EsFit, TargetFit
from bss.laws.fitting.estimate import Estimate
from bss.points.valley import Valley


def asked_for(fit: EsFit) -> EsFit:
    """A law that was asked for, without a best batch where the runs have none."""
    own = [(at, at.batches.get("B_opt")) for at in fit.fits]
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
        target = _with_best(at, best)
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
    status = "identified" if by_law.value is not None else "too wide"
    numbers = {name: getattr(by_law, name) for name in ("value", "low", "high", "note")}
    return replace(vertex, status=status, source=law, **numbers)


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
