"""Loss curves of the parts, and their steps and tokens to the targets of token budgets.

After Zhang et al. (arXiv 2410.21676). The target of a model and a token budget D is the loss at D
of the best setting of the smallest batch size. At every batch size the setting counts that needs
the fewest steps to the target.
"""

import math
from collections.abc import Iterable, Sequence

import numpy as np
import pandas as pd

from bss.errors import InputError
from bss.held_out import HeldOutColumn
from bss.points.curve import points, smooth_curve
from experiments.conditions import Conditions, conditions_of
from experiments.tables import Tables, shown_warnings

SIZE = "12k"
BASE = f"c1-{SIZE}"
"""The part with which other parts are compared."""
BUDGETS = (100_000, 200_000, 400_000, 800_000)
SHORT = (100_000, 200_000)
HALF_LIVES = ("1%", "4%", "16%")
NONE = "none"
CELL = ["size", "model", "params", "seq_len", "budget_tokens", "target_loss"]


def curves(tables: Tables, part: str, name: str = "runs.parquet") -> pd.DataFrame:
    """Return the loss curves of a part, with the name of the model, or LR schedule, as `size`."""
    table = tables.read(f"{part}/{name}")
    return table if "size" in table else table.assign(size=table["name"])


def trained(tables: Tables, parts: Iterable[str], name: str = "runs.parquet") -> list[str]:
    """Return the parts that have a table of curves."""
    return [part for part in parts if f"{part}/{name}" in tables]


def by_average(table: pd.DataFrame, averages: Sequence[str] = HALF_LIVES) -> pd.DataFrame:
    """Return every run once per weight average: `averaged` is its loss, `average` the half-life."""
    tables = []
    for average in averages:
        column = "eval_loss" if average == NONE else str(HeldOutColumn(half_life=average))
        named = table["run"] + f" {average}"
        tables.append(table.assign(run=named, average=average, averaged=table[column]))
    return pd.concat(tables, ignore_index=True)


def target_losses(smallest: pd.DataFrame, budgets: Sequence[int]) -> dict[float, int]:
    """Return the budgets that the smallest batch size reached by their targets.

    A target is the loss at the budget of the best setting of the smallest batch size.

    Args:
        smallest: Its runs, from `by_average`.
        budgets: D in tokens.

    Raises:
        InputError: If no run of it reached a budget.
    """
    rows = []
    for _, run in smallest.groupby("run", sort=False):
        curve = smooth_curve(run, "averaged")
        setting = tuple(run.iloc[0][["peak_lr", "average"]])
        for budget in (d for d in budgets if run["tokens"].iloc[-1] >= d):
            at = float(np.interp(math.log(budget), curve.log_tokens, curve.loss))
            rows.append((budget, setting, at))
    if not rows:
        raise InputError(f"no run of the smallest batch size reached D = {min(budgets)}")
    losses = pd.DataFrame(rows, columns=["budget", "setting", "loss"])
    means = losses.groupby(["budget", "setting"])["loss"].agg(["size", "mean"]).reset_index()
    means = means.sort_values(["size", "mean"], ascending=[False, True])
    best = means.drop_duplicates("budget").sort_values("budget")
    return dict(zip(best["mean"], best["budget"], strict=True))


def measured(
    table: pd.DataFrame, budgets: Sequence[int], averages: Sequence[str] = HALF_LIVES
) -> pd.DataFrame:
    """Return the points of every model and sequence length at the targets of its budgets.

    Args:
        table: Loss curves with `size`.
        budgets: D in tokens.
        averages: Half-lives of weight averages, and NONE; targets are of HALF_LIVES.

    Returns:
        Columns of points with size, average and budget_tokens.
    """
    found = []
    for (size, seq_len), some in table.groupby(["size", "seq_len"], sort=False):  # type: ignore[misc]
        smallest = some.loc[some["batch"] == some["batch"].min()]
        targets = target_losses(by_average(smallest), budgets)
        met = met_at(by_average(some, averages), [*targets], "averaged", weights="averaged")
        met["budget_tokens"] = met["target_loss"].map(targets.get)
        found.append(met.assign(size=size, seq_len=seq_len))
    return pd.concat(found, ignore_index=True)


def met_at(
    table: pd.DataFrame,
    targets: Sequence[float],
    column: str,
    lr_phase: str = "constant",
    weights: str = "last",
) -> pd.DataFrame:
    """Return points, also if no run reaches a target; large batch sizes have few evaluations."""
    with shown_warnings(f"points at {', '.join(f'{target:.3f}' for target in targets)}"):
        last = [float(smooth_curve(run, column).loss[-1]) for _, run in table.groupby("run")]
        reach = {max(target, min(last)): target for target in targets}
        met = points(table, [*reach], column=column, lr_phase=lr_phase, weights=weights)
    wanted = met["target_loss"].map(reach.get)
    return met.assign(target_loss=wanted, reached=met["reached"] & (met["target_loss"] <= wanted))


def minima(table: pd.DataFrame) -> pd.DataFrame:
    """Return the best setting of each batch size: that with the most seeds, then fewest tokens.

    Returns:
        CELL, batch, settings tried, steps and tokens_to_target (geometric means over seeds).
        Then peak_lr, average, seeds and seed_noise (standard deviation of log steps). `bracketed`:
        a lower and a higher LR were tried. A batch size that missed the target has no seed.
    """
    rows = []
    for key, here in table.groupby([*CELL, "batch"], sort=False):
        row = dict(zip([*CELL, "batch"], key, strict=True))  # type: ignore[arg-type]
        rates = here["peak_lr"]
        met = here.loc[here["reached"]]
        settings = met.groupby(["peak_lr", "average"], sort=False)
        row |= {"settings": len(here.drop_duplicates(["peak_lr", "average"])), "seeds": 0}
        logs = [(key, np.log(some["steps"].to_numpy(float))) for key, some in settings]
        if logs:
            (lr, average), best = min(logs, key=lambda one: (-len(one[1]), one[1].mean()))  # type: ignore[misc]
            steps = float(np.exp(best.mean()))
            row |= {"steps": steps, "peak_lr": lr, "average": average, "seeds": len(best)}
            row["tokens_to_target"] = steps * here.iloc[0][["batch", "seq_len"]].prod()
            row |= {"seed_noise": best.std(ddof=1) if len(best) > 1 else np.nan}
            row["bracketed"] = bool(rates.min() < lr < rates.max())
        rows.append(row)
    return pd.DataFrame(rows).sort_values([*CELL, "batch"], ignore_index=True)


def known_of(tables: Tables, runs: pd.DataFrame, part: str, more: str) -> Conditions:
    """Return the conditions of runs; the config of one part has what all parts share."""
    return conditions_of(runs, Tables(tables.folder / part).config, "averaged", more)


def listed(numbers: Iterable[float]) -> str:
    """Return numbers as text."""
    return ", ".join(f"{number:g}" for number in numbers)
