"""Tables and answers from the curves that `run.py` wrote; nothing is trained.

    python -m experiments.critical_batch.analysis        # results/critical_batch/*.csv, fits.json

After Zhang et al. (arXiv 2410.21676). The target of a model and a token budget D is the loss at D
of the best setting of the smallest batch size. At every batch size the setting counts that needs
the fewest steps to the target. Parts that are not trained are left out.
"""

import argparse
import math
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import norm

from bss.errors import InputError
from bss.files import write_json
from bss.held_out import HeldOutColumn
from bss.laws import CriticalFit, fit_critical
from bss.laws.base import Options
from bss.laws.critical.values import CriticalBatch
from bss.points.curve import points, smooth_curve
from bss.stats import LEVEL, POWER, holm
from bss.tables import read_points
from experiments.critical_batch.resampled import (
    Cell,
    Estimated,
    cells_of,
    critical,
    estimated,
    exponents,
    exponents_table,
    resampled,
)
from experiments.findings import Question, answers_table, read_questions
from experiments.shared import critical_table
from experiments.tables import Tables, add_directory

RESULTS = Path("results/critical_batch")
PUBLISHED = Path("results/published/mlperf_rcp.csv")
QUESTIONS = Path(__file__).parent / "questions.toml"
PAPER = {"paper": "2410.21676", "command": "python -m experiments.critical_batch.analysis"}

GRID, SCHEDULED = ("c1-7k", "c1-12k", "c1-27k", "c1-49k"), ("c3-wsd", "c3")
SIZE, BUDGETS, SHORT = "12k", (100_000, 200_000, 400_000, 800_000), (100_000, 200_000)
HALF_LIVES, NONE = ("1%", "4%", "16%"), "none"
CELL = ["size", "model", "params", "seq_len", "budget_tokens", "target_loss"]
RESAMPLES = 1000
LINEAR = 0.1
SCHEDULES = {"cosine": "schedule_cosine", "WSD": "schedule_wsd", "schedule-free": "schedule_free"}
CONSTANT = "constant + average"


# Points


def curves(part: str, name: str = "runs.parquet") -> pd.DataFrame:
    """Return the loss curves of a part, with the name of the model as `size`."""
    table = pd.read_parquet(RESULTS / part / name)
    return table.assign(size=table["name"].str.split(" | ", regex=False).str[0])


def trained(*parts: str, name: str = "runs.parquet") -> list[str]:
    """Return the parts that have a table of curves."""
    return [part for part in parts if (RESULTS / part / name).exists()]


def by_average(table: pd.DataFrame, averages: Sequence[str] = HALF_LIVES) -> pd.DataFrame:
    """Return every run once per weight average: `averaged` is its loss, `average` the half-life."""
    tables = []
    for average in averages:
        column = "eval_loss" if average == NONE else str(HeldOutColumn(half_life=average))
        named = table["run"] + f" {average}"
        tables.append(table.assign(run=named, average=average, averaged=table[column]))
    return pd.concat(tables, ignore_index=True)


def target_losses(smallest: pd.DataFrame, budgets: Sequence[int]) -> dict[float, int]:
    """Return the budgets that the smallest batch size reached by their targets.

    A target is the loss at the budget of the best setting of the smallest batch size.

    Args:
        smallest: Its runs, from `by_average`.
        budgets: D in tokens.

    Raises:
        InputError: If no run of it reached a budget.
    """
    rows = []
    for _, run in smallest.groupby("run", sort=False):
        curve, setting = smooth_curve(run, "averaged"), tuple(run.iloc[0][["peak_lr", "average"]])
        for budget in (d for d in budgets if run["tokens"].iloc[-1] >= d):
            at = float(np.interp(math.log(budget), curve.log_tokens, curve.loss))
            rows.append((budget, setting, at))
    if not rows:
        raise InputError(f"no run of the smallest batch size reached D = {min(budgets)}")
    losses = pd.DataFrame(rows, columns=["budget", "setting", "loss"])
    means = losses.groupby(["budget", "setting"])["loss"].agg(["size", "mean"]).reset_index()
    means = means.sort_values(["size", "mean"], ascending=[False, True])
    best = means.drop_duplicates("budget").sort_values("budget")
    return dict(zip(best["mean"], best["budget"], strict=True))


