"""Tables and answers from the curves and final losses that `run.py` wrote; nothing is trained.

    python -m experiments.late_switch.analysis      # tables of every part, findings.csv
    python -m experiments.late_switch.analysis --answers  # without fits of the functional law

Differences are paired by seed. Losses are in nats per token, batch sizes in sequences. A part
without finals.csv was not trained, and its questions are "not tested".
"""

import argparse
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd

from bss.laws import CurveFit, fit_curve, predict_schedule
from bss.laws.base import Options
from bss.points.curve import smooth_curve
from bss.schedules.batch import BatchSchedule
from bss.schedules.rates import WarmupStableDecay, wsd
from bss.stats import (
    LR_PHASES,
    Comparison,
    Numbers,
    effect_of,
    half_interval,
    paired,
    phases_of,
)
from experiments.conditions import Conditions, conditions_of
from experiments.findings import Measured, measurements, write_findings
from experiments.late_switch import difficulty, endings
from experiments.late_switch.switching import best_switches, exponents
from experiments.tables import Tables, add_directory, show_warnings, shown_warnings

RESULTS = Path("results/late_switch")
TABLES = Tables(RESULTS)
QUESTIONS = Path(__file__).parent / "questions.toml"
PAPER = {"paper": "2602.14208", "command": "python -m experiments.late_switch.analysis"}

TRUNK = "constant 4"
LARGE = "constant 16"
LATE = "x 4 at 70%"
EARLY = "x 4 at 30%"
GROWN = "x 8 at 70%"
STAGES = "stages 4, 8, 12, 16"
LATER = {"x 2": ("x 2 at 30%", "constant 8 on", "x 2 at 10% on")}
LATER |= {"x 4": (EARLY, "constant 16 on", "x 4 at 10% on")}
TAIL = 0.2  # of the common steps, over which a gap is averaged
FEW = (TRUNK, "constant 8", LARGE, EARLY)
SHARES = (TRUNK, "x 8, last 2%", "x 8, last 15%", "x 8, last 50%")
PILOTS = {"b1": (*FEW[:3], "x 4"), "b1l": FEW, "b1m": FEW, "b3": SHARES}  # starts of fitted names
SINCE = (0.1, 0.25, 0.5)  # of the tokens: the law ignores losses before
WARMUP = 50_000


# Final losses


def differences(finals: pd.DataFrame) -> pd.DataFrame:
    """Return the final loss of each run minus other runs', per LR phase.

    Returns:
        Columns lr_phase, weights, name, batch, steps, loss and best (name of the best fixed batch
        size). Differences are to_best, to_trunk (the smallest fixed batch size) and to_early (a
        switch by 4 at 30%). Their 95% half intervals end in `_half`.
    """
    compared = Comparison(finals)
    tables = []
    for phase, some in finals.groupby(phases_of(finals), sort=False):
        losses = compared.losses(str(phase))
        best = compared.best(str(phase))
        first = some.drop_duplicates("name").set_index("name").loc[losses.index]
        columns = LR_PHASES[str(phase)].columns
        table = pd.DataFrame(columns | {"loss": losses.mean(axis=1), "best": best})
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


def conditions(part: str, phase: str = "constant", more: str = "") -> Conditions:
    """Return what a part was trained on, from its run table and its config."""
    tables = Tables(TABLES.folder / part)
    finals = tables.read("finals.csv")
    fixed = {int(text) for text in finals["batch"] if str(text).isdigit()}
    best = Comparison(finals).best(phase if phase in {*phases_of(finals)} else "constant")
    ends = "; the smallest tried" if best == f"constant {min(fixed)}" else ""
    named = f"best fixed batch size: {best.removeprefix('constant ')}{ends}"
    known = conditions_of(tables.read("runs.parquet"), tables.config, phase)
    return replace(known, more="; ".join(text for text in (more, named) if text))


def finals() -> dict[str, Measured]:
    """Return the numbers of the questions on final losses at 12k parameters."""
    table = "b1/finals.csv"
    by_phase = {
        "constant": {
            "late_early": against("b1", "constant", LATE, EARLY),
            "late_constant": against("b1", "constant"),
            "late_each": np.fmax(
                *(against("b1", "constant", LATE, name) for name in (TRUNK, LARGE))
            ),
            "several": against("b1", "constant", STAGES, LATE),
            "growing": _growing(),
        },
        "averaged": {"averaged_other": against("b1", "averaged")},
        "decayed": {
            "late_early_other": against("b1", "decayed", LATE, EARLY),
            "decayed_other": against("b1", "decayed"),
        },
    }
    found: dict[str, Measured] = {}
    for phase, numbers in by_phase.items():
        found |= measurements(numbers, conditions("b1", phase), table)
    waits = waited(TABLES.read("b1/runs.parquet"))
    TABLES.write("b1/waited.csv", waits)
    own = waits.loc[waits["name"] == LATE]
    numbers = {"waits": Numbers.to_target(own["log_tokens"], own["reached"])}
    found |= measurements(numbers, conditions("b1"), "b1/waited.csv")
    return found | {"law_predicts": law_predicts()}


