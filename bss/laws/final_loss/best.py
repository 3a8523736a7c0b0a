"""The best batch of every measured (N, D), and of any other, as one value each.

At a measured (N, D) its own runs and the power law of all vertices speak together
(bss.laws.final_loss.together). Elsewhere the power law is the centre, unless it misses left-out
vertices clearly more than the law of losses does; its interval holds what a cell departs from it,
and how far the forms of the law of losses lie from it (derived here).
"""

from dataclasses import replace

import numpy as np

from bss.laws.final_loss.cells import Cell
from bss.laws.final_loss.elsewhere import LAW, VERTICES, Elsewhere
from bss.laws.final_loss.fitted import MeanLaw
from bss.laws.final_loss.left_out import LeftOut
from bss.laws.final_loss.together import Together, together
from bss.laws.fitting.bootstrap import rms
from bss.laws.fitting.estimate import (
    SPANS,
    BestBatch,
    Estimate,
    Evidence,
    of_valley,
    tails,
    too_wide,
)
from bss.laws.fitting.power import unidentified
from bss.points.valley import Valley

FEWEST = 5  # vertices from which they have a law of their own
CLEARLY = 0.75  # of the vertices' error, below which the law of losses is the centre
SHARP = 0.6  # spread of log B_opt up to which a valley has a vertex
SHARED = 0.07  # standard deviation of log B_opt by the form of the valley, which all cells share
LAW_TELLS = 2.6  # width of an interval up to which other cells may tell a best batch
OUTSIDE = 0.05  # probability beyond the batches measured, up to which others may tell it inside
OWN_OUTSIDE = 0.2  # up to which its own runs may
ALONE = 0.01, 5.0  # the same, and depth over scatter, where those of the table are mostly outside
HALF = 0.4  # mean probability from which a table's best batches are not among those measured
SYMBOLS = {"params": "N", "tokens": "D"}


def best_batches(
    cells: list[Cell],
    laws: list[MeanLaw],
    left_out: list[LeftOut],
    reach: tuple[float, float],
    level: float,
    least: float,
) -> tuple[Elsewhere, list[BestBatch]]:
    """What tells B_opt elsewhere, and that of each cell.

    Args:
        cells: [n].
        laws: the law of losses at each.
        left_out: at cells, by laws that have not seen them.
        reach: the smallest and largest batch measured, in tokens.
        level: of intervals.
        least: tokens of the smallest batch there is, one sequence.
    """
    params, tokens = np.array([[one.params, one.tokens] for one in cells]).T
    all_cells = together(params, tokens, [one.valley for one in cells], reach)
    sharp = [i for i, one in enumerate(cells) if _is_sharp(one.valley)]
    shared = SHARED * float(np.sqrt(1 - 1 / max(len(sharp), 1)))  # a single one holds it already
    posterior = [_blurred(x, weight, shared) for x, weight in all_cells.posterior]
    elsewhere = _elsewhere(cells, laws, left_out, sharp, all_cells, shared)
    pairs = [(at, one.valley) for at, one in zip(posterior, cells, strict=True) if one.valley]
    outside = [_outside(at, valley.ends) for at, valley in pairs]
    is_inside = bool(outside) and float(np.mean(outside)) < HALF
    known = reach if is_inside else None, len(sharp), level, least
    batches = [_of_cell(*pair, *known) for pair in zip(cells, posterior, strict=True)]
    with_alike = []
    for best, law, one in zip(batches, laws, cells, strict=True):
        alike = law.alike(one.params, one.tokens, best.value) if best.value else ()
        with_alike.append(replace(best, alike=alike).at_least(least))
    return elsewhere, with_alike


def _is_sharp(valley: Valley | None) -> bool:
    return valley is not None and valley.spread < SHARP and valley.below + valley.above < 0.3


