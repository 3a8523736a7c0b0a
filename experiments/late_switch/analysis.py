"""Tables and answers from the curves and final losses that `run.py` wrote; nothing is trained.

    python -m experiments.late_switch.analysis      # tables of every part, findings.csv

Differences are paired by seed. Losses are in nats per token, batch sizes in sequences. A part
without finals.csv was not trained, and its questions are "not tested".
"""

import argparse
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd

from bss.laws import CurveFit, fit_curve, predict_schedule
from bss.laws.base import Options
from bss.points.curve import smooth_curve
from bss.schedules.batch import BatchSchedule
from bss.schedules.rates import Rate, wsd
from bss.stats import Comparison, half_interval, paired
from experiments.findings import Measured, measurements, within, write_findings
from experiments.tables import Tables, add_directory

RESULTS = Path("results/late_switch")
TABLES = Tables(RESULTS)
QUESTIONS = Path(__file__).parent / "questions.toml"
PAPER = {"paper": "2602.14208", "command": "python -m experiments.late_switch.analysis"}
EQUIVALENCE = ("joins", "joins_other")

TRUNK, LARGE, LATE, EARLY = "constant 4", "constant 16", "x 4 at 70%", "x 4 at 30%"
GROWN, STAGES = "x 8 at 70%", "stages 4, 8, 12, 16"
LATER = {"x 2": ("x 2 at 30%", "constant 8 on", "x 2 at 10% on")}
LATER |= {"x 4": (EARLY, "constant 16 on", "x 4 at 10% on")}
TAIL = 0.2  # of the common steps, over which a gap is averaged
NEAREST = 5  # points of the parabola through the best switch
FEW = (TRUNK, "constant 8", LARGE, EARLY)
SHARES = (TRUNK, "x 8, last 2%", "x 8, last 15%", "x 8, last 50%")
PILOTS = {"b1": (*FEW[:3], "x 4"), "b1l": FEW, "b1m": FEW, "b3": SHARES}  # starts of fitted names
SINCE = (0.1, 0.25, 0.5)  # of the tokens: the law ignores losses before
WARMUP = 50_000


# Final losses


def differences(finals: pd.DataFrame) -> pd.DataFrame:
    """Return the final loss of each run minus other runs', per LR phase.

    Returns:
        Columns phase, name, batch, steps, loss and best (name of the best fixed batch size).
        Differences are to_best, to_trunk (the smallest fixed batch size) and to_early (a switch by
        4 at 30%). Their 95% half intervals end in `_half`.
    """
    compared, tables = Comparison(finals), []
    for phase, some in finals.groupby("ending", sort=False):
        losses = compared.losses(str(phase))
        best = compared.best(str(phase))
        first = some.drop_duplicates("name").set_index("name").loc[losses.index]
        table = pd.DataFrame({"phase": phase, "loss": losses.mean(axis=1), "best": best})
        table = table.join(first[["batch", "steps"]])
        for key, name in (("best", best), ("trunk", TRUNK), ("early", EARLY)):
            if name in losses.index:
                apart = losses.sub(losses.loc[name], axis=1)
                table[f"to_{key}"] = apart.mean(axis=1)
                table[f"to_{key}_half"] = half_interval(apart.to_numpy().T)
        tables.append(table.reset_index(names="name"))
    return pd.concat(tables, ignore_index=True)


def against(part: str, phase: str, name: str = LATE, other: str = "") -> np.ndarray:
    """Return losses [seed] of a name minus another's, or the best fixed batch size's."""
    compared = Comparison(TABLES.read(f"{part}/finals.csv"))
    losses = compared.losses(phase)
    return (losses.loc[name] - losses.loc[other or compared.best(phase)]).to_numpy(float)


def conditions(part: str) -> str:
    """Return what a part was trained on, from its config."""
    model = {"b1l": "99k parameters, LR 4e-3", "b1m": "8 experts, 2 active, 12k active, LR 8e-3"}
    tokens = TABLES.read(f"{part}/finals.csv")["tokens"].max()
    return f"{model.get(part, '12k parameters, LR 8e-3')}; {tokens / 1e6:.2g}M tokens"


