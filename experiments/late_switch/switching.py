"""The best point of a single switch, from the final losses of switches before each budget's end."""

import numpy as np
import pandas as pd

from bss.schedules.batch import BatchSchedule
from bss.stats import phases_of

NEAREST = 5  # points of the parabola through the best switch


def best_switches(finals: pd.DataFrame, nearest: int = NEAREST) -> pd.DataFrame:
    """Return the tokens after the best switch of each budget and seed.

    The optimum is where a parabola in log tokens after the switch is lowest. The parabola is fitted
    by least squares to the grid points nearest the lowest mean loss, and its optimum is clipped to
    the grid. Losses are means of held-out and test loss.

    Returns:
        Columns budget, seed, after, inside (False if the optimum was clipped), loss (the lowest of
        the grid).
    """
    some = finals.loc[(phases_of(finals) == "constant") & finals["name"].str.contains("last")]
    budget = some["name"].str.rsplit(n=1).str[-1].astype(int)
    starts = some["batch"].map(lambda text: BatchSchedule.parse(str(text)).starts[1])
    some = some.assign(budget=budget, after=budget - starts)
    some["loss"] = some[["eval_loss", "test_loss"]].mean(axis=1)
    rows = []
    for size, own in some.groupby("budget"):
        wide = own.pivot(index="after", columns="seed", values="loss").dropna(axis=1)
        x = np.log(wide.index.to_numpy(float))
        near = np.sort(np.argsort(np.abs(x - x[int(np.argmin(wide.mean(axis=1)))]))[:nearest])
        for seed, losses in wide.items():
            lowest = _lowest(x[near], losses.to_numpy(float)[near])
            row = {"budget": size, "seed": seed, "after": np.exp(np.clip(lowest, x[0], x[-1]))}
            rows.append(row | {"inside": bool(x[0] < lowest < x[-1]), "loss": losses.min()})
    return pd.DataFrame(rows)


def _lowest(x: np.ndarray, y: np.ndarray) -> float:
    """Return where a parabola through points is lowest; the lowest point if it has no minimum."""
    curvature, slope, _ = np.polyfit(x - x.mean(), y, 2)
    return float(x.mean() - slope / (2 * curvature) if curvature > 0 else x[int(np.argmin(y))])


def log_after(table: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """Return the log budgets [N] and the log tokens after the best switch, [N, seed]."""
    wide = table.pivot_table(index="budget", columns="seed", values="after")
    return np.log(wide.index.to_numpy(float)), np.log(wide.to_numpy(float))


def exponents(table: pd.DataFrame) -> np.ndarray:
    """Return the slope of log tokens after the best switch in log budget, [seed]."""
    return np.polyfit(*log_after(table), 1)[0]
