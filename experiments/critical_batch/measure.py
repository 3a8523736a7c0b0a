"""From trials to critical batch sizes: targets, steps to them, minima over hyper-parameters.

After Zhang et al. (arXiv 2410.21676): the target of a model and budget is its own loss there at the
reference batch; at every batch the setting counts that needs the fewest steps to it. A minimum is
too low by luck the more it is taken over, so the count is kept; so are batches that missed.
"""

import math
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bss.errors import InputError
from bss.held_out import HeldOutColumn
from bss.laws import CriticalFit, fit_critical
from bss.laws.base import Options
from bss.points.curve import points, smooth_curve
from bss.sweeps.table import run_table
from experiments.critical_batch.study import PointSet, Study
from experiments.critical_batch.trials import Trial
from experiments.study import say

CELL = ["size", "model", "params", "seq_len", "budget_tokens", "target_loss"]
BATCH = [*CELL, "batch"]
BETAS = ["beta1", "beta2", "beta2_half_life"]
"""What the optimizer was tried with, beside the rate; a half-life of 0 is none."""
LENGTHEN = 1.5


def curves(trials: Sequence[Trial], runs: Path) -> pd.DataFrame:
    """The run table of trials, each up to the stop it has here, with size and BETAS."""
    table = run_table(runs, [trial.run for trial in trials])
    by_run = {trial.run.id: trial for trial in trials}
    of = [by_run[run] for run in table["run"]]
    betas = {name: [getattr(trial.run.optimizer, name) for trial in of] for name in BETAS}
    table = table.assign(size=[trial.model for trial in of], **betas)
    stops = np.array([trial.run.schedule.tokens for trial in of])
    return table.loc[table["tokens"].to_numpy() <= stops].reset_index(drop=True)


def by_average(table: pd.DataFrame, half_lives: Sequence[str]) -> pd.DataFrame:
    """Every run once for each of its averages: `averaged` is its loss, `average` the half-life."""
    return pd.concat(
        [
            table.assign(
                trial=table["run"],
                run=table["run"] + f" {half_life}",
                average=half_life,
                averaged=table[str(HeldOutColumn(half_life=half_life))],
            )
            for half_life in half_lives
        ],
        ignore_index=True,
    )


def target_loss(reference: pd.DataFrame, budget: int) -> float | None:
    """The loss at a budget of the best setting of the reference batch, averaged over seeds.

    The reference's runs are from `by_average`, the budget is D in tokens. Of the settings that have
    the most seeds, the least counts; None where no run got that far.
    """
    losses: dict[tuple, list[float]] = {}
    for _, run in reference.groupby("run", sort=False):
        first, last = run.iloc[0], run.iloc[-1]
        if last["tokens"] >= budget:
            curve = smooth_curve(run, "averaged")
            at = float(np.interp(math.log(budget), curve.log_tokens, curve.loss))
            losses.setdefault((first["peak_lr"], *first[[*BETAS, "average"]]), []).append(at)
    most = max(map(len, losses.values()), default=0)
    return min((sum(v) / most for v in losses.values() if len(v) == most), default=None)


def measure(study: Study, trials: Sequence[Trial], runs: Path) -> pd.DataFrame:
    """Points of every trial, budget and average; a cell whose reference failed is told, left out.

    Returns:
        The columns of points with BETAS and average, size, trial (the run), lowest_loss of that
        average; `budget_tokens` is D.

    Raises:
        InputError: no cell has a target.
    """
    groups: dict[tuple, list[Trial]] = {}
    for trial in trials:
        groups.setdefault((trial.cell, trial.budgets), []).append(trial)
    tables = []
    for ((size, seq_len), budgets), members in groups.items():
        table = by_average(curves(members, runs), study.setup.averages)
        reference = table.loc[table["batch"] * table["seq_len"] == study.reference]
        targets = {target_loss(reference, budget): budget for budget in budgets}
        if budget := targets.pop(None, None):
            say(f"{size} at {seq_len}: no reference run reached {budget} tokens; left out")
        if targets:
            tables.append(_points(table, targets))
    if not tables:
        raise InputError("grid: no run of the reference batch finished, so there is no target")
    return pd.concat(tables, ignore_index=True)


