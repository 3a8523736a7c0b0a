"""Losses by beta1 at the chosen LRs, and the LR cut that equals a change of the batch size.

Notebook: notebooks/momentum.ipynb, on results/momentum/finals.csv and curves.parquet. The predicted
cuts are derived here. In the functional law (arXiv 2509.19189), noise is proportional to LR over
batch size, so 4 times the batch size equals a quarter of the LR. With a time variable that sums the
LRs of Adam, it equals half of the LR.
"""

import itertools
from collections.abc import Iterable

import numpy as np
import pandas as pd

from bss.plots import style
from bss.stats import mean_interval

CHOOSING = (0, 1)  # seeds
KEPT = 0.9  # beta1 of the arms that forks leave
CUTS = (1, 2, 4)
SHARED = 1_000_000  # tokens at which all are compared: those of the run that goes on
_KEYS = ["batch", "beta1", "peak_lr"]


def chosen(finals: pd.DataFrame) -> pd.DataFrame:
    """Return the LR of each fixed batch size and beta1: the lowest decayed loss on seeds CHOOSING.

    Returns:
        Columns batch, beta1, peak_lr, eval_loss and own: whether it is the best beta1 of its batch.
    """
    table = finals.loc[finals["seed"].isin(CHOOSING) & ~finals["batch"].str.contains(":")]
    budget = table["token_budget"]
    table = table.loc[(table["lr_phase"] == "decayed") & (budget == budget.min())]
    means = table.astype({"batch": int}).groupby(_KEYS, as_index=False)["eval_loss"].mean()
    best = means.loc[means.groupby(["batch", "beta1"])["eval_loss"].idxmin()]
    return best.assign(own=best["eval_loss"] == best.groupby("batch")["eval_loss"].transform("min"))


def judged_losses(finals: pd.DataFrame) -> dict[int, pd.DataFrame]:
    """Return decayed test losses [(batch, beta1), seed] at the chosen LR, by tokens of a run."""
    table = finals.loc[~finals["seed"].isin(CHOOSING) & ~finals["batch"].str.contains(":")]
    table = table.loc[table["lr_phase"] == "decayed"].astype({"batch": int})
    table = table.merge(chosen(finals)[_KEYS], on=_KEYS)
    return {
        int(str(stop)): some.pivot_table("test_loss", ["batch", "beta1"], "seed")
        for stop, some in table.groupby("token_budget")
    }


def tokens_to_loss(
    curves: pd.DataFrame, best: pd.DataFrame, arms: Iterable[tuple[float, float]]
) -> pd.DataFrame:
    """Return tokens [(batch, beta1), seed] to the lowest loss that all other seeds reach."""
    table = curves.loc[~curves["seed"].isin(CHOOSING) & ~curves["schedule.batch"].str.contains(":")]
    table = _per_step(table).sort_values("tokens")
    table = table.assign(beta1=table["optimizer.beta1"]).merge(best[_KEYS], on=_KEYS)
    wanted = set(arms)
    paths = {}
    for key, some in table.groupby(["batch", "beta1", "seed"]):
        arm = tuple(key)[:2]  # type: ignore[arg-type]
        if arm in wanted:
            read = some.loc[some["run"] == some["run"].mode()[0]]
            paths[key] = read[["tokens", "eval_loss"]].to_numpy(float)
    target = max(path[:, 1].min() for path in paths.values())
    reached = {
        arm: np.exp(np.interp(-target, -np.minimum.accumulate(path[:, 1]), np.log(path[:, 0])))
        for arm, path in paths.items()
    }
    found = pd.Series(reached).unstack()
    found.attrs["loss"] = target
    return found


