"""What the functional law predicts of schedules it has not seen, beside two baselines.

The law is that of Li et al., arXiv 2509.19189.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import spearmanr

from bss.errors import InputError
from bss.laws import CurveFit
from bss.laws.functional.forecast import schedule_losses
from bss.points.crossings import Mean, mean
from bss.schedules.batch import BatchSchedule
from bss.sweeps.contenders import Contender
from bss.training.run_directory import RunStatus
from experiments.late_switch.figures import PREDICTORS
from experiments.late_switch.law import kinds_of_rate, left_out
from experiments.late_switch.study import Study

LEAST = 3
SCORES = (
    *("group", "predictor", "schedules", "rmse", "rmse_of_differences", "spread", "ratio"),
    "rank_correlation",
)
CANDIDATES = (
    *("since", "clock", "chosen", "left_out_rmse", "rmse", "unidentified"),
    *("all_ratio", "all_rank_correlation"),
    *("one_peak_rate_ratio", "one_peak_rate_rank_correlation"),
)
GROUPS = {"constant": "constant rate", "decay": "WSD", "cosine": "cosine"}


def predictions(
    training: Sequence[Contender],
    unseen: Sequence[Contender],
    constants: Sequence[Contender],
    statuses: Mapping[str, RunStatus],
) -> pd.DataFrame:
    """Final held-out losses of schedules that no law has seen, with two baselines for `predicted`.

    Args:
        training: what the law was fitted to.
        unseen: everything else whose batch changes.
        constants: under any rate, for the first baseline.
        statuses: of all of them, by their runs' ids.

    Returns:
        name, ending, peak_lr, batch, tokens, measured (nats, mean over seeds), error, predicted
        (NaN here), mean_batch, mean_batch_constant (the constant of as many steps
        at the same rate, interpolated in log batch; NaN beyond those measured), best_training (the
        lowest final loss that the fit has seen).
    """
    seen = min(loss.value for _, loss in _final(training, statuses))
    flat: dict[tuple[str, float], dict[int, float]] = {}
    for contender, loss in _final(constants, statuses):
        key = contender.ending, contender.run.optimizer.lr
        flat.setdefault(key, {})[contender.run.schedule.batch.constant_batch] = loss.value
    rows = []
    for contender, loss in _final(unseen, statuses):
        run = contender.run
        rate, schedule, tokens = run.optimizer.lr, run.schedule.batch, run.schedule.tokens
        size = schedule.mean_batch(tokens)
        rows.append(
            {
                "name": contender.name,
                "ending": contender.ending,
                "peak_lr": rate,
                "batch": str(schedule),
                "tokens": tokens,
                "measured": loss.value,
                "error": loss.error,
                "predicted": math.nan,
                "mean_batch": size,
                "mean_batch_constant": _interpolated(flat.get((contender.ending, rate), {}), size),
                "best_training": seen,
            }
        )
    return pd.DataFrame(rows)


def predicted(study: Study, fit: CurveFit | None, table: pd.DataFrame) -> pd.DataFrame:
    """A table of `predictions` with what a law predicts of its runs; NaN where it cannot."""

    def loss(row: Any) -> float:
        kinds = kinds_of_rate(row.peak_lr, row.tokens, study.setup.schedule.warmup, study.decay)
        try:
            schedule = BatchSchedule.parse(row.batch, total=row.tokens)
            return (
                float(schedule_losses(fit, schedule, row.tokens, kinds[row.ending])[0])
                if fit
                else math.nan
            )
        except InputError:
            return math.nan

    return table.assign(predicted=[loss(row) for row in table.itertuples()])


def scores(table: pd.DataFrame, shared_rate: float) -> pd.DataFrame:
    """How well differences between unseen runs are predicted: all, at one rate, by its kind.

    Predictors are compared on the runs that all of them speak of; one that speaks of none is left
    out. The shared rate is that of the second group.

    Returns:
        group, predictor, schedules, rmse (of losses), rmse_of_differences and spread (root mean
        squares over pairs of schedules), ratio of the two (0.5 or less is asked of the law; 1 is no
        skill), rank_correlation (Spearman's).
    """
    # Runs that end earlier differ for another reason than their schedules.
    every = table.loc[table["tokens"] == table["tokens"].max()]
    groups = {"all": every, "one peak rate": every.loc[np.isclose(every["peak_lr"], shared_rate)]}
    groups |= {name: table.loc[table["ending"] == rate] for rate, name in GROUPS.items()}
    rows = []
    for group, some in groups.items():
        said = some[[*PREDICTORS]].dropna(axis="columns", how="all").dropna()
        measured = some.loc[said.index, "measured"].to_numpy(float)
        for name in said if len(said) >= LEAST else ():
            values = score(measured, said[name].to_numpy(float))
            rows.append({"group": group, "predictor": name, **values})
    return pd.DataFrame(rows, columns=[*SCORES])


def candidates(
    tried: Sequence[tuple[CurveFit, pd.DataFrame]], chosen: CurveFit | None, shared_rate: float
) -> pd.DataFrame:
    """Every law that was tried, and how it would have done on schedules it has not seen.

    The choice is made on left-out pilots; the scores of each fit's table of `predictions` show what
    hangs on it: ratio and rank of all unseen schedules, and of those at one peak rate.

    Returns:
        CANDIDATES; since is in tokens, left_out_rmse and rmse are of log loss.
    """
    rows = []
    for fit, table in tried:
        row = {
            "since": fit.since,
            "clock": fit.clock,
            "chosen": fit is chosen,
            "left_out_rmse": left_out(fit),
            "rmse": fit.rmse,
            "unidentified": " ".join(fit.unidentified),
        }
        for entry in scores(table, shared_rate).to_dict("records"):
            if entry["predictor"] == "predicted":
                group = entry["group"].replace(" ", "_")
                row |= {f"{group}_{key}": entry[key] for key in ("ratio", "rank_correlation")}
        rows.append(row)
    return pd.DataFrame(rows, columns=[*CANDIDATES])


def score(measured: np.ndarray, predicted: np.ndarray) -> dict[str, Any]:
    """One row of `scores`, for [N] losses in nats."""
    errors = predicted - measured
    # The mean square of differences, over all pairs, is twice the variance.
    error, spread = (float(np.std(x, ddof=1) * math.sqrt(2)) for x in (errors, measured))
    ranked = np.ptp(predicted) > 0 and np.ptp(measured) > 0
    correlation: Any = spearmanr(predicted, measured) if ranked else (math.nan,)
    return {
        "schedules": len(measured),
        "rmse": float(np.sqrt(np.mean(errors**2))),
        "rmse_of_differences": error,
        "spread": spread,
        "ratio": error / spread,
        "rank_correlation": float(correlation[0]),
    }


def _final(
    contenders: Sequence[Contender], statuses: Mapping[str, RunStatus]
) -> list[tuple[Contender, Mean]]:
    """One contender of each schedule and rate, and its final held-out loss over seeds."""
    seeds: dict[tuple[str, str, float], list[Contender]] = {}
    for contender in contenders:
        key = contender.name, contender.ending, contender.run.optimizer.lr
        seeds.setdefault(key, []).append(contender)
    return [
        (same[0], mean([statuses[c.run.id].losses["eval_loss"] for c in same]))
        for same in seeds.values()
    ]


def _interpolated(losses: dict[int, float], batch: float) -> float:
    """Of measured constants, linear in log batch; NaN outside the batches that were measured."""
    batches = sorted(losses)
    values = [losses[known] for known in batches]
    if len(batches) < 2:
        return math.nan
    return float(np.interp(math.log(batch), np.log(batches), values, math.nan, math.nan))