def _points(table: pd.DataFrame, targets: dict) -> pd.DataFrame:
    """Points of one cell's runs, at the targets of its budgets."""
    with warnings.catch_warnings():
        # A large batch has few steps to evaluate at; the column `resolution` tells it.
        warnings.filterwarnings("ignore", "points: .* fewer than")
        met = points(table, list(targets), column="averaged", kind="averaged")
    by_run = table.groupby("run").agg(
        size=("size", "first"), trial=("trial", "first"), lowest_loss=("averaged", "min")
    )
    return met.assign(budget_tokens=met["target_loss"].map(targets.get)).join(by_run, on="run")


def minima(measured: pd.DataFrame) -> pd.DataFrame:
    """The best setting of each batch of `measure`, as `bss.laws.critical.curves` takes it.

    Returns:
        CELL, batch, trials (settings that finished), steps and tokens_to_target (geometric means
        over seeds; where not reached, the most taken), peak_lr, BETAS, average (of points that
        have one), reached, seeds, bracketed (a higher and a lower rate were tried), seed_noise
        (standard deviation of log steps).
    """
    tried_with = ["peak_lr", *BETAS, *(["average"] if "average" in measured else [])]
    setting = [*BATCH, *tried_with]
    counts = ("steps", "tokens_to_target")
    reached = measured.loc[measured["reached"]]
    reached = reached.assign(**{name: np.log(reached[name]) for name in counts})
    means = reached.groupby(setting, sort=False, as_index=False).agg(
        steps=("steps", "mean"),
        tokens_to_target=("tokens_to_target", "mean"),
        seeds=("steps", "size"),
        seed_noise=("steps", "std"),
    )
    means = means.sort_values(["seeds", "steps"], ascending=[False, True], kind="stable")
    means = means.assign(**{name: np.exp(means[name]) for name in counts})
    # Where no setting reached the target, the run that went farthest stands for the batch.
    farthest = measured.sort_values("tokens_to_target", ascending=False, kind="stable")
    ranked = pd.concat([means.assign(reached=True), farthest.assign(reached=False, seeds=0)])
    tried = measured.drop_duplicates(setting).groupby(BATCH, sort=False, as_index=False)
    tried = tried.agg(trials=("peak_lr", "size"), low=("peak_lr", "min"), high=("peak_lr", "max"))
    best = tried.merge(ranked.drop_duplicates(BATCH), on=BATCH, how="left")
    inside = (best["low"] < best["peak_lr"]) & (best["peak_lr"] < best["high"])
    best["bracketed"] = best["reached"] & inside
    told = ["reached", "seeds", "bracketed", "seed_noise"]
    return best.reindex(columns=[*BATCH, "trials", *counts, *tried_with, *told])


def with_overhead(best: pd.DataFrame, reference_tokens: int) -> pd.DataFrame:
    """Adds `overhead`: tokens to the target over those of the reference batch, less 1."""
    cells = best.groupby(CELL, sort=False).ngroup()
    at_reference = best["reached"] & (best["batch"] * best["seq_len"] == reference_tokens)
    needed = best["tokens_to_target"].where(at_reference).groupby(cells).transform("max")
    overhead = (best["tokens_to_target"] / needed - 1).where(best["reached"])
    order = np.lexsort((best["batch"], cells))
    return best.assign(overhead=overhead).iloc[order].reset_index(drop=True)


def around_bend(cell: pd.DataFrame) -> list[int]:
    """The batch that needs nearest to twice the reference's tokens, and its two neighbours.

    Twice, because that is where B = b/a. A cell is one model and budget, from `with_overhead`.
    """
    seen = cell.dropna(subset="overhead")
    if seen.empty:
        return []
    doubled = np.abs(np.log1p(seen["overhead"].to_numpy(float)) - math.log(2))
    at = int(np.argmin(doubled))
    return [int(batch) for batch in seen["batch"].to_numpy()[max(at - 1, 0) : at + 2]]