def equal_cuts(curves: pd.DataFrame) -> pd.DataFrame:
    """Return the LR cut that each change of the batch size equals, by seed.

    Args:
        curves: Rows of `part_cuts`.

    Returns:
        Columns batch, beta1, beta2, seed and two cuts. `at_tokens` is the cut at equal tokens.
        `at_sums` is the cut at equal sums of the LR over the steps since the fork, where the runs
        end.
    """
    rows = []
    kinds = ["schedule.batch", "optimizer.beta1", "optimizer.beta2"]
    for seed, table in curves.groupby("seed"):
        constant = ~table["schedule.batch"].str.contains(":")
        whole = table.loc[constant, "peak_lr"].max()
        ends = {
            cut: _ends(table.loc[constant & np.isclose(table["peak_lr"], whole / cut)])
            for cut in CUTS
        }
        for (batch, beta1, beta2), own in table.loc[~constant].groupby(kinds):
            at = [
                equal_cut([ends[c][i] for c in CUTS], x) for i, x in enumerate(_ends(own).tolist())
            ]
            row = {"batch": batch, "beta1": beta1, "beta2": beta2, "seed": seed}
            rows.append(row | {"at_tokens": at[0], "at_sums": at[1]})
    return pd.DataFrame(rows)


def _ends(curve: pd.DataFrame) -> np.ndarray:
    """Return held-out losses [2] of a run, at the shared tokens and at its end."""
    at = [np.log(SHARED), np.inf]
    return np.interp(
        at, np.log(curve["tokens"].to_numpy(float)), curve["eval_loss"].to_numpy(float)
    )


def equal_cut(losses: list[float], loss: float) -> float:
    """Return the LR cut (1 or more) that equals another run, from the losses at cuts 1, 2 and 4.

    Losses are interpolated linearly in the log of the cut, and extrapolated beyond the last. If
    several cuts match, the first is returned. NaN if the losses change in the other direction.

    Examples:
        >>> [round(equal_cut([2.0, 1.9, 1.8], loss), 2) for loss in (1.95, 1.8, 1.7, 2.1)]
        [1.41, 4.0, 8.0, nan]
    """
    for i, (first, last) in enumerate(itertools.pairwise(losses)):
        share = (loss - first) / (last - first) if last != first else np.nan
        if share >= 0 and (share <= 1 or i == len(losses) - 2):
            return float(2 ** (i + share))
    return np.nan


def cuts_table(cuts: pd.DataFrame) -> pd.DataFrame:
    """Return the cut that batch × 4 equals as text: geometric means, 95% intervals over seeds."""
    rows = {
        name: [
            f"{x:.2f} ({low:.2f} to {high:.2f})" for x, low, high in np.transpose(geometric(logs))
        ]
        for name, (_, logs) in kinds_of(cuts).items()
    }
    return pd.DataFrame(rows, ["at equal tokens", "at equal sums of learning rates"]).T


def part_cuts(curves: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of curves.parquet that are of part cuts."""
    some = curves.loc[curves["schedule.tokens"].between(SHARED, 2 * SHARED - 1)]
    return _per_step(some).loc[
        lambda x: x["optimizer.beta2"].notna() & (x["tokens"] > 0.7 * SHARED)
    ]


def _per_step(curves: pd.DataFrame) -> pd.DataFrame:
    """Return rows of runs without a half-life; a table has the column if it varies."""
    if "optimizer.beta2_half_life" not in curves:
        return curves
    return curves.loc[curves["optimizer.beta2_half_life"].fillna(0) == 0]


def kinds_of(cuts: pd.DataFrame) -> dict[str, tuple[tuple[float, float], np.ndarray]]:
    """Return betas and logs of both equal cuts [seed, 2] of batch × 4, by how its betas scale.

    Closest to the run that goes on first.
    """
    most = tuple(column.max() for column in style.columns(cuts, "beta1", "beta2"))
    names = {
        (True, True): "per step",
        (False, True): "beta1 per token",
        (False, False): "per token",
    }
    kinds = {}
    for pair in sorted({*zip(*style.columns(cuts, "beta1", "beta2"), strict=True)}, reverse=True):
        own = cuts.loc[(cuts["beta1"] == pair[0]) & (cuts["beta2"] == pair[1])]
        kept = tuple(mine == theirs for mine, theirs in zip(pair, most, strict=True))
        logs = np.log2(own[["at_tokens", "at_sums"]].to_numpy(float))
        kinds[f"batch × 4, {names[kept]}"] = pair, logs
    return kinds


def geometric(logs: np.ndarray) -> np.ndarray:
    """Return the mean of 2^logs [seed, ...] and the ends of its 95% interval over seeds."""
    return 2 ** mean_interval(logs)