def measured(
    table: pd.DataFrame, budgets: Sequence[int], averages: Sequence[str] = HALF_LIVES
) -> pd.DataFrame:
    """Return the points of every model and sequence length at the targets of its budgets.

    Args:
        table: Loss curves with `size`.
        budgets: D in tokens.
        averages: Half-lives of weight averages, and NONE; targets are of HALF_LIVES.

    Returns:
        Columns of points with size, average and budget_tokens.
    """
    found = []
    for (size, seq_len), some in table.groupby(["size", "seq_len"], sort=False):  # type: ignore[misc]
        smallest = some.loc[some["batch"] == some["batch"].min()]
        targets = target_losses(by_average(smallest), budgets)
        met = _met(by_average(some, averages), [*targets], "averaged", "averaged")
        met["budget_tokens"] = met["target_loss"].map(targets.get)
        found.append(met.assign(size=size, seq_len=seq_len))
    return pd.concat(found, ignore_index=True)


def _met(table: pd.DataFrame, targets: Sequence[float], column: str, kind: str) -> pd.DataFrame:
    """Return points, also if no run reaches a target; large batch sizes have few evaluations."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "points: .* fewer than")
        last = [float(smooth_curve(run, column).loss[-1]) for _, run in table.groupby("run")]
        reach = {max(target, min(last)): target for target in targets}
        met = points(table, [*reach], column=column, kind=kind)
    wanted = met["target_loss"].map(reach.get)
    return met.assign(target_loss=wanted, reached=met["reached"] & (met["target_loss"] <= wanted))


def minima(table: pd.DataFrame) -> pd.DataFrame:
    """Return the best setting of each batch size: that with the most seeds, then fewest tokens.

    Returns:
        CELL, batch, settings tried, steps and tokens_to_target (geometric means over seeds).
        Then peak_lr, average, seeds and seed_noise (standard deviation of log steps). `bracketed`:
        a lower and a higher LR were tried. A batch size that missed the target has no seed.
    """
    rows = []
    for key, here in table.groupby([*CELL, "batch"], sort=False):
        row = dict(zip([*CELL, "batch"], key, strict=True))  # type: ignore[arg-type]
        rates, met = here["peak_lr"], here.loc[here["reached"]]
        settings = met.groupby(["peak_lr", "average"], sort=False)
        row |= {"settings": len(here.drop_duplicates(["peak_lr", "average"])), "seeds": 0}
        logs = [(key, np.log(some["steps"].to_numpy(float))) for key, some in settings]
        if logs:
            (lr, average), best = min(logs, key=lambda one: (-len(one[1]), one[1].mean()))  # type: ignore[misc]
            steps = float(np.exp(best.mean()))
            row |= {"steps": steps, "peak_lr": lr, "average": average, "seeds": len(best)}
            row["tokens_to_target"] = steps * here.iloc[0][["batch", "seq_len"]].prod()
            row |= {"seed_noise": best.std(ddof=1) if len(best) > 1 else np.nan}
            row["bracketed"] = bool(rates.min() < lr < rates.max())
        rows.append(row)
    return pd.DataFrame(rows).sort_values([*CELL, "batch"], ignore_index=True)


def notes(best: pd.DataFrame, fit: CriticalFit) -> list[str]:
    """Return per curve of a fit what its points do not support; "" for nothing."""
    found = []
    for at in fit.fits:
        curve = at.curve
        here = best.loc[
            (best["params"] == curve.params)
            & (best["seq_len"] == curve.seq_len)
            & (best["budget_tokens"] == curve.tokens)
            & (best["model"] == curve.model)
        ]
        ends = here.loc[(here["seeds"] > 0) & (here["bracketed"] == False), "batch"]  # noqa: E712
        missed = here.loc[here["seeds"] == 0, "batch"]
        texts = []
        if len(ends):
            texts.append(f"the best LR is an end of those tried at batch {_listed(ends)}")
        if len(missed):
            texts.append(f"the target was missed at batch {_listed(missed)}")
        above = above_linear(at)
        if above > LINEAR or not at.is_linear:
            texts.append(f"the smallest batch {at.reference:g} is {above:.0%} above linear scaling")
        found.append("; ".join(texts))
    return found


def above_linear(at: CriticalBatch) -> float:
    """Return the share of tokens above E_min = b that the smallest batch size needs: B / (b/a).

    Above LINEAR the reference is itself not in the range of linear scaling.
    """
    bend = at.B_crit.value
    return math.nan if bend is None else float(at.curve.batch[0]) / bend


def _listed(batches: Iterable[float]) -> str:
    return ", ".join(f"{batch:g}" for batch in batches)


# Fits


def designs(table: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Return the points that are fitted together, by name."""
    pairs = dict(zip(("7k", "12k", "27k"), BUDGETS, strict=False))
    together = table["size"].map(pairs.get) == table["budget_tokens"]
    return {"together": table.loc[together], "both": table}


