"""Which law E(S) predicts batch sizes it has not seen: leave one batch out, refit, predict.

Every law predicts the same left-out points. Batches inside a target's range decide; predictions
at its edges, where laws extrapolate and E(S) is steep, are reported beside them. Of laws that do
as well as the best within one standard error, the one with the fewest parameters wins (derived
here).
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import jax
import numpy as np
import pandas as pd

from bss.errors import InputError
from bss.laws.es.design import Design, design
from bss.laws.es.fit import fit_es
from bss.laws.es.models import (
    Hyperbola,
    Surface,
    hyperbola_sequences,
    piecewise_sequences,
    surface_sequences,
)
from bss.laws.es.problems import problem_of
from bss.laws.es.values import EsFit
from bss.laws.fitting.estimate import Options
from bss.laws.fitting.solve import solve

CANDIDATES: dict[str, dict[str, Any]] = {
    "surface": {"law": "surface", "least": 4, "parameters": 4},
    "surface, m = 1/2": {"law": "surface", "least": 4, "parameters": 4, "m": 0.5},
    "surface, m free": {"law": "surface", "least": 5, "parameters": 5, "m": None},
    "surface, Adam clock": {"law": "surface", "least": 5, "parameters": 5, "B_phi": None},
    "hyperbola": {"law": "hyperbola", "least": 4, "parameters": 2},
    "piecewise": {"law": "piecewise", "least": 9, "parameters": 6},
}
"""Laws to compare, with how many batches at a target leave-one-out needs, and how many
parameters they have: the surfaces in all, the other laws per target."""

CAP = 2.0


@dataclass(frozen=True)
class Comparison:
    """Errors of predicting left-out batches.

    Attributes:
        table: per law: law, parameters, points, and the root mean squares interior_loss (of the
            error in log E times −dL/dlog E), interior_log_E and edge_log_E; best first.
        winner: the simplest law within one standard error of the lowest interior_loss.
        left_out: laws that too few batches let nobody judge.
    """

    table: tuple[dict[str, Any], ...]
    winner: str
    left_out: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return asdict(self)


def compare(
    points: pd.DataFrame, laws: Sequence[str] = ("hyperbola", "surface", "piecewise")
) -> Comparison:
    """Compare laws by the error of predicting E at each batch from the others.

    Args:
        points: table of points.
        laws: names among CANDIDATES.

    Raises:
        InputError: an unknown law, or too few batches to leave one out.
    """
    unknown = [law for law in laws if law not in CANDIDATES]
    if unknown:
        raise InputError(f"law: {unknown[0]!r} is unknown; choose among {', '.join(CANDIDATES)}")
    rows = design(points)
    able = {t: len(rows.reaching(t)) for t in rows.targets}
    most = max(able.values())
    judged = [law for law in laws if CANDIDATES[law]["least"] <= most]
    if not judged:
        raise InputError(f"points: {most} batches reach a target; leaving one out needs 4")
    # All laws predict the same points, so the most demanding one decides on the targets.
    least = max(CANDIDATES[law]["least"] for law in judged)
    targets = np.array([t for t in rows.targets if able[t] >= least])
    errors = {law: _left_out_errors(rows, targets, CANDIDATES[law]) for law in judged}
    interior = _interior(rows)
    table = [_summary(law, errors[law], rows.slope, interior, len(targets)) for law in judged]
    table.sort(key=lambda entry: entry["interior_loss"])
    squares = {
        law: _by_batch((error * rows.slope)[interior] ** 2, rows.batch[interior])
        for law, error in errors.items()
    }
    best = squares[table[0]["law"]]
    limit = best.mean() + best.std(ddof=1) / np.sqrt(len(best))
    even = [entry for entry in table if squares[entry["law"]].mean() <= limit]
    winner = min(even, key=lambda entry: entry["parameters"])["law"]
    return Comparison(tuple(table), winner, tuple(law for law in laws if law not in judged))


def fit_candidate(points: pd.DataFrame, name: str, options: Options | None = None) -> EsFit:
    """Fit one of CANDIDATES by its name; see `bss.laws.es.fit.fit_es`.

    Raises:
        InputError: an unknown name, or a design that no law can be fitted to.
    """
    if name not in CANDIDATES:
        raise InputError(f"law: {name!r} is unknown; choose among {', '.join(CANDIDATES)}")
    candidate = CANDIDATES[name]
    return fit_es(points, candidate["law"], options=options, **_family(candidate))


def _family(candidate: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in candidate.items() if key in ("m", "B_phi")}


def _interior(rows: Design) -> np.ndarray:
    """Reached rows [N] whose batch is neither the smallest nor the largest at their target."""
    interior = rows.reached.copy()
    for target in rows.targets:
        edges = rows.reaching(target)[[0, -1]]
        interior &= (rows.target != target) | ~np.isin(rows.batch, edges)
    return interior


def _by_batch(squares: np.ndarray, batch: np.ndarray) -> np.ndarray:
    """Mean squared error of each left-out batch, in order of batches."""
    known = np.isfinite(squares)
    return np.array([squares[known & (batch == size)].mean() for size in np.unique(batch[known])])


def _left_out_errors(rows: Design, targets: np.ndarray, candidate: dict[str, Any]) -> np.ndarray:
    """Error [N] in log E of each reached row when its batch is left out; NaN elsewhere."""
    problem = problem_of(candidate["law"], rows, targets, **_family(candidate))
    errors = np.full(len(rows.batch), np.nan)
    batches = rows.batches
    count = len(problem.starts)
    data = {key: np.repeat(value, len(batches), axis=0) for key, value in problem.data.items()}
    row_index = np.repeat(problem.rows, len(batches), axis=0)
    left_out = rows.batch[row_index] == np.tile(batches, count)[:, None]
    data["weight"] = np.where(left_out, 0.0, data["weight"])
    if "smallest" in data:
        reached = (data["reached"] > 0) & ~left_out
        data["smallest"] = np.where(reached, data["batch"], np.inf).min(axis=1)
    found = solve(
        problem.residual,
        np.repeat(problem.starts, len(batches), axis=0),
        np.repeat(problem.lower, len(batches), axis=0),
        np.repeat(problem.upper, len(batches), axis=0),
        data,
    )
    for i, theta in enumerate(found.parameters):
        here = np.unique(row_index[i][left_out[i]])
        here = here[rows.reached[here] & np.isin(rows.target[here], targets)]
        law = problem.law(theta, {key: value[i] for key, value in data.items()})
        errors[here] = _log_error(law, rows, here)
    return errors


def _log_error(law: Any, rows: Design, here: np.ndarray) -> np.ndarray:
    with jax.enable_x64(True):
        if isinstance(law, Surface):
            sequences = surface_sequences(law, rows.batch[here], rows.target[here])
        elif isinstance(law, Hyperbola):
            sequences = hyperbola_sequences(law, rows.batch[here])
        else:
            sequences = piecewise_sequences(law, rows.batch[here])
        error = np.log(np.asarray(sequences)) - np.log(rows.sequences[here])
    return np.clip(error, -CAP, CAP)


def _summary(
    law: str, errors: np.ndarray, slope: np.ndarray, interior: np.ndarray, targets: int
) -> dict[str, Any]:
    def rms(values: np.ndarray) -> float:
        return float(np.sqrt(np.nanmean(values**2)))

    each = CANDIDATES[law]["parameters"]
    return {
        "law": law,
        "parameters": each if CANDIDATES[law]["law"] == "surface" else each * targets,
        "points": int(np.isfinite(errors).sum()),
        "interior_loss": rms((errors * slope)[interior]),
        "interior_log_E": rms(errors[interior]),
        "edge_log_E": rms(errors[~interior]),
    }
