"""A table of points to the rows that a law E(S) is fitted to: one per run and target."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd

from bss.errors import InputError
from bss.laws.base import refuse_mixed
from bss.laws.minimum import FEWEST
from bss.laws.problem import Data
from bss.points.conditions import refuse_mixed_rows
from bss.points.groups import USUAL_SLOPE
from bss.points.measuring import independent_points, with_runs
from bss.points.second_moment import beta2_rule
from bss.tables import SETTINGS
from bss.tables.columns import Origin, positive

CELL = ("target_loss", "batch", "peak_lr")  # of repetitions


@dataclass(frozen=True)
class EsData(Data):
    """Rows of one model in one LR phase; every array is [N], one row per run and target.

    Attributes:
        name: of the run; its label as text if the table has no column `run`.
        seed: integer label of the seed pair; 0 if the table has no seeds.
        batch: batch size in sequences, E/S.
        target: target loss in nats.
        steps, sequences: those to the target; of the whole run if it did not reach it.
        reached: whether the target was reached.
        slope: −dL/dlog E at the target, which converts errors in log E to losses.
        seq_len: tokens per sequence.
        beta2: the rule of Adam's second moment, as `bss.points.second_moment.beta2_rule` has it.
        lr_phase: of the losses: "constant", "decayed" or "cosine"; "" if it is unknown.
    """

    seed: np.ndarray
    batch: np.ndarray
    target: np.ndarray
    steps: np.ndarray
    sequences: np.ndarray
    reached: np.ndarray
    slope: np.ndarray
    seq_len: int
    beta2: str
    lr_phase: str

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
        points: columns target_loss, batch, steps, tokens_to_target, reached, seq_len, and run;
            without it, `bss.points.measuring.with_runs` names the runs.

    Raises:
        InputError: Several models, LR phases, sequence lengths or conditions; no reached target;
            under 3 batches.
    """
    _check(points)
    kept, warnings = independent_points(points)
    named = with_runs(kept)
    reached_rows = named.loc[named["reached"].to_numpy(bool)]
    levels = reached_rows.assign(log_tokens=np.log(reached_rows["tokens_to_target"].astype(float)))
    refuse_mixed_rows(levels, CELL, "log_tokens", USUAL_SLOPE, SETTINGS)
    points = named.assign(run=named.groupby("run", sort=False).ngroup(), name=named["run"])
    batches = points.groupby("run")["batch"]
    # Above rounding.
    changing = (batches.transform("max") > batches.transform("min") * (1 + 1e-6)).to_numpy(bool)
    if changing.any():
        count = points.loc[changing, "run"].nunique()
        warnings.append(f"{count} runs change their batch and are left out of the fit")
        points = points.loc[~changing]
    reached = points["reached"].to_numpy(bool)
    run = points["run"].to_numpy()
    numbers = points[["batch", "target_loss", "steps", "tokens_to_target"]].to_numpy(float)
    batch, target, steps, tokens = numbers.T.copy()
    if (count := len(np.unique(batch[reached]))) < FEWEST:
        raise InputError(
            f"points: {count} batch sizes reach a target; a law E(S) needs at least {FEWEST}, "
            "so add runs or raise the targets"
        )
    seeds = [c for c in ("seed", "data_seed") if c in points and not bool(points[c].isna().any())]
    seed = points.groupby(seeds, sort=False).ngroup() if seeds else pd.Series(0, points.index)
    seq_len = int(points["seq_len"].iloc[0])
    return EsData(
        run=run,
        name=points["name"].astype(str).to_numpy(),
        seed=seed.to_numpy(int),
        batch=batch,
        target=target,
        steps=steps,
        sequences=tokens / seq_len,
        reached=reached,
        slope=_slopes(run, batch, target, np.log(tokens), reached),
        seq_len=seq_len,
        beta2=beta2_rule(points),
        lr_phase=str(points["lr_phase"].iloc[0]) if "lr_phase" in points else "",
        warnings=tuple(warnings),
    )


def _check(points: pd.DataFrame) -> None:
    """Raise InputError if a table mixes models or LR phases, reaches no target or lacks numbers."""
    refuse_mixed(points, "points", "model", "params", "lr_phase", "weights", "seq_len")
    if not points["reached"].any():
        raise InputError("points: reached is false in every row; choose targets that runs reach")
    if points["seq_len"].isna().any():
        raise InputError("points: seq_len is missing; give the tokens per sequence, seq_len=")
    for name in ("target_loss", "batch", "steps", "tokens_to_target"):
        positive(points, name, Origin("points"))


def _slopes(
    run: np.ndarray,
    batch: np.ndarray,
    target: np.ndarray,
    log_tokens: np.ndarray,
    reached: np.ndarray,
) -> np.ndarray:
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
    steepest = 10.0  # times the typical slope, up or down: one of two near losses may be anything
    return np.clip(filled, typical / steepest, typical * steepest)
