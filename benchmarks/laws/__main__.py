"""Fits of planted data and of two published tables, compared with the truth.

    python -m benchmarks.laws SETS.jsonl                       # all sets that are missing
    python -m benchmarks.laws SETS.jsonl --only schedules      # of these questions
    python -m benchmarks.laws SETS.jsonl --table OUT.csv       # summary of the sets that are there
    python -m benchmarks.laws OUT.csv --rules RULES.csv        # judged beside baselines/laws.csv

One line per finished set goes to SETS.jsonl, so that the same command continues. The summary has
one row per question, kind and measure. It calls `fit_es`, `fit_loss`, `fit_curve`, `fit_critical`
and `bss fit` alone, so that later code can be measured in the same way.
"""

import argparse
import itertools
import json
import math
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.laws import (
    planted_curves,
    planted_minima,
    planted_schedules,
    planted_steps,
    planted_tables,
)
from benchmarks.public_laws.splits import losses_of, splits_of
from bss.laws import check_losses, fit_critical, fit_curve, fit_es, fit_loss
from bss.laws.base import Options
from bss.laws.functional.data import curves_of
from bss.laws.functional.values import last_losses
from bss.points.curve import points
from bss.provenance import commit, machine

RESULTS = Path(__file__).parents[2] / "results"
BASELINE = Path(__file__).parents[1] / "baselines" / "laws.csv"
PUBLISHED = {"dense": "steplaw_dense_best.csv", "rates": "steplaw_rates.csv"}
SEQ_LEN = 2048  # of the published runs
NEAR = 0.1  # nats above the best loss of the same model and budget, up to which rows count
LARGEST_BUDGETS = 8e10  # tokens
SEEDS = range(10)
CURVES = 50  # sets per seed and kind of answer, so 1,000
MINIMA = 150  # sets per kind
SHAPES = 20  # sets per shape and design of S(B)
RESAMPLES = {"curves": 20, "tables": 10, "schedules": 40, "published": 10,
             "shapes": 400}  # fmt: skip
COMMANDS = {
    "fit es, results/es_wsd/runs.parquet": ("es", "es_wsd/runs.parquet"),
    "fit es, results/demo/runs.parquet": ("es", "demo/runs.parquet"),
    "fit loss, 170 rows of steplaw_dense_best.csv": ("table", "published/steplaw_dense_best.csv"),
    "fit loss, 2,702 rows of steplaw_rates.csv": ("table", "RATES"),
    "fit curve, 30 runs of es_wsd/runs.parquet": ("curve", "CURVES", "--warmup", "50K",
                                                  "--since", "50%"),
}  # fmt: skip

PILOTS: dict[str, Any] = {"warmup": 50_000, "since": 500_000}  # as of results/late_switch/fit.json
PEAK_DIGITS = 6  # of a peak LR: steps read it at slightly different places
NATS = ("published", "losses", "far batch")
UNTOLD_LRS = 1e-3 * 2.0 ** np.arange(-3, 4)
CURVED = 0.04  # nats at an LR e times the best, as of tests/laws/final_loss/planted.py
FOREIGN = ("plain", "missing", "high", "low")
SINGLE = {"costs": "cpu_seconds", "reported": "error_rms"}  # questions of one number a kind

Answer = tuple[Any, ...]
"""What is true, the estimate, and its interval; no estimate where the fit gives none."""
Set = dict[str, Any]


def curves(law: str, seed: int) -> Iterator[tuple[str, Answer]]:
    """B_opt at one target of a set of curves; where the smallest batch is best none is due."""
    one = planted_curves.planted(law, seed)
    fit = fit_es(points(one.runs, [one.target]), options=Options(RESAMPLES["curves"]))
    best = fit.fits[0].best
    assert best is not None
    yield law, (one.best, best.value, best.low, best.high)


def minima(seed: int) -> Iterator[tuple[str, Answer]]:
    """Yield measured minima without B_opt, and of tables of which small batch sizes miss a loss."""
    for kind in planted_minima.FLAT:
        for noise in (1, 2, 4):
            for true, value in planted_minima.flat(kind, noise, seed):
                yield f"{kind}, {noise} times the noise", (true, value, value, value)
    for kind in planted_minima.MISSED:
        for seeds in (1, 2):
            yield f"{kind}, {seeds} a batch", planted_minima.missed(kind, seeds, seed)


