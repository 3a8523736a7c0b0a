"""Tables and answers from the curves and final losses that `run.py` wrote; nothing is trained.

    python -m experiments.es_wsd.analysis                  # results/es_wsd/*/*.csv, findings.csv
    python -m experiments.es_wsd.analysis --answers        # findings.csv from the tables, no fits
    python -m experiments.es_wsd.analysis --schedules      # after a1: what a3 to a5 train
    python -m experiments.es_wsd.analysis DIR              # the same of another results directory
    python -m experiments.es_wsd.analysis --part FOLDER    # E(S) of one part, e.g. of size smoke

E is tokens to a target loss, in tokens; batch sizes are in sequences. For a run that misses a
target the tokens it consumed are a bound (`bss.stats.Numbers`).
"""

import argparse
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import bss
from bss.files import write_json
from bss.points.curve import Smooth, smooth_curve
from bss.schedules.batch import BatchSchedule
from bss.stats import (
    LR_PHASES,
    Comparison,
    Effect,
    Numbers,
    effect_of,
    half_interval,
    least,
    mean_of,
    phases_of,
)
from experiments.conditions import Conditions, conditions_of
from experiments.es_wsd import conditions
from experiments.es_wsd.measuring import PHASES, at_target, log_tokens, measured_points
from experiments.findings import Measured, measurements, write_findings
from experiments.tables import Tables, add_directory, show_warnings

RESULTS = Path("results/es_wsd")
TABLES = Tables(RESULTS)
QUESTIONS = Path(__file__).parent / "questions.toml"
PAPER = {"paper": "2601.05034", "command": "python -m experiments.es_wsd.analysis"}

TARGETS = (2.40, 2.30, 2.20, 2.15, 2.10, 2.05, 2.02)
LARGE_TARGETS = (2.06, 1.96, 1.88, 1.84, 1.81)  # at 99k parameters
SMOKE_TARGETS = 3
EXCESS = (0.30, 0.20, 0.12, 0.08, 0.05)  # nats above the best batch's last loss, at every size
DECIDED = {"constant": "constant", "averaged": "averaged", "decayed": "decayed"}  # LR phases
RAMP = "B_opt ramp"
LATE = "late switch"
FIXED = "constant"
DEVICES = (1, 4, 16, 64)  # of a data-parallel machine, one sequence each
ALLOWED = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64)


# Fits and optima


def fitted(
    points: pd.DataFrame, resamples: int = 200, law: str | None = None, where: str = "fit"
) -> bss.EsFit:
    """Return the fit of E(S) to points, by default of the law that cross-validation selects."""
    fit = bss.fit_es(points, law=law, options=bss.Options(resamples))
    show_warnings(where, fit.warnings)
    return fit


def optima(points: pd.DataFrame) -> pd.DataFrame:
    """Return B_opt of every target, of all seeds (seed -1) and of each seed.

    Returns:
        Columns seed, target_loss, B_opt, low, high (90%), status. If B_opt is at the smallest or
        largest batch size, `high` or `low` has the bound.
    """
    rows = []
    for seed, some in [(-1, points), *points.groupby("seed")]:
        where = "fit" if seed == -1 else f"fit of seed {seed}"
        for at in fitted(some.reset_index(drop=True), where=where).fits:
            best = at.measured
            row = {"seed": seed, "target_loss": at.target_loss, "B_opt": best.value}
            rows.append(row | {"low": best.low, "high": best.high, "status": best.status})
    return pd.DataFrame(rows)


def smallest_slopes(points: pd.DataFrame) -> pd.DataFrame:
    """Return B_min of every target and seed: the slope of E(S) between its two smallest batches.

    Columns seed, target_loss, B_min, smallest (batch size that reached the target).
    """
    rows = []
    for (seed, target), some in points.loc[points["reached"]].groupby(["seed", "target_loss"]):
        two = some.sort_values("batch").head(2)
        if len(two) < 2:
            continue
        E = two["tokens_to_target"].to_numpy(float) / two["seq_len"].to_numpy(float)
        S = two["steps"].to_numpy(float)
        slope = (E[0] - E[1]) / (S[0] - S[1])
        row = {"seed": seed, "target_loss": target, "smallest": two["batch"].iloc[0]}
        rows.append(row | {"B_min": slope if slope > 0 else np.nan})
    return pd.DataFrame(rows)


