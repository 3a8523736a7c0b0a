"""Cross-validation of laws E(S): leave batch sizes or runs out, refit, predict (derived here).

All laws predict the same left-out points. Predictions at batch sizes inside the range of a target
choose the law; predictions at the edges, where laws extrapolate and E(S) is steep, are reported.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import jax
import numpy as np
import pandas as pd

from bss.errors import InputError
from bss.laws.constraints import FREE, Constraints
from bss.laws.es import FAMILIES, LAWS
from bss.laws.es.data import EsData, es_data
from bss.laws.es.law import Law, Problem
from bss.laws.es.values import Comparison
from bss.laws.resampling import HeldOut, check_hold_out, rms
from bss.laws.solver import SIDE_BY_SIDE, Solution, solve

MAX_ERROR = 2.0  # in log E: a law that never reaches a target has a finite error there
TIE = 1.04  # ratio of squared errors, up to which the law with fewer parameters is preferred
EXTRA_STARTS = 3  # of a fold, in addition to the fit of all rows, which is nearly its optimum
FEWEST = 6  # batch sizes: with fewer, the four inside the range do not rank laws


def compare(points: pd.DataFrame, laws: Sequence[Law | str] = tuple(LAWS)) -> Comparison:
    """Compare laws by the error of predicting E at each batch size from the others.

    Args:
        points: table of points.
        laws: laws, or names of laws.

    Raises:
        InputError: If a law is unknown, or there are too few batch sizes to leave one out.
    """
    return cross_validated(es_data(points), [Law.parse(law) for law in laws])


def cross_validated(
    data: EsData, laws: Sequence[Law], constraints: Constraints = FREE
) -> Comparison:
    """Return the comparison of laws on data, with constraints on their parameters."""
    reaching = {t: len(data.reaching(t)) for t in data.targets}
    most = max(reaching.values())
    able = {law.name: law for law in laws if law.least_cross_validated <= most}
    if not able:
        needed = min(law.least_cross_validated for law in laws)
        raise InputError(f"points: {most} batches reach a target; leaving one out needs {needed}")
    # All laws predict the same points, so the law that needs most batch sizes decides the targets.
    least = max(law.least_cross_validated for law in able.values())
    targets = np.array([t for t in data.targets if reaching[t] >= least])
    with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:  # laws compile side by side
        found = pool.map(
            lambda law: _errors(data, targets, law, data.batch, constraints), able.values()
        )
        errors = {n: error for n, error in zip(able, found, strict=True) if error is not None}
    if not errors:
        raise InputError("points: one target is reached; laws of all targets need two")
    rows = [_row(able[name], error, data, len(targets)) for name, error in errors.items()]
    lowest = min(row["interior_loss"] for row in rows)
    tied = [row for row in rows if row["interior_loss"] ** 2 <= TIE * lowest**2]
    order = {row["law"]: (not able[row["law"]].joint, able[row["law"]].free) for row in tied}
    winner = min(tied, key=lambda row: (*order[row["law"]], row["interior_loss"]))["law"]
    rows.sort(key=lambda row: (row["law"] != winner, row["interior_loss"]))
    excluded = tuple(law.name for law in laws if law.name not in errors)
    return Comparison(tuple(rows), winner, excluded)


def held_out(data: EsData, law: Law, by: str, constraints: Constraints = FREE) -> HeldOut:
    """Return errors in log tokens at each batch size, or run, of fits to the others.

    Raises:
        InputError: If `by` is not "batch" or "run", or there are too few groups.
    """
    labels = data.batch if by == "batch" else data.run
    check_hold_out(by, ("batch", "run"), len(np.unique(labels)), law.least + 1)
    errors = _errors(data, data.targets, law, labels, constraints)
    assert errors is not None  # the law was fitted to the same targets
    names = [f"{x:g}" for x in data.batch.tolist()] if by == "batch" else data.name
    return HeldOut.of(by, "log tokens", [f"{by}={name}" for name in names], errors)


def _row(law: Law, error: np.ndarray, data: EsData, targets: int) -> dict:
    return {
        "law": law.name,
        "parameters": law.free if law.joint else law.free * targets,
        "points": int(np.isfinite(error).sum()),
        "interior_loss": rms((error * data.slope)[data.interior]),
        "interior_log_E": rms(error[data.interior]),
        "edge_log_E": rms(error[~data.interior]),
    }


def _errors(
    data: EsData, targets: np.ndarray, law: Law, labels: np.ndarray, constraints: Constraints
) -> np.ndarray | None:
    """Return the error [N] in log E of each reached row by the fit without its label [N].

    NaN for rows of other targets; None if the law cannot be fitted to these targets.
    """
    try:
        problem = law.problem(data, targets)
    except InputError:
        return None
    if constraints:
        problem = law.constrained(problem, constraints, data.seq_len)
    folds, error = np.unique(labels), np.full(len(labels), np.nan)
    refits, out = _refitted(problem, labels, folds)
    count = len(problem.starts)
    for j in range(len(folds) * count):
        here = np.unique(problem.rows[j % count][out[j]])
        here = here[data.reached[here] & np.isin(data.target[here], targets)]
        p = law.decoded(refits.parameters[j], problem, j % count)
        with jax.enable_x64(True):
            sequences = law.sequences(p, data.batch[here], data.target[here])
            log_ratio = np.log(np.asarray(sequences)) - np.log(data.sequences[here])
        error[here] = np.clip(log_ratio, -MAX_ERROR, MAX_ERROR)
    return error


def _refitted(
    problem: Problem, labels: np.ndarray, folds: np.ndarray
) -> tuple[Solution, np.ndarray]:
    """Return the fits without each fold, all problems per fold, and the rows [F·R, M] left out."""
    every = solve(problem.residual, problem.starts, problem.lower, problem.upper, problem.data)

    def each(values: np.ndarray) -> np.ndarray:
        return np.concatenate([values] * len(folds))

    out = each(labels[problem.rows]) == np.repeat(folds, len(problem.rows))[:, None]
    data = {key: each(value) for key, value in problem.data.items()}
    data["weight"] = np.where(out, 0.0, data["weight"])
    some = np.linspace(0, problem.starts.shape[1] - 1, EXTRA_STARTS).astype(int)
    starts = np.concatenate([every.parameters[:, None], problem.starts[:, some]], axis=1)
    box = each(problem.lower), each(problem.upper)
    return solve(problem.residual, each(starts), *box, data), out


def shown_laws(comparison: Comparison) -> list[str]:
    """Return one law of each family, and the joint law of the lowest error, for figures."""
    best = next(row["law"] for row in comparison.table if LAWS[row["law"]].joint)
    return list(dict.fromkeys([best, *(law.name for law in FAMILIES)]))
