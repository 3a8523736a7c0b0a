"""The functional law on pilots of a late-switch study, and the schedules it recommends.

Fitted to constants and two-stage pilots at constant rate, seeds averaged; then asked for the best
schedule and for the best switch point (Wang et al., arXiv 2602.14208, fit the regression law; the
form with batches is that of bss.laws.functional.fit).
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bss.errors import InputError
from bss.laws import CurveFit, fit_curve
from bss.laws.base import Options
from bss.laws.functional.forecast import check_identified, schedule_losses
from bss.laws.functional.problem import CLOCKS
from bss.policies.functional_best import FunctionalBest
from bss.policies.policy import Basis, Limits
from bss.schedules.batch import BatchSchedule
from bss.schedules.rates import Rate, constant, cosine, wsd
from bss.sweeps.table import run_table
from bss.theory.search import minimum
from bss.training.run_config import RunConfig
from experiments.late_switch.study import Study
from experiments.study import batch_unit, say

LAW = {"constant": "law", "decay": "law, for WSD", "cosine": "law, for cosine"}


def seed_means(runs: Path, chosen: Sequence[RunConfig]) -> pd.DataFrame:
    """A run table in which the curves of a schedule's seeds are one, their mean.

    Args:
        runs: directory of run directories.
        chosen: runs at constant rate; their seeds were evaluated at the same tokens.
    """
    names = {run.id: f"{run.schedule.batch} at {run.optimizer.lr:g}" for run in chosen}
    table = run_table(runs, chosen)
    return mean_curves(table.assign(run=table["run"].map(names.get)))


def mean_curves(table: pd.DataFrame) -> pd.DataFrame:
    """A run table in which the curves of one name in the column `run` are one, their mean."""
    same = dict.fromkeys(("step", "batch", "lr", "seq_len"), "first")
    means = dict.fromkeys(("loss", "eval_loss"), "mean")
    return table.groupby(["run", "tokens"], sort=False, as_index=False).agg(same | means)


def fit_pilots(study: Study, pilots: pd.DataFrame) -> list[CurveFit]:
    """The law with each clock, from each start of the study, on a run table of mean curves.

    What predicts the ends of left-out pilots best is first; empty where the pilots are refused.
    """
    fits: list[CurveFit] = []
    warmup, options = study.setup.schedule.warmup, Options(study.resamples)
    for start in (round(part * study.tokens) for part in study.starts):
        try:
            how = {"warmup": warmup, "since": start, "options": options}
            fits += [fit_curve(pilots, clock=clock, **how) for clock in CLOCKS]
        except InputError as error:
            say(f"no law of losses since {start:,} tokens: {error}")
    return sorted(fits, key=left_out)


def left_out(fit: CurveFit) -> float:
    """Error of log loss at the ends of left-out pilots; infinite where there were too few."""
    return math.inf if fit.cv_error is None else fit.cv_error


def chosen_fit(fits: Sequence[CurveFit]) -> CurveFit | None:
    """The first that can speak of batches and rates that change, else the first; says which."""
    for fit in fits:
        try:
            check_identified(fit, batch_changes=True)
        except InputError as error:
            say(f"the law since {fit.since:,} tokens, {fit.clock} clock: {error}")
            continue
        say(
            f"the law since {fit.since:,} tokens, {fit.clock} clock: rms error of log loss "
            f"{fit.rmse:.2g} over {fit.runs} mean curves, {left_out(fit):.2g} at the ends of "
            f"left-out ones; unidentified: {', '.join(fit.unidentified) or 'none'}"
        )
        return fit
    return fits[0] if fits else None


def law_schedules(study: Study, fit: CurveFit | None, base: RunConfig) -> dict[str, BatchSchedule]:
    """The schedules of the lowest predicted loss under each kind of rate, by their names in LAW.

    Over the tokens of the base run, at the shared rate; batches are whole numbers of buckets, from
    the smallest measured to the study's large one.
    """
    tokens, schedules = base.schedule.tokens, {}
    shapes = kinds_of_rate(study.shared_rate, tokens, base.schedule.warmup, study.decay)
    limits = Limits(multiple_of=batch_unit(study.setup), max_batch=study.large)
    for kind, shape in shapes.items():
        name = LAW[kind]
        try:
            if fit is None:
                raise InputError("there is no fit")
            basis = Basis(fit.seq_len, fit, rate=shape)
            schedule = FunctionalBest()(basis, tokens, limits)
        except InputError as error:
            say(f"{name}: no schedule; {error}")
            continue
        loss = float(schedule_losses(fit, schedule, tokens, shape)[0])
        say(f"{name}: {schedule}, predicted to end at {loss:.4f}")
        schedules[name] = schedule
    return schedules


def kinds_of_rate(peak: float, tokens: int, warmup: int, decay: float) -> dict[str, Rate]:
    """The rates of the study, by their names; the last part `decay` of one falls to zero."""
    return {
        "constant": replace(constant(peak, warmup), total=tokens),
        "decay": wsd(peak, tokens, warmup, round(decay * tokens)),
        "cosine": cosine(peak, tokens, warmup),
    }


def law_switch(study: Study, fit: CurveFit, tokens: int) -> tuple[float, float]:
    """Tokens after the best two-stage switch at constant rate by the law, and the predicted loss.

    Raises:
        InputError: the fit does not identify how noise is forgotten.
    """
    shape = Rate(study.shared_rate, tokens, study.setup.schedule.warmup)
    grid = np.linspace(math.log(2 * study.large * fit.seq_len), math.log(tokens), 33)

    def loss(log_after: float) -> float:
        at = tokens - round(math.exp(log_after))
        schedule = BatchSchedule.constant(study.large)
        if at > 0:
            schedule = BatchSchedule.late_switch(study.small, study.large, at)
        return float(schedule_losses(fit, schedule, tokens, shape)[0])

    place, value = minimum(loss, grid, np.array([loss(x) for x in grid]))
    return math.exp(place), value


def law_points(study: Study, fit: CurveFit | None) -> pd.DataFrame:
    """The best switch by the law at budgets its losses reach, and beyond; as `switch_points`."""
    rows: list[dict[str, Any]] = []
    budgets = [round(part * study.tokens) for part in (*study.budgets, *study.extrapolated)]
    try:
        if fit is None:
            raise InputError("there is no fit")
        for budget in (budget for budget in budgets if budget > fit.since):
            after, loss = law_switch(study, fit, budget)
            # At the bounds of the search it is no optimum.
            inside = 0.95 * budget > after > 3 * study.large * study.setup.text.seq_len
            point = {"after": after, "interior": inside, "loss": loss}
            rows.append({"budget": budget, "source": "law", **point})
    except InputError as error:
        say(f"the law gives no switch point: {error}")
    return pd.DataFrame(rows)
