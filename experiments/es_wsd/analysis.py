"""Tables and answers from the curves and final losses that `run.py` wrote; nothing is trained.

    python -m experiments.es_wsd.analysis                  # results/es_wsd/*/*.csv, findings.csv
    python -m experiments.es_wsd.analysis --schedules      # after a1: what a3 to a5 train
    python -m experiments.es_wsd.analysis DIR              # the same of another results directory
    python -m experiments.es_wsd.analysis --part FOLDER    # E(S) of one part, e.g. of size smoke

E is tokens to a target loss, in tokens; batch sizes are in sequences. A run that misses a target
counts with the tokens it consumed, a lower bound.
"""

import argparse
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import bss
from bss.files import write_json
from bss.points.curve import Smooth, smooth_curve
from bss.schedules.batch import BatchSchedule
from bss.stats import Comparison, half_interval
from experiments.findings import Measured, measurements, within, write_findings
from experiments.tables import Tables, add_directory

RESULTS = Path("results/es_wsd")
TABLES = Tables(RESULTS)
QUESTIONS = Path(__file__).parent / "questions.toml"
PAPER = {"paper": "2601.05034", "command": "python -m experiments.es_wsd.analysis"}
EQUIVALENCE = ("weight_decay", "length")

TARGETS = (2.40, 2.30, 2.20, 2.15, 2.10, 2.05, 2.02)
LARGE_TARGETS = (2.06, 1.96, 1.88, 1.84, 1.81)  # at 99k parameters
SMOKE_TARGETS = 3
EXCESS = (0.30, 0.20, 0.12, 0.08, 0.05)  # nats above the best batch's last loss, at every size
PHASES = {"constant": "eval_loss", "averaged": "eval_loss_avg_4%"}
DECIDED = {"constant": "constant", "averaged": "averaged", "decay": "decayed"}  # LR phases
RAMP, LATE, FIXED = "B_opt ramp", "late switch", "constant"
DEVICES = (1, 4, 16, 64)  # of a data-parallel machine, one sequence each
ALLOWED = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64)


# Tokens to a loss


def measured_points(
    runs: pd.DataFrame, targets: Sequence[float], column: str = "eval_loss"
) -> pd.DataFrame:
    """Return tokens and steps to each target that some run reaches, one row per run and target."""
    kept = ["run", "model", "params", "seq_len", "seed", "data_seed", "peak_lr", "step", "tokens"]
    table = runs[[*kept, "batch"]].assign(eval_loss=runs[column])
    lowest = table.groupby("run")["eval_loss"].min().min()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        points, _ = bss.measure_points(table, [t for t in targets if t > lowest + 1e-3])
    return points


def at_target(points: pd.DataFrame, target: float, column: str = "log_tokens") -> pd.DataFrame:
    """Return a column at a target, [batch, seed]; `log_tokens` is a bound if it was missed."""
    rows = points.loc[np.isclose(points["target_loss"], target)]
    rows = rows.assign(log_tokens=np.log(rows["tokens_to_target"]))
    return rows.pivot(index="batch", columns="seed", values=column)


def fitted(points: pd.DataFrame, resamples: int = 200, law: str | None = None) -> bss.EsFit:
    """Return the fit of E(S) to points, by default of the law that cross-validation selects."""
    return bss.fit_es(points, law, options=bss.Options(resamples))


def optima(points: pd.DataFrame) -> pd.DataFrame:
    """Return B_opt of every target, of all seeds (seed -1) and of each seed.

    Returns:
        Columns seed, target_loss, B_opt, low, high (90%), status. If B_opt is at the smallest or
        largest batch size, `high` or `low` has the bound.
    """
    rows = []
    for seed, some in [(-1, points), *points.groupby("seed")]:
        for at in fitted(some.reset_index(drop=True)).fits:
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
        comparison = fitted(some.reset_index(drop=True), 10).comparison
        if comparison is not None:
            table = pd.DataFrame(comparison.table)
            tables.append(table[["law", "interior_log_E", "edge_log_E"]].assign(seed=seed))
    return pd.concat(tables, ignore_index=True)


