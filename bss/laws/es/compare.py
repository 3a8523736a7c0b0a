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
from bss.laws.es import FAMILIES, LAWS
from bss.laws.es.design import Design, design
from bss.laws.es.law import Law
from bss.laws.fitting.bootstrap import rms
from bss.laws.fitting.solve import solve

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
    points: pd.DataFrame, laws: Sequence[Law | str] = ("hyperbola", "surface", "piecewise")
) -> Comparison:
    """Compare laws by the error of predicting E at each batch from the others.

    Args:
        points: table of points.
        laws: laws, or names of them.

    Raises:
        InputError: an unknown law, or too few batches to leave one out.
    """
    chosen = [Law.parse(law) for law in laws]
    rows = design(points)
    able = {t: len(rows.reaching(t)) for t in rows.targets}
    most = max(able.values())
    judged = {law.name: law for law in chosen if law.least_judged <= most}
    if not judged:
        needed = min(law.least_judged for law in chosen)
        raise InputError(f"points: {most} batches reach a target; leaving one out needs {needed}")
    # All laws predict the same points, so the most demanding one decides on the targets.
    least = max(law.least_judged for law in judged.values())
    targets = np.array([t for t in rows.targets if able[t] >= least])
    errors = {name: _left_out_errors(rows, targets, law) for name, law in judged.items()}
    interior = _interior(rows)
    table, squares = [], {}
    for name, law in judged.items():
        error, weighted = errors[name], (errors[name] * rows.slope)[interior]
        squares[name] = _by_batch(weighted**2, rows.batch[interior])
        table.append(
            {
                "law": name,
                "parameters": law.free if law.joint else law.free * len(targets),
                "points": int(np.isfinite(error).sum()),
                "interior_loss": rms(weighted),
                "interior_log_E": rms(error[interior]),
                "edge_log_E": rms(error[~interior]),
            }
        )
    table.sort(key=lambda entry: entry["interior_loss"])
    best = squares[table[0]["law"]]
    limit = best.mean() + best.std(ddof=1) / np.sqrt(len(best))
    even = [entry for entry in table if squares[entry["law"]].mean() <= limit]
    winner = min(even, key=lambda entry: entry["parameters"])["law"]
    left_out = tuple(law.name for law in chosen if law.name not in judged)
    return Comparison(tuple(table), winner, left_out)


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


def _left_out_errors(rows: Design, targets: np.ndarray, law: Law) -> np.ndarray:
    """Error [N] in log E of each reached row when its batch is left out; NaN elsewhere."""
    problem = law.problem(rows, targets)
    errors, batches = np.full(len(rows.batch), np.nan), rows.batches

    def each(values: np.ndarray) -> np.ndarray:
        return np.repeat(values, len(batches), axis=0)

    data, row_index = {key: each(value) for key, value in problem.data.items()}, each(problem.rows)
    left_out = rows.batch[row_index] == np.tile(batches, len(problem.starts))[:, None]
    data["weight"] = np.where(left_out, 0.0, data["weight"])
    box = each(problem.lower), each(problem.upper)
    found = solve(problem.residual, each(problem.starts), *box, data)
    for i, theta in enumerate(found.parameters):
        here = np.unique(row_index[i][left_out[i]])
        here = here[rows.reached[here] & np.isin(rows.target[here], targets)]
        parameters = law.decoded(theta, {key: value[i] for key, value in data.items()})
        with jax.enable_x64(True):
            sequences = law.sequences(parameters, rows.batch[here], rows.target[here])
            error = np.log(np.asarray(sequences)) - np.log(rows.sequences[here])
        errors[here] = np.clip(error, -CAP, CAP)
    return errors


def shown_laws(comparison: Comparison) -> list[str]:
    """One law of each family, and the joint law that predicts best."""
    best = next(row["law"] for row in comparison.table if LAWS[row["law"]].joint)
    return list(dict.fromkeys([best, *(law.name for law in FAMILIES)]))
