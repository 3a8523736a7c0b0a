"""The functional law on pilots of a late-switch study, and what it says of schedules not seen.

Fitted to constants and two-stage pilots at constant rate, seeds averaged; then asked for the best
schedule, for the best switch point, and for the final losses of the other schedules (Wang et al.,
arXiv 2602.14208, fit the regression law; the form with batches is that of bss.laws.loss_curve).
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd
from scipy.stats import spearmanr

from bss.errors import InputError
from bss.laws.fit import Options
from bss.laws.loss_curve import fit_curve
from bss.laws.loss_curve_schedule import best_schedule
from bss.laws.loss_curve_values import CurveFit, check_drive, predict
from bss.laws.measured import Mean, mean
from bss.schedules.batch import BatchSchedule
from bss.schedules.rates import Rate, constant, cosine, wsd
from bss.sweeps.index import run_table
from bss.theory.search import minimum
from bss.training.config import RunConfig
from bss.training.directory import read_status
from experiments.common import say
from experiments.es_curve import Contender

LEAST = 3
GROUPS = {"constant": "constant rate", "decay": "WSD", "cosine": "cosine"}
LAW = {"constant": "law", "decay": "law, for WSD", "cosine": "law, for cosine"}


def label(run: RunConfig) -> str:
    """What the runs of all seeds have in common."""
    return f"{run.schedule.batch} at {run.optimizer.lr:g}"


def seed_means(runs: Path, chosen: Sequence[RunConfig]) -> pd.DataFrame:
    """A run table in which the curves of a schedule's seeds are one, their mean.

    Args:
        runs: directory of run directories.
        chosen: runs at constant rate; their seeds were evaluated at the same tokens.
    """
    names = {run.id: label(run) for run in chosen}
    table = run_table(runs, chosen)
    table["run"] = [names[run] for run in table["run"]]
    rows = []
    for key, seeds in table.groupby(["run", "tokens"], sort=False):
        name, tokens = cast(tuple[str, int], key)
        same = {column: seeds[column].iloc[0] for column in ("step", "batch", "lr", "seq_len")}
        losses = {column: seeds[column].mean() for column in ("loss", "eval_loss")}
        rows.append({"run": name, "tokens": tokens, **same, **losses})
    return pd.DataFrame(rows)


def fit_pilots(pilots: pd.DataFrame, warmup: int, resamples: int) -> CurveFit | None:
    """The law, or None where the pilots are refused; says what it does not identify.

    Where the clock that predicts left-out runs best leaves the effect of a changing batch
    unidentified, that of SGD is taken, which holds it.
    """
    found = None
    for clock in (None, "sgd"):
        try:
            found = fit_curve(pilots, clock=clock, warmup=warmup, options=Options(resamples))
            say(
                f"the law, {found.clock} clock: {found.status}, rms error of log loss "
                f"{found.rmse:.2g} over {found.runs} mean curves; unidentified: "
                f"{', '.join(found.unidentified) or 'none'}"
            )
            check_drive(found, True, True)
        except InputError as error:
            say(f"the law cannot speak of batches that change: {error}")
            continue
        return found
    return found


def law_schedules(
    fit: CurveFit | None, base: RunConfig, rate: float, decay: float, bounds: tuple[int, int]
) -> dict[str, BatchSchedule]:
    """The schedules of the lowest predicted loss under each kind of rate, by their names in LAW.

    Args:
        fit: the law.
        base: its tokens are the budget.
        rate: peak learning rate.
        decay: last part of the tokens decayed to zero.
        bounds: smallest batch, of which all are multiples, and largest.
    """
    tokens, warmup = base.schedule.tokens, base.schedule.warmup
    shapes = {
        "constant": replace(constant(rate, warmup), total=tokens),
        "decay": wsd(rate, tokens, warmup, round(decay * tokens)),
        "cosine": cosine(rate, tokens, warmup),
    }
    found = {}
    for kind, shape in shapes.items():
        name = LAW[kind]
        try:
            if fit is None:
                raise InputError("there is no fit")
            best = best_schedule(
                fit, tokens, rate=shape, multiple_of=bounds[0], max_batch=bounds[1]
            )
        except InputError as error:
            say(f"{name}: no schedule; {error}")
            continue
        say(f"{name}: {best.schedule}, predicted to end at {best.predicted_loss:.4f}")
        found[name] = best.schedule
    return found


def law_switch(
    fit: CurveFit, tokens: int, rate: float, warmup: int, first: int, last: int
) -> tuple[float, float]:
    """The best two-stage switch at constant rate by the law.

    Returns:
        Tokens after the switch, and the predicted loss.

    Raises:
        InputError: the fit does not identify how noise is forgotten.
    """
    shape = Rate(rate, tokens, warmup)
    least = 2 * last * fit.seq_len
    grid = np.linspace(math.log(least), math.log(tokens), 33)

    def loss(log_after: float) -> float:
        at = tokens - round(math.exp(log_after))
        schedule = BatchSchedule.late_switch(first, last, at) if at > 0 else None
        return float(predict(fit, schedule or BatchSchedule.constant(last), tokens, shape)[0])

    place, value = minimum(loss, grid, np.array([loss(x) for x in grid]))
    return math.exp(place), value


def predictions(
    fit: CurveFit | None,
    training: Sequence[Contender],
    unseen: Sequence[Contender],
    constants: Sequence[Contender],
    runs: Path,
) -> pd.DataFrame:
    """Final held-out losses of schedules the fit has not seen, with two baselines.

    Args:
        fit: the law.
        training: what it was fitted to.
        unseen: everything else whose batch changes.
        constants: under any rate, for the first baseline.
        runs: directory of run directories.

    Returns:
        Columns name, rate, peak_lr, batch, tokens, measured (mean over seeds) and error (2 standard
        errors), predicted (NaN where the law cannot speak), mean_batch, mean_batch_constant (the
        constant of as many steps at the same rate, interpolated in log batch) and best_training
        (the lowest final loss that the fit has seen). Losses in nats.
    """
    seen = min(loss.value for _, loss in _final(training, runs))
    flat: dict[tuple[str, float], dict[int, float]] = {}
    for contender, loss in _final(constants, runs):
        run = contender.run
        key = contender.rate, run.optimizer.lr
        flat.setdefault(key, {})[int(run.schedule.batch)] = loss.value
    rows = []
    for contender, loss in _final(unseen, runs):
        run = contender.run
        tokens = run.schedule.tokens
        schedule = BatchSchedule.parse(run.schedule.batch, total=tokens)
        losses = flat.get((contender.rate, run.optimizer.lr), {})
        size = schedule.mean_batch(tokens)
        rows.append(
            {
                "name": contender.name,
                "rate": contender.rate,
                "peak_lr": run.optimizer.lr,
                "batch": run.schedule.batch,
                "tokens": tokens,
                "measured": loss.value,
                "error": loss.error,
                "predicted": _predicted(fit, run, schedule),
                "mean_batch": size,
                "mean_batch_constant": _interpolated(losses, size),
                "best_training": seen,
            }
        )
    return pd.DataFrame(rows)


def scores(table: pd.DataFrame) -> pd.DataFrame:
    """How well differences between unseen schedules are predicted, by rate and at equal tokens.

    Args:
        table: of `predictions`.

    Returns:
        Columns group, predictor, schedules, rmse (of losses), rmse_of_differences and spread (root
        mean squares over pairs of schedules), ratio of the two (0.5 or less is asked of the law;
        1 is no skill), rank_correlation (Spearman's).
    """
    # Runs that end earlier differ for another reason than their schedules.
    groups = {"all": table.loc[table["tokens"] == table["tokens"].max()]}
    groups |= {name: table.loc[table["rate"] == rate] for rate, name in GROUPS.items()}
    rows = []
    for group, some in groups.items():
        for predictor in ("predicted", "mean_batch_constant", "best_training"):
            measured, said = (some[c].to_numpy(float) for c in ("measured", predictor))
            known = np.isfinite(said)
            if known.sum() >= LEAST:
                found = score(measured[known], said[known])
                rows.append({"group": group, "predictor": predictor, **found})
    return pd.DataFrame(rows)


def score(measured: np.ndarray, predicted: np.ndarray) -> dict[str, Any]:
    """One row of `scores`, for [N] losses in nats."""
    pairs = list(itertools.combinations(range(len(measured)), 2))
    apart = np.array([measured[i] - measured[j] for i, j in pairs])
    said = np.array([predicted[i] - predicted[j] for i, j in pairs])
    error, spread = (float(np.sqrt(np.mean(x**2))) for x in (said - apart, apart))
    ranked = np.ptp(predicted) > 0 and np.ptp(measured) > 0
    correlation: Any = spearmanr(predicted, measured) if ranked else (math.nan,)
    return {
        "schedules": len(measured),
        "rmse": float(np.sqrt(np.mean((predicted - measured) ** 2))),
        "rmse_of_differences": error,
        "spread": spread,
        "ratio": error / spread,
        "rank_correlation": float(correlation[0]),
    }


def _final(contenders: Sequence[Contender], runs: Path) -> list[tuple[Contender, Mean]]:
    """One contender of each schedule and rate, and its final held-out loss over seeds."""
    seeds: dict[tuple[str, str, float], list[Contender]] = {}
    for contender in contenders:
        key = contender.name, contender.rate, contender.run.optimizer.lr
        seeds.setdefault(key, []).append(contender)
    return [
        (same[0], mean([read_status(runs / other.run.id)["eval_loss"] for other in same]))
        for same in seeds.values()
    ]


def _predicted(fit: CurveFit | None, run: RunConfig, schedule: BatchSchedule) -> float:
    rate = run.plan().rate
    try:
        if fit is None or rate is None:
            return math.nan
        return float(predict(fit, schedule, run.schedule.tokens, rate)[0])
    except InputError:
        return math.nan


def _interpolated(losses: dict[int, float], batch: float) -> float:
    """Of measured constants, linear in log batch; NaN where fewer than two were measured."""
    if len(losses) < 2:
        return math.nan
    batches = sorted(losses)
    return float(np.interp(math.log(batch), np.log(batches), [losses[b] for b in batches]))
