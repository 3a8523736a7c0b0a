"""Where the best batch lies: by the law of losses, or by a power law of the vertices themselves.

Losses far from the best batch decide a law of losses; its best batch can be off by more than the
cells' own parabolas are. So B_opt = β·N^x·D^y through the vertices stands beside it, and is taken
where it predicts left-out vertices clearly better. Intervals hold what either misses them by beyond
their own errors (derived here).
"""

from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np

from bss.laws.final_loss.fitted import FittedForm, Indifference
from bss.laws.final_loss.points import LossPoints
from bss.laws.final_loss.vertex import Vertex, about_least, pooled_scatter, vertex
from bss.laws.fitting.bootstrap import rms
from bss.laws.fitting.estimate import Estimate
from bss.laws.fitting.power import PowerLaw, fit_power, predict, unidentified

if TYPE_CHECKING:
    from bss.laws.final_loss.choose import LeftOut  # whose room loads JAX

FEWEST = 5  # vertices from which they have a law of their own
CLEARLY = 0.75  # a parabola misses a lopsided valley's least a little, so that a tie is the law's
SYMBOLS = {"params": "N", "tokens": "D"}


@dataclass(frozen=True)
class BestBatch:
    """What tells B_opt at any N and D.

    Attributes:
        source: "law" of losses or "vertices".
        vertices: their power law; None where they are too few, or tell none.
        left_out: per source, root mean square error of log B_opt at left-out vertices.
        misfit: standard deviation by which the source misses log B_opt, beyond the vertices' own
            errors.
    """

    source: str
    vertices: PowerLaw | None
    left_out: dict[str, float]
    misfit: float

    def at(
        self, law: FittedForm, params: float, tokens: float, level: float
    ) -> tuple[Estimate, tuple[Indifference, ...]]:
        """B_opt in tokens with its interval, and the batches as good, by the law's valley there."""
        by_law, alike = law.best_batch(params, tokens, level)
        if self.vertices is None or self.source == "law" or not by_law.value:
            return self._widened(by_law, level), alike
        given = {"params": params, "tokens": tokens}
        row = np.array([1.0, *(np.log(given[name]) for name in self.vertices.variables)])
        log = float(np.log(predict(self.vertices, given).value or 1.0))
        leverage = float(row @ self.vertices.inverse @ row)
        margin, scatter = self.vertices.margin or 0.0, self.vertices.scatter or 0.0
        quantile = margin / scatter if scatter else 0.0  # of Student's t
        half = float(np.hypot(margin * np.sqrt(leverage), quantile * self.misfit))
        shift = float(np.exp(log) / by_law.value)
        moved = tuple(
            replace(one, low=one.low and one.low * shift, high=one.high and one.high * shift)
            for one in alike
        )
        low, value, high = np.exp([log - half, log, log + half]).tolist()
        return Estimate(value, low, high, level), moved

    def _widened(self, found: Estimate, level: float) -> Estimate:
        """An interval of the law's with what it misses."""
        if not (self.misfit and found.value and found.low and found.high):
            return found
        quantile = NormalDist().inv_cdf((1 + level) / 2)
        ends = [
            found.value * np.exp(sign * np.hypot(np.log(end / found.value), quantile * self.misfit))
            for end, sign in ((found.low, -1), (found.high, 1))
        ]
        return replace(found, low=float(ends[0]), high=float(ends[1]))


def vertices(points: LossPoints) -> dict[int, Vertex]:
    """The vertex of each cell that has one inside, and not one rate for all of its batches."""
    found = {}
    for cell in range(points.cell.max() + 1):
        rows = np.flatnonzero(points.cell == cell)
        at = vertex(points.batch[rows], points.loss[rows])
        if at.interior and not points.shared_rate(rows):
            found[cell] = at
    return found


def vertex_law(points: LossPoints, level: float) -> tuple[PowerLaw | None, str]:
    """The power law of the vertices in what the cells vary, or why there is none."""
    found = vertices(points)
    first = [int(np.flatnonzero(points.cell == cell)[0]) for cell in found]
    sizes = {"params": points.params[first], "tokens": points.tokens[first]}
    varied = {name: x for name, x in sizes.items() if len(np.unique(x)) > 1}
    told = f"{len(found)} best batches inside their cells and not at one rate"
    if len(found) < FEWEST:
        return None, f"{told}, {FEWEST} needed"
    why = unidentified(varied) if varied else "one (params, tokens)"
    if why:
        return None, f"{told}: {why}"
    return fit_power([at.batch for at in found.values()], varied, level=level), ""