def law_errors(points: pd.DataFrame) -> pd.DataFrame:
    """Return the rms error of log E at left-out batch sizes, per law and seed."""
    tables = []
    for seed, some in points.groupby("seed"):
        comparison = fitted(
            some.reset_index(drop=True), 10, where=f"laws of seed {seed}"
        ).comparison
        if comparison is not None:
            table = pd.DataFrame(comparison.table)
            tables.append(table[["law", "interior_log_E", "edge_log_E"]].assign(seed=seed))
    return pd.concat(tables, ignore_index=True)


def horizons(finals: pd.DataFrame) -> pd.DataFrame:
    """Return the decayed test loss of each batch size above the best one, per token budget."""
    tables = []
    decays = finals.loc[finals["lr_phase"] == "decayed"]
    share = (decays["tokens"] / decays["tokens"].max()).round(2)  # whole steps end a run earlier
    for _, some in decays.groupby(share):
        wide = some.pivot_table(index="seed", columns="batch", values="test_loss")
        best = some.groupby("batch")["eval_loss"].mean().idxmin()
        apart = wide.sub(wide[best], axis=0)
        table = pd.DataFrame({"tokens": some["tokens"].max(), "excess": apart.mean()})
        table["half_interval_95"] = half_interval(apart.to_numpy(float))
        tables.append(table.assign(best=table.index == best).reset_index(names="batch"))
    table = pd.concat(tables).astype({"batch": int})
    return table.sort_values(["tokens", "batch"], ignore_index=True)


# The schedule


