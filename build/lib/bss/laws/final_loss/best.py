"""The best batch of every measured (N, D), and of any other, as one value each.

At a measured (N, D) its own runs and the power law of all vertices speak together
(bss.laws.final_loss.together). Elsewhere the power law is the centre, unless it misses left-out
vertices clearly more than the law of losses does; its interval holds what a cell departs from it,
and how far the forms of the law of losses lie from it (derived here).
"""

from dataclasses import replace

import numpy as np

from bss.laws.best_batch import BestBatch, Evidence, of_valley
from bss.laws.final_loss.cells import Cell
from bss.laws.final_loss.elsewhere import LAW, VERTICES, Elsewhere, at_least
from bss.laws.final_loss.fitted import ALIKE, FittedForm, MeanLaw
from bss.laws.final_loss.left_out import LeftOut
from bss.laws.final_loss.together import Together, together
from bss.laws.fitting.bootstrap import rms
from bss.laws.fitting.estimate import SPANS, Estimate, too_wide
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
    sharp = [i for i, one in enumerate(cells) if one.valley is not None and _is_sharp(one.valley)]
    shared = SHARED * float(np.sqrt(1 - 1 / max(len(sharp), 1)))  # a single one holds it already
    posterior = [_blurred(x, weight, shared) for x, weight in all_cells.posterior]
    elsewhere = _elsewhere(cells, laws, left_out, sharp, all_cells, shared)
    outside = [_outside(at, one.valley.ends) for at, one in zip(posterior, cells, strict=True)
               if one.valley is not None]  # fmt: skip
    is_inside = bool(outside) and float(np.mean(outside)) < HALF
    found = [
        _of_cell(one, at, reach if is_inside else None, len(sharp), level)
        for one, at in zip(cells, posterior, strict=True)
    ]
    told = [
        replace(best, alike=at_least(law.alike(one.params, one.tokens, best.value), least))
        if best.value
        else replace(best, alike=at_least(best.alike or law.alike(one.params, one.tokens), least))
        for best, law, one in zip(found, laws, cells, strict=True)
    ]
    return elsewhere, told


def _is_sharp(valley: Valley) -> bool:
    return valley.spread < SHARP and valley.below + valley.above < 0.3


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
) -> BestBatch:
    """The best batch of a cell by all that is known.

    Args:
        cell: the cell.
        at: its grid of log B_opt, and the probability of each.
        reach: of the batches of a table whose best ones are among them.
        vertices: of the table.
        level: of the interval.
    """
    x, weight = at
    total = np.cumsum(weight)
    tails = [(1 - level) / 2, 0.5, (1 + level) / 2]
    low, value, high = np.exp(np.interp(tails, total - weight / 2, x)).tolist()
    told = BestBatch(value, low, high, level, source=VERTICES, evidence=Evidence(vertices))
    if cell.one_rate:
        return replace(told, low=None, high=None).unknown(
            "one rate", "all batches share one rate: the best one at it is not B_opt; retune at two"
        )
    narrow = high < LAW_TELLS * low and reach is not None
    in_table = narrow and _outside(at, reach or (0, 0)) < OUTSIDE
    if cell.valley is None:
        few = f"{len(cell.rows)} batches measured" if len(cell.rows) != 1 else "one batch measured"
        return told if in_table else replace(told, low=None, high=None).unknown("too few", few)
    seen = Evidence(vertices, cell.valley.depth, cell.valley.scatter, cell.valley.source)
    told, outside = replace(told, evidence=seen), _outside(at, cell.valley.ends)
    most, deep = (OWN_OUTSIDE, 1.0) if reach else ALONE
    own = max(outside, cell.valley.below + cell.valley.above) < most
    if own and cell.valley.depth > deep * cell.valley.scatter and not too_wide(told):
        return replace(told, source="vertex")
    if in_table or (narrow and outside < OUTSIDE):
        return told
    both = of_valley(replace(cell.valley, log_batch=x, weight=weight, curve=_curve(cell.valley, x)),
                     rises=ALIKE, unit="tokens")  # fmt: skip
    if both.value is not None and reach is None and not too_wide(both):
        small = cell.valley.below >= cell.valley.above
        bound = f"B_opt ≤ {high:.3g} tokens" if small else f"B_opt ≥ {low:.3g} tokens"
        both = replace(both, **{"low" if small else "high": None}).unknown(
            "end", f"most best batches of the table are not among those measured: {bound}"
        )
    elif both.value is not None:
        both = both.unknown("too wide", SPANS if too_wide(both) else "other cells tell another")
    return replace(both, evidence=seen)


def _curve(valley: Valley, x: np.ndarray) -> np.ndarray:
    return np.interp(x, valley.log_batch, valley.curve)


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
        VERTICES: {i: float(all_cells.others[i, 0]) - own[i] for i in sharp},
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
            blind = tuple(_with(forms[name], fold.thetas[name]) for name in known)
            if not known:
                continue
            total = sum(known.values())
            law = MeanLaw(blind, tuple(w / total for w in known.values()), laws[i].batches)
            best = law.valley(cells[i].params, cells[i].tokens)[2]
            if 0 < best < np.inf:
                missed[i] = float(np.log(best)) - own[i]
    return missed


def _with(form: FittedForm, theta: np.ndarray) -> FittedForm:
    return replace(form, theta=theta)


def exponents(found: Elsewhere, cells: list[Cell], level: float) -> dict[str, Estimate]:
    """x and y of B_opt ∝ N^x·D^y of the vertices, and y - x; a note where they do not tell it."""
    sharp = [one for one in cells if one.valley is not None and _is_sharp(one.valley)]
    sizes = {name: np.array([getattr(one, name) for one in sharp]) for name in SYMBOLS}
    varied = {name: x for name, x in sizes.items() if len(np.unique(x)) > 1}
    why = unidentified(varied) if varied else "one (params, tokens)"
    if found.power is None:
        why = f"{FEWEST} needed"
    told = f"{len(sharp)} best batches inside their cells and not at one rate: {why}"
    varies = {name: len({getattr(one, name) for one in cells}) > 1 for name in SYMBOLS}
    none = {
        symbol: _no_exponent(told if varies[name] else "it does not vary", level)
        for name, symbol in SYMBOLS.items()
    }
    none["D_less_N"] = _no_exponent(told if all(varies.values()) else "it does not vary", level)
    if why or found.power is None:
        return none
    rows = {SYMBOLS[name]: np.eye(len(found.power.variables) + 1)[i + 1]
            for i, name in enumerate(found.power.variables)}  # fmt: skip
    if len(rows) == 2:
        rows["D_less_N"] = rows["D"] - rows["N"]
    tails = [(1 - level) / 2, (1 + level) / 2]
    for name, row in rows.items():
        low, high = np.quantile(found.power.draws[:, :-1] @ row, tails).tolist()
        none[name] = Estimate(float(row @ found.power.theta), low, high, level)
    return none


def _no_exponent(why: str, level: float) -> Estimate:
    return Estimate(None, level=level, note=f"unidentified: {why}")