def best_batches(
    points: LossPoints, law: FittedForm, left_out: list["LeftOut"], level: float
) -> BestBatch:
    """The better of the two, by the vertices that a fit has not seen."""
    found, power = vertices(points), vertex_law(points, level)[0]
    if not found:
        return BestBatch("law", power, {}, 0.0)
    first = {cell: int(np.flatnonzero(points.cell == cell)[0]) for cell in found}
    scatter = np.nan_to_num(pooled_scatter(list(found.values())))
    errors = {cell: scatter * at.leverage for cell, at in found.items()}
    missed = {"law": _missed_by_law(points, law, left_out, found)}
    if power is not None:
        design = np.stack(
            [np.ones(len(found))]
            + [np.log(getattr(points, name)[list(first.values())]) for name in power.variables],
            axis=1,
        )
        log = np.log([at.batch for at in found.values()])
        hat = design @ power.inverse @ design.T
        rest = (log - hat @ log) / np.maximum(1 - np.diagonal(hat), 1e-6)
        missed["vertices"] = dict(zip(found, rest.tolist(), strict=True))
    known = {name: m for name, m in missed.items() if m}
    if not known:
        return BestBatch("law", power, {}, 0.0)
    judged = {name: rms(list(m.values())) for name, m in known.items()}
    clearly = judged.get("vertices", np.inf) < CLEARLY * judged.get("law", np.inf)
    source = "vertices" if clearly else "law"
    if source not in known:
        return BestBatch("law", power, judged, 0.0)
    own = float(np.mean([errors[cell] ** 2 for cell in known[source]]))
    if source == "vertices" and power is not None:  # its scatter is without leaving out
        seen = (power.scatter or 0.0) ** 2
    else:
        seen = judged[source] ** 2
        own += float(np.mean([_spread(points, law, first[cell]) ** 2 for cell in known[source]]))
    return BestBatch(source, power, judged, float(np.sqrt(max(seen - own, 0.0))))


def _spread(points: LossPoints, law: FittedForm, row: int) -> float:
    """Standard deviation of the law's log B_opt over its draws, at the cell of a row."""
    best = law.valley(float(points.params[row]), float(points.tokens[row]), law.draws)[2]
    inside = (best > 0) & np.isfinite(best)
    return float(np.log(best[inside]).std()) if inside.any() else 0.0


def _missed_by_law(
    points: LossPoints, law: FittedForm, left_out: list["LeftOut"], found: dict[int, Vertex]
) -> dict[int, float]:
    """Per cell, log of the vertex by a law that has not seen it over that of the losses.

    Both are of parabolas through the same batches, as that of a lopsided valley misses its least.
    """
    missed = {}
    for fold in (fold for fold in left_out if fold.kind == "cell"):
        blind = replace(law, form=fold.form, theta=fold.theta)
        for cell in (int(cell) for cell in np.unique(points.cell[fold.out]) if cell in found):
            rows = np.flatnonzero(points.cell == cell)
            near = rows[about_least(points.batch[rows], points.loss[rows])]
            losses = blind.losses(points.params[near], points.tokens[near], points.batch[near])
            at = vertex(points.batch[near], losses)
            if np.isfinite(at.batch):
                missed[cell] = float(np.log(at.batch / found[cell].batch))
    return missed


def exponents(points: LossPoints, level: float) -> dict[str, Estimate]:
    """x and y of B_opt ∝ N^x·D^y of the vertices, and y - x; a note where they do not tell it."""
    power, why = vertex_law(points, level)
    models, budgets = (len(np.unique(x)) > 1 for x in (points.params, points.tokens))
    varies = {"N": models, "D": budgets, "D_less_N": models and budgets}
    told = {
        name: Estimate(
            None, level=level, note=f"unidentified: {(moves and why) or 'it does not vary'}"
        )
        for name, moves in varies.items()
    }
    if power is None:
        return told
    told |= {
        SYMBOLS[name]: exponent
        for name, exponent in zip(power.variables, power.exponents, strict=True)
    }
    N, D = told["N"].value, told["D"].value
    if N is not None and D is not None:
        contrast = np.array([0.0, -1.0, 1.0])
        half = (power.margin or 0.0) * float(np.sqrt(contrast @ power.inverse @ contrast))
        told["D_less_N"] = Estimate(D - N, D - N - half, D - N + half, level)
    return told
