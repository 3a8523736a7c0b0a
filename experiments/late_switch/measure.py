"""The tables of a late-switch study, from what it trained: catch-up, switch points, final losses.

All differences are paired by seed: runs of one seed share initialisation and data order. Errors
are 2 standard errors over seeds (derived here).
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bss.errors import InputError
from bss.laws.base import Estimate
from bss.laws.power import fit_power
from bss.points.crossings import mean, parabola_minimum
from bss.schedules.batch import BatchSchedule
from bss.stats import Comparison, compare
from bss.sweeps.contenders import Contender, contender_table
from bss.sweeps.table import lineage_curve, run_table
from bss.sweeps.trainer import Trainer
from experiments.late_switch.law import law_points
from experiments.late_switch.predictions import candidates, predicted, predictions, scores
from experiments.late_switch.runs import TrainedRuns, is_whole
from experiments.late_switch.study import Study

REMAINDER = 0.01  # the last step of a large batch ends this much before its budget, or less
POINTS = (
    *("budget", "source", "switches", "best_measured", "after", "after_error", "interior"),
    *("loss", "to_small", "to_small_error"),
)
Curve = dict[str, np.ndarray]
"""Tokens, steps and held-out losses of one run, its parents' included."""
Seeds = Mapping[int, Curve]
"""The curves of one schedule by seed."""


def tables(study: Study, trained: TrainedRuns, trainer: Trainer) -> dict[str, Any]:
    """Every table by file name."""
    annealed = [*trained.decays, *trained.cosines]
    ended = [*(c for c in trained.stable if is_whole(study, c)), *annealed]
    every = [*trained.stable, *trained.continued, *annealed]
    caught, points = switch_tables(study, trained, trainer.runs)
    flat = [c for c in ended if c.role == "constant"]
    grown = [c for c in ended if c.role != "constant"]
    unseen = [c for c in grown if (c.role, c.ending) != ("late", "constant")]
    final = predictions(trained.pilots, unseen, flat, trainer.statuses)
    tried = [(one, predicted(study, one, final)) for one in trained.fits]
    foretold = predicted(study, trained.fit, final)
    points = pd.concat([points, law_points(study, trained.fit)])
    return {
        "runs.parquet": named_runs(every, trainer.runs),
        **final_tables(study, ended, trainer),
        "catch_up.csv": caught,
        "pilots.parquet": trained.means,
        "schedules.json": {name: str(schedule) for name, schedule in trained.lawful.items()},
        "fit.json": trained.fit.to_dict() if trained.fit else {},
        "candidates.csv": candidates(tried, trained.fit, study.shared_rate),
        "predictions.csv": foretold,
        "scores.csv": scores(foretold, study.shared_rate),
        "switch_points.csv": points,
        "exponents.csv": pd.DataFrame(exponent(points, source) for source in ("measured", "law")),
    }


def named_runs(contenders: Sequence[Contender], runs: Path) -> pd.DataFrame:
    """The run table of all contenders with their names and kinds of rate, equal runs once."""
    first = {contender.run.id: contender for contender in reversed(contenders)}
    table = run_table(runs, [contender.run for contender in first.values()])
    same = [first[run] for run in table["run"]]
    return table.assign(name=[c.name for c in same], ending=[c.ending for c in same])


def final_tables(
    study: Study, ended: Sequence[Contender], trainer: Trainer
) -> dict[str, pd.DataFrame]:
    """Losses at equal tokens at every rate, at the best, and their differences."""
    every = Comparison(contender_table(ended, trainer.statuses))
    names = list(dict.fromkeys(c.name for c in ended if c.role != "constant"))
    shared = np.isclose(every.table["peak_lr"], study.shared_rate)
    conditions = {"tuned": every.tuned(), "shared": Comparison(every.table.loc[shared])}
    apart = [differences(some, names).assign(rates=kind) for kind, some in conditions.items()]
    return {
        "every_rate.csv": every.table,
        "contenders.csv": conditions["tuned"].table,
        "differences.csv": pd.concat(apart),
    }