def fitted(table: pd.DataFrame, unit: str = "sequences") -> CriticalFit:
    """Return the critical batch sizes and their law."""
    options = Options(2000, LEVEL)
    return fit_critical(table, reference="smallest", unit=unit, options=options)


def by_size(fit: CriticalFit) -> dict[str, CriticalFit]:
    """Return the curves of a fit by model size, named by their budgets."""
    parts: dict[str, list[CriticalBatch]] = {}
    for at in sorted(fit.fits, key=lambda one: (one.curve.params, one.curve.tokens)):
        named = replace(at.curve, model=f"D = {at.curve.tokens / 1e6:g}M")
        parts.setdefault(f"N = {at.curve.params // 1e3:.0f}k", []).append(replace(at, curve=named))
    return {name: replace(fit, fits=tuple(some)) for name, some in parts.items()}


def curve_table(table: pd.DataFrame, fits: Mapping[str, CriticalFit]) -> pd.DataFrame:
    """Return the critical batch size of every curve with what its points do not support."""
    best, rows = minima(table), critical_table(fits)
    return rows.assign(notes=[text for fit in fits.values() for text in notes(best, fit)])


# Answers


@dataclass(frozen=True)
class Answer:
    """The estimate that answers a question, and what it was measured on."""

    estimate: Estimated
    n: int
    conditions: str
    table: str


def grid_answers() -> dict[str, Answer]:
    """Return the answers on N and D, and write their tables."""
    runs = pd.concat([curves(part) for part in trained(*GRID)], ignore_index=True)
    table = measured(runs, BUDGETS).round(7)
    write("points.csv", table)
    fits = {name: fitted(some) for name, some in designs(table).items()}
    write_json(RESULTS / "fits.json", {name: fit.to_dict() for name, fit in fits.items()})
    write("curves.csv", curve_table(table, {"both": fits["both"]}))
    write("steps.csv", minima(table))
    cells = sorted(cells_of(table), key=lambda cell: cell.params)
    values = [critical(c, t) for c, t in zip(cells, resampled(cells, RESAMPLES), strict=True)]
    laws = {name: exponents(cells, [v[name] for v in values]) for name in ("cbs", "b/a")}
    write("exponents.csv", exponents_table(laws))
    told = f"{', '.join(c.size for c in cells)} (muP); D 0.1M to 0.8M; LR tuned; averaged weights"
    found = {}
    for quantity, end in (("cbs", ""), ("b/a", "_other")):
        law = laws[quantity]
        chosen = {"together": (1, 1), "data": (0, 1), "size": (1, 0), "data_size": (-1, 1)}
        estimates = {key: law.of(*weights) for key, weights in chosen.items()}
        if not end:
            estimates["published_exponent"] = law.of(1, 1, 0.47)
            estimates["width"] = _last_slope(cells, [v["cbs"] for v in values])
        for key, one in estimates.items():
            found[key + end] = Answer(one, law.curves, f"{told}; 2 seeds", "exponents.csv")
    return found | average_answers(curves(f"c1-{SIZE}"))