def _growing() -> np.ndarray:
    """Return losses [seed] of a growing batch at constant LR minus the decayed small batch's."""
    losses = Comparison(TABLES.read("b1/finals.csv"))
    grown = losses.losses("constant").loc[GROWN]
    return (grown - losses.losses("decayed").loc[TRUNK]).to_numpy(float)


def waited(runs: pd.DataFrame) -> pd.DataFrame:
    """Return log tokens of each late switch to the trunk's last loss, relative to the trunk's.

    Returns:
        Columns name, seed, log_tokens, reached (False: a bound, the tokens of the whole run).
    """
    rows = []
    for seed, some in runs.groupby("seed"):
        with shown_warnings(f"curves of seed {seed}"):
            curves = {
                str(name): smooth_curve(own, "eval_loss") for name, own in some.groupby("name")
            }
        trunk = curves[TRUNK]
        for name, curve in curves.items():
            met = curve.loss <= trunk.loss[-1]
            last = -1 if not met.any() else int(np.argmax(met))
            at = curve.log_tokens[last]
            if met.any() and last > 0:
                pair = slice(last - 1, last + 1)
                at = np.interp(-trunk.loss[-1], -curve.loss[pair], curve.log_tokens[pair])
            row = {"name": name, "seed": seed, "log_tokens": at - trunk.log_tokens[-1]}
            rows.append(row | {"reached": bool(met.any())})
    return pd.DataFrame(rows)


def cosines() -> dict[str, Measured]:
    """Return the numbers of the question on runs under a cosine."""
    numbers = {"cosine_other": against("b1c", "cosine")}
    return measurements(numbers, conditions("b1c", "cosine"), "b1c/finals.csv")


def others(part: str, key: str) -> dict[str, Measured]:
    """Return the numbers of the questions on a late switch at another size or family."""
    numbers = {
        key: against(part, "constant"),
        f"{key}_early": against(part, "constant", LATE, EARLY),
    }
    decayed = {f"{key}_decayed_other": against(part, "decayed")}
    table = f"{part}/finals.csv"
    found = measurements(numbers, conditions(part), table)
    return found | measurements(decayed, conditions(part, "decayed"), table)


# Catch-up