def shapes(index: int) -> Iterator[tuple[str, Answer]]:
    """Critical batch size of one curve of each shape of S(B) and each design."""
    for shape, design in itertools.product(planted_steps.SHAPES, planted_steps.DESIGNS):
        points, true = planted_steps.planted(shape, *design, index)
        options = Options(RESAMPLES["shapes"])
        fit = fit_critical(points, reference="smallest", options=options)
        found = fit.fits[0].cbs
        ends = (found.low or 0.0, found.high or math.inf)
        yield shape, (true, found.value, *ends)
        yield f"{shape}, {design[0]} sizes, {design[1]} a size", (true, found.value, *ends)


def tables(kind: str, seed: int, index: int, lr: bool = True) -> Iterator[tuple[str, Answer]]:
    """B_opt of each model and budget of a table; with `lr` of one untuned LR per batch."""
    one = planted_tables.planted(kind, seed, index)
    table = check_losses(one.table if lr else one.table.drop(columns="lr"))
    fit = fit_loss(table, options=Options(RESAMPLES["tables"]))
    for at in fit.optima:
        best = one.best[at.params, at.tokens]
        yield kind, (best, at.batch.value, at.batch.low, at.batch.high)


def untold(seed: int) -> Iterator[tuple[str, Answer]]:
    """B_opt of each model and budget of a table that has several LRs per batch and no LR column."""
    one = planted_tables.planted("plain", seed, 0)
    off = [np.log(lr / one.table["lr"]) for lr in UNTOLD_LRS]
    rows = [one.table.assign(loss=one.table["loss"] + CURVED * x**2) for x in off]
    table = check_losses(pd.concat(rows, ignore_index=True).drop(columns="lr"))
    fit = fit_loss(table, options=Options(RESAMPLES["tables"]))
    for at in fit.optima:
        best = one.best[at.params, at.tokens]
        yield "LRs that are not told", (best, at.batch.value, at.batch.low, at.batch.high)


def schedules(seed: int) -> Iterator[tuple[str, Answer]]:
    """Final losses of runs under schedules that the fit has not seen."""
    one = planted_schedules.planted(seed)
    fit = fit_curve(one.runs, options=Options(RESAMPLES["schedules"]))
    ends = one.unseen.groupby("run", sort=False).last().reset_index()
    answers = last_losses(fit, curves_of(one.unseen, every_row=True))
    most = float(np.max(one.runs["lr"] / one.runs["batch"])) * 1.25
    noise: Any = (one.unseen["lr"] / one.unseen["batch"]).groupby(one.unseen["run"]).max()
    for row, answer in zip(ends.to_dict("records"), answers, strict=True):
        kind = "seen"
        if noise[row["run"]] > most:
            kind = "noisier than measured"
        elif row["horizon"]:
            kind = "new horizon"
        elif row["peak"]:
            kind = "new peak"
        yield kind, (row["measured"], answer.value, answer.low, answer.high)


def one_peak(seed: int) -> Iterator[tuple[str, Answer]]:
    """Final losses at peak LRs that the fit has not seen: all of its runs have one."""
    one = planted_schedules.one_peak(seed)
    fit = fit_curve(one.runs, options=Options(RESAMPLES["schedules"]))
    ends = one.unseen.groupby("run", sort=False).last().reset_index()
    answers = last_losses(fit, curves_of(one.unseen, every_row=True))
    for row, answer in zip(ends.to_dict("records"), answers, strict=True):
        kind = f"planted, {row['times']:g} times the peak"
        yield kind, (row["measured"], answer.value, answer.low, answer.high)


