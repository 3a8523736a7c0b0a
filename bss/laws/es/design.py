"""From a table of points to the arrays the laws E(S) are fitted to, with the checks on a design."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd

from bss.errors import InputError
from bss.tables.reading import SETTINGS

USUAL_SLOPE = 0.27
"""Nats per e-fold of tokens, of the committed curves: where one target tells none."""
IDENTITY = ("model", "batch", "seed", "data_seed", "peak_lr", *SETTINGS)


@dataclass(frozen=True)
class Design:
    """Rows of one model at one kind of loss; every array is [N], one row per run and target.

    Attributes:
        run: integer label of the run.
        name: of the run, where the table has one.
        seed: integer label of what runs of one seed share; 0 where the table tells none.
        batch: E/S of the row in sequences: exact, since both are counts of the same run.
        target: target loss in nats.
        steps, sequences: to the target, or taken and consumed where it was not reached.
        reached: whether the target was reached.
        slope: −dL/dlog E there, from neighbouring targets; it turns errors in log E into losses.
        seq_len: tokens per sequence.
        warnings: what the rows left out mean for the fit.
    """

    run: np.ndarray
    name: np.ndarray
    seed: np.ndarray
    batch: np.ndarray
    target: np.ndarray
    steps: np.ndarray
    sequences: np.ndarray
    reached: np.ndarray
    slope: np.ndarray
    seq_len: int
    warnings: tuple[str, ...]

    @property
    def targets(self) -> np.ndarray:
        """Targets that some run reached, highest loss first."""
        return np.unique(self.target[self.reached])[::-1]

    @property
    def batches(self) -> np.ndarray:
        """Batches with any row, ascending."""
        return np.unique(self.batch)

    @cached_property
    def interior(self) -> np.ndarray:
        """[N], reached rows whose batch is neither the smallest nor the largest at their target."""
        inside = self.reached.copy()
        for target in self.targets:
            edges = self.reaching(target)[[0, -1]]
            inside &= (self.target != target) | ~np.isin(self.batch, edges)
        return inside

    def reaching(self, target: float) -> np.ndarray:
        """Batches of which some run reached the target, ascending."""
        return np.unique(self.batch[self.reached & (self.target == target)])


def design(points: pd.DataFrame) -> Design:
    """Check a table of points and turn it into arrays.

    Rows of runs that change their batch are left out as long as three constant batches remain:
    a law E(S) speaks of constant ones.

    Args:
        points: columns target_loss, batch, steps, tokens_to_target, reached, seq_len, and run or
            the columns of IDENTITY.

    Raises:
        InputError: several models, kinds or sequence lengths, no reached target, or fewer than
            three batches.
    """
    _check(points)
    named = points["run"] if "run" in points else _run_labels(points)
    points = points.assign(run=_run_labels(points), name=np.asarray(named).astype(str))
    points, warnings = _constant_batches(points)
    numbers = points[["batch", "target_loss", "steps", "tokens_to_target"]].to_numpy(float)
    batch, target, steps, tokens = numbers.T.copy()
    reached, run = points["reached"].to_numpy(bool), points["run"].to_numpy()
    count = len(np.unique(batch[reached]))
    if count < 3:
        raise InputError(
            f"points: {count} batch sizes reach a target; a law E(S) needs at least 3, "
            "so add runs or raise the targets"
        )
    seeds = [c for c in ("seed", "data_seed") if c in points and not bool(points[c].isna().any())]
    seed = points.groupby(seeds, sort=False).ngroup() if seeds else pd.Series(0, points.index)
    seq_len, name = int(points["seq_len"].iloc[0]), points["name"].to_numpy()
    slope = _slopes(run, batch, target, np.log(tokens), reached)
    seed, sequences = seed.to_numpy(int), tokens / seq_len
    return Design(
        run, name, seed, batch, target, steps, sequences, reached, slope, seq_len, warnings
    )


def _check(points: pd.DataFrame) -> None:
    """Refuses a table that mixes what has laws of its own, reaches nothing or holds no numbers."""
    if points.empty:
        raise InputError("points: the table has no rows; give runs that reach some target")
    for column in ("model", "params", "kind", "seq_len"):
        values = points[column].drop_duplicates() if column in points else []
        if len(values) > 1:
            few = ", ".join(str(value) for value in values[:4])
            raise InputError(
                f"points: {column} takes {len(values)} values ({few}); "
                "E(S) belongs to one, so filter the table"
            )
    if not np.asarray(points["reached"], bool).any():
        raise InputError("points: reached is false in every row; choose targets that runs reach")
    numbers = points[["target_loss", "batch", "steps", "tokens_to_target"]].to_numpy(float)
    good = (np.isfinite(numbers) & (numbers > 0)).all(axis=1)
    if not good.all():
        raise InputError(
            f"points: row {int(np.argmin(good)) + 1} has a target_loss, batch, steps or "
            "tokens_to_target that is not a positive number; correct or drop it"
        )


def _run_labels(points: pd.DataFrame) -> np.ndarray:
    keys = ["run"] if "run" in points else [key for key in IDENTITY if key in points]
    labels = points.groupby(keys, dropna=False, sort=False).ngroup()
    twice = pd.DataFrame({"run": labels, "target": points["target_loss"]}).duplicated()
    if twice.any():
        raise InputError(
            f"points: row {int(np.argmax(twice)) + 1} repeats a run's target_loss; "
            "give each run its own name or seed"
        )
    return labels.to_numpy()


def _constant_batches(points: pd.DataFrame) -> tuple[pd.DataFrame, tuple[str, ...]]:
    run, batch = np.asarray(points["run"]), np.asarray(points["batch"], float)
    changing = [label for label in np.unique(run) if np.ptp(np.log(batch[run == label])) > 1e-6]
    if not changing:
        return points, ()
    constant = points.loc[~np.isin(run, changing)]
    if constant.loc[constant["reached"], "batch"].nunique() >= 3:
        return constant, (f"{len(changing)} runs change their batch and are left out of the fit",)
    return points, (
        f"{len(changing)} runs change their batch; their rows are fitted at the mean batch E/S, "
        "which a law of constant batches only approximates",
    )


def _slopes(run, batch, target, log_tokens, reached) -> np.ndarray:
    """−dL/dlog E of each row: central differences along runs, averaged over a batch's runs."""
    slope = np.full(len(run), np.nan)
    for label in np.unique(run):
        rows = np.flatnonzero((run == label) & reached)
        rows = rows[np.argsort(target[rows])[::-1]]
        if len(rows) > 1 and (np.diff(log_tokens[rows]) > 0).all():
            slope[rows] = -np.gradient(target[rows], log_tokens[rows])
    typical = np.nanmedian(slope) if np.isfinite(slope).any() else USUAL_SLOPE
    filled = np.empty_like(slope)
    for size, loss in {*zip(batch, target, strict=True)}:
        rows = (batch == size) & (target == loss)
        known = slope[rows][np.isfinite(slope[rows])]
        filled[rows] = np.exp(np.log(known).mean()) if len(known) else typical
    return np.clip(filled, typical / 10, typical * 10)
