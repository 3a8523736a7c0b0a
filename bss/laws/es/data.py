"""Arrays that laws E(S) are fitted to, from a table of points, with the checks of the table."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from bss.errors import InputError
from bss.tables.reading import SETTINGS

USUAL_SLOPE = 0.27  # nats per e-fold of tokens: the median of the committed curves
IDENTITY = ("model", "batch", "seed", "data_seed", "peak_lr", *SETTINGS)


@dataclass(frozen=True)
class EsData:
    """Rows of one model at one kind of loss; every array is [N], one row per run and target.

    Attributes:
        run: integer label of the run.
        name: name of the run; its label as text if the table has no column `run`.
        seed: integer label of the seed pair; 0 if the table has no seeds.
        batch: batch size in sequences, E/S.
        target: target loss in nats.
        steps, sequences: steps and sequences to the target; if the run did not reach it, steps and
            sequences of the whole run.
        reached: whether the target was reached.
        slope: −dL/dlog E at the target, from neighbouring targets. It converts errors in log E to
            losses.
        seq_len: tokens per sequence.
        warnings: a sentence per group of excluded rows.
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
        """Targets that at least one run reached, highest loss first."""
        return np.unique(self.target[self.reached])[::-1]

    @property
    def batches(self) -> np.ndarray:
        """Batch sizes with any row, ascending."""
        return np.unique(self.batch)

    @cached_property
    def interior(self) -> np.ndarray:
        """[N], reached rows whose batch is neither the smallest nor the largest at the target."""
        inside = self.reached.copy()
        for target in self.targets:
            edges = self.reaching(target)[[0, -1]]
            inside &= (self.target != target) | ~np.isin(self.batch, edges)
        return inside

    def reaching(self, target: float) -> np.ndarray:
        """Batch sizes of the runs that reached the target, ascending."""
        return np.unique(self.batch[self.reached & (self.target == target)])


def es_data(points: pd.DataFrame) -> EsData:
    """Check a table of points and turn it into arrays.

    Runs that change their batch size are excluded, because E(S) assumes one batch size per run.

    Args:
        points: columns target_loss, batch, steps, tokens_to_target, reached, seq_len, and run or
            the columns of IDENTITY.

    Raises:
        InputError: If the table has several models, kinds or sequence lengths, no reached target,
            or fewer than three batch sizes.
    """
    _check(points)
    labels = _run_labels(points)
    names = points.get("run", labels)
    points = points.assign(run=labels, name=np.asarray(names).astype(str))
    batches: Any = np.log(points["batch"].to_numpy(float))
    spread = pd.Series(batches, points.index).groupby(points["run"]).transform(np.ptp)
    changing = (spread > 1e-6).to_numpy(bool)
    warnings = ()
    if changing.any():
        count = points.loc[changing, "run"].nunique()
        warnings = (f"{count} runs change their batch and are left out of the fit",)
        points = points.loc[~changing]
    reached, run = points["reached"].to_numpy(bool), points["run"].to_numpy()
    numbers = points[["batch", "target_loss", "steps", "tokens_to_target"]].to_numpy(float)
    batch, target, steps, tokens = numbers.T.copy()
    if (count := len(np.unique(batch[reached]))) < 3:
        raise InputError(
            f"points: {count} batch sizes reach a target; a law E(S) needs at least 3, "
            "so add runs or raise the targets"
        )
    seeds = [c for c in ("seed", "data_seed") if c in points and not bool(points[c].isna().any())]
    seed = points.groupby(seeds, sort=False).ngroup() if seeds else pd.Series(0, points.index)
    seq_len = int(points["seq_len"].iloc[0])
    return EsData(
        run=run,
        name=points["name"].to_numpy(),
        seed=seed.to_numpy(int),
        batch=batch,
        target=target,
        steps=steps,
        sequences=tokens / seq_len,
        reached=reached,
        slope=_slopes(run, batch, target, np.log(tokens), reached),
        seq_len=seq_len,
        warnings=warnings,
    )


def _check(points: pd.DataFrame) -> None:
    """Raise InputError if a table mixes models or kinds, reaches no target or lacks numbers."""
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


def _slopes(run, batch, target, log_tokens, reached) -> np.ndarray:
    """Return −dL/dlog E [N]: central differences along runs, averaged over runs of a batch."""
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