def pilots(peak: float) -> Iterator[tuple[str, Answer]]:
    """The same of the pilots of late_switch, fitted to those of one peak LR."""
    runs = pd.read_parquet(RESULTS / "late_switch/pilots.parquet")
    peaks = runs.groupby("run")["lr"].transform("max").round(PEAK_DIGITS)
    fit = fit_curve(runs.loc[peaks == peak], options=Options(RESAMPLES["schedules"]), **PILOTS)
    curves = curves_of(runs, warmup=fit.warmup, every_row=True)
    losses = curves.loss[np.arange(len(curves.runs)), curves.last]
    for loss, own, answer in zip(losses, curves.peak_lrs, last_losses(fit, curves), strict=True):
        kind = f"late_switch, {own / peak:.3g} times the peak"
        yield kind, (float(loss), answer.value, answer.low, answer.high)


def losses(kind: str, seed: int, index: int) -> Iterator[tuple[str, Answer]]:
    """Losses of the largest model of a table and of one smaller (N, D), by a fit of the others."""
    table = check_losses(planted_tables.planted(kind, seed, index).table)
    largest = table["params"] == table["params"].max()
    cells = table.loc[~largest].groupby(["params", "tokens"]).ngroup().reindex(table.index)
    inner = cells == index % (cells.max() + 1)
    fit = fit_loss(table.loc[~largest & ~inner], options=Options(RESAMPLES["tables"]))
    for name, out in (("largest model", largest), ("one cell", inner)):
        found = fit.predict(table.loc[out])[["loss", "loss_low", "loss_high"]]
        for loss, one in zip(table.loc[out, "loss"], found.to_numpy(float).tolist(), strict=True):
            yield f"{kind}, {name}", (float(loss), *one)


def far_batch(turn: int) -> Iterator[tuple[str, Answer]]:
    """Losses of batch sizes 8 times the fitted ones or more, of the published best LRs."""
    table = losses_of("steplaw tuned", None)
    assert table is not None
    split = [one for one in splits_of("steplaw tuned", table) if one.kind == "far batch"][turn]
    fit = fit_loss(table.loc[split.fitted], options=Options(RESAMPLES["published"]))
    rows = table.loc[split.scored]
    found = fit.predict(rows)[["loss", "loss_low", "loss_high"]].to_numpy(float).tolist()
    for loss, one in zip(rows["loss"], found, strict=True):
        yield "dense, far batch", (float(loss), *one)


def reported(name: str) -> Iterator[tuple[str, Answer]]:
    """Yield the errors at left-out rows that a fit of the whole table reports itself, in nats."""
    fit = fit_loss(published(name)[0], options=Options(RESAMPLES["published"]))
    for fold, error in fit.left_out.items():
        yield f"{name}, {fold}", (math.nan, error, None, None)


@cache
def published(name: str) -> tuple[pd.DataFrame, np.ndarray, dict[str, np.ndarray]]:
    """Return a published table, its rows near the best of each (N, D), and the folds."""
    frame = pd.read_csv(RESULTS / "published" / PUBLISHED[name])
    frame = frame.rename(columns={"peak_lr": "lr"}).assign(seq_len=SEQ_LEN)
    cell: Any = frame.groupby(["params", "tokens"], sort=True)
    number = cell.ngroup().to_numpy()
    params = frame["params"].to_numpy()
    folds = {f"cell {i}": number == i for i in range(cell.ngroups)}
    folds |= {"largest model": params == params.max()}
    folds |= {"budgets from 80B tokens": frame["tokens"].to_numpy() >= LARGEST_BUDGETS}
    near = frame["loss"] <= cell["loss"].transform("min") + NEAR
    return check_losses(frame), near.to_numpy(), folds


def left_out(name: str, fold: str) -> Iterator[tuple[str, Answer]]:
    """Losses of the rows of a fold, by a fit of the others."""
    table, near, folds = published(name)
    out = folds[fold]
    fit = fit_loss(table.loc[~out], options=Options(RESAMPLES["published"]))
    rows = table.loc[out & near]
    kind = f"{name}, {'cells' if fold.startswith('cell') else fold}"
    found = fit.predict(rows)[["loss", "loss_low", "loss_high"]].to_numpy(float).tolist()
    for loss, one in zip(rows["loss"], found, strict=True):
        yield kind, (float(loss), *one)


