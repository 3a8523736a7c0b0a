"""Which law E(S) predicts batch sizes it has not seen: leave batches out, refit, predict.

Every law predicts the same left-out points. Batches inside a target's range decide; predictions
at its edges, where laws extrapolate and E(S) is steep, are reported beside them. The choice is the
law of the least error with all that are level with it: whose squared errors differ from its own by
no more than a standard error over batches. It is made again without each batch in turn, and the
error that is reported is that of what was so chosen, at batches that neither fit nor choice has
seen (derived here).
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import combinations

import jax
import numpy as np
import pandas as pd

from bss.errors import InputError
from bss.laws.constraints import FREE, Constraints
from bss.laws.es import FAMILIES, LAWS
from bss.laws.es.design import Design, design
from bss.laws.es.law import Law, Problem
from bss.laws.es.values import Comparison
from bss.laws.held_out import HeldOut, check_hold_out
from bss.laws.resampling import rms
from bss.laws.solver import SIDE_BY_SIDE, Solution, solve

CAP = 2.0
TIE = 1.04  # ratio of squared errors
TRIED = 3  # starts of a fold beside the fit to all batches
FEWEST = 6  # batches from which a law is chosen
Fold = tuple[float, ...]


def compare(points: pd.DataFrame, laws: Sequence[Law | str] = tuple(LAWS)) -> Comparison:
    """Compare laws by the error of predicting E at each batch from the others.

    Args:
        points: table of points.
        laws: laws, or names of them.

    Raises:
        InputError: an unknown law, or too few batches to leave one out.
    """
    return compared(design(points), [Law.parse(law) for law in laws])


def compared(rows: Design, chosen: Sequence[Law], constraints: Constraints = FREE) -> Comparison:
    """`compare`, of a design, and laws of which parameters are held."""
    able = {t: len(rows.reaching(t)) for t in rows.targets}
    most = max(able.values())
    judged = {law.name: law for law in chosen if law.least_judged <= most}
    if not judged:
        needed = min(law.least_judged for law in chosen)
        raise InputError(f"points: {most} batches reach a target; leaving one out needs {needed}")
    # All laws predict the same points, so the most demanding one decides on the targets.
    least = max(law.least_judged for law in judged.values())
    targets = np.array([t for t in rows.targets if able[t] >= least])
    singles: list[Fold] = [(batch,) for batch in rows.batches]
    pairs: list[Fold] = list(combinations(rows.batches, 2)) if most >= FEWEST else []
    with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:  # laws compile side by side
        each = pool.map(
            lambda law: _left_out(rows, targets, law, [*singles, *pairs], constraints),
            judged.values(),
        )
        unseen = {n: folds for n, folds in zip(judged, each, strict=True) if folds is not None}
    if not unseen:
        raise InputError("points: one target is reached; laws of all targets need two")
    # Each row is left out with its own batch alone, and NaN in the other folds.
    own = {n: np.fmax.reduce([folds[one] for one in singles]) for n, folds in unseen.items()}
    table = [_row(judged[name], own[name], rows, len(targets)) for name in unseen]
    squares = {name: _by_batch(error, rows) for name, error in own.items()}
    level = _level(squares, judged)
    table.sort(key=lambda entry: (entry["law"] != level[0], entry["interior_loss"]))
    left_out = tuple(law.name for law in chosen if law.name not in unseen)
    error = rms(_of_the_choice(unseen, own, judged, rows)[rows.interior]) if pairs else None
    return Comparison(tuple(table), level[0], tuple(level), error, left_out)


def held_out(
    rows: Design, laws: Sequence[Law], by: str, constraints: Constraints = FREE
) -> HeldOut:
    """Errors in log tokens at each batch, or run, of the mean of laws fitted to the others.

    Raises:
        InputError: another group, or too few of them for one to be left out.
    """
    labels = {"batch": rows.batch, "run": rows.run}.get(by, rows.run)
    names = rows.batch if by == "batch" else rows.name
    known = np.unique(labels)
    check_hold_out(by, ("batch", "run"), len(known), max(law.least for law in laws) + 1)
    folds: list[Fold] = [(label,) for label in known.tolist()]
    errors = []
    for law in laws:
        each = _left_out(rows, rows.targets, law, folds, constraints, labels) or {}
        errors.append(np.fmax.reduce([*each.values()] or [np.full(len(labels), np.nan)]))
    texts = [f"{by}={name:g}" if by == "batch" else f"{by}={name}" for name in names]
    return HeldOut.of(by, "log tokens", texts, np.mean(errors, axis=0))


def _row(law: Law, error: np.ndarray, rows: Design, targets: int) -> dict:
    return {
        "law": law.name,
        "parameters": law.free if law.joint else law.free * targets,
        "points": int(np.isfinite(error).sum()),
        "interior_loss": rms((error * rows.slope)[rows.interior]),
        "interior_log_E": rms(error[rows.interior]),
        "edge_log_E": rms(error[~rows.interior]),
    }


def _by_batch(error: np.ndarray, rows: Design) -> dict[float, float]:
    """Mean squared error in the loss of each batch that has one, of errors [N] in log E."""
    squares = (error * rows.slope) ** 2
    known = rows.interior & np.isfinite(squares)
    return {
        size: float(squares[known & (rows.batch == size)].mean()) for size in set(rows.batch[known])
    }


def _level(squares: dict[str, dict[float, float]], laws: dict[str, Law]) -> list[str]:
    """The law of the least error and those level with it, best first, one of each family.

    Of laws that tie, the one of fewest parameters is first.
    """
    mean = {name: float(np.mean([*each.values()])) for name, each in squares.items()}
    least = min(mean.values())
    tied = [name for name in mean if mean[name] <= TIE * least]
    first = min(tied, key=lambda name: (laws[name].joint < 1, laws[name].free, mean[name]))
    best, even = squares[first], [first]
    for name in sorted(mean, key=lambda name: mean[name]):
        apart = np.array([squares[name][size] - best[size] for size in best])
        level = len(apart) > 1 and apart.mean() <= apart.std(ddof=1) / np.sqrt(len(apart))
        if level and laws[name].family not in {laws[one].family for one in even}:
            even.append(name)
    return even


def _of_the_choice(
    unseen: dict[str, dict[Fold, np.ndarray]],
    own: dict[str, np.ndarray],
    laws: dict[str, Law],
    rows: Design,
) -> np.ndarray:
    """Error [N] in log E of the mean of the laws that were chosen without a row's batch."""
    errors = np.full(len(rows.batch), np.nan)
    for size in rows.batches:
        squares = {
            name: {
                other: mean
                for pair, error in folds.items()
                if len(pair) == 2 and size in pair
                for other, mean in _by_batch(error, rows).items()
                if other != size
            }
            for name, folds in unseen.items()
        }
        here = rows.batch == size
        if all(squares.values()):
            errors[here] = np.mean([own[name][here] for name in _level(squares, laws)], axis=0)
    return errors


