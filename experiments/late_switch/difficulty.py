"""Numbers of the questions in difficulty.toml: the best switch in a hard and an easy language.

`analysis.py` calls `measure` and `answer`. Rows of one language have one `group`, which is named by
its `mode_decay`. Losses are in nats per token, batch sizes in sequences.
"""

from pathlib import Path

import numpy as np
import pandas as pd
from scipy.optimize import least_squares

from experiments.conditions import conditions_of
from experiments.findings import Measured, measurements
from experiments.late_switch.switching import best_switches, exponents, log_after
from experiments.tables import Tables, show_warnings

QUESTIONS = Path(__file__).parent / "difficulty.toml"
PART = "b4"
HARD = "mode_decay 0"
EASY = "mode_decay 1"
TRUNK = "constant 4"
AVERAGED = "eval_loss_avg_4%"
FIRST = 60_000  # tokens from which curves are fitted, as registered
MILLION = 1e6


def measure(tables: Tables) -> None:
    """Write switch_points.csv and task_exponents.csv, with a column `group` for the language."""
    finals = tables.read("finals.csv")
    found = [
        best_switches(some).assign(group=group)
        for group, some in finals.groupby("group", sort=False)
    ]
    points = pd.concat(found, ignore_index=True)
    if not points["inside"].all():
        ends = (~points["inside"]).groupby(points["group"]).sum()
        show_warnings(
            PART,
            [
                f"{group}: {n} best switches at an end of the grid: bounds"
                for group, n in ends.items()
                if n
            ],
        )
    tables.write("switch_points.csv", points)
    tables.write("task_exponents.csv", task_exponents(tables.read("runs.parquet")))


def task_exponents(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the exponent s of L_0 + A D^-s, fitted to the averaged loss of each trunk.

    Returns:
        Columns group, seed, exponent, L_0 (nats) and residual_rms (nats).
    """
    trunks = runs.loc[(runs["arm"] == TRUNK) & (runs["tokens"] >= FIRST)].dropna(subset=AVERAGED)
    rows = []
    for (group, seed), curve in trunks.groupby(["group", "seed"], sort=False):
        limit, exponent, rms = _power_law(
            curve["tokens"].to_numpy(float) / MILLION, curve[AVERAGED].to_numpy(float)
        )
        rows.append(
            {"group": group, "seed": seed, "exponent": exponent, "L_0": limit, "residual_rms": rms}
        )
    return pd.DataFrame(rows)


def _power_law(tokens: np.ndarray, losses: np.ndarray) -> tuple[float, float, float]:
    """Return L_0, s and the RMS residual of L_0 + A D^-s, the best of several starts."""

    def residuals(values: np.ndarray) -> np.ndarray:
        limit, log_scale, exponent = values
        return limit + np.exp(log_scale) * tokens**-exponent - losses

    starts = [
        (losses.min() - below, np.log(losses.max() - losses.min()), exponent)
        for below in (0.02, 0.1, 0.4)  # nats; limits of these languages lie within
        for exponent in (0.2, 0.6, 1.0)
    ]
    best = min((least_squares(residuals, start) for start in starts), key=lambda found: found.cost)
    limit, _, exponent = best.x
    return float(limit), float(exponent), float(np.sqrt(np.mean(best.fun**2)))


def answer(tables: Tables) -> dict[str, Measured]:
    """Return the numbers of the questions: hard minus easy, or easy minus hard, per seed."""
    points = tables.read("switch_points.csv")
    tasks = tables.read("task_exponents.csv").pivot(
        index="seed", columns="group", values="exponent"
    )
    runs = tables.read("runs.parquet")
    runs = runs.loc[runs["group"].isin((HARD, EASY))]
    known = conditions_of(runs, tables.config, more="synthetic languages; x 8")
    hard = points.loc[points["group"] == HARD]
    easy = points.loc[points["group"] == EASY]
    found = measurements(
        {"task_exponent": tasks[EASY] - tasks[HARD]}, known, f"{PART}/task_exponents.csv"
    )
    numbers = {
        "switch_later_if_hard": log_after(hard)[1].mean(0) - log_after(easy)[1].mean(0),
        "switch_exponent_if_hard": exponents(hard) - exponents(easy),
    }
    return found | measurements(numbers, known, f"{PART}/switch_points.csv")