def at_steps(curve: pd.DataFrame, steps: np.ndarray) -> np.ndarray:
    """Return held-out losses at steps, linear in log steps; NaN after the last."""
    x = np.log(curve["step"].to_numpy(float))
    y = curve["eval_loss"].to_numpy(float)
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
            switched = by_name[name]
            trunk = by_name[TRUNK]
            schedule = BatchSchedule.parse(str(switched["schedule.batch"].iloc[0]))
            seq_len = int(switched["seq_len"].iloc[0])
            at = -(-schedule.starts[1] // (schedule.batches[0] * seq_len))
            after = switched.loc[switched["step"] > at]
            steps = np.array([at, *after["step"]], float)
            losses = np.array([*at_steps(trunk, steps[:1]), *after["eval_loss"]])
            table = pd.DataFrame({"factor": factor, "seed": seed, "step": steps})
            table["tokens"] = [at * schedule.batches[0] * seq_len, *after["tokens"]]
            table["after"] = steps - at
            table["share"] = steps / steps[-1]
            table["to_large"] = losses - at_steps(by_name[large], steps)
            table["to_early"] = losses - at_steps(by_name[early], steps)
            tables.append(table)
    return pd.concat(tables, ignore_index=True)


def saved_tokens(runs: pd.DataFrame) -> pd.DataFrame:
    """Return log tokens to equal loss, a switched run minus its large batch alone, per seed.

    Returns:
        Columns factor, seed, log_tokens, reached. For a large batch that does not reach the loss
        the last tokens are a bound, so that log_tokens is an upper bound.
    """
    rows = []
    for factor, (name, large, _) in LATER.items():
        for seed, some in runs.groupby("seed"):
            own = smooth_curve(some[some["name"] == name], "eval_loss")
            other = smooth_curve(some[some["name"] == large], "eval_loss")
            last = own.loss[-1]
            at = np.interp(-last, -other.loss, other.log_tokens)  # losses fall
            row = {"factor": factor, "seed": seed, "log_tokens": own.log_tokens[-1] - at}
            rows.append(row | {"reached": bool(other.loss[-1] <= last)})
    return pd.DataFrame(rows)


def catching() -> dict[str, Measured]:
    """Return the numbers of the questions on catch-up, and write their tables."""
    runs = TABLES.read("b2/runs.parquet")
    table = catch_up(runs)
    saved = saved_tokens(runs)
    TABLES.write("b2/catch_up.csv", table)
    TABLES.write("b2/saved.csv", saved)
    four = table.loc[table["factor"] == "x 4"]
    late = four.loc[four["share"] >= 1 - TAIL].groupby("seed")
    ends = four.groupby("seed")["to_large"].agg(["first", "last"])
    gap = ends["last"] - ends["first"]
    opened = abs(float(ends["first"].mean()))  # what joining qualifies
    steps = f"{int(four['after'].max())} steps after the switch"
    known = conditions("b2", more=steps)
    closed = 1 - late["to_large"].mean() / ends["first"]
    found = measurements({"gap": gap, "gap_share": closed}, known, "b2/catch_up.csv")
    for key, column in (("joins", "to_large"), ("joins_other", "to_early")):
        effect = effect_of(late[column].mean().to_numpy(), opened)
        found[key] = Measured(effect, known, "b2/catch_up.csv")
    own = saved.loc[saved["factor"] == "x 4"]
    spent = Numbers.to_target(-own["log_tokens"], own["reached"])  # of the large batch alone
    return found | measurements({"tokens_saved": spent * -1}, known, "b2/saved.csv")


# The best switch point


def switch_points() -> dict[str, Measured]:
    """Return the numbers of the questions on the best switch point, and write its table."""
    finals = TABLES.read("b3/finals.csv")
    table = best_switches(finals)
    TABLES.write("b3/switch_points.csv", table)
    others = {points: paired(exponents(best_switches(finals, points))) for points in (3, 4, 5, 6)}
    slopes = {points: (one.mean, one.low, one.high) for points, one in others.items()}
    slopes = pd.DataFrame(slopes, index=["exponent", "low", "high"]).T.rename_axis("points")
    TABLES.write("b3/exponents.csv", slopes.reset_index())
    after = np.log(table["after"] / (0.3 * table["budget"])).groupby(table["seed"]).mean()
    numbers = {"switch_late": after, "switch_exponent": exponents(table) - 1}
    known = conditions_of(
        TABLES.read("b3/runs.parquet"), Tables(TABLES.folder / "b3").config, more="x 8"
    )
    if not table["inside"].all():
        show_warnings("b3", ["a best switch is at an end of the grid: a bound"])
    return measurements(numbers, known, "b3/switch_points.csv")


# The functional law


def seed_means(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the run table of mean curves over seeds, one per name."""
    first = dict.fromkeys(("step", "batch", "lr", "seq_len"), "first")
    grouped = runs.assign(run=runs["name"]).groupby(["run", "tokens"], sort=False, as_index=False)
    return grouped.agg(first | {"loss": "mean", "eval_loss": "mean"})


def rate_of(phase: str, lr: float, tokens: int) -> WarmupStableDecay:
    """Return the LR of a run at constant LR, or with its last fifth decayed to zero."""
    decayed = phase == "decayed"
    return (
        wsd(lr, tokens, WARMUP, tokens // 5) if decayed else WarmupStableDecay(lr, tokens, WARMUP)
    )


def decayed_pilots(finals: pd.DataFrame, seq_len: int) -> pd.DataFrame:
    """Return the schedules of the decayed fixed batch sizes, with the last held-out loss alone."""
    tables = []
    some = finals.loc[(finals["lr_phase"] == "decayed") & (finals["role"] == "constant")]
    for name, own in some.groupby("name"):
        batch, total, lr = own.iloc[0][["batch", "tokens", "peak_lr"]]
        steps = np.arange(1, total // (int(batch) * seq_len) + 1)
        table = pd.DataFrame({"step": steps, "tokens": steps * int(batch) * seq_len})
        table = table.assign(run=f"{name} decayed", batch=int(batch), seq_len=seq_len)
        table["lr"] = rate_of("decayed", lr, total)(table["tokens"].to_numpy())
        last = np.where(steps == steps[-1], own["eval_loss"].mean(), np.nan)
        tables.append(table.assign(loss=last, eval_loss=last))
    return pd.concat(tables, ignore_index=True) if tables else pd.DataFrame()


def fitted_law(pilots: pd.DataFrame, tokens: int) -> CurveFit:
    """Return the law whose ends of left-out pilots are best, over starts of the fitted losses."""
    fits = [
        fit_curve(pilots, warmup=WARMUP, since=round(since * tokens), options=Options(10))
        for since in SINCE
    ]
    best = min(fits, key=lambda fit: np.inf if fit.cv_error is None else fit.cv_error)
    show_warnings("functional law", best.warnings)
    return best


def predictions(runs: pd.DataFrame, finals: pd.DataFrame, pilots: tuple[str, ...]) -> pd.DataFrame:
    """Return the last losses of schedules that the law was not fitted to, and its predictions.

    The law is fitted to the pilots at constant LR and to the ends of decayed fixed batch sizes.

    Args:
        runs: Curves at constant LR.
        finals: Final losses.
        pilots: Starts of the names that are fitted at constant LR.

    Returns:
        Columns lr_phase, weights, name, measured (mean over seeds), half (95% half interval), law
        with its 90% interval (low, high), and equal_steps. That is the loss at the fixed batch size
        of equal steps, interpolated in log batch size within the phase (NaN with one batch size).
        Errors are law_error and equal_steps_error; `clock` and `since` are settings of the law.
    """
    finals = finals.loc[phases_of(finals).isin(["constant", "decayed"])]
    curves = seed_means(runs.loc[runs["name"].str.startswith(pilots)])
    decays = decayed_pilots(finals, int(runs["seq_len"].iloc[0]))
    fit = fitted_law(pd.concat([curves, decays]), int(finals["tokens"].min()))
    rows = []
    for phase, some in finals.groupby("lr_phase"):
        fixed = some.loc[some["role"] == "constant"].astype({"batch": int})
        fixed = fixed.groupby("batch")["eval_loss"].mean()
        seen = pilots if phase == "constant" else ("constant",)
        for name, own in some.loc[~some["name"].str.startswith(seen)].groupby("name"):
            one = own.iloc[0]
            tokens = int(own["tokens"].iloc[0])
            schedule = BatchSchedule.parse(str(one["batch"]))
            rate = rate_of(str(phase), one["peak_lr"], tokens)
            law = predict_schedule(fit, schedule, tokens, rate, extrapolate=True)
            mean_batch = np.log(schedule.mean_batch(tokens))
            equal = np.interp(mean_batch, np.log(fixed.index), fixed) if len(fixed) > 1 else np.nan
            row = LR_PHASES[str(phase)].columns | {
                "name": name,
                "measured": own["eval_loss"].mean(),
            }
            row |= {"half": float(half_interval(own["eval_loss"].to_numpy(float)))}
            row |= {"law": law.value, "low": law.low, "high": law.high, "equal_steps": equal}
            rows.append(row)
    table = pd.DataFrame(rows)
    for key in ("law", "equal_steps"):
        table[f"{key}_error"] = table[key] - table["measured"]
    return table.assign(clock=fit.clock, since=fit.since)


def predicted(part: str) -> pd.DataFrame:
    """Return the predictions of a part, and write them."""
    runs = TABLES.read(f"{part}/runs.parquet")
    finals = TABLES.read(f"{part}/finals.csv")
    table = predictions(runs, finals, PILOTS[part])
    TABLES.write(f"{part}/predictions.csv", table)
    return table


def law_predicts() -> Measured:
    """Return what the law's error is above that of equal steps, per schedule at constant LR."""
    table = TABLES.read("b1/predictions.csv").query("lr_phase == 'constant'")
    apart = table["law_error"].abs() - table["equal_steps_error"].abs()
    effect = effect_of(apart.to_numpy(float))
    seeds = TABLES.read("b1/finals.csv")["seed"].nunique()
    effect = replace(effect, seeds=seeds, test=f"paired t over {len(table)} schedules")
    return Measured(effect, conditions("b1"), "b1/predictions.csv")


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
    parser.add_argument("--answers", action="store_true", help="without fits of the law")
    options = parser.parse_args(arguments)
    RESULTS = options.results
    TABLES = Tables(RESULTS)
    if "finals.csv" in TABLES:  # of one part
        TABLES.write("differences.csv", differences(TABLES.read("finals.csv")))
        return
    of_endings = endings.answers_of(TABLES.folder)
    for part in {*PARTS, *of_endings} - {"b3"}:
        if f"{part}/finals.csv" in TABLES:
            finals = TABLES.read(f"{part}/finals.csv")
            TABLES.write(f"{part}/differences.csv", differences(finals))
    language = Tables(TABLES.folder / difficulty.PART)
    if "finals.csv" in language:
        difficulty.measure(language)
    for part in PILOTS:
        if f"{part}/finals.csv" in TABLES and not options.answers:
            predicted(part)
    of_languages = {difficulty.PART: partial(difficulty.answer, language)}
    files = {
        QUESTIONS: PARTS,
        difficulty.QUESTIONS: of_languages,
        endings.QUESTIONS: of_endings,
    }
    write_findings(TABLES, files, **PAPER)


if __name__ == "__main__":
    main()