def finals() -> dict[str, Measured]:
    """Return the numbers of the questions on final losses at 12k parameters."""
    told, table = conditions("b1"), "b1/finals.csv"
    numbers = {
        "late_early": against("b1", "constant", LATE, EARLY),
        "late_early_other": against("b1", "decay", LATE, EARLY),
        "late_constant": against("b1", "constant"),
        "averaged_other": against("b1", "averaged"),
        "decayed_other": against("b1", "decay"),
        "late_each": np.fmax(*(against("b1", "constant", LATE, name) for name in (TRUNK, LARGE))),
        "several": against("b1", "constant", STAGES, LATE),
    }
    losses = Comparison(TABLES.read("b1/finals.csv"))
    grown, trunk = losses.losses("constant").loc[GROWN], losses.losses("decay").loc[TRUNK]
    instead = (grown - trunk).to_numpy(float)
    return measurements(numbers, told, table) | {
        "growing": Measured(instead, told, table, replaced(instead, 0.005)),
        "law_predicts": law_predicts(),
    }


def replaced(values: np.ndarray, margin: float) -> str:
    """Return whether a growing batch replaces the decay: lower, or within the margin."""
    effect = paired(values)
    low, high = effect.low or 0.0, effect.high or 0.0
    if within(values, margin) or high < 0:
        return "supported"
    return "contradicted" if low > 0 else "inconclusive"


def cosines() -> dict[str, Measured]:
    """Return the numbers of the question on runs under a cosine."""
    numbers = {"cosine_other": against("b1c", "cosine")}
    return measurements(numbers, conditions("b1c"), "b1c/finals.csv")


def others(part: str, key: str) -> dict[str, Measured]:
    """Return the numbers of the questions on a late switch at another size or family."""
    predicted(part)
    numbers = {
        key: against(part, "constant"),
        f"{key}_early": against(part, "constant", LATE, EARLY),
        f"{key}_decayed_other": against(part, "decay"),
    }
    return measurements(numbers, conditions(part), f"{part}/finals.csv")


# Catch-up


def at_steps(curve: pd.DataFrame, steps: np.ndarray) -> np.ndarray:
    """Return held-out losses at steps, linear in log steps; NaN after the last."""
    x, y = np.log(curve["step"].to_numpy(float)), curve["eval_loss"].to_numpy(float)
    return np.interp(np.log(steps), x, y, right=np.nan)