def costs(name: str) -> Iterator[tuple[str, Answer]]:
    """CPU seconds of `bss fit` with its defaults, on one core, start-up included."""
    kind, table, *more = COMMANDS[name]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "table.csv"
        if table == "RATES":
            published("rates")[0].to_csv(path, index=False)
        elif table == "CURVES":
            runs = pd.read_parquet(RESULTS / "es_wsd/runs.parquet")
            path = path.with_suffix(".parquet")
            runs[runs["run"].isin([*runs["run"].drop_duplicates()[:30]])].to_parquet(path)
        else:
            path = RESULTS / table
        before = _children()
        words = [sys.executable, "-m", "bss", "fit", kind, str(path), *more]
        cores = os.sched_getaffinity(0)
        os.sched_setaffinity(0, {min(cores)})  # the command inherits it
        subprocess.run(words, env=os.environ | ONE_THREAD, stdout=subprocess.DEVNULL, check=True)
        os.sched_setaffinity(0, cores)
        yield name, (math.nan, _children() - before, None, None)


ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false"}


def _children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def sets() -> Iterator[tuple[str, str, Callable[[], Iterator[tuple[str, Answer]]]]]:
    """Question, name and fit of each set, in an order that covers all kinds early."""
    yield from (("published", f"dense, {fold}", partial(left_out, "dense", fold))
                for fold in published("dense")[2])  # fmt: skip
    yield "reported", "dense", partial(reported, "dense")
    yield from (("costs", name, partial(costs, name)) for name in COMMANDS)
    yield from (("schedules", f"{seed}", partial(schedules, seed)) for seed in SEEDS)
    yield from (("far batch", f"dense {turn}", partial(far_batch, turn)) for turn in (0, 1))
    yield from (("one peak", f"{seed}", partial(one_peak, seed)) for seed in SEEDS)
    yield from (("one peak", f"pilots {lr}", partial(pilots, lr)) for lr in (0.002, 0.004))
    for seed, kind in itertools.product(SEEDS[:4], FOREIGN):
        yield "losses", f"{kind} {seed}", partial(losses, kind, seed, 0)
    yield from (("minima", f"{seed}", partial(minima, seed)) for seed in range(MINIMA))
    yield from (("shapes", f"{index}", partial(shapes, index)) for index in range(SHAPES))
    yield from (("untold", f"{seed}", partial(untold, seed)) for seed in SEEDS[:4])
    for seed in SEEDS:
        for i in range(CURVES * seed, CURVES * (seed + 1)):
            for law in ("inner", planted_curves.SMALLEST[i % 2]):
                yield "curves", f"{law} {i}", partial(curves, law, i)
        for lr, kind in itertools.product((True, False), planted_tables.KINDS):
            one = kind == "one cell"
            question = "tables" if lr else "tables without LR"
            for i in range(planted_tables.ONE_CELL if one else planted_tables.A_KIND):
                yield question, f"{kind} {seed} {i}", partial(tables, kind, seed, i, lr)
    yield from (("published", f"rates, {fold}", partial(left_out, "rates", fold))
                for fold in reversed(published("rates")[2]))  # fmt: skip
    yield "reported", "rates", partial(reported, "rates")


def measure(path: Path, only: set[str]) -> None:
    """Append one line per set that is missing."""
    done = {(one["question"], one["set"]) for one in read(path)}
    made = {"commit": commit(), "machine": machine()}
    for question, name, answered in sets():
        if (question, name) in done or (only and question not in only):
            continue
        start = time.process_time()
        answers = list(answered())
        seconds = round(time.process_time() - start, 2)
        line = {"question": question, "set": name, "answers": answers, "cpu_seconds": seconds}
        with path.open("a") as file:
            file.write(json.dumps(line | made) + "\n")
        print(question, name, seconds, flush=True)