def schedules() -> dict[str, dict[str, Any]]:
    """Return the schedules of a3, a4 and a5: B_opt of a1 along the tokens, and the compared runs.

    a3r has the ramp of a1r in up to 12 stages. Its fixed batch sizes are B_opt at the end of the
    run and the neighbouring batch sizes of a1r.

    a3 has the ramp in four stages. Its fixed batch sizes are B_opt at the end of the run, half and
    twice this size. Its late switch multiplies B_opt by 8 at 70% of the tokens. a4 has the ramp and
    one fixed batch size.
    """
    points = measured_points(TABLES.read("stages/runs.parquet"), TARGETS)
    long = _ramps(points, tokens=3_000_000, seq_len=64)
    short = _ramps(points, tokens=1_000_000, seq_len=16)
    last = long["fine"](2_999_999)
    at = 2_100_000
    first = long["fine"](at)
    late = BatchSchedule.late_switch(first, 8 * first, at)
    constants = sorted({max(1, last // 2), last, 2 * last, 4 * last})[:3]
    repeated = measured_points(TABLES.read("repeat/runs.parquet"), TARGETS)
    fine = _ramps(repeated, 1_500_000, 16)["fine"]
    trained = sorted(repeated["batch"].unique().tolist())
    end = trained.index(fine(1_499_999))
    return {
        "a3r": {"ramp": str(fine), "constants": trained[end - 1 : end + 2]},
        "a3": {"ramp": str(long["ramp"]), "late": str(late), "constants": constants},
        "a4": {"ramp": str(short["ramp"]), "constants": [short["fine"](999_999)]},
    }


def _ramps(points: pd.DataFrame, tokens: int, seq_len: int) -> dict[str, BatchSchedule]:
    """Return B_opt along the tokens in 4 and in 12 stages, in sequences of `seq_len` tokens."""
    scale = seq_len / points["seq_len"].iloc[0]
    points = points.assign(batch=points["batch"] / scale, seq_len=seq_len)
    fit = fitted(points)
    return {
        name: bss.derive_schedule(fit, points, tokens, bss.Limits(count, allowed=ALLOWED)).schedule
        for name, count in (("ramp", 4), ("fine", 12))
    }


# Answers


def repeat() -> dict[str, Measured]:
    """Return the numbers of the questions on E(S) at 12k parameters."""
    known = _conditions("repeat")
    found = _answers("repeat", known, (2.10, 1, 8, 64), (2.05, 2.40), (2.02, 2.05))
    points = _points("repeat")
    slopes = TABLES.read("repeat/smallest_slopes.csv")
    high = log_tokens(points, 2.40)
    low = log_tokens(points, 2.05)
    crossing = {"crossing": least(high[32] - high[2], low[2] - low[32])}
    rises = {"minimum_rises": slope_at(slopes, 2.10) - slope_at(slopes, 2.30)}
    found |= measurements(crossing, known, "repeat/points.csv")
    return found | measurements(rises, known, "repeat/smallest_slopes.csv")


def _conditions(part: str, phase: str = "constant", more: str = "") -> Conditions:
    """Return the conditions of the runs of a part, from its run table and its config."""
    tables = Tables(TABLES.folder / part)
    return conditions_of(tables.read("runs.parquet"), tables.config, phase, more)


def measure_part(tables: Tables) -> None:
    """Write the tables of E(S) of one part, at targets that its own runs reach.

    Laws are not compared: the size smoke has too few batch sizes to leave one out.
    """
    runs = tables.read("runs.parquet")
    targets = bss.default_targets(runs, SMOKE_TARGETS)
    every = {phase: measured_points(runs, targets, name) for phase, name in PHASES.items()}
    tables.write("points.csv", in_phases(every))
    for phase, of in every.items():
        tables.write(f"optima_{phase}.csv", optima(of).assign(**LR_PHASES[phase].columns))
    tables.write("smallest_slopes.csv", smallest_slopes(every["constant"]))
    tables.write("horizons.csv", horizons(tables.read("finals.csv")))


def in_phases(every: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Return the points of several LR phases as one table."""
    return pd.concat([of.assign(**LR_PHASES[phase].columns) for phase, of in every.items()])


def large() -> dict[str, Measured]:
    """Return the numbers of the questions on E(S) at 99k parameters."""
    known = _conditions("large", more="muP")
    found = _answers("large", known, (1.88, 2, 16, 128), (1.84, 2.06), (1.84, 1.88))
    return {f"{key}_99k": number for key, number in found.items()}


def measure(part: str, targets: Sequence[float]) -> None:
    """Write the points, optima and errors of laws of a part."""
    runs = TABLES.read(f"{part}/runs.parquet")
    every = {phase: measured_points(runs, targets, name) for phase, name in PHASES.items()}
    TABLES.write(f"{part}/points.csv", in_phases(every))
    for phase, of in every.items():
        columns = LR_PHASES[phase].columns
        TABLES.write(f"{part}/optima_{phase}.csv", optima(of).assign(**columns))
    TABLES.write(f"{part}/laws.csv", law_errors(every["constant"]))


def measure_repeat() -> None:
    """Write the tables of E(S) at 12k parameters."""
    TABLES.write("stages/horizons.csv", horizons(TABLES.read("stages/finals.csv")))
    measure("repeat", TARGETS)
    TABLES.write("repeat/smallest_slopes.csv", smallest_slopes(_points("repeat")))


def _points(part: str) -> pd.DataFrame:
    """Return the points of a part at a constant LR."""
    return TABLES.read(f"{part}/points.csv").query("weights == 'last'")


def _answers(
    part: str,
    known: Conditions,
    inside: tuple[float, int, int, int],
    rise: tuple[float, float],
    lowest: Sequence[float],
) -> dict[str, Measured]:
    """Return the numbers of the questions on E(S) from the tables of a part.

    Args:
        part: the folder of the tables.
        known: conditions of the runs.
        inside: a loss, and a batch size on either side of a third one, for `optimum_inside`.
        rise: the last and the first loss of `optimum_rises`.
        lowest: losses of `minimum_inside`, of which the first one that is reached counts.
    """
    points = _points(part)
    best = TABLES.read(f"{part}/optima_constant.csv")
    E = log_tokens(points, inside[0])
    _, small, middle, big = inside
    laws = stages(TABLES.read(f"{part}/laws.csv"))
    numbers = {
        "optimum_inside": (least(E[small] - E[middle], E[big] - E[middle]), "points.csv"),
        "optimum_rises": (
            optimum_at(best, rise[0]) - optimum_at(best, rise[1]),
            "optima_constant.csv",
        ),
        "minimum_inside": (missed(points, lowest), "points.csv"),
        **{key: (values, "laws.csv") for key, values in laws.items()},
    }
    return {
        key: Measured(effect_of(values), known, f"{part}/{table}")
        for key, (values, table) in numbers.items()
    }


def stages(laws: pd.DataFrame) -> dict[str, np.ndarray]:
    """Return the error of the three-stage law minus two other laws', per seed.

    The hyperbola has no minimum; the asymmetric law has one, and one parameter fewer.
    """
    wide = laws.pivot(index="seed", columns="law", values="interior_log_E")
    others = {"stages": "hyperbola", "stages_valley": "asymmetric"}
    return {key: (wide["piecewise"] - wide[law]).to_numpy() for key, law in others.items()}


def missed(points: pd.DataFrame, lowest: Sequence[float]) -> Numbers:
    """Return per seed 1 if batch 1 does not reach the lowest target, 0 if it reaches it.

    A run that misses it within its tokens may reach it later: its number lies between 0 and 1.
    """
    for target in lowest:
        there = at_target(points, target, "reached")
        if there.size and there.any(axis=0).all():
            return Numbers(np.zeros(there.shape[1]), (~there.loc[1]).to_numpy(float))
    return Numbers.measured([])


def optimum_at(table: pd.DataFrame, target: float) -> Numbers:
    """Return log2 B_opt at a target, per seed; a B_opt at an end of the batch sizes is a bound."""
    rows = table.loc[(table["seed"] >= 0) & np.isclose(table["target_loss"], target)]
    return log2_optima(rows.sort_values("seed"))


def log2_optima(rows: pd.DataFrame) -> Numbers:
    """Return log2 B_opt of rows of `optima`, or the bounds of it."""
    best = np.log2(rows["B_opt"].to_numpy(float))
    low = np.log2(rows["low"].to_numpy(float))
    high = np.log2(rows["high"].to_numpy(float))
    known = ~np.isnan(best)
    return Numbers(
        np.where(known, best, np.nan_to_num(low, nan=-np.inf)),
        np.where(known, best, np.nan_to_num(high, nan=np.inf)),
    )


def slope_at(slopes: pd.DataFrame, target: float) -> Numbers:
    """Return log2 of the slope of E(S) at a target, per seed; without a slope nothing is known."""
    wide = slopes.pivot(index="seed", columns="target_loss", values="B_min")
    values = np.log2(wide[target].to_numpy(float))
    known = ~np.isnan(values)
    return Numbers(np.where(known, values, -np.inf), np.where(known, values, np.inf))


def _sized_runs() -> pd.DataFrame:
    """Return the runs of every model size but the smallest, with the size's name."""
    trained = [part for part in ("sizes", "larger") if f"{part}/runs.parquet" in TABLES]
    return pd.concat([TABLES.read(f"{part}/runs.parquet") for part in trained], ignore_index=True)


def measure_sizes() -> None:
    """Write the points, optima and errors of laws by model size, at equal excess losses."""
    optimum: list[pd.DataFrame] = []
    kept: list[pd.DataFrame] = []
    laws: list[pd.DataFrame] = []
    runs = _sized_runs()
    small = TABLES.read("stages/runs.parquet")
    small = small.loc[small["seed"].isin(runs["seed"]) & (small["tokens"] <= runs["tokens"].max())]
    for size, some in [("12k", small), *runs.groupby("size", sort=False)]:
        last = some.groupby("run")["eval_loss"].last()
        lowest = last.groupby(some.groupby("run")["batch"].last()).mean().min()
        points = measured_points(some, [lowest + excess for excess in EXCESS])
        kept.append(points.assign(size=size, excess=(points["target_loss"] - lowest).round(2)))
        laws.append(law_errors(points).assign(size=size))
        best = optima(points)
        excess = (best["target_loss"] - lowest).round(2)
        optimum.append(best.assign(size=size, last_loss=lowest, excess=excess))
    TABLES.write("sizes/optima.csv", pd.concat(optimum, ignore_index=True))
    TABLES.write("sizes/points.csv", pd.concat(kept, ignore_index=True))
    TABLES.write("sizes/laws.csv", pd.concat(laws, ignore_index=True))


def sizes() -> dict[str, Measured]:
    """Return the numbers of the questions on model size."""
    more = f"muP; from {EXCESS[0]:g} to {EXCESS[-1]:g} nats above the best batch's last loss"
    known = conditions_of(_sized_runs(), Tables(TABLES.folder / "sizes").config, more=more)
    effects = size_effects(TABLES.read("sizes/optima.csv"))
    return {key: Measured(effect, known, "sizes/optima.csv") for key, effect in effects.items()}


def size_effects(table: pd.DataFrame) -> dict[str, Effect]:
    """Return the rise of B_opt at the size where it is least certain, and its ratio to 12k.

    A statement on every size holds if it holds at the size with the weakest test; a size whose
    optima are bounds in too many seeds has none.
    """
    rows = table.loc[table["seed"] >= 0].sort_values("seed")
    by_size = {
        size: {excess: log2_optima(some) for excess, some in own.groupby("excess")}
        for size, own in rows.groupby("size")
    }
    reference = by_size.pop("12k")
    rises = [effect_of(own[min(EXCESS)] - own[max(EXCESS)]) for own in by_size.values()]
    apart = [
        effect_of(mean_of(*(own[excess] - reference[excess] for excess in own)))
        for own in by_size.values()
    ]
    return {
        "sizes_rise": min(rises, key=_least_end),
        "sizes_alike": max(apart, key=_farthest_end),
    }


def _least_end(effect: Effect) -> float:
    """Return the low end of an interval; below all others if there is none."""
    return effect.ends()[0] if effect.tested else -np.inf


def _farthest_end(effect: Effect) -> float:
    """Return the distance from 0 of an interval's far end; above all others if there is none."""
    return max(map(abs, effect.ends())) if effect.tested else np.inf


def scheduler() -> dict[str, Measured]:
    """Return the numbers of the questions on efficiency and a late switch, and write the tables."""
    compared = _compared("scheduler")
    known = _conditions("scheduler")
    losses = compared.losses("constant")
    late = {"late_constant": (_named(losses, LATE) - _named(losses, RAMP)).to_numpy()}
    found = _saved("scheduler", compared, ("tokens", "seconds"), known)
    return measurements(late, known, "scheduler/finals.csv") | {
        f"scheduler_{key}": one for key, one in found.items()
    }


def _saved(
    part: str, compared: Comparison, units: Sequence[str], known: Conditions
) -> dict[str, Measured]:
    """Return what the ramp spends to the best fixed batch's last loss; write efficiency.csv."""
    runs = TABLES.read(f"{part}/runs.parquet")
    savings = efficiency(runs, compared.best("constant"), seconds_per_step())
    TABLES.write(f"{part}/efficiency.csv", savings)
    own = savings.loc[savings["name"].str.contains(RAMP, regex=False)]
    numbers = {key: Numbers.to_target(own[f"log_{key}"], own["reached"]) for key in units}
    return measurements(numbers, known, f"{part}/efficiency.csv")


def schedule() -> dict[str, Measured]:
    """Return the numbers of the questions on the ramp's final losses, and write its tables."""
    compared = _compared("schedule")
    found = {}
    ramp = TABLES.read("schedule/runs.parquet").query(f"name.str.contains('{RAMP}')")
    more = f"ramp {ramp['schedule.batch'].iloc[0]}"
    for phase in DECIDED:
        losses = compared.losses(phase)
        apart = (_named(losses, RAMP) - losses.loc[compared.best(phase)]).to_numpy()
        found[phase] = apart
    gain = abs(float(found["constant"].mean()))  # what an equality in another phase qualifies
    numbers = {
        f"scheduler_{key}": Measured(
            effect_of(found[phase], np.inf if phase == "constant" else gain),
            _conditions("schedule", phase, more),
            "schedule/finals.csv",
        )
        for phase, key in DECIDED.items()
    }
    known = _conditions("schedule", more=more)
    spent = _saved("schedule", compared, ("tokens", "steps"), known)
    return numbers | {f"ramp_{key}": one for key, one in spent.items()}


def _compared(part: str) -> Comparison:
    """Return the compared runs of a part, and write their differences per LR phase."""
    compared = Comparison(TABLES.read(f"{part}/finals.csv"))
    summary = []
    for phase in DECIDED:
        summary += _differences(compared.losses(phase), compared.best(phase), phase)
    TABLES.write(f"{part}/differences.csv", pd.DataFrame(summary))
    return compared


def _named(losses: pd.DataFrame, part: str) -> pd.Series:
    return losses.loc[next(name for name in losses.index if part in str(name))]


def _differences(losses: pd.DataFrame, best: str, phase: str) -> list[dict]:
    """Return each compared run minus the best constant-batch run, with 95% intervals."""
    apart = losses.sub(losses.loc[best], axis=1)
    half = half_interval(apart.to_numpy().T)
    return [
        LR_PHASES[phase].columns
        | {"name": name, "best": best, "difference": mean, "half_interval_95": reach}
        for name, mean, reach in zip(apart.index, apart.mean(axis=1), half, strict=True)
    ]


def seconds_per_step() -> dict[int, float]:
    """Return the shortest measured seconds per step of each batch size, from part `speed`."""
    finals = TABLES.read("speed/finals.csv")
    constant = finals.loc[phases_of(finals) == "constant"]
    rates = (constant["seconds"] / constant["steps"]).groupby(constant["batch"].astype(int))
    return {int(str(batch)): float(value) for batch, value in rates.min().items()}


def efficiency(runs: pd.DataFrame, best: str, seconds: dict[int, float]) -> pd.DataFrame:
    """Return log tokens, steps and seconds to the final loss of `best`, relative to `best` itself.

    `log_cost_M` is the log time on a data-parallel machine. A step of up to M sequences takes one
    unit of time; a larger step takes time in proportion. Seconds per step are interpolated linearly
    between the batch sizes of part `speed`. For a run that misses the loss (`reached` is false) the
    costs are of all its tokens, a bound.
    """
    rows = []
    for seed, some in runs.groupby("seed"):
        curves = {str(name): smooth_curve(of, "eval_loss") for name, of in some.groupby("name")}
        target = float(curves[best].loss[-1])
        row = some.drop_duplicates("name").set_index("name").loc
        own = _costs(row[best], _first(curves[best], target), seconds)
        for name, curve in curves.items():
            cost = _costs(row[name], _first(curve, target), seconds)
            logs = {f"log_{key}": np.log(cost[key] / own[key]) for key in cost}
            met = bool((curve.loss <= target).any())
            rows.append({"seed": seed, "name": name, "target_loss": target, **logs, "reached": met})
    return pd.DataFrame(rows)


def _first(curve: Smooth, target: float) -> float:
    """Return the tokens at which a curve first meets a loss; all its tokens if it does not."""
    at = int(np.argmax(curve.loss <= target))
    if at == 0:
        return float(np.exp(curve.log_tokens[-1]))
    part = (curve.loss[at - 1] - target) / (curve.loss[at - 1] - curve.loss[at])
    return float(np.exp(curve.log_tokens[at - 1] + part * np.diff(curve.log_tokens)[at - 1]))


def _costs(row: Any, tokens: float, seconds: dict[int, float]) -> dict[str, float]:
    """Return tokens, steps, seconds and machine costs up to some tokens of a run with this row."""
    schedule = BatchSchedule.parse(str(row["schedule.batch"]))
    ends = np.minimum([*schedule.starts[1:], np.inf], tokens)
    spent = np.maximum(ends - np.asarray(schedule.starts, float), 0)
    batches = np.asarray(schedule.batches)
    steps = spent / (batches * row["seq_len"])
    cost = {"tokens": tokens, "steps": float(steps.sum())}
    cost["seconds"] = float(steps @ np.interp(batches, [*seconds], [*seconds.values()]))
    machines = {f"cost_{m}": float(steps @ np.maximum(1, batches / m)) for m in DEVICES}
    return cost | machines


def ablations() -> dict[str, Measured]:
    """Return the numbers of the questions on ablations: what each change does to the gain."""
    compared = Comparison(TABLES.read("ablations/finals.csv"))
    losses = pd.concat([compared.losses(phase) for phase in ("constant", "cosine")])

    def gain(group: str, constant: str = "") -> np.ndarray:
        ramp = _named(losses, f"| {group} | {RAMP}")
        return (ramp - _named(losses, f"| {constant or group} | {FIXED}")).to_numpy()

    base = gain("base")
    numbers = {
        "square_root": gain("LR x sqrt", "base") - base,
        "weight_decay": gain("weight decay 0.1") - base,
        "cosine": gain("cosine") - base,
        "length": gain("sequences x 4") - base,
    }
    gains = {"base": base, **{key: values + base for key, values in numbers.items()}}
    TABLES.write("ablations/gains.csv", pd.DataFrame(gains, index=losses.columns).reset_index())
    own = abs(float(base.mean()))
    known = _conditions("ablations", "", f"the ramp's gain to be changed is {own:.4f} nats")
    return {
        key: Measured(effect_of(values, own), known, "ablations/gains.csv")
        for key, values in numbers.items()
    }


def measure_experts() -> None:
    """Write the points and optima of the mixture of experts."""
    runs = TABLES.read("experts/runs.parquet")
    points = measured_points(runs.loc[runs["name"].str.contains(FIXED)], TARGETS)
    TABLES.write("experts/points.csv", points)
    TABLES.write("experts/optima.csv", optima(points))


def experts() -> dict[str, Measured]:
    """Return the numbers of the question on experts."""
    points = TABLES.read("experts/points.csv")
    best = TABLES.read("experts/optima.csv")
    whole = points.loc[points["reached"]].groupby("target_loss")
    enough = [t for t, some in whole if (some.groupby("batch").size() >= 3).sum() >= 5]
    rise = optimum_at(best, min(enough)) - optimum_at(best, max(enough))
    known = _conditions("experts", more=f"from loss {max(enough):g} to {min(enough):g}")
    return measurements({"experts": rise}, known, "experts/optima.csv")


MEASURES: dict[str, Callable[[], None]] = {
    "repeat": measure_repeat,
    "sizes": measure_sizes,
    "large": partial(measure, "large", LARGE_TARGETS),
    "experts": measure_experts,
}
PARTS: dict[str, Callable[[], dict[str, Measured]]] = {
    "repeat": repeat,
    "sizes": sizes,
    "large": large,
    "scheduler": scheduler,
    "schedule": schedule,
    "ablations": ablations,
    "experts": experts,
}


def main() -> None:
    """Write the tables of every part that was trained, and findings.csv; of one part, its E(S)."""
    global RESULTS, TABLES  # the parts of this file read and write them
    parser = argparse.ArgumentParser(description=__doc__)
    add_directory(parser, RESULTS)
    parser.add_argument("--schedules", action="store_true", help="only those that a3 to a5 train")
    parser.add_argument("--answers", action="store_true", help="only findings.csv, no fits")
    parser.add_argument("--part", type=Path, help="only E(S) of the part in this folder")
    options = parser.parse_args()
    RESULTS = options.results
    TABLES = Tables(RESULTS)
    if options.part or {"runs.parquet", "finals.csv"} <= {one.name for one in RESULTS.iterdir()}:
        measure_part(Tables(options.part or RESULTS))
        return
    if options.schedules:
        write_json(RESULTS / "stages" / "schedules.json", schedules())
        return
    for part, write in MEASURES.items():
        if f"{part}/finals.csv" in TABLES and not options.answers:
            write()
    for part, of_part in conditions.MEASURES.items():
        if f"{part}/finals.csv" in TABLES and not options.answers:
            of_part(Tables(RESULTS / part))
    later = {
        part: partial(numbers, Tables(RESULTS / part)) for part, numbers in conditions.PARTS.items()
    }
    write_findings(TABLES, {QUESTIONS: PARTS, conditions.QUESTIONS: later}, **PAPER)


if __name__ == "__main__":
    main()