def catch_up(runs: pd.DataFrame) -> pd.DataFrame:
    """Return each switched run's loss minus two other runs' at equal steps, per seed.

    Returns:
        Columns factor, seed, step, tokens, after (steps since the switch), share (of the common
        steps), to_large (a constant large batch) and to_early (a switch at 10%). The first row of a
        seed is the step of the switch, before it.
    """
    tables = []
    for factor, (name, large, early) in LATER.items():
        for seed, some in runs.groupby("seed"):
            by_name = {str(key): own.sort_values("step") for key, own in some.groupby("name")}
            switched, trunk = by_name[name], by_name[TRUNK]
            schedule = BatchSchedule.parse(str(switched["schedule.batch"].iloc[0]))
            seq_len = int(switched["seq_len"].iloc[0])
            at = -(-schedule.starts[1] // (schedule.batches[0] * seq_len))
            after = switched.loc[switched["step"] > at]
            steps = np.array([at, *after["step"]], float)
            losses = np.array([*at_steps(trunk, steps[:1]), *after["eval_loss"]])
            table = pd.DataFrame({"factor": factor, "seed": seed, "step": steps})
            table["tokens"] = [at * schedule.batches[0] * seq_len, *after["tokens"]]
            table["after"], table["share"] = steps - at, steps / steps[-1]
            table["to_large"] = losses - at_steps(by_name[large], steps)
            table["to_early"] = losses - at_steps(by_name[early], steps)
            tables.append(table)
    return pd.concat(tables, ignore_index=True)


def saved_tokens(runs: pd.DataFrame) -> pd.DataFrame:
    """Return log tokens to equal loss, a switched run minus its large batch alone, per seed.

    Returns:
        Columns factor, seed, log_tokens, reached; a large batch that does not reach the loss counts
        with its last tokens, so that log_tokens is an upper bound.
    """
    rows = []
    for factor, (name, large, _) in LATER.items():
        for seed, some in runs.groupby("seed"):
            own, other = (
                smooth_curve(some[some["name"] == key], "eval_loss") for key in (name, large)
            )
            last = own.loss[-1]
            at = np.interp(-last, -other.loss, other.log_tokens)  # losses fall
            row = {"factor": factor, "seed": seed, "log_tokens": own.log_tokens[-1] - at}
            rows.append(row | {"reached": bool(other.loss[-1] <= last)})
    return pd.DataFrame(rows)


def catching() -> dict[str, Measured]:
    """Return the numbers of the questions on catch-up, and write their tables."""
    runs = TABLES.read("b2/runs.parquet")
    table, saved = catch_up(runs), saved_tokens(runs)
    TABLES.write("b2/catch_up.csv", table)
    TABLES.write("b2/saved.csv", saved)
    four = table.loc[table["factor"] == "x 4"]
    late = four.loc[four["share"] >= 1 - TAIL].groupby("seed")
    ends = four.groupby("seed")["to_large"].agg(["first", "last"])
    numbers = {
        "gap": ends["last"] - ends["first"],
        "joins": late["to_large"].mean(),
        "joins_other": late["to_early"].mean(),
    }
    told = conditions("b1")
    logs = {"tokens_saved": saved.loc[saved["factor"] == "x 4", "log_tokens"]}
    return measurements(numbers, told, "b2/catch_up.csv") | measurements(logs, told, "b2/saved.csv")


# The best switch point


def best_switches(finals: pd.DataFrame, nearest: int = NEAREST) -> pd.DataFrame:
    """Return the tokens after the best switch of each budget and seed.

    The optimum is where a parabola in log tokens after the switch is lowest. The parabola is fitted
    by least squares to the grid points nearest the lowest mean loss, and its optimum is clipped to
    the grid. Losses are means of held-out and test loss.

    Returns:
        Columns budget, seed, after, inside (False if the optimum was clipped), loss (the lowest of
        the grid).
    """
    some = finals.loc[(finals["ending"] == "constant") & finals["name"].str.contains("last")]
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


def switch_points() -> dict[str, Measured]:
    """Return the numbers of the questions on the best switch point, and write its table."""
    finals = TABLES.read("b3/finals.csv")
    table = best_switches(finals)
    TABLES.write("b3/switch_points.csv", table)
    predicted("b3")
    others = {points: paired(exponents(best_switches(finals, points))) for points in (3, 4, 5, 6)}
    slopes = {points: (one.mean, one.low, one.high) for points, one in others.items()}
    slopes = pd.DataFrame(slopes, index=["exponent", "low", "high"]).T.rename_axis("points")
    TABLES.write("b3/exponents.csv", slopes.reset_index())
    after = np.log(table["after"] / (0.3 * table["budget"])).groupby(table["seed"]).mean()
    budgets = f"{table['budget'].min() / 1e6:.2g}M to {table['budget'].max() / 1e6:.2g}M tokens"
    numbers = {"switch_late": after, "switch_exponent": exponents(table) - 1}
    told = f"12k parameters, LR 8e-3; x 8; budgets of {budgets}"
    return measurements(numbers, told, "b3/switch_points.csv")


# The functional law


def seed_means(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the run table of mean curves over seeds, one per name."""
    first = dict.fromkeys(("step", "batch", "lr", "seq_len"), "first")
    grouped = runs.assign(run=runs["name"]).groupby(["run", "tokens"], sort=False, as_index=False)
    return grouped.agg(first | {"loss": "mean", "eval_loss": "mean"})


def rate_of(phase: str, lr: float, tokens: int) -> Rate:
    """Return the LR of a run at constant LR, or with its last fifth decayed to zero."""
    decayed = phase == "decay"
    return wsd(lr, tokens, WARMUP, tokens // 5) if decayed else Rate(lr, tokens, WARMUP)


def decayed_pilots(finals: pd.DataFrame, seq_len: int) -> pd.DataFrame:
    """Return the schedules of the decayed fixed batch sizes, with the last held-out loss alone."""
    tables = []
    some = finals.loc[(finals["ending"] == "decay") & (finals["role"] == "constant")]
    for name, own in some.groupby("name"):
        batch, total, lr = own.iloc[0][["batch", "tokens", "peak_lr"]]
        steps = np.arange(1, total // (int(batch) * seq_len) + 1)
        table = pd.DataFrame({"step": steps, "tokens": steps * int(batch) * seq_len})
        table = table.assign(run=f"{name} decayed", batch=int(batch), seq_len=seq_len)
        table["lr"] = rate_of("decay", lr, total)(table["tokens"].to_numpy())
        last = np.where(steps == steps[-1], own["eval_loss"].mean(), np.nan)
        tables.append(table.assign(loss=last, eval_loss=last))
    return pd.concat(tables, ignore_index=True) if tables else pd.DataFrame()


def fitted_law(pilots: pd.DataFrame, tokens: int) -> CurveFit:
    """Return the law whose ends of left-out pilots are best, over starts of the fitted losses."""
    fits = [
        fit_curve(pilots, warmup=WARMUP, since=round(since * tokens), options=Options(10))
        for since in SINCE
    ]
    return min(fits, key=lambda fit: np.inf if fit.cv_error is None else fit.cv_error)


def predictions(runs: pd.DataFrame, finals: pd.DataFrame, pilots: tuple[str, ...]) -> pd.DataFrame:
    """Return the last losses of schedules that the law was not fitted to, and its predictions.

    The law is fitted to the pilots at constant LR and to the ends of decayed fixed batch sizes.

    Args:
        runs: Curves at constant LR.
        finals: Final losses.
        pilots: Starts of the names that are fitted at constant LR.

    Returns:
        Columns phase, name, measured (mean over seeds), half (95% half interval), law with its 90%
        interval (low, high), and equal_steps. That is the loss at the fixed batch size of equal
        steps, interpolated in log batch size within the phase (NaN with one batch size). Errors are
        law_error and equal_steps_error; `clock` and `since` are settings of the law.
    """
    finals = finals.loc[finals["ending"].isin(["constant", "decay"])]
    curves = seed_means(runs.loc[runs["name"].str.startswith(pilots)])
    decays = decayed_pilots(finals, int(runs["seq_len"].iloc[0]))
    fit = fitted_law(pd.concat([curves, decays]), int(finals["tokens"].min()))
    rows = []
    for phase, some in finals.groupby("ending"):
        fixed = some.loc[some["role"] == "constant"].astype({"batch": int})
        fixed = fixed.groupby("batch")["eval_loss"].mean()
        seen = pilots if phase == "constant" else ("constant",)
        for name, own in some.loc[~some["name"].str.startswith(seen)].groupby("name"):
            one, tokens = own.iloc[0], int(own["tokens"].iloc[0])
            schedule = BatchSchedule.parse(str(one["batch"]))
            rate = rate_of(str(phase), one["peak_lr"], tokens)
            law = predict_schedule(fit, schedule, tokens, rate, extrapolate=True)
            mean_batch = np.log(schedule.mean_batch(tokens))
            equal = np.interp(mean_batch, np.log(fixed.index), fixed) if len(fixed) > 1 else np.nan
            row = {"phase": phase, "name": name, "measured": own["eval_loss"].mean()}
            row |= {"half": float(half_interval(own["eval_loss"].to_numpy(float)))}
            row |= {"law": law.value, "low": law.low, "high": law.high, "equal_steps": equal}
            rows.append(row)
    table = pd.DataFrame(rows)
    for key in ("law", "equal_steps"):
        table[f"{key}_error"] = table[key] - table["measured"]
    return table.assign(clock=fit.clock, since=fit.since)


def predicted(part: str) -> pd.DataFrame:
    """Return the predictions of a part, and write them."""
    runs, finals = (TABLES.read(f"{part}/{name}") for name in ("runs.parquet", "finals.csv"))
    table = predictions(runs, finals, PILOTS[part])
    TABLES.write(f"{part}/predictions.csv", table)
    return table


def law_predicts() -> Measured:
    """Return what the law's error is above that of equal steps, per schedule at constant LR."""
    table = predicted("b1").query("phase == 'constant'")
    apart = table["law_error"].abs() - table["equal_steps_error"].abs()
    told = f"{conditions('b1')}; {len(table)} schedules"
    return Measured(apart.to_numpy(float), told, "b1/predictions.csv")


PARTS: Mapping[str, Callable[[], dict[str, Measured]]] = {
    "b1": finals,
    "b1c": cosines,
    "b1m": partial(others, "b1m", "experts"),
    "b1l": partial(others, "b1l", "larger"),
    "b2": catching,
    "b3": switch_points,
}


def main(arguments: list[str] | None = None) -> None:
    """Write the tables of every part that was trained, and findings.csv."""
    global RESULTS, TABLES  # the parts of this file read and write them
    parser = argparse.ArgumentParser(description=__doc__)
    add_directory(parser, RESULTS)
    RESULTS = parser.parse_args(arguments).results
    TABLES = Tables(RESULTS)
    if "finals.csv" in TABLES:  # of one part
        TABLES.write("differences.csv", differences(TABLES.read("finals.csv")))
        return
    for part in {*PARTS} - {"b3"}:
        if f"{part}/finals.csv" in TABLES:
            finals = TABLES.read(f"{part}/finals.csv")
            TABLES.write(f"{part}/differences.csv", differences(finals))
    write_findings(TABLES, QUESTIONS, PARTS, equivalence=EQUIVALENCE, **PAPER)


if __name__ == "__main__":
    main()
