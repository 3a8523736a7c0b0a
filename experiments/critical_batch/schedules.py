"""Cosine, WSD, schedule-free and a long warm-up against the constant rate with weight averages.

As in Zhang et al. (arXiv 2410.21676), at one model and budget: the steps that each schedule needs
to the same target, at the best of its rates. A run whose rate depends on its stop gives one loss,
so cosine and WSD are trained to several lengths and the length that ends at the target is
interpolated.
"""

import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path

import pandas as pd

from bss.points.curve import points, smooth_curve
from bss.sweeps.grid import overlay
from bss.training.run_config import RunConfig
from experiments.critical_batch.measure import BATCH, best_trial, by_average, curves, minima
from experiments.critical_batch.study import Comparison, Study
from experiments.critical_batch.trials import Trial
from experiments.study import say

CONSTANT = "constant + average"
LEAST_LENGTHS = 3
_ALONE = {"averages": [], "noise_scale": {}}


def comparison_trials(
    study: Study, comparison: Comparison, trials: Sequence[Trial], measured: pd.DataFrame
) -> dict[str, list[Trial]]:
    """Runs of the other schedules, by name, around each batch's best at the constant rate."""
    by_name: dict[str, list[Trial]] = {}
    for row in _baseline(study, comparison, measured):
        if not row["reached"]:
            say(f"schedules: batch {row['batch']:g} missed the target at constant rate; left out")
            continue
        best = best_trial(trials, row)
        for name, run in _runs(comparison, best.run, row["tokens_to_target"]):
            by_name.setdefault(name, []).append(Trial(run, comparison.model, (comparison.tokens,)))
    return by_name


def _baseline(study: Study, comparison: Comparison, measured: pd.DataFrame) -> list[dict]:
    """The rows of `minima` at the comparison's point and batches."""
    seq_len, best = study.setup.text.seq_len, minima(measured)
    here = (best["size"] == comparison.model) & (best["seq_len"] == seq_len)
    here &= best["budget_tokens"] == comparison.tokens
    here &= (best["batch"] * seq_len).isin(comparison.batches)
    return best.loc[here].to_dict("records")


def _runs(
    comparison: Comparison, best: RunConfig, needed: float
) -> Iterator[tuple[str, RunConfig]]:
    """Every other schedule's runs at one batch whose best constant rate needs so many tokens."""
    longest = round(max(comparison.lengths) * needed)
    for factor in comparison.factors:
        tuned = {"optimizer.lr": factor * best.optimizer.lr}
        for part in comparison.lengths:
            tokens = round(part * needed)
            ends = {"schedule.tokens": tokens, "evaluation.first": tokens, **_ALONE, **tuned}
            yield "cosine", overlay(best, {**ends, "schedule.rate": "cosine"})
            yield "WSD", overlay(best, {**ends, "schedule.decay": round(comparison.decay * tokens)})
        free = {"optimizer.name": "schedule_free", "schedule.tokens": longest, **_ALONE, **tuned}
        yield "schedule-free", overlay(best, free)
        long = {
            "schedule.warmup": round(comparison.warmup_share * comparison.tokens),
            "schedule.tokens": longest,
        }
        yield f"{comparison.warmup_share:.0%} warm-up", overlay(best, {**long, **tuned})


def comparison_table(
    study: Study,
    comparison: Comparison,
    trials: Sequence[Trial],
    measured: pd.DataFrame,
    others: dict[str, list[Trial]],
    runs: Path,
) -> pd.DataFrame:
    """Steps of each schedule to the target; `relative` is over those of CONSTANT at the batch."""
    baseline = [row for row in _baseline(study, comparison, measured) if row["reached"]]
    target = baseline[0]["target_loss"]
    needed = {row["batch"]: row["tokens_to_target"] for row in baseline}
    same = [
        trial
        for trial in trials
        if trial.cell == (comparison.model, study.setup.text.seq_len)
        and comparison.tokens in trial.budgets
        and trial.run.schedule.batch.constant_batch in needed
    ]
    constant = curves(same, runs)
    tables = {CONSTANT: by_average(constant, study.setup.averages), "constant": constant}
    for name, members in others.items():
        table = curves(members, runs)
        if any(trial.run.depends_on_stop for trial in members):
            table = _final_losses(table)
        if table.empty:
            say(f"schedules: too few runs of {name} finished; left out")
            continue
        if members[0].run.averages:
            table = by_average(table, study.setup.averages)
        tables[name] = table
    minima_of = []
    for name, table in tables.items():
        column = "averaged" if "averaged" in table else "eval_loss"
        place = {"size": comparison.model, "budget_tokens": comparison.tokens}
        best = minima(_met(table, target, column).assign(**place))
        best["relative"] = best["tokens_to_target"] / best["batch"].map(needed.get)
        minima_of.append(best.assign(schedule=name))
    columns = ["reached", "steps", "trials", "peak_lr", "bracketed", "relative"]
    every = pd.concat(minima_of, ignore_index=True)
    return every.reindex(columns=["schedule", *BATCH, *columns])


def _met(table: pd.DataFrame, target: float, column: str) -> pd.DataFrame:
    """Points at a target, also where no run of the table gets there."""
    lowest = min(float(smooth_curve(run, column).loss[-1]) for _, run in table.groupby("run"))
    with warnings.catch_warnings():
        # Annealed runs give one loss each, a few per batch and rate.
        warnings.filterwarnings("ignore", "points: .* fewer than")
        met = points(table, [max(target, lowest)], column=column, kind="stable")
    return met.assign(target_loss=target, reached=met["reached"] & (lowest <= target))


def _final_losses(table: pd.DataFrame) -> pd.DataFrame:
    """The last row of every run, those of one batch, rate and seed as one curve over lengths.

    A curve of fewer than 3 lengths, because runs diverged, is left out.
    """
    last = table.drop_duplicates("run", keep="last")
    keys = zip(last["batch"], last["peak_lr"], last["seed"], strict=True)
    last = last.assign(run=[f"batch {batch}, rate {lr:g}, seed {seed}" for batch, lr, seed in keys])
    lengths = last["run"].value_counts().to_dict()
    enough = last["run"].map(lengths.get) >= LEAST_LENGTHS
    return last.loc[enough].sort_values(by=["run", "tokens"]).reset_index(drop=True)
