"""Tables of a late-switch study: final losses, catch-up, switch points, predictions of the law.

Differences are paired by seed; errors are 2 standard errors over seeds (derived here).
Notebook: notebooks/fsl_bss.ipynb.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import spearmanr

from bss.errors import InputError
from bss.laws import CurveFit
from bss.laws.base import Estimate
from bss.laws.functional.forecast import schedule_losses
from bss.laws.power import fit_power
from bss.points.crossings import mean, parabola_minimum
from bss.schedules.batch import BatchSchedule
from bss.schedules.rates import Rate
from bss.stats import Comparison, compare
from bss.sweeps.contenders import contender_table
from bss.sweeps.results import Results
from bss.sweeps.table import run_table
from bss.sweeps.trainer import Trainer
from bss.theory.search import minimum
from experiments.late_switch.run import Study, TrainedRuns, costs, lr_shapes, train

REMAINDER = 0.01  # the last step of a large batch ends this fraction before its budget, or less
LEAST = 3  # schedules of a score
PREDICTORS = {
    "predicted": "the functional law",
    "mean_batch_constant": "constant, equal steps",
    "best_training": "best of the fitted",
}
GROUPS = {"constant": "constant rate", "decay": "WSD", "cosine": "cosine"}
Seeds = Mapping[int, pd.DataFrame]
"""Curves (tokens, step, eval_loss) of one schedule by seed."""


def experiment(study: Study) -> None:
    """Train the study and write its tables; print its price if it is a dry run."""
    if study.dry_run:
        study.print_hours(costs(study))
        return
    results = Results(study)
    with study.training() as (base, trainer):
        trained = train(study, base, trainer)
    results.write(
        tables(study, trained, trainer),
        trainer,
        question="When should the batch grow, and does a late switch win at equal tokens once "
        "rates are tuned and decayed?",
    )


def tables(study: Study, trained: TrainedRuns, trainer: Trainer) -> dict[str, Any]:
    """Return every table by file name."""
    annealed = [*trained.decays, *trained.cosines]
    compared = [*(c for c in trained.stable if study.is_whole(c)), *annealed]

    first = {c.run.id: c for c in [*trained.stable, *trained.continued, *annealed][::-1]}
    runs = run_table(trainer.runs, [contender.run for contender in first.values()])
    same = [first[run] for run in runs["run"]]
    runs = runs.assign(name=[c.name for c in same], ending=[c.ending for c in same])
    every = contender_table(compared, trainer.statuses)
    tuned, apart = final_losses(study, every)
    switched, whole = switches(study, runs, trained.lawful)
    points = pd.concat([switch_points(study, runs, switched), law_points(study, trained.fit)])
    final = predictions(study, every)
    predicted = with_law(study, trained.fit, final)
    return {
        "runs.parquet": runs,
        "every_rate.csv": every,
        "contenders.csv": tuned,
        "differences.csv": apart,
        "catch_up.csv": catch_up(study, runs, whole),
        "pilots.parquet": trained.pilots,
        "schedules.json": {name: str(schedule) for name, schedule in trained.lawful.items()},
        "fit.json": trained.fit.to_dict() if trained.fit else {},
        "predictions.csv": predicted,
        "scores.csv": scores(predicted, study.shared_rate),
        "switch_points.csv": points,
        "exponents.csv": pd.DataFrame(exponent(points, source) for source in ("measured", "law")),
    }


# Final losses


def final_losses(study: Study, every: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return final losses at the best LR, and differences at the best and at the shared LR."""
    compared = Comparison(every)
    names = [*every.loc[every["role"] != "constant", "name"].unique()]
    shared = every.loc[np.isclose(every["peak_lr"], study.shared_rate)]
    conditions = {"tuned": compared.tuned(), "shared": Comparison(shared)}
    apart = [differences(some, names).assign(rates=kind) for kind, some in conditions.items()]
    return conditions["tuned"].table, pd.concat(apart)