def horizons(finals: pd.DataFrame) -> pd.DataFrame:
    """Return the decayed test loss of each batch size above the best one, per token budget."""
    tables = []
    decays = finals.loc[finals["ending"] == "decay"]
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

    a3r has the ramp of a1r in up to 12 stages; its fixed batch sizes are B_opt at the end of the
    run and the batch sizes of a1r next to it.

    a3 has the ramp in four stages. Its fixed batch sizes are B_opt at the end of the run, half and
    twice this size. Its late switch multiplies B_opt by 8 at 70% of the tokens. a4 has the ramp and
    one fixed batch size.
    """
    points = measured_points(TABLES.read("stages/runs.parquet"), TARGETS)
    long, short = (_ramps(points, *of) for of in ((3_000_000, 64), (1_000_000, 16)))
    last, at = long["fine"](2_999_999), 2_100_000
    late = BatchSchedule.late_switch(first := long["fine"](at), 8 * first, at)
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
        name: bss.derive_schedule(fit, points, tokens, bss.Limits(count, allowed=ALLOWED))[0]
        for name, count in (("ramp", 4), ("fine", 12))
    }


# Answers


def repeat() -> dict[str, Measured]:
    """Return the numbers of the questions on E(S) at 12k parameters, and write its tables."""
    conditions = "12k parameters, LR 8e-3, constant; 16-token sequences; 1.5M tokens"
    TABLES.write("stages/horizons.csv", horizons(TABLES.read("stages/finals.csv")))
    found, points = _answers(
        "repeat", TARGETS, conditions, (2.10, 1, 8, 64), (2.05, 2.40), (2.02, 2.05)
    )
    slopes = TABLES.write("repeat/smallest_slopes.csv", smallest_slopes(points))
    high, low = (at_target(points, t) for t in (2.40, 2.05))
    slopes = per_seed(slopes, "B_min", 2.10, 2.30)
    crossing = np.minimum(high.loc[32] - high.loc[2], low.loc[2] - low.loc[32])
    return found | {
        "crossing": Measured(crossing.to_numpy(), conditions, "repeat/points.csv"),
        "minimum_rises": Measured(slopes.to_numpy(), conditions, "repeat/smallest_slopes.csv"),
    }


def measure_part(tables: Tables) -> None:
    """Write the tables of E(S) of one part, at targets that its own runs reach.

    Laws are not compared: the size smoke has too few batch sizes to leave one out.
    """
    runs = tables.read("runs.parquet")
    targets = bss.default_targets(runs, SMOKE_TARGETS)
    every = {phase: measured_points(runs, targets, name) for phase, name in PHASES.items()}
    tables.write("points.csv", pd.concat([of.assign(kind=phase) for phase, of in every.items()]))
    for phase, of in every.items():
        tables.write(f"optima_{phase}.csv", optima(of).assign(kind=phase))
    tables.write("smallest_slopes.csv", smallest_slopes(every["constant"]))
    tables.write("horizons.csv", horizons(tables.read("finals.csv")))


def large() -> dict[str, Measured]:
    """Return the numbers of the questions on E(S) at 99k parameters, and write its tables."""
    conditions = "99k parameters, muP, LR 8e-3, constant; 16-token sequences; 1M tokens"
    inside, rise, lowest = (1.88, 2, 16, 128), (1.84, 2.06), (1.84, 1.88)
    found, _ = _answers("large", LARGE_TARGETS, conditions, inside, rise, lowest)
    return {f"{key}_99k": number for key, number in found.items()}


def _answers(
    part: str,
    targets: Sequence[float],
    conditions: str,
    inside: tuple[float, int, int, int],
    rise: tuple[float, float],
    lowest: Sequence[float],
) -> tuple[dict[str, Measured], pd.DataFrame]:
    """Return the numbers of four questions on E(S) and the points at a constant LR.

    Args:
        part: the folder of runs.parquet, where the tables are written.
        targets: losses.
        conditions: of the runs, as text.
        inside: a loss, and a batch size on either side of a third one, for `optimum_inside`.
        rise: the last and the first loss of `optimum_rises`.
        lowest: losses of `minimum_inside`, of which the first one that is reached counts.
    """
    runs = TABLES.read(f"{part}/runs.parquet")
    every = {phase: measured_points(runs, targets, name) for phase, name in PHASES.items()}
    TABLES.write(f"{part}/points.csv", pd.concat([of.assign(kind=p) for p, of in every.items()]))
    best = {
        phase: TABLES.write(f"{part}/optima_{phase}.csv", optima(of).assign(kind=phase))
        for phase, of in every.items()
    }
    points = every["constant"]
    rises = per_seed(best["constant"], "B_opt", *rise)
    laws = TABLES.write(f"{part}/laws.csv", law_errors(points))
    laws = laws.pivot(index="seed", columns="law", values="interior_log_E")
    middle, (small, best, big) = at_target(points, inside[0]), inside[1:]
    within_range = np.minimum(
        middle.loc[small] - middle.loc[best], middle.loc[big] - middle.loc[best]
    )
    missed, answer = _missed(points, lowest)
    numbers = {
        "optimum_inside": (within_range, "points.csv"),
        "optimum_rises": (rises, "optima_constant.csv"),
        "minimum_inside": (missed, "points.csv"),
        "stages": (laws["piecewise"] - laws["hyperbola"], "laws.csv"),
    }
    found = {
        key: Measured(np.asarray(values, float), conditions, f"{part}/{table}")
        for key, (values, table) in numbers.items()
    }
    return found | {"minimum_inside": replace(found["minimum_inside"], answer=answer)}, points


def _missed(points: pd.DataFrame, lowest: Sequence[float]) -> tuple[np.ndarray, str]:
    """Return per seed whether batch 1 misses the lowest target, and the answer."""
    for target in lowest:
        there = at_target(points, target, "reached")
        if there.size and there.any(axis=0).all():
            missed = ~there.loc[1] & there.any(axis=0)
            answers = {0: "contradicted", len(missed): "supported"}
            return missed.to_numpy(float), answers.get(int(missed.sum()), "inconclusive")
    return np.array([]), "inconclusive"


def per_seed(table: pd.DataFrame, column: str, last: float, first: float) -> pd.Series:
    """Return log2 of a column at one target minus at another, per seed; a bound counts."""
    value = table[column]
    if "status" in table:
        value = value.fillna(table["high"]).fillna(table["low"])
    targets = table["target_loss"].round(3)
    rows = table.assign(value=np.log2(value), target_loss=targets).loc[table["seed"] >= 0]
    wide = rows.pivot(index="seed", columns="target_loss", values="value")
    return wide[last] - wide[first]


def sizes() -> dict[str, Measured]:
    """Return the numbers of the questions on model size, and write their tables."""
    tables, kept, laws, parts = [], [], [], ("sizes", "larger")
    trained = [part for part in parts if (RESULTS / part / "runs.parquet").exists()]
    runs = pd.concat([TABLES.read(f"{part}/runs.parquet") for part in trained], ignore_index=True)
    runs = runs.assign(size=runs["name"].str.split(" | ", regex=False).str[0])
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
        tables.append(best.assign(size=size, last_loss=lowest, excess=excess))
    table = pd.concat(tables, ignore_index=True)
    TABLES.write("sizes/optima.csv", table)
    TABLES.write("sizes/points.csv", pd.concat(kept, ignore_index=True))
    TABLES.write("sizes/laws.csv", pd.concat(laws, ignore_index=True))
    return _size_numbers(table)


def _size_numbers(table: pd.DataFrame) -> dict[str, Measured]:
    value = np.log2(table["B_opt"].fillna(table["high"]).fillna(table["low"]))
    rows = table.assign(value=value).loc[table["seed"] >= 0]
    wide = rows.pivot_table(index=["size", "seed"], columns="excess", values="value")
    known = wide.loc[:, wide.notna().all()]  # excesses at which every size and seed has B_opt
    rise = (known.iloc[:, 0] - known.iloc[:, -1]).unstack("size").drop(columns="12k")
    apart = wide.unstack("size").T.groupby("size").mean().T
    apart = apart.sub(apart["12k"], axis=0).drop(columns="12k")
    halves = half_interval(rise.to_numpy(float))
    shown = "supported" if (rise.mean() > halves).all() else "inconclusive"
    shown = "contradicted" if (rise.mean() < -halves).any() else shown
    alike = all(within(values.to_numpy(), np.log2(1.5)) for _, values in apart.items())
    conditions = (
        f"{', '.join(map(str, rise))}; muP, LR 8e-3, constant; 1M tokens",
        "sizes/optima.csv",
    )
    near = "supported" if alike else "inconclusive"
    return {
        "sizes_signs": Measured(rise.min(axis=1).to_numpy(), *conditions, shown),
        "sizes_alike": Measured(apart.mean(axis=1).to_numpy(), *conditions, near),
    }


def scheduler() -> dict[str, Measured]:
    """Return the numbers of the questions on efficiency and a late switch, and write the tables."""
    runs, compared = TABLES.read("scheduler/runs.parquet"), _compared("scheduler")
    conditions = "12k parameters, LR 8e-3; 64-token sequences; 3M tokens"
    losses = compared.losses("constant")
    late = {"late_constant": _named(losses, LATE) - _named(losses, RAMP)}
    savings = efficiency(runs, compared.best("constant"), seconds_per_step())
    TABLES.write("scheduler/efficiency.csv", savings)
    own = savings.loc[savings["name"].str.contains(RAMP, regex=False)]
    numbers = {f"scheduler_{key}": own[f"log_{key}"] for key in ("tokens", "seconds")}
    found = measurements(numbers, conditions, "scheduler/efficiency.csv")
    return measurements(late, conditions, "scheduler/finals.csv") | found


def schedule() -> dict[str, Measured]:
    """Return the numbers of the questions on the ramp's final losses, and write its table."""
    compared, found = _compared("schedule"), {}
    conditions = "12k parameters, LR 8e-3; 16-token sequences; 1.5M tokens"
    for phase, key in DECIDED.items():
        losses = compared.losses(phase)
        apart = (_named(losses, RAMP) - losses.loc[compared.best(phase)]).to_numpy()
        found[f"scheduler_{key}"] = Measured(apart, f"{conditions}; {key}", "schedule/finals.csv")
    return found