def next_trials(trials: Sequence[Trial], measured: pd.DataFrame) -> list[Trial]:
    """Longer runs where a batch missed a target, and the next rate where the best is at an end."""
    added = []
    lowest = {run: min(losses) for run, losses in measured.groupby("trial")["lowest_loss"]}
    for row in minima(measured).to_dict("records"):
        tried = [t for t in trials if _serves(t, row)]
        if not row["reached"]:
            best = min(tried, key=lambda t: lowest[t.run.id])
            length = round(LENGTHEN * best.run.schedule.tokens)
            added.append(best.changed(schedule__tokens=length))
        elif not row["bracketed"]:
            rates = sorted({t.run.optimizer.lr for t in tried})
            best, lr = best_trial(tried, row), row["peak_lr"]
            new = [lr / 2] * (lr == rates[0]) + [lr * 2] * (lr == rates[-1])
            added += [best.changed(optimizer__lr=rate) for rate in new]
    return added


def repeats(study: Study, trials: Sequence[Trial], measured: pd.DataFrame) -> list[Trial]:
    """The best setting of B_ref and of the batches around each bend, at the other seeds."""
    best = with_overhead(minima(measured), study.reference)
    again = []
    for _, cell in best.groupby(CELL, sort=False):
        chosen = {*around_bend(cell), study.reference // int(cell["seq_len"].iloc[0])}
        reached = cell.loc[cell["reached"] & cell["batch"].isin([*chosen])]
        for row in reached.to_dict("records"):
            trial = best_trial(trials, row)
            enough = round(study.margin * row["tokens_to_target"])
            length = min(trial.run.schedule.tokens, enough)
            again += [trial.changed(seed=seed, schedule__tokens=length) for seed in study.seeds[1:]]
    return again


def best_trial(trials: Sequence[Trial], row: dict[str, Any]) -> Trial:
    """The trial at the first seed whose rate and BETAS are those of a row of `minima`."""
    return next(
        trial
        for trial in trials
        if _serves(trial, row)
        and trial.run.optimizer.lr == row["peak_lr"]
        and all(getattr(trial.run.optimizer, name) == row[name] for name in BETAS)
    )


def _serves(trial: Trial, row: dict[str, Any]) -> bool:
    """Whether a trial is of a row's cell, budget and batch."""
    return (
        trial.cell == (row["size"], row["seq_len"])
        and trial.run.schedule.batch.constant_batch == row["batch"]
        and row["budget_tokens"] in trial.budgets
    )


def fit_design(study: Study, design: PointSet, measured: pd.DataFrame) -> CriticalFit | None:
    """The critical batches of a design's points and their laws; None, told, where there are none.

    Points with fewer than 3 batches that met the target are left out, and told.
    """
    labels = {(*study.cell(point), point.tokens) for point in design.points}
    keys = zip(measured["size"], measured["seq_len"], measured["budget_tokens"], strict=True)
    chosen = measured.loc[np.array([key in labels for key in keys])]
    enough = []
    for _, cell in chosen.groupby(CELL, sort=False):
        met = cell.loc[cell["reached"], "batch"].nunique()
        if met >= 3:
            enough.append(cell)
        else:
            size = cell["size"].iloc[0]
            say(f"design {design.name}: {size} has {met} batches at its target; left out")
    if not enough:
        return None
    seq_len = 1 if design.unit == "tokens" else int(chosen["seq_len"].iloc[0])
    try:
        return fit_critical(
            pd.concat(enough),
            overhead=study.overhead,
            reference=study.reference / seq_len,
            unit=design.unit,
            options=Options(study.resamples, 0.95),
        )
    except InputError as error:
        say(f"design {design.name}: {error}")
        return None