def _blurred(x: np.ndarray, weight: np.ndarray, spread: float) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities on a grid, with an error of this standard deviation more."""
    if not spread:
        return x, weight
    step = x[1] - x[0]
    half = min(int(np.ceil(4 * spread / step)), len(x) // 2 - 1)
    kernel = np.exp(-((np.arange(-half, half + 1) * step / spread) ** 2) / 2)
    blurred = np.convolve(weight, kernel, "same")
    return x, blurred / blurred.sum()


def _outside(at: tuple[np.ndarray, np.ndarray], ends: tuple[float, float]) -> float:
    x, weight = at
    low, high = np.log(ends)
    return float(weight[(x < low) | (x > high)].sum())


def _of_cell(
    cell: Cell,
    at: tuple[np.ndarray, np.ndarray],
    reach: tuple[float, float] | None,
    vertices: int,
    level: float,
    least: float,
) -> BestBatch:
    """The best batch of a cell by all that is known.

    Args:
        cell: the cell.
        at: its grid of log B_opt, and the probability of each.
        reach: of the batches of a table whose best ones are among them.
        vertices: of the table.
        level: of the interval.
        least: tokens of the smallest batch there is.
    """
    x, weight = at
    total = np.cumsum(weight)
    shares = [0.5, *tails(level)]
    value, low, high = np.exp(np.interp(shares, total - weight / 2, x)).tolist()
    best = BestBatch(value, low, high, level, source=VERTICES, evidence=Evidence(vertices))
    if cell.one_rate:
        return replace(best, low=None, high=None).unknown(
            "one rate", "all batches share one rate: the best one at it is not B_opt; retune at two"
        )
    narrow = high < LAW_TELLS * low and reach is not None
    in_table = narrow and _outside(at, reach or (0, 0)) < OUTSIDE
    if cell.valley is None:
        few = f"{len(cell.rows)} batches measured" if len(cell.rows) != 1 else "one batch measured"
        return best if in_table else replace(best, low=None, high=None).unknown("too few", few)
    seen = Evidence(vertices, cell.valley.depth, cell.valley.scatter, cell.valley.source)
    best, outside = replace(best, evidence=seen), _outside(at, cell.valley.ends)
    most, deep = (OWN_OUTSIDE, 1.0) if reach else ALONE
    own = max(outside, cell.valley.below + cell.valley.above) < most
    if own and cell.valley.depth > deep * cell.valley.scatter and not too_wide(best):
        return replace(best, source="vertex")
    if in_table or (narrow and outside < OUTSIDE):
        return best
    curve = np.interp(x, cell.valley.log_batch, cell.valley.curve)
    valley = replace(cell.valley, log_batch=x, weight=weight, curve=curve)
    both = of_valley(valley, unit="tokens", least=least)
    if both.value is not None and reach is None and not too_wide(both):
        why = "most best batches of the table are not among those measured"
        both = both.beyond(why, "tokens", small=cell.valley.below >= cell.valley.above)
    elif both.value is not None:
        both = both.unknown("too wide", SPANS if too_wide(both) else "other cells tell another")
    return replace(both, evidence=seen)


def _elsewhere(
    cells: list[Cell],
    laws: list[MeanLaw],
    left_out: list[LeftOut],
    sharp: list[int],
    all_cells: Together,
    shared: float,
) -> Elsewhere:
    """Judged at left-out vertices."""
    own = {i: float(np.log(cells[i].valley.batch)) for i in sharp}  # type: ignore[union-attr]
    missed = {
        VERTICES: {i: float(all_cells.others[i]) - own[i] for i in sharp},
        LAW: _missed_by_law(cells, laws, left_out, own),
    }
    power = all_cells.law if len(sharp) >= FEWEST else None
    judged = {name: rms(list(errors.values())) for name, errors in missed.items() if errors}
    better = judged.get(LAW, np.inf) < CLEARLY * judged.get(VERTICES, np.inf)
    source = LAW if power is None or better else VERTICES
    misfit = 0.0
    if missed[LAW]:
        spreads = [cells[i].valley.spread for i in missed[LAW]]  # type: ignore[union-attr]
        misfit = float(np.sqrt(max(judged[LAW] ** 2 - float(np.mean(np.square(spreads))), 0.0)))
    return Elsewhere(source, power, judged, misfit, shared, len(sharp))


def _missed_by_law(
    cells: list[Cell], laws: list[MeanLaw], left_out: list[LeftOut], own: dict[int, float]
) -> dict[int, float]:
    """Per cell, log of the best batch by a law that has not seen it over its own."""
    missed = {}
    for fold in (fold for fold in left_out if fold.kind == "cell"):
        for i in (i for i in own if fold.out[cells[i].rows].all()):
            forms = {one.form: one for law in laws for one in law.forms}
            weights = {name: float(w[cells[i].rows[0]]) for name, w in fold.weights.items()}
            known = {name: w for name, w in weights.items() if w and name in forms}
            if not known:
                continue
            blind = {name: replace(forms[name], theta=fold.thetas[name]) for name in known}
            total = sum(known.values())
            law = MeanLaw.of(blind, {n: w / total for n, w in known.items()}, laws[i].batches)
            best = law.valley(cells[i].params, cells[i].tokens)[2]
            if 0 < best < np.inf:
                missed[i] = float(np.log(best)) - own[i]
    return missed


def exponents(elsewhere: Elsewhere, cells: list[Cell], level: float) -> dict[str, Estimate]:
    """x and y of B_opt ∝ N^x·D^y of the vertices, and y - x; a note where they do not tell it."""
    sharp = [one for one in cells if _is_sharp(one.valley)]
    sizes = {name: np.array([getattr(one, name) for one in sharp]) for name in SYMBOLS}
    varied = {name: x for name, x in sizes.items() if len(np.unique(x)) > 1}
    why = unidentified(varied) if varied else "one (params, tokens)"
    if elsewhere.power is None:
        why = f"{FEWEST} needed"
    reason = f"{len(sharp)} best batches inside their cells and not at one rate: {why}"
    varies = {name: len({getattr(one, name) for one in cells}) > 1 for name in SYMBOLS}
    able = {symbol: varies[name] for name, symbol in SYMBOLS.items()}
    able["D_less_N"] = all(varies.values())
    notes = {n: f"unidentified: {reason if ok else 'it does not vary'}" for n, ok in able.items()}
    estimates = {name: Estimate(None, level=level, note=note) for name, note in notes.items()}
    if why or elsewhere.power is None:
        return estimates
    rows = {SYMBOLS[name]: np.eye(len(elsewhere.power.variables) + 1)[i + 1]
            for i, name in enumerate(elsewhere.power.variables)}  # fmt: skip
    if len(rows) == 2:
        rows["D_less_N"] = rows["D"] - rows["N"]
    for name, row in rows.items():
        low, high = np.quantile(elsewhere.power.draws[:, :-1] @ row, tails(level)).tolist()
        estimates[name] = Estimate(float(row @ elsewhere.power.theta), low, high, level)
    return estimates