def _compared(part: str) -> Comparison:
    """Return the compared runs of a part, and write their differences per LR phase."""
    compared, summary = Comparison(TABLES.read(f"{part}/finals.csv")), []
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
        {"phase": phase, "name": name, "best": best, "difference": mean, "half_interval_95": reach}
        for name, mean, reach in zip(apart.index, apart.mean(axis=1), half, strict=True)
    ]


def seconds_per_step() -> dict[int, float]:
    """Return the shortest measured seconds per step of each batch size, from part `speed`."""
    finals = TABLES.read("speed/finals.csv")
    constant = finals.loc[finals["ending"] == "constant"]
    rates = (constant["seconds"] / constant["steps"]).groupby(constant["batch"].astype(int))
    return {int(str(batch)): float(value) for batch, value in rates.min().items()}


def efficiency(runs: pd.DataFrame, best: str, seconds: dict[int, float]) -> pd.DataFrame:
    """Return log tokens, steps and seconds to the final loss of `best`, relative to `best` itself.

    `log_cost_M` is the log time on a data-parallel machine. A step of up to M sequences takes one
    unit of time; a larger step takes time in proportion. Seconds per step are interpolated linearly
    between the batch sizes of part `speed`. A run that misses the loss counts with all its tokens,
    a lower bound.
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
            rows.append({"seed": seed, "name": name, "target_loss": target, **logs})
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
    conditions = "12k parameters, LR 8e-3; 1M tokens"
    gains = {"base": base, **{key: values + base for key, values in numbers.items()}}
    TABLES.write("ablations/gains.csv", pd.DataFrame(gains, index=losses.columns).reset_index())
    return measurements(numbers, conditions, "ablations/gains.csv")


def experts() -> dict[str, Measured]:
    """Return the numbers of the question on experts, and write the part's tables."""
    runs = TABLES.read("experts/runs.parquet")
    points = measured_points(runs.loc[runs["name"].str.contains(FIXED)], TARGETS)
    whole = points.loc[points["reached"]].groupby("target_loss")
    enough = [t for t, some in whole if (some.groupby("batch").size() >= 3).sum() >= 5]
    best = optima(points)
    TABLES.write("experts/points.csv", points)
    TABLES.write("experts/optima.csv", best)
    rise = per_seed(best, "B_opt", min(enough), max(enough))
    told = "8 experts, 2 active, 12k active parameters; LR 8e-3; 16-token sequences; 1.5M tokens"
    return measurements({"experts": rise}, told, "experts/optima.csv")


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
    parser.add_argument("--part", type=Path, help="only E(S) of the part in this folder")
    options = parser.parse_args()
    RESULTS = options.results
    TABLES = Tables(RESULTS)
    if options.part or "runs.parquet" in TABLES:
        measure_part(Tables(options.part or RESULTS))
        return
    if options.schedules:
        write_json(RESULTS / "stages" / "schedules.json", schedules())
        return
    write_findings(TABLES, QUESTIONS, PARTS, equivalence=EQUIVALENCE, **PAPER)


if __name__ == "__main__":
    main()