def read(path: Path) -> list[Set]:
    """Return the finished sets."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.is_file() else []


def summary(found: list[Set]) -> pd.DataFrame:
    """One row per question, kind and measure, with the number of answers that it is of."""
    groups: dict[tuple[str, str], list[Answer]] = {}
    for one in found:
        for kind, answer in one["answers"]:
            groups.setdefault((one["question"], kind), []).append(answer)
    rows = [
        (*group, *measured)
        for group, answers in groups.items()
        for measured in (
            [(SINGLE[group[0]], np.mean([one[1] for one in answers]), len(answers))]
            if group[0] in SINGLE
            else measures(group[0], answers)
        )
    ]
    for question in dict.fromkeys(
        one["question"] for one in found if one["question"] not in SINGLE
    ):
        seconds = [one["cpu_seconds"] for one in found if one["question"] == question]
        rows.append(
            (question, "all", "cpu_seconds_per_set_median", np.median(seconds), len(seconds))
        )
    return pd.DataFrame(rows, columns=pd.Index(["question", "kind", "measure", "value", "n"]))


def measures(question: str, answers: list[Answer]) -> Iterator[tuple[str, float, int]]:
    """Measure, value and number of answers; widths are high/low, errors of logs (else of nats)."""
    told = np.array([one for one in answers if one[1] is not None], float).reshape(-1, 4)
    yield "share_with_number", len(told) / len(answers), len(answers)
    if not len(told):
        return
    true, value, low, high = told.T
    error = value - true if question in NATS else np.log(value / true)
    yield "coverage", float(np.mean((low <= true) & (true <= high))), len(told)
    yield "width_median", float(np.median(high / low)), len(told)
    yield "width_p90", float(np.quantile(high / low, 0.9)), len(told)
    yield "error_rms", float(np.sqrt(np.mean(error**2))), len(told)
    yield "error_median", float(np.median(np.abs(error))), len(told)
    yield "bias", float(np.mean(error)), len(told)


RULES = {
    "share_with_number": (
        "at least .95 times before; at most .005 where there is no B_opt",
        lambda before, after: after <= 0.005 if before < 0.01 else after >= 0.95 * before,
    ),
    "coverage": (
        "within .03 of before or of .9, or between",
        lambda before, after: min(before, 0.9) - 0.03 <= after <= max(before, 0.9) + 0.03,
    ),
    "width_median": (
        "log at most 1.3 times before",
        lambda before, after: math.log(after) <= 1.3 * math.log(before),
    ),
    "error_rms": ("at most 1.15 times before", lambda before, after: after <= 1.15 * before),
}
"""Limit of each measure, and whether a value keeps it; a width is high/low."""


def judged(after: pd.DataFrame) -> pd.DataFrame:
    """Return one row per question, kind and rule: before, after, and whether the rule is kept."""
    keys = ["question", "kind", "measure"]
    table = pd.read_csv(BASELINE).merge(after, on=keys, suffixes=("_before", "_after"))
    ruled = table["measure"].isin([*RULES]) & ~table["question"].isin([*SINGLE])
    ruled &= (table["measure"] != "error_rms") | (table["question"] == "published")
    table = table.loc[ruled].reset_index(drop=True)
    pairs = table[["measure", "value_before", "value_after"]].itertuples(index=False)
    kept = [RULES[measure][1](before, after) for measure, before, after in pairs]
    return table.assign(limit=[RULES[name][0] for name in table["measure"]], kept=kept)


def main() -> None:
    """Measure what is missing, or write the summary."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("sets", type=Path, help="JSON lines, one per finished set")
    parser.add_argument("--only", default="", help="questions, with commas")
    parser.add_argument("--table", type=Path, help="write the summary here instead")
    parser.add_argument("--rules", type=Path, help="judge a summary, and write that here instead")
    options = parser.parse_args()
    if options.rules:
        table = judged(pd.read_csv(options.sets))
        table.to_csv(options.rules, index=False, lineterminator="\n")
        print(table.loc[~table["kept"]].to_string())
    elif options.table is None:
        measure(options.sets, {*filter(None, options.only.split(","))})
    else:
        table = summary(read(options.sets))
        table["value"] = [float(f"{x:.6g}") for x in table["value"]]
        table.to_csv(options.table, index=False, lineterminator="\n")
        print(table.to_string())


if __name__ == "__main__":
    main()