def _last_slope(cells: Sequence[Cell], values: Sequence[np.ndarray]) -> Estimated:
    """Return the slope of log critical batch over log N between the two widest models."""
    shared = min(value.shape[1] for value in values[-2:])
    logs = np.log(values[-1][:, :shared] / values[-2][:, :shared])
    return estimated(logs.mean(axis=1) / math.log(cells[-1].params / cells[-2].params))


def average_answers(runs: pd.DataFrame) -> dict[str, Answer]:
    """Return the answers on weight averages, and write the tokens to the targets by half-life."""
    table = measured(runs, BUDGETS, (*HALF_LIVES, NONE))
    [cell] = cells_of(table)
    tokens, rows = {}, []
    for average in (*HALF_LIVES, NONE):
        some = table.loc[table["average"] == average]
        [part] = cells_of(some)
        tokens[average] = resampled([part], RESAMPLES)[0]
        for i, batch in enumerate(part.batches):
            for k, budget in enumerate(part.budgets):
                row = {"average": average, "batch_tokens": batch, "budget_tokens": budget}
                rows.append(row | {"tokens_to_target": np.exp(tokens[average][0, i, k])})
    write("averages.csv", pd.DataFrame(rows))
    [averaged] = resampled(cells_of(table.loc[table["average"] != NONE]), RESAMPLES)
    apart = averaged - tokens[NONE]
    last = np.flatnonzero(np.isfinite(apart[0]).all(axis=0))[-1]  # D that all runs reached
    gain = apart[:, :, last]
    told = f"{SIZE} parameters; D {cell.budgets[last] / 1e6:g}M; batch 32 to 2,048 tokens"
    numbers = {"averages": gain.mean(axis=1), "averages_batch": gain[:, -1] - gain[:, 0]}
    return {
        key: Answer(estimated(draws), cell.logs[0].shape[2], told, "averages.csv")
        for key, draws in numbers.items()
    }


@dataclass(frozen=True)
class Pair:
    """Two cells whose critical batch sizes are compared, by the value of a column.

    Attributes:
        part: That was trained for it; the other cell may be of the grid.
        column, first, second: What distinguishes the cells.
        smallest: Smallest batch size that counts, in tokens.
        conditions: In words.
    """

    part: str
    column: str
    first: Any
    second: Any
    smallest: int
    conditions: str


APPENDIX = ("appendix-b", "size", SIZE)
PAIRS = {
    "shape": Pair("c2-shape", "size", SIZE, "4 layers", 32, "1 layer of width 32, 4 of width 16"),
    "context": Pair("c2-context", "seq_len", 16, 64, 64, "sequences of 16 and of 64 tokens"),
    "beta1_other": Pair(*APPENDIX, "beta1 0.95", 32, "beta1 0.95 against 0.9"),
    "beta2_other": Pair(*APPENDIX, "beta2 0.99", 32, "beta2 0.99 against a half-life in tokens"),
    "warmup_other": Pair(*APPENDIX, "warm-up 2.5K", 32, "warm-up of 2.5K against 10K tokens"),
}