def differences(every: Comparison, names: Sequence[str]) -> pd.DataFrame:
    """Return final losses of these names minus those of every other compared run of an LR phase.

    Args:
        every: With one peak LR for each name and LR phase.
        names: Names of the first losses.

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


# Switches


def switches(
    study: Study, runs: pd.DataFrame, lawful: Mapping[str, BatchSchedule]
) -> tuple[dict[int, Seeds], dict[int, Seeds]]:
    """Return the curves of single switches from small to large by their token counts.

    Returns:
        All of them, and those that take all tokens.
    """
    schedules = {entry.name: study.schedule(entry) for entry in study.schedules} | {**lawful}
    shorter = {entry.name for entry in study.schedules if entry.until < 1}
    every: dict[int, Seeds] = {}
    whole: dict[int, Seeds] = {}
    for name, schedule in schedules.items():
        seeds = curves(study, runs, name)
        if seeds and schedule.batches == (study.small, study.large):
            at = schedule.starts[1]
            every[at] = seeds
            if name not in shorter:
                whole[at] = seeds
    return every, whole


def curves(study: Study, runs: pd.DataFrame, name: str) -> Seeds:
    """Return the curves of a name at constant, shared LR by seed; empty if it was not trained."""
    rows = runs.loc[(runs["name"] == name) & (runs["ending"] == "constant")]
    rows = rows.loc[np.isclose(rows["peak_lr"], study.shared_rate)]
    return {int(str(seed)): own for seed, own in rows.groupby("seed")}


def loss_at(curve: pd.DataFrame, at: Any, clock: str = "tokens") -> Any:
    """Return held-out losses, linear in log tokens or steps; NaN outside what was measured."""
    x, place = np.log(curve[clock].to_numpy(float)), np.log(at)
    within = np.interp(place, x, curve["eval_loss"].to_numpy(float), left=np.nan)
    return np.where(place > x[-1] + REMAINDER, np.nan, within)


def catch_up(study: Study, runs: pd.DataFrame, switched: Mapping[int, Seeds]) -> pd.DataFrame:
    """Return losses after each switch, minus those of the constants and of the earliest switch.

    Args:
        study: The study.
        runs: Run table with name and ending.
        switched: Curves by seed, by the tokens of the switch.

    Returns:
        switch, tokens, steps, after_tokens, loss; differences at equal tokens to_small, to_large,
        to_earliest, and at equal steps to_large_at_steps, with their errors; NaN where the other
        run has no loss. The first row of a switch is the last before it.
    """
    small, large = (curves(study, runs, f"constant {b}") for b in (study.small, study.large))
    continued = curves(study, runs, f"constant {study.large} continued") or large
    tables = []
    for at, seeds in sorted(switched.items()):
        first = next(iter(seeds.values()))
        before = max(int(np.searchsorted(first["tokens"], at, side="right")) - 1, 0)
        tokens, steps = (first[clock].to_numpy(int)[before:] for clock in ("tokens", "step"))
        losses = {seed: curve["eval_loss"].to_numpy()[before:] for seed, curve in seeds.items()}
        table = pd.DataFrame({"switch": at, "tokens": tokens, "steps": steps})
        table["after_tokens"] = tokens - at
        table["loss"] = np.mean([*losses.values()], axis=0)
        others = {
            "to_small": (small, tokens, "tokens"),
            "to_large": (large, tokens, "tokens"),
            "to_earliest": (switched[min(switched)], tokens, "tokens"),
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


def switch_points(study: Study, runs: pd.DataFrame, switched: Mapping[int, Seeds]) -> pd.DataFrame:
    """Return the best switch at each budget, of those measured, at constant LR.

    A switch at 0 is the large batch throughout, one at the budget is the small batch. One run with
    a switch serves every budget after it, because its LR does not depend on its stop. Budgets at
    which the small batch has no loss are left out.

    Returns:
        budget, source ("measured"), switches (number compared), best_measured (tokens before the
        switch of the lowest mean loss), after (tokens after the best switch, by a parabola in their
        logarithm through the best and its neighbours, mean of the seeds' logarithms), after_error
        (of the logarithm), interior (whether switches before and after were measured), loss,
        to_small (the best minus the small batch throughout) and its error.
    """
    small, large = (curves(study, runs, f"constant {b}") for b in (study.small, study.large))
    rows = []
    for budget in (round(part * study.tokens) for part in study.budgets):
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
    return pd.DataFrame(rows)


def _losses_at(switched: Mapping[int, Seeds], budget: int) -> pd.DataFrame:
    """Return losses at a budget by seed, one column per switch up to it that was measured there."""
    by_switch = {}
    for at, seeds in switched.items():
        losses = {seed: float(loss_at(curve, budget)) for seed, curve in seeds.items()}
        if at <= budget and losses and np.isfinite([*losses.values()]).all():
            by_switch[at] = losses
    return pd.DataFrame(by_switch)


def exponent(table: pd.DataFrame, source: str) -> dict[str, Any]:
    """Return the exponent of the tokens after the best switch in the budget; interior optima."""
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


def law_points(study: Study, fit: CurveFit | None) -> pd.DataFrame:
    """Return the best switch by the law at the study's budgets and beyond, as `switch_points`.

    Empty if the law does not resolve how noise is forgotten.
    """
    rows: list[dict[str, Any]] = []
    budgets = [round(part * study.tokens) for part in (*study.budgets, *study.extrapolated)]
    for budget in budgets if fit else ():
        assert fit is not None
        if budget <= fit.since:
            continue
        try:
            after, loss = law_switch(study, fit, budget)
        except InputError:
            break
        # At the bounds of the search it is no optimum.
        inside = 0.95 * budget > after > 3 * study.large * study.setup.text.seq_len
        point = {"after": after, "interior": inside, "loss": loss}
        rows.append({"budget": budget, "source": "law", **point})
    return pd.DataFrame(rows)


def law_switch(study: Study, fit: CurveFit, tokens: int) -> tuple[float, float]:
    """Return the tokens after the best two-stage switch at constant LR by the law, and its loss.

    Raises:
        InputError: If the fit does not resolve how noise is forgotten.
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


# Predictions


def predictions(study: Study, every: pd.DataFrame) -> pd.DataFrame:
    """Return final held-out losses of schedules that the law was not fitted to, with baselines.

    Args:
        study: The study.
        every: Final losses at every LR.

    Returns:
        name, ending, peak_lr, batch, tokens, measured (nats, mean over seeds), error, predicted
        (NaN here), mean_batch, mean_batch_constant (the constant of as many steps at the same LR,
        interpolated in log batch size; NaN beyond those measured), best_training (lowest final loss
        that the law was fitted to).
    """
    keys = ["name", "ending", "peak_lr"]
    table = every.loc[every["ending"] != "averaged"]
    losses = [mean(some["eval_loss"].tolist()) for _, some in table.groupby(keys, sort=False)]
    table = table.drop_duplicates(keys)[[*keys, "batch", "role"]]
    table = table.assign(measured=[m.value for m in losses], error=[m.error for m in losses])
    flat = table.loc[table["role"] == "constant"]
    fitted = (table["ending"] == "constant") & table["role"].isin(["constant", "late"])
    unseen = table.loc[(table["role"] != "constant") & ~fitted]
    rows = []
    for row in unseen.drop(columns="role").to_dict("records"):
        share = study.cosine if row["ending"] == "cosine" else 1.0
        tokens = round(share * study.tokens)
        size = BatchSchedule.parse(row["batch"], total=tokens).mean_batch(tokens)
        near = flat.loc[(flat["ending"] == row["ending"]) & (flat["peak_lr"] == row["peak_lr"])]
        at = {"tokens": tokens, "predicted": math.nan, "mean_batch": size}
        rows.append(row | at | {"mean_batch_constant": _interpolated(near, size)})
    columns = ["name", "ending", "peak_lr", "batch", "tokens", "measured", "error", "predicted"]
    columns += ["mean_batch", "mean_batch_constant"]
    found = pd.DataFrame(rows, columns=pd.Index(columns))
    return found.assign(best_training=table.loc[fitted, "measured"].min())


def _interpolated(constants: pd.DataFrame, batch: float) -> float:
    """Return the loss of a constant batch size, linear in its logarithm, or NaN beyond the ends."""
    known = constants.astype({"batch": int}).sort_values("batch")
    if len(known) < 2:
        return math.nan
    x = np.log(known["batch"].to_numpy(float))
    return float(np.interp(math.log(batch), x, known["measured"], math.nan, math.nan))


def with_law(study: Study, fit: CurveFit | None, table: pd.DataFrame) -> pd.DataFrame:
    """Return a table of `predictions` with the law's; NaN where it does not apply."""

    def loss(row: Any) -> float:
        shapes = lr_shapes(row.peak_lr, row.tokens, study.setup.schedule.warmup, study.decay)
        try:
            schedule = BatchSchedule.parse(row.batch, total=row.tokens)
            return (
                float(schedule_losses(fit, schedule, row.tokens, shapes[row.ending])[0])
                if fit
                else math.nan
            )
        except InputError:
            return math.nan

    return table.assign(predicted=[loss(row) for row in table.itertuples()])


def scores(table: pd.DataFrame, shared_rate: float) -> pd.DataFrame:
    """Return how well differences between unseen runs are predicted: all, at one LR, by LR phase.

    Predictors are compared on the runs that all of them apply to.

    Returns:
        group, predictor, schedules, rmse (of losses), rmse_of_differences and spread (root mean
        squares over pairs of schedules), ratio of the two (1 is no skill), rank_correlation
        (Spearman's).
    """
    # Runs that end earlier differ for another reason than their schedules.
    every = table.loc[table["tokens"] == table["tokens"].max()]
    groups = {"all": every, "one peak rate": every.loc[np.isclose(every["peak_lr"], shared_rate)]}
    groups |= {name: table.loc[table["ending"] == rate] for rate, name in GROUPS.items()}
    rows = []
    for group, some in groups.items():
        known = some[[*PREDICTORS]].dropna(axis="columns", how="all").dropna()
        measured = some.loc[known.index, "measured"].to_numpy(float)
        for name in known if len(known) >= LEAST else ():
            values = score(measured, known[name].to_numpy(float))
            rows.append({"group": group, "predictor": name, **values})
    return pd.DataFrame(rows)


def score(measured: np.ndarray, predicted: np.ndarray) -> dict[str, Any]:
    """Return one row of `scores`, for [N] losses in nats."""
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
