"""Answers on LR schedules: steps to one target, relative to a constant LR with averages."""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from bss.stats import Numbers, effect_of, mean_of
from experiments.critical_batch.measuring import (
    NONE,
    SHORT,
    SIZE,
    by_average,
    curves,
    known_of,
    met_at,
    minima,
    target_losses,
)
from experiments.findings import Measured, measurements
from experiments.tables import Tables

CONSTANT = "constant + average"


def schedule_answers(
    tables: Tables, base: str, parts: Sequence[str], keys: Mapping[str, str], file: str
) -> dict[str, Measured]:
    """Return the answers on LR schedules, and write the steps of each to the target.

    A schedule's horizons or tokens end somewhere: a run that misses the target has a bound there.

    Args:
        tables: The results directory.
        base: The part with the runs at constant LR.
        parts: Those with other LR schedules.
        keys: Questions by name of the schedule.
        file: Name of the table that is written.
    """
    constant = curves(tables, base)
    others = pd.concat([curves(tables, part, "schedules.parquet") for part in parts])
    smallest = by_average(constant.loc[constant["batch"] == constant["batch"].min()])
    [target] = target_losses(smallest, SHORT[-1:])
    batches = sorted(others["batch"].unique())
    constant = constant.loc[constant["batch"].isin(batches)]
    points = {CONSTANT: met_at(by_average(constant), [target], "averaged", weights="averaged")}
    points["constant"] = met_at(constant.assign(average=NONE), [target], "eval_loss")
    for name, some in others.groupby("name", sort=False):
        ends = final_losses(some) if name in ("cosine", "WSD") else some
        phase = "cosine" if name == "cosine" else "decayed"
        alone = ends.assign(average=NONE)
        points[str(name)] = met_at(alone, [target], "eval_loss", lr_phase=phase)
    points = {
        name: table.assign(size=SIZE, budget_tokens=SHORT[-1]) for name, table in points.items()
    }
    tables.write(file, schedules_table(points))
    found = {}
    for name, key in keys.items():
        if name in points:
            told = "; ".join([f"target of D {SHORT[-1] / 1e6:g}M", _reached(points[name])])
            known = known_of(tables, constant, base, told)
            apart = [
                log_tokens(points[name], batch) - log_tokens(points[CONSTANT], batch)
                for batch in batches
            ]
            found |= measurements({key: mean_of(*apart)}, known, file)
    return found


def schedules_table(points: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Return the best setting of each schedule and batch size, relative to constant LR.

    Points are by name of the schedule. The column `relative` is empty and `at_least` has the bound
    if a seed missed the target. `error` is the standard error of the log ratio over seeds.
    """
    rows = pd.concat(
        [minima(table).assign(schedule=name) for name, table in points.items()], ignore_index=True
    )
    rows["batch_tokens"] = rows["batch"] * rows["seq_len"]
    for row in rows.index:
        name, batch = rows.loc[row, ["schedule", "batch"]]
        apart = log_tokens(points[name], batch) - log_tokens(points[CONSTANT], batch)
        ratio = float(np.exp(apart.low.mean()))
        rows.loc[row, "at_least" if apart.censored.any() else "relative"] = ratio
        rows.loc[row, "of_seeds"] = len(apart.low)
        if not apart.censored.any():
            rows.loc[row, "error"] = effect_of(apart).error
    return rows


def log_tokens(table: pd.DataFrame, batch: float) -> Numbers:
    """Return log tokens to the target per seed at the setting with the most seeds, then fewest.

    A seed that missed the target has a bound, the tokens of its longest run.
    """
    here = table.loc[table["batch"] == batch]
    logs = np.log(here["tokens_to_target"].to_numpy(float))
    here = here.assign(logs=logs).set_index(["peak_lr", "average"])
    settings = here.groupby(level=[0, 1]).apply(
        lambda rows: (-int(rows["reached"].sum()), float(rows["logs"].mean()))
    )
    best = here.loc[[min(settings.index, key=lambda key: settings[key])]].sort_values("seed")
    return Numbers.to_target(best["logs"].to_numpy(), best["reached"].to_numpy())


def _reached(table: pd.DataFrame) -> str:
    """Return in words how many seeds reached the target at each batch size."""
    counts = []
    for batch in sorted(table["batch"].unique()):
        missed = log_tokens(table, batch).censored
        counts.append(f"{int((~missed).sum())} of {len(missed)} at {batch:g}")
    return f"seeds that reach it, by batch size: {', '.join(counts)}"


def final_losses(table: pd.DataFrame) -> pd.DataFrame:
    """Return the last row of every run; horizons of one batch size, LR and seed form one curve."""
    last = table.drop_duplicates("run", keep="last")
    keys = zip(last["batch"], last["peak_lr"], last["seed"], strict=True)
    last = last.assign(run=[f"batch {batch}, LR {lr:g}, seed {seed}" for batch, lr, seed in keys])
    counts = last.groupby("run")["tokens"].transform("size")
    return last.loc[counts >= 3].sort_values(["run", "tokens"], ignore_index=True)