def _left_out(
    rows: Design,
    targets: np.ndarray,
    law: Law,
    folds: Sequence[Fold],
    constraints: Constraints = FREE,
    labels: np.ndarray | None = None,
) -> dict[Fold, np.ndarray] | None:
    """Per fold, the error [N] in log E of each reached row that it leaves out; NaN elsewhere.

    None where the law cannot be put to these targets. Folds are of labels [N], the batches where
    there are none.
    """
    try:
        problem = law.problem(rows, targets)
    except InputError:
        return None
    labels = rows.batch if labels is None else labels
    if constraints:
        problem = law.held(problem, constraints, rows.seq_len)
    every = solve(problem.residual, problem.starts, problem.lower, problem.upper, problem.data)
    refits, out = _refitted(problem, every, labels, folds)
    count, errors = len(problem.starts), {}
    for i, fold in enumerate(folds):
        error = np.full(len(rows.batch), np.nan)
        for j in range(i * count, (i + 1) * count):
            here = np.unique(problem.rows[j % count][out[j]])
            here = here[rows.reached[here] & np.isin(rows.target[here], targets)]
            p = law.decoded(refits.parameters[j], problem, j % count)
            with jax.enable_x64(True):
                sequences = law.sequences(p, rows.batch[here], rows.target[here])
                missed = np.log(np.asarray(sequences)) - np.log(rows.sequences[here])
            error[here] = np.clip(missed, -CAP, CAP)
        errors[fold] = error
    return errors


def _refitted(
    problem: Problem, every: Solution, labels: np.ndarray, folds: Sequence[Fold]
) -> tuple[Solution, np.ndarray]:
    """The fits without each fold, of all problems in turn, and the rows [F·R, M] left out."""
    count = len(problem.starts)

    def each(values: np.ndarray) -> np.ndarray:
        return np.concatenate([values] * len(folds))

    label = each(labels[problem.rows])
    out = np.array([np.isin(row, folds[i // count]) for i, row in enumerate(label)])
    data = {key: each(value) for key, value in problem.data.items()}
    data["weight"] = np.where(out, 0.0, data["weight"])
    some = np.linspace(0, problem.starts.shape[1] - 1, TRIED).astype(int)
    starts = np.concatenate([every.parameters[:, None], problem.starts[:, some]], axis=1)
    box = each(problem.lower), each(problem.upper)
    return solve(problem.residual, each(starts), *box, data), out


def shown_laws(comparison: Comparison) -> list[str]:
    """One law of each family, and the joint law that predicts best."""
    best = next(row["law"] for row in comparison.table if LAWS[row["law"]].joint)
    return list(dict.fromkeys([best, *(law.name for law in FAMILIES)]))