def differences(every: Comparison, names: Sequence[str]) -> pd.DataFrame:
    """Return final losses of these names minus those of every other compared run of an LR phase.

    Args:
        every: With one peak LR for each name and LR phase.
        names: Whose losses come first.

    Returns:
        Columns ending, name, peak_lr, against, against_lr, difference (nats), error (2 standard
        errors), seeds, p_adjusted (paired t, Holm within the LR phase).
    """
    rows = []
    for phase, some in every.table.groupby("ending", sort=False):
        lr = dict(zip(some["name"], some["peak_lr"], strict=True))
        pairs = [(a, b) for a, b in itertools.product(names, lr) if a in lr and a != b]
        for (a, b), one in compare(every.losses(str(phase)), pairs).items():
            error = math.nan if one.se is None else 2 * one.se
            if one.n:
                rows.append((phase, a, lr[a], b, lr[b], one.mean, error, one.n, one.p_adjusted))
    columns = ["ending", "name", "peak_lr", "against", "against_lr"]
    columns += ["difference", "error", "seeds", "p_adjusted"]
    return pd.DataFrame(rows, columns=pd.Index(columns))


def switch_tables(
    study: Study, trained: TrainedRuns, runs: Path
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Catch-up after each switch, and the best switch of each budget."""
    rate, ends = study.shared_rate, (study.small, study.large)
    stable = curves(runs, trained.stable, rate)
    whole = curves(runs, [c for c in trained.stable if is_whole(study, c)], rate)
    small, large = (stable.get(BatchSchedule.constant(batch), {}) for batch in ends)
    switched, to_the_end = (
        {at.starts[1]: seeds for at, seeds in some.items() if at.batches == ends}
        for some in (stable, whole)
    )
    budgets = [round(part * study.tokens) for part in study.budgets]
    continued = next(iter(curves(runs, trained.continued, rate).values()), large)
    caught = catch_up(to_the_end, small, large, continued)
    return caught, switch_points(switched, small, large, budgets)


def curves(
    runs: Path, contenders: Sequence[Contender], rate: float
) -> dict[BatchSchedule, dict[int, Curve]]:
    """The curves of contenders at one peak rate, by schedule and seed."""
    by_schedule: dict[BatchSchedule, dict[int, Curve]] = {}
    for run in (c.run for c in contenders if np.isclose(c.run.optimizer.lr, rate)):
        rows = pd.DataFrame(lineage_curve(runs, run))
        curve = {name: rows[name].to_numpy(float) for name in ("tokens", "step", "eval_loss")}
        by_schedule.setdefault(run.schedule.batch, {})[run.seed] = curve
    return by_schedule


def loss_at(curve: Curve, at: Any, clock: str = "tokens") -> Any:
    """Held-out losses, linear in log tokens or steps; NaN outside what was measured."""
    x, place = np.log(curve[clock]), np.log(at)
    within = np.interp(place, x, curve["eval_loss"], left=np.nan)
    return np.where(place > x[-1] + REMAINDER, np.nan, within)


def catch_up(
    switched: Mapping[int, Seeds], small: Seeds, large: Seeds, continued: Seeds
) -> pd.DataFrame:
    """Losses after each switch, beside the constants' and the earliest switch's.

    Args:
        switched: curves by seed, by the tokens of the switch.
        small: the constant small batch.
        large: the constant large batch.
        continued: the large batch over more tokens, so that it takes as many steps.

    Returns:
        switch, tokens, steps, after_tokens, loss; its differences at equal tokens to_small,
        to_large, to_earliest, and at equal steps to_large_at_steps, with their errors; NaN where
        the other run has not been. The first row of a switch is the last before it.
    """
    earliest = switched[min(switched)]
    tables = []
    for at, seeds in sorted(switched.items()):
        first = next(iter(seeds.values()))
        before = max(int(np.searchsorted(first["tokens"], at, side="right")) - 1, 0)
        tokens, steps = (first[clock][before:].astype(int) for clock in ("tokens", "step"))
        losses = {seed: curve["eval_loss"][before:] for seed, curve in seeds.items()}
        table = pd.DataFrame({"switch": at, "tokens": tokens, "steps": steps})
        table["after_tokens"] = tokens - at
        table["loss"] = np.mean([*losses.values()], axis=0)
        others = {
            "to_small": (small, tokens, "tokens"),
            "to_large": (large, tokens, "tokens"),
            "to_earliest": (earliest, tokens, "tokens"),
            "to_large_at_steps": (continued, steps, "step"),
        }
        for name, (other, places, clock) in others.items():
            shared = [seed for seed in losses if seed in other]
            gaps = [losses[seed] - loss_at(other[seed], places, clock) for seed in shared]
            means = [mean(row.tolist()) for row in np.reshape(gaps, (len(gaps), len(tokens))).T]
            table[name] = [gap.value for gap in means]
            table[f"{name}_error"] = [gap.error for gap in means]
        tables.append(table)
    return pd.concat(tables, ignore_index=True)


def switch_points(
    switched: Mapping[int, Seeds], small: Seeds, large: Seeds, budgets: Sequence[int]
) -> pd.DataFrame:
    """The best switch at each budget, of those measured, at constant rate.

    A switch at 0 is the large batch throughout, one at the budget is the small batch. One run with
    a switch serves every budget behind it, because its rate does not depend on its stop. Curves are
    as in `catch_up`; budgets, in tokens, at which the small batch has no loss are left out.

    Returns:
        budget, source ("measured"), switches (how many were compared), best_measured (tokens before
        the switch of the lowest mean loss), after (tokens after the best switch, by a parabola in
        their logarithm through the best and its neighbours, mean of the seeds' logarithms),
        after_error (of the logarithm), interior (whether switches before and after were measured),
        loss, to_small (the best less the small batch throughout) and its error.
    """
    rows = []
    for budget in budgets:
        losses = _losses_at({0: large, **switched, budget: small}, budget)
        if budget not in losses:
            continue  # before the first evaluation, or the small batch diverged
        means = losses.mean()
        best = losses.columns[int(np.argmin(means))]
        order = sorted(at for at in losses if at < budget)
        interior = best in order[1:-1]
        after = np.array([budget - at for at in order[::-1]])
        complete = losses.dropna(subset=[*order, best])[order[::-1]].to_numpy()
        log_after = mean([parabola_minimum(np.log(after), seed) for seed in complete])
        gained = mean((losses[best] - losses[budget]).dropna().tolist())
        rows.append(
            {
                "budget": budget,
                "source": "measured",
                "switches": len(means),
                "best_measured": best,
                "after": float(np.exp(log_after.value)) if interior else float(budget - best),
                "after_error": log_after.error,
                "interior": interior,
                "loss": means[best],
                "to_small": gained.value,
                "to_small_error": gained.error,
            }
        )
    return pd.DataFrame(rows, columns=[*POINTS])


def exponent(table: pd.DataFrame, source: str) -> dict[str, Any]:
    """The exponent of the tokens after the best switch in the budget, over interior optima."""
    some = table.loc[(table["source"] == source) & table["interior"].astype(bool)]
    budgets, after, errors = some[["budget", "after", "after_error"]].to_numpy(float).T
    known = errors / 2 if len(errors) and np.isfinite(errors).all() else None
    try:
        law = fit_power(after, {"budget": budgets}, errors=known, level=0.90)
        power = law.exponents[0]
    except InputError as error:
        power = Estimate(None, note=str(error))
    ends = {"low": power.low, "high": power.high, "level": power.level}
    about = {"budgets": len(some), "note": power.note}
    return {"source": source, "exponent": power.value, **ends, **about}


def _losses_at(curves_of: Mapping[int, Seeds], budget: int) -> pd.DataFrame:
    """Losses at a budget by seed, a column for each switch up to it that was measured there."""
    by_switch = {}
    for at, seeds in curves_of.items():
        losses = {seed: float(loss_at(curve, budget)) for seed, curve in seeds.items()}
        if at <= budget and losses and np.isfinite(list(losses.values())).all():
            by_switch[at] = losses
    return pd.DataFrame(by_switch)