def pair_answers(part: str) -> dict[str, Answer]:
    """Return log critical batch in tokens of each second cell minus the first; write the tables."""
    runs = pd.concat([curves(f"c1-{SIZE}"), curves(part)], ignore_index=True)
    table, name = measured(runs, SHORT), part.removeprefix("c2-")
    table["model"] = table["size"]
    fits = {f"D = {d}": fitted(some, "tokens") for d, some in table.groupby("budget_tokens")}
    write(f"curves_{name}.csv", curve_table(table, fits))
    write(f"steps_{name}.csv", minima(table))
    found = {}
    for key, pair in PAIRS.items():
        if pair.part == part:
            told = f"12k parameters; {pair.conditions}; D 0.1M and 0.2M; 2 seeds"
            ratio = _log_ratio(table, pair)
            found[key] = Answer(ratio, 2 * len(SHORT), told, f"curves_{name}.csv")
    return found


def _log_ratio(table: pd.DataFrame, pair: Pair) -> Estimated:
    """Return log critical batch of the second cell of a pair minus the first, mean over D."""
    logs = []
    for seed, value in enumerate((pair.first, pair.second)):
        [cell] = cells_of(table.loc[table[pair.column] == value])
        [tokens] = resampled([cell], RESAMPLES, seed=seed)
        logs.append(np.log(critical(cell, tokens, pair.smallest)["cbs"]))
    return estimated((logs[1] - logs[0]).mean(axis=1))


def schedule_answers() -> dict[str, Answer]:
    """Return the answers on LR schedules, and write the steps of each to the target."""
    parts = trained(*SCHEDULED, name="schedules.parquet")
    constant = curves(f"c1-{SIZE}")
    others = pd.concat([curves(part, "schedules.parquet") for part in parts])
    smallest = by_average(constant.loc[constant["batch"] == constant["batch"].min()])
    [target] = target_losses(smallest, SHORT[-1:])
    batches = sorted(others["batch"].unique())
    constant = constant.loc[constant["batch"].isin(batches)]
    tables = {CONSTANT: _met(by_average(constant), [target], "averaged", "averaged")}
    tables["constant"] = _met(constant.assign(average=NONE), [target], "eval_loss", "stable")
    for name, some in others.groupby("name", sort=False):
        ends = final_losses(some) if name in ("cosine", "WSD") else some
        tables[str(name)] = _met(ends.assign(average=NONE), [target], "eval_loss", "annealed")
    best, draws = [], {}
    for name, table in tables.items():
        table = table.assign(size=SIZE, budget_tokens=SHORT[-1])
        best.append(minima(table).assign(schedule=name))
        tokens = resampled(cells_of(table), RESAMPLES)[0][:, :, 0]
        longest = np.log(table.groupby("batch")["tokens_to_target"].max().to_numpy(float))
        draws[name] = np.where(np.isnan(tokens), longest, tokens)
    apart = {name: some - draws[CONSTANT] for name, some in draws.items()}
    rows = pd.concat(best, ignore_index=True)
    needed = rows.loc[rows["schedule"] == CONSTANT].set_index("batch")["tokens_to_target"]
    rows["relative"] = rows["tokens_to_target"] / rows["batch"].map(needed.get)
    rows["batch_tokens"] = rows["batch"] * rows["seq_len"]
    rows["error"] = [
        estimated(apart[row["schedule"]][:, batches.index(row["batch"])]).error
        for row in rows.to_dict("records")
    ]
    write("schedules.csv", rows)
    told = f"{SIZE} parameters; target of D 0.2M; batch 64, 512 and 2,048 tokens; 2 seeds"
    return {
        key: Answer(estimated(apart[name].mean(axis=1)), 6, told, "schedules.csv")
        for name, key in SCHEDULES.items()
        if name in draws
    }


def final_losses(table: pd.DataFrame) -> pd.DataFrame:
    """Return the last row of every run; horizons of one batch size, LR and seed form one curve."""
    last = table.drop_duplicates("run", keep="last")
    keys = zip(last["batch"], last["peak_lr"], last["seed"], strict=True)
    last = last.assign(run=[f"batch {batch}, LR {lr:g}, seed {seed}" for batch, lr, seed in keys])
    counts = last.groupby("run")["tokens"].transform("size")
    return last.loc[counts >= 3].sort_values(["run", "tokens"], ignore_index=True)


