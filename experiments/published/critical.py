"""Tokens and critical batch sizes of public runs to fixed losses.

A critical batch size is b/a of S = a + b/B, in tokens. A model needs FEWEST batch sizes. Intervals
are of resampled runs, or of resampled noise about the law where a batch size has one run.
"""

import warnings
from collections.abc import Sequence

import numpy as np
import pandas as pd

from benchmarks.optima import PUBLISHED
from bss.laws.critical.law import Shape
from bss.laws.resampling import draw_noise
from bss.points.measuring import measure_points
from bss.tables import check_runs

FEWEST = 4
TARGETS = (4.2, 3.8, 3.5, 3.3)  # of the 8B curves: all runs reach these
STEP_TIMES = ((0.3, 0.05), (0.9, 0.05), (2.7, 0.05))  # seconds per step and per sequence
ZHANG = PUBLISHED.parents[1] / "bss/laws/published/cbs_steps.csv"
RESAMPLES = 400
SIZE_8B = 8.03e9


def points_8b(targets: Sequence[float] = TARGETS) -> pd.DataFrame:
    """Return steps of each 8B run to each target, at the best LR of its batch size."""
    runs = check_runs(pd.read_parquet(PUBLISHED / "mlperf_llama31_8b_curves.parquet"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the 16 evaluations of a run are coarse at every batch
        points, _ = measure_points(runs, targets)
    return points[points["reached"]].assign(
        source="mlperf curves", params=SIZE_8B, model="llama31_8b"
    )


def smallest_against_next(points: pd.DataFrame) -> pd.DataFrame:
    """Return log tokens of batch 16 minus batch 32, by target, with the error of Welch's test.

    Negative: the smallest batch size needs the fewest tokens, so no minimum is inside.
    """
    rows = []
    for target, cell in points.groupby("target_loss"):
        logs = [
            np.log(cell.loc[cell["batch"] == batch, "tokens_to_target"].to_numpy(float))
            for batch in (16, 32)
        ]
        parts = [np.var(one, ddof=1) / len(one) for one in logs]
        weights = sum(p**2 / (len(x) - 1) for p, x in zip(parts, logs, strict=True))
        rows.append(
            {
                "target_loss": target,
                "runs": sum(map(len, logs)),
                "log_tokens": logs[0].mean() - logs[1].mean(),
                "error": np.sqrt(sum(parts)),
                "freedom": sum(parts) ** 2 / weights,
            }
        )
    return pd.DataFrame(rows).sort_values("target_loss", ascending=False)


def _runs() -> pd.DataFrame:
    """Return steps to a fixed loss: convergence points, and the steps of Zhang et al."""
    points = pd.read_csv(PUBLISHED / "mlperf_rcp.csv", comment="#")
    doubtful = (points["model"] == "gpt3_175b") & (points["batch"] == 3072)
    points = points[~(doubtful & (points["steps"] > 1000))].assign(source="mlperf points")
    theirs = pd.read_csv(ZHANG, comment="#")
    theirs = theirs.assign(source="zhang", params=1e6 * theirs["params_m"], seq_len=512)
    return pd.concat([points, theirs], ignore_index=True)


def critical(points: pd.DataFrame) -> pd.DataFrame:
    """Return b/a in tokens of every model and target with enough batch sizes.

    Columns: source, model, params, target_loss, batches, runs, tokens (E_min), budget (of the run),
    kappa (b/a in tokens), low, high (95%), log_error.
    """
    table = pd.concat([_runs(), points], ignore_index=True)
    rows = []
    for (source, model, target), cell in table.groupby(["source", "model", "target_loss"]):
        if cell["batch"].nunique() < FEWEST:
            continue
        shape, draws = _fitted(cell)
        per = float(cell["seq_len"].iloc[0])
        low, high = np.quantile(draws, [0.025, 0.975]) * per
        rows.append(
            {
                "source": source,
                "model": model,
                "params": cell["params"].iloc[0],
                "target_loss": target,
                "batches": cell["batch"].nunique(),
                "runs": len(cell),
                "tokens": float(shape.b) * per,
                "budget": cell["tokens"].iloc[0],
                "kappa": float(shape.kappa) * per,
                "low": low,
                "high": high,
                "log_error": float(np.std(np.log(draws))),
            }
        )
    return pd.DataFrame(rows).sort_values(["source", "params", "target_loss"])


def _fitted(cell: pd.DataFrame) -> tuple[Shape, np.ndarray]:
    """Return the fit to mean log steps and b/a [R] of resampled runs, or of resampled noise."""
    draw = np.random.default_rng(0)
    logs = [np.log(rows["steps"].to_numpy(float)) for _, rows in cell.groupby("batch")]
    batch = np.sort(cell["batch"].unique()).astype(float)
    shape = Shape.of(batch, np.array([one.mean() for one in logs]))
    if min(map(len, logs)) < 2:
        noise = draw_noise(shape.noise, max(len(batch) - 2, 1), (RESAMPLES, len(batch)), draw)
        return shape, Shape.of(batch, shape.log_steps(batch) + noise).kappa
    means = [draw.choice(one, (RESAMPLES, len(one))).mean(axis=1) for one in logs]
    return shape, Shape.of(batch, np.stack(means, axis=1)).kappa


def soonest(found: pd.DataFrame) -> pd.DataFrame:
    """Return the batch size of the shortest time of the 8B model at loss 3.3, for STEP_TIMES.

    A step of B sequences takes s + t·B seconds. So the time (s + t·B)(a + b/B) has its minimum at
    √(b/a · s/t).
    """
    at = found[(found["source"] == "mlperf curves") & (found["target_loss"] == TARGETS[-1])].iloc[0]
    sequences = at[["kappa", "low", "high"]].to_numpy(float) / 8192
    rows = [(fixed, each, *np.sqrt(sequences * fixed / each)) for fixed, each in STEP_TIMES]
    columns = ["seconds_per_step", "seconds_per_sequence", "batch", "low", "high"]
    return pd.DataFrame(rows, columns=pd.Index(columns))
