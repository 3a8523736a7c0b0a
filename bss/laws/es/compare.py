"""Laws E(S) compared by the error of predicting E at each batch size from the others."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pandas as pd

from bss.errors import InputError
from bss.laws.es.data import EsData, es_data
from bss.laws.es.law import LAWS, Law
from bss.laws.es.problem import EsProblem
from bss.laws.es.values import Comparison
from bss.laws.inference import Candidate, choose, folds_of, leave_out
from bss.laws.problem import Ranges
from bss.laws.resampling import rms
from bss.laws.solver import SIDE_BY_SIDE

TIE = 1.04  # ratio of squared errors, up to which the law with fewer parameters is preferred


def compare(points: pd.DataFrame, laws: Sequence[Law | str] = tuple(LAWS)) -> Comparison:
    """Compare laws by the error of predicting E at each batch size from the others.

    Args:
        points: table of points.
        laws: laws, or names of laws.

    Raises:
        InputError: If a law is unknown, or there are too few batch sizes to leave one out.
    """
    return cross_validated(es_data(points), [Law.parse(law) for law in laws], {})


def cross_validated(data: EsData, laws: Sequence[Law], ranges: Ranges) -> Comparison:
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
        tried = pool.map(lambda law: _miss_batches(data, targets, law, ranges), able.values())
        found = dict(zip(able, tried, strict=True))
    errors = {name: x for name, x in found.items() if isinstance(x, np.ndarray)}
    reasons = {name: x for name, x in found.items() if isinstance(x, InputError)}
    if not errors:
        lacking = {name: len({*ranges} - {*able[name].parameters._fields}) for name in found}
        raise reasons[min(reasons, key=lambda name: lacking[name])]
    rows = {name: _row(able[name], error, data, len(targets)) for name, error in errors.items()}
    winner = choose({name: _candidate(able[name], row) for name, row in rows.items()}, TIE)
    order = sorted(rows, key=lambda name: (name != winner, rows[name]["interior_loss"]))
    excluded = tuple(law.name for law in laws if law.name not in errors)
    return Comparison(tuple(rows[name] for name in order), winner, excluded)


def _candidate(law: Law, row: dict[str, Any]) -> Candidate:
    """A law of all targets is simpler than one for each, then that with fewer parameters."""
    return Candidate(row["interior_loss"], (not law.joint, law.free))


def _row(law: Law, error: np.ndarray, data: EsData, targets: int) -> dict[str, Any]:
    return {
        "law": law.name,
        "parameters": law.free if law.joint else law.free * targets,
        "points": int(np.isfinite(error).sum()),
        "interior_loss": rms((error * data.slope)[data.interior]),
        "interior_log_E": rms(error[data.interior]),
        "edge_log_E": rms(error[~data.interior]),
    }


def _miss_batches(
    data: EsData, targets: np.ndarray, law: Law, ranges: Ranges
) -> np.ndarray | InputError:
    """Return the error [N] in log E of each reached row without its batch size, else NaN.

    If the law cannot be fitted to these targets, return the reason.
    """
    try:
        problem = EsProblem.of(law, data, targets, ranges)
    except InputError as reason:
        return reason
    at = problem.stated.rows
    left_out = leave_out(problem, problem.solve(), folds_of(data.batch[at], data.batches))
    error = np.full(len(data.batch), np.nan)
    known = np.isfinite(left_out.errors)
    error[at[known]] = left_out.errors[known]
    return np.where(np.isin(data.target, targets), error, np.nan)