# Published runs


def published_table() -> pd.DataFrame:
    """Return b/a of six published models with 95% intervals, and what they do not support."""
    rows = []
    for name, some in read_points(str(PUBLISHED)).groupby("model", sort=False):
        row = {"model": name, "params": some["params"].iloc[0], "seq_len": some["seq_len"].iloc[0]}
        row |= {"smallest": some["batch"].min(), "largest": some["batch"].max()}
        median = some.groupby("batch")["steps"].transform("median")
        odd = some.loc[(some["steps"] / median > 5) | (some["steps"] / median < 0.2)]
        row["outliers"] = "; ".join(f"batch {r.batch}: {r.steps:g} steps" for r in odd.itertuples())
        fit = fitted(some.drop(odd.index))
        [at] = fit.fits
        row |= {"B_crit": at.B_crit.value, "low": at.B_crit.low, "high": at.B_crit.high}
        row |= {"above_linear": above_linear(at), "notes": "; ".join(fit.warnings)}
        rows.append(row)
    return pd.DataFrame(rows)


# Findings


def findings(questions: Sequence[Question], answers: Mapping[str, Answer]) -> pd.DataFrame:
    """Return one row per question, decided as `questions.toml` says."""
    tested = [q.key for q in questions if q.sign and q.key in answers]
    adjusted = holm([answers[key].estimate.p for key in tested]) if tested else []
    p = dict(zip(tested, adjusted, strict=True))

    def answered(question: Question, one: Answer) -> dict[str, Any]:
        low, high = one.estimate.ends()
        row = {"effect": one.estimate.value, "low": low, "high": high, "n": one.n}
        row |= {"conditions": one.conditions, "table": one.table, "p": p.get(question.key)}
        row["answer"] = decided(question, one.estimate, p.get(question.key, 1.0))
        row["detectable"] = float(norm.ppf((1 + LEVEL) / 2) + norm.ppf(POWER)) * one.estimate.error
        if row["answer"] == "inconclusive":
            ratio = row["detectable"] / question.margin
            row["seeds_needed"] = math.ceil(question.seeds * ratio**2)
        return row

    return answers_table(questions, answers, answered, **PAPER)


def decided(question: Question, one: Estimated, p: float) -> str:
    """Return the answer to a question from its estimate and adjusted p value."""
    within = max(map(abs, one.ends(0.90))) < question.margin
    if question.sign == 0:
        outside = min(map(abs, one.ends())) > question.margin and one.p < 1 - LEVEL
        return "supported" if within else "contradicted" if outside else "inconclusive"
    if p < 1 - LEVEL:
        return "supported" if np.sign(one.value) == question.sign else "contradicted"
    return "no relevant effect" if within else "inconclusive"


def write(name: str, table: pd.DataFrame) -> None:
    """Write a table of the results."""
    Tables(RESULTS).write(name, table)


def main() -> None:
    """Write the tables of every part that was trained, and findings.csv."""
    global RESULTS  # the parts of this file read and write it
    parser = argparse.ArgumentParser(description=__doc__)
    add_directory(parser, RESULTS)
    RESULTS = parser.parse_args().results
    answers: dict[str, Answer] = {}
    if trained(*GRID):
        answers |= grid_answers()
    for part in trained(*dict.fromkeys(pair.part for pair in PAIRS.values())):
        answers |= pair_answers(part)
    if trained(*SCHEDULED, name="schedules.parquet"):
        answers |= schedule_answers()
    write("published.csv", published_table())
    write("findings.csv", findings(read_questions(QUESTIONS), answers))


if __name__ == "__main__":
    main()
