"""Tables and answers from the curves that `run.py` wrote; nothing is trained.

    python -m experiments.critical_batch.analysis        # results/critical_batch/*.csv, fits.json
    python -m experiments.critical_batch.analysis --answers  # without the fits of single curves

After Zhang et al. (arXiv 2410.21676). The target of a model and a token budget D is the loss at D
of the best setting of the smallest batch size. At every batch size the setting counts that needs
the fewest steps to the target. Parts that are not trained are left out.
"""

import argparse
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bss.errors import InputError
from bss.files import write_json
from bss.held_out import HeldOutColumn
from bss.laws import CriticalFit, fit_critical
from bss.laws.base import Options
from bss.laws.critical.values import CriticalBatch
from bss.points.curve import points, smooth_curve
from bss.stats import LEVEL, MOST_CENSORED, Effect, Numbers, effect_of, mean_of
from bss.tables import read_points
from experiments.arms import with_arms
from experiments.conditions import Conditions, conditions_of
from experiments.critical_batch.resampled import (
    Cell,
    Exponents,
    cells_of,
    critical,
    estimated,
    exponents,
    exponents_table,
    freedom_of,
    resampled,
)
from experiments.findings import Measured, findings, measurements, read_questions
from experiments.shared import critical_table
from experiments.tables import Tables, add_directory, show_warnings, shown_warnings

RESULTS = Path("results/critical_batch")
PUBLISHED = Path("results/published/mlperf_rcp.csv")
QUESTIONS = Path(__file__).parent / "questions.toml"
WIDTH_QUESTIONS = Path(__file__).parent / "sizes.toml"
SETTING_QUESTIONS = Path(__file__).parent / "settings.toml"
PAPER = {"paper": "2410.21676", "command": "python -m experiments.critical_batch.analysis"}

GRID = ("c1-7k", "c1-12k", "c1-27k", "c1-49k")
WIDTHS = ("c4-7k", "c4-12k", "c4-27k", "c4-49k", "c4-111k", "c4-197k")
SCHEDULED = ("c3-wsd", "c3")
SIZE = "12k"
BUDGETS = (100_000, 200_000, 400_000, 800_000)
SHORT = (100_000, 200_000)
HALF_LIVES = ("1%", "4%", "16%")
NONE = "none"
CELL = ["size", "model", "params", "seq_len", "budget_tokens", "target_loss"]
RESAMPLES = 1000
FEWEST_WIDTHS = 4  # one more than the unknowns of the law, so that one can be left out
LINEAR = 0.1
SCHEDULES = {"cosine": "schedule_cosine", "WSD": "schedule_wsd", "schedule-free": "schedule_free"}
CONSTANT = "constant + average"


# Points


def curves(part: str, name: str = "runs.parquet") -> pd.DataFrame:
    """Return the loss curves of a part, with the name of the model, or LR schedule, as `size`."""
    table = with_arms(pd.read_parquet(RESULTS / part / name))
    return table if "size" in table else table.assign(size=table["name"])


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
        curve = smooth_curve(run, "averaged")
        setting = tuple(run.iloc[0][["peak_lr", "average"]])
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
        met = _met(by_average(some, averages), [*targets], "averaged", weights="averaged")
        met["budget_tokens"] = met["target_loss"].map(targets.get)
        found.append(met.assign(size=size, seq_len=seq_len))
    return pd.concat(found, ignore_index=True)


def _met(
    table: pd.DataFrame,
    targets: Sequence[float],
    column: str,
    lr_phase: str = "constant",
    weights: str = "last",
) -> pd.DataFrame:
    """Return points, also if no run reaches a target; large batch sizes have few evaluations."""
    with shown_warnings(f"points at {', '.join(f'{target:.3f}' for target in targets)}"):
        last = [float(smooth_curve(run, column).loss[-1]) for _, run in table.groupby("run")]
        reach = {max(target, min(last)): target for target in targets}
        met = points(table, [*reach], column=column, lr_phase=lr_phase, weights=weights)
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
        rates = here["peak_lr"]
        met = here.loc[here["reached"]]
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
    fit = fit_critical(table, reference="smallest", unit=unit, options=options)
    show_warnings("critical batch size", fit.warnings)
    return fit


def by_size(fit: CriticalFit) -> dict[str, CriticalFit]:
    """Return the curves of a fit by model size, named by their budgets."""
    parts: dict[str, list[CriticalBatch]] = {}
    for at in sorted(fit.fits, key=lambda one: (one.curve.params, one.curve.tokens)):
        named = replace(at.curve, model=f"D = {at.curve.tokens / 1e6:g}M")
        parts.setdefault(f"N = {at.curve.params // 1e3:.0f}k", []).append(replace(at, curve=named))
    return {name: replace(fit, fits=tuple(some)) for name, some in parts.items()}


def curve_table(table: pd.DataFrame, fits: Mapping[str, CriticalFit]) -> pd.DataFrame:
    """Return the critical batch size of every curve with what its points do not support."""
    best = minima(table)
    rows = critical_table(fits)
    return rows.assign(notes=[text for fit in fits.values() for text in notes(best, fit)])


# Answers


def grid() -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the runs and the points of all model sizes."""
    runs = pd.concat([curves(part) for part in trained(*GRID)], ignore_index=True)
    return runs, measured(runs, BUDGETS).round(7)


def grid_fits() -> None:
    """Write the critical batch size of every curve of the grid."""
    _, table = grid()
    write("points.csv", table)
    fits = {name: fitted(some) for name, some in designs(table).items()}
    write_json(RESULTS / "fits.json", {name: fit.to_dict() for name, fit in fits.items()})
    write("curves.csv", curve_table(table, {"both": fits["both"]}))
    write("steps.csv", minima(table))


def grid_cells(table: pd.DataFrame) -> list[Cell]:
    """Return the cells of the grid by model size."""
    return sorted(cells_of(table), key=lambda cell: cell.params)


def grid_answers() -> dict[str, Measured]:
    """Return the answers on N and D, and write their tables."""
    runs, table = grid()
    cells = grid_cells(table)
    values = critical_values(cells)
    laws = grid_laws(cells, values)
    crossing = exponents(cells, crossings(cells, Tables(RESULTS).read("curves.csv")))
    write("exponents.csv", exponents_table({**laws, "measured crossing": crossing}))
    more = f"muP; D {BUDGETS[0] / 1e6:g}M to {BUDGETS[-1] / 1e6:g}M"
    known = known_of(runs, GRID[0], more)
    effects: dict[str, Effect] = {}
    for quantity, end in (("cbs", ""), ("b/a", "_other")):
        law = laws[quantity]
        in_data = abs(law.of(0, 1).value)  # what a small exponent of N qualifies
        effects |= {
            f"together{end}": law.of(1, 1),
            f"data{end}": law.of(0, 1),
            f"size{end}": replace(law.of(1, 0), qualifies=in_data),
            f"data_size{end}": law.of(-1, 1),
        }
    effects["published_exponent"] = replace(laws["cbs"].of(1, 1, 0.47), qualifies=0.47)
    last = _last_slope(cells, [v["cbs"] for v in values])
    effects["width"] = replace(last, qualifies=abs(effects["size"].value))
    found = {key: Measured(one, known, "exponents.csv") for key, one in effects.items()}
    return found | average_answers(curves(f"c1-{SIZE}")) | average_sizes(runs)


def critical_values(cells: Sequence[Cell]) -> list[dict[str, np.ndarray]]:
    """Return per cell what `critical` returns of the measured and of the resampled tokens."""
    draws = resampled(cells, RESAMPLES)
    return [critical(cell, tokens) for cell, tokens in zip(cells, draws, strict=True)]


def grid_laws(
    cells: Sequence[Cell], values: Sequence[Mapping[str, np.ndarray]]
) -> dict[str, Exponents]:
    """Return the exponents of the critical batch size and of b/a."""
    return {name: exponents(cells, [v[name] for v in values]) for name in ("cbs", "b/a")}


def width_answers() -> dict[str, Measured]:
    """Return the answers over six widths, and write their tables; {} if too few are trained.

    Seeds that not every width has are left out, with a warning.
    """
    parts = trained(*WIDTHS)
    if len(parts) < FEWEST_WIDTHS:
        return {}
    runs = of_shared_seeds(pd.concat([curves(part) for part in parts], ignore_index=True))
    cells = grid_cells(measured(runs, BUDGETS[:3]).round(7))
    values = critical_values(cells)
    laws = grid_laws(cells, values)
    write("curves_widths.csv", critical_sizes(cells, values))
    write("exponents_widths.csv", exponents_table(laws))
    known = known_of(runs, parts[0], f"muP; D {BUDGETS[0] / 1e6:g}M to {BUDGETS[2] / 1e6:g}M")
    law = laws["cbs"]
    in_data = law.of(0, 1)
    effects = {
        "data_size_widths": law.of(-1, 1),
        "data_widths": in_data,
        "size_widths": replace(law.of(1, 0), qualifies=abs(in_data.value)),
    }
    return {key: Measured(one, known, "exponents_widths.csv") for key, one in effects.items()}


def of_shared_seeds(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the runs of the seeds that every size has; a warning names the others."""
    seeds = [set(some["seed"]) for _, some in runs.groupby("size", sort=False)]
    shared = set.intersection(*seeds)
    if more := set.union(*seeds) - shared:
        show_warnings("widths", [f"seeds {_listed(sorted(more))} are not of every width: left out"])
    return runs.loc[runs["seed"].isin(shared)]


def critical_sizes(
    cells: Sequence[Cell], values: Sequence[Mapping[str, np.ndarray]]
) -> pd.DataFrame:
    """Return the critical batch size and B_crit = b/a of every curve in tokens.

    The columns `cbs_low` and `cbs_high` are 95% ends of the resampled runs.
    """
    rows = []
    for cell, value in zip(cells, values, strict=True):
        low, high = np.nanquantile(value["cbs"][1:], [0.025, 0.975], axis=0)
        for k, budget in enumerate(cell.budgets):
            row = {"size": cell.size, "params": cell.params, "tokens": budget}
            row |= {"cbs": value["cbs"][0, k], "cbs_low": low[k], "cbs_high": high[k]}
            rows.append(row | {"B_crit": value["b/a"][0, k]})
    return pd.DataFrame(rows)


def crossings(cells: Sequence[Cell], fitted_curves: pd.DataFrame) -> list[np.ndarray]:
    """Return per cell the measured crossing of 20% above linear scaling, twice [2, D].

    The rows of an estimate without resamples are alike. NaN if the curve has no crossing.
    """
    found = []
    for cell in cells:
        own = fitted_curves.loc[fitted_curves["params"] == cell.params].set_index("tokens")
        values = own["cbs_interpolated"].reindex(cell.budgets).to_numpy(float)
        found.append(np.stack([values, values]))
    return found


def known_of(runs: pd.DataFrame, part: str, more: str) -> Conditions:
    """Return the conditions of runs; the config of one part has what all parts share."""
    return conditions_of(runs, Tables(RESULTS / part).config, "averaged", more)


def _last_slope(cells: Sequence[Cell], values: Sequence[np.ndarray]) -> Effect:
    """Return the slope of log critical batch over log N between the two widest models."""
    shared = min(value.shape[1] for value in values[-2:])
    logs = np.log(values[-1][:, :shared] / values[-2][:, :shared])
    slopes = logs.mean(axis=1) / math.log(cells[-1].params / cells[-2].params)
    return estimated(slopes, freedom_of(cells), cells[-1].logs[0].shape[2])


def average_answers(runs: pd.DataFrame) -> dict[str, Measured]:
    """Return the answers on weight averages, and write the tokens to the targets by half-life.

    Numbers with and without an average are of the same seeds, and are paired by them.
    """
    table = measured(runs, BUDGETS, (*HALF_LIVES, NONE))
    [cell] = cells_of(table)
    names = sorted({*table["average"]})
    rows = []
    for average in (*HALF_LIVES, NONE):
        tokens = lowest_tokens(cell, [names.index(average)])
        for i, batch in enumerate(cell.batches):
            for k, budget in enumerate(cell.budgets):
                row = {"average": average, "batch_tokens": batch, "budget_tokens": budget}
                rows.append(row | {"tokens_to_target": np.exp(tokens[i, k])})
    write("averages.csv", pd.DataFrame(rows))
    with_average = [names.index(average) for average in HALF_LIVES]
    without = [names.index(NONE)]
    apart = lowest_tokens(cell, with_average) - lowest_tokens(cell, without)
    last = int(np.flatnonzero(np.isfinite(apart).all(axis=0))[-1])  # D that all runs reached
    gains = np.stack(
        [
            best_of_seed(cell, with_average, seed) - best_of_seed(cell, without, seed)
            for seed in range(cell.logs[0].shape[2])
        ]
    )[:, :, last]
    known = known_of(runs, f"c1-{SIZE}", f"D {cell.budgets[last] / 1e6:g}M")
    numbers = {"averages": gains.mean(axis=1), "averages_batch": gains[:, -1] - gains[:, 0]}
    return measurements(numbers, known, "averages.csv")


def average_sizes(runs: pd.DataFrame) -> dict[str, Measured]:
    """Return the gain of weight averages over model sizes, one number for each size."""
    table = measured(runs, BUDGETS[:1], (*HALF_LIVES, NONE))
    names = sorted({*table["average"]})
    with_average = [names.index(average) for average in HALF_LIVES]
    gains = {
        cell.size: lowest_tokens(cell, with_average) - lowest_tokens(cell, [names.index(NONE)])
        for cell in grid_cells(table)
    }
    seeds = int(runs["seed"].nunique())
    effect = effect_of([float(np.nanmean(gain)) for gain in gains.values()])
    effect = replace(effect, seeds=seeds, test=f"paired t over {len(gains)} model sizes")
    known = known_of(runs, GRID[0], f"D {BUDGETS[0] / 1e6:g}M")
    return {"averages_sizes": Measured(effect, known, "points.csv")}


def lowest_tokens(cell: Cell, averages: Sequence[int]) -> np.ndarray:
    """Return the lowest mean log tokens over LRs and some averages, [batch, D]."""
    lowest = []
    for logs in cell.logs:
        mean = logs.mean(axis=2)[:, [*averages]]
        value = np.where(np.isnan(mean), np.inf, mean).min(axis=(0, 1))
        lowest.append(np.where(np.isinf(value), np.nan, value))
    return np.stack(lowest)


def best_of_seed(cell: Cell, averages: Sequence[int], seed: int) -> np.ndarray:
    """Return a seed's log tokens [batch, D] at the setting with the lowest mean over seeds."""
    found = []
    for logs in cell.logs:
        some = logs[:, [*averages]]
        mean = np.where(np.isnan(some.mean(axis=2)), np.inf, some.mean(axis=2))
        best = mean.reshape(-1, mean.shape[-1]).argmin(axis=0)
        own = some[:, :, seed].reshape(-1, mean.shape[-1])
        found.append(own[best, np.arange(len(best))])
    return np.stack(found)


@dataclass(frozen=True)
class Pair:
    """Two cells whose critical batch sizes are compared, by the value of a column.

    Attributes:
        part: That was trained for it; the other cell may be of the base.
        column, first, second: What distinguishes the cells.
        smallest: Smallest batch size that counts, in tokens.
        conditions: In words.
        base: Part of the model that it is compared with.
    """

    part: str
    column: str
    first: Any
    second: Any
    smallest: int
    conditions: str
    base: str = f"c1-{SIZE}"


APPENDIX = ("appendix-b", "size", SIZE)
PAIRS = {
    "shape": Pair("c2-shape", "size", SIZE, "4 layers", 32, "1 layer of width 32, 4 of width 16"),
    "context": Pair("c2-context", "seq_len", 16, 64, 64, "sequences of 16 and of 64 tokens"),
    "beta1_other": Pair(*APPENDIX, "beta1 0.95", 32, "beta1 0.95 against 0.9"),
    "beta2_other": Pair(*APPENDIX, "beta2 0.99", 32, "beta2 0.99 against a half-life in tokens"),
    "warmup_other": Pair(*APPENDIX, "warm-up 2.5K", 32, "warm-up of 2.5K against 10K tokens"),
}
BETA1 = Pair("c4-beta1", "size", SIZE, "beta1 0.7", 32, "beta1 0.7 against 0.9", base=f"c4-{SIZE}")


def pair_points(part: str, base: str = f"c1-{SIZE}") -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the runs and the points of a part and of the model that it is compared with."""
    runs = pd.concat([curves(base), curves(part)], ignore_index=True)
    table = measured(runs, SHORT)
    return runs, table.assign(model=table["size"])


def pair_fits(part: str) -> None:
    """Write the critical batch sizes of the curves of a part."""
    _, table = pair_points(part)
    name = part.removeprefix("c2-")
    fits = {f"D = {d}": fitted(some, "tokens") for d, some in table.groupby("budget_tokens")}
    write(f"curves_{name}.csv", curve_table(table, fits))
    write(f"steps_{name}.csv", minima(table))


def pair_answers(part: str, donors: Sequence[Cell]) -> dict[str, Measured]:
    """Return log critical batch in tokens of each second cell minus the first."""
    points = pair_points(part)
    table = f"curves_{part.removeprefix('c2-')}.csv"
    return {
        key: pair_answer(pair, points, donors, table)
        for key, pair in PAIRS.items()
        if pair.part == part
    }


def pair_answer(
    pair: Pair, points: tuple[pd.DataFrame, pd.DataFrame], donors: Sequence[Cell], table: str
) -> Measured:
    """Return log critical batch in tokens of the second cell minus the first.

    Args:
        pair: The cells.
        points: What `pair_points` returns.
        donors: Cells whose seeds' effects are drawn.
        table: Name of the table that has both.
    """
    runs, met = points
    effect, told = _log_ratio(met, pair, donors)
    some = runs.loc[runs[pair.column].isin([pair.first, pair.second])]
    return Measured(effect, known_of(some, pair.part, "; ".join([pair.conditions, *told])), table)


def _log_ratio(table: pd.DataFrame, pair: Pair, donors: Sequence[Cell]) -> tuple[Effect, list[str]]:
    """Return log critical batch of the second cell of a pair minus the first, mean over D.

    A curve whose target is missed at more than 20% of the batch sizes has no critical batch size.
    The effect is then of the other budgets and is not tested; the text names what is missing.
    """
    logs: list[np.ndarray] = []
    told: list[str] = []
    open_budgets: set[int] = set()
    for seed, value in enumerate((pair.first, pair.second)):
        [cell] = cells_of(table.loc[table[pair.column] == value])
        [tokens] = resampled([cell], RESAMPLES, seed=seed, donors=[*donors, cell])
        logs.append(np.log(critical(cell, tokens, pair.smallest)["cbs"]))
        for k, missed in enumerate(missed_batches(cell, pair.smallest)):
            if len(missed) > MOST_CENSORED * len(cell.batches):
                open_budgets.add(k)
                at = f"{value}, D {cell.budgets[k] / 1e6:g}M"
                told.append(f"{at}: a seed misses the target at {_listed(missed)} tokens per step")
    ratios = logs[1] - logs[0]
    count = ratios.shape[1]
    closed = [k for k in range(count) if k not in open_budgets]
    seeds = int(table["seed"].nunique())
    effect = estimated(ratios[:, closed].mean(axis=1), freedom_of(donors), seeds)
    if open_budgets:
        effect = replace(effect, censored=len(open_budgets) / count, test="none: bounds")
        told.append(f"the effect is of D {_listed(cell.budgets[k] / 1e6 for k in closed)}M alone")
    return effect, told


def missed_batches(cell: Cell, smallest: int = 0) -> list[list[int]]:
    """Return per budget the batch sizes in tokens at which no setting reached the target."""
    tokens = lowest_tokens(cell, range(cell.logs[0].shape[1]))
    return [
        [
            b
            for b, value in zip(cell.batches, column, strict=True)
            if b >= smallest and value != value
        ]
        for column in tokens.T
    ]


def schedule_answers(
    base: str, parts: Sequence[str], keys: Mapping[str, str], file: str
) -> dict[str, Measured]:
    """Return the answers on LR schedules, and write the steps of each to the target.

    A schedule's horizons or tokens end somewhere: a run that misses the target has a bound there.

    Args:
        base: The part with the runs at constant LR.
        parts: Those with other LR schedules.
        keys: Questions by name of the schedule.
        file: Name of the table that is written.
    """
    constant = curves(base)
    others = pd.concat([curves(part, "schedules.parquet") for part in parts])
    smallest = by_average(constant.loc[constant["batch"] == constant["batch"].min()])
    [target] = target_losses(smallest, SHORT[-1:])
    batches = sorted(others["batch"].unique())
    constant = constant.loc[constant["batch"].isin(batches)]
    tables = {CONSTANT: _met(by_average(constant), [target], "averaged", weights="averaged")}
    tables["constant"] = _met(constant.assign(average=NONE), [target], "eval_loss")
    for name, some in others.groupby("name", sort=False):
        ends = final_losses(some) if name in ("cosine", "WSD") else some
        phase = "cosine" if name == "cosine" else "decayed"
        alone = ends.assign(average=NONE)
        tables[str(name)] = _met(alone, [target], "eval_loss", lr_phase=phase)
    tables = {
        name: table.assign(size=SIZE, budget_tokens=SHORT[-1]) for name, table in tables.items()
    }
    write(file, schedules_table(tables))
    found = {}
    for name, key in keys.items():
        if name in tables:
            told = "; ".join([f"target of D {SHORT[-1] / 1e6:g}M", _reached(tables[name])])
            known = known_of(constant, base, told)
            apart = [
                log_tokens(tables[name], batch) - log_tokens(tables[CONSTANT], batch)
                for batch in batches
            ]
            found |= measurements({key: mean_of(*apart)}, known, file)
    return found


def setting_answers() -> dict[str, Measured]:
    """Return the answers on less momentum and on a cosine at lower LRs; write their tables."""
    found: dict[str, Measured] = {}
    if trained(BETA1.part):
        points = pair_points(BETA1.part, BETA1.base)
        cells = cells_of(points[1])
        write("curves_beta1.csv", critical_sizes(cells, critical_values(cells)))
        found["beta1_lower"] = pair_answer(BETA1, points, cells, "curves_beta1.csv")
    if parts := trained("c4-cosine", name="schedules.parquet"):
        keys = {"cosine": "cosine_lower"}
        found |= schedule_answers(BETA1.base, parts, keys, "schedules_cosine.csv")
    return found


def schedules_table(tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Return the best setting of each schedule and batch size, relative to constant LR.

    The column `relative` is empty and `at_least` has the bound if a seed missed the target. `error`
    is the standard error of the log ratio over seeds.
    """
    rows = pd.concat(
        [minima(table).assign(schedule=name) for name, table in tables.items()], ignore_index=True
    )
    rows["batch_tokens"] = rows["batch"] * rows["seq_len"]
    for row in rows.index:
        name, batch = rows.loc[row, ["schedule", "batch"]]
        apart = log_tokens(tables[name], batch) - log_tokens(tables[CONSTANT], batch)
        ratio = float(np.exp(apart.low.mean()))
        rows.loc[row, "at_least" if apart.censored.any() else "relative"] = ratio
        rows.loc[row, "of_seeds"] = len(apart.low)
        if not apart.censored.any():
            rows.loc[row, "error"] = effect_of(apart).error
    return rows


def log_tokens(table: pd.DataFrame, batch: float) -> Numbers:
    """Return log tokens to the target per seed at the setting with the most seeds, then fewest.

    A seed that missed the target has a bound, the tokens of its longest run.
    """
    here = table.loc[table["batch"] == batch]
    logs = np.log(here["tokens_to_target"].to_numpy(float))
    here = here.assign(logs=logs).set_index(["peak_lr", "average"])
    settings = here.groupby(level=[0, 1]).apply(
        lambda rows: (-int(rows["reached"].sum()), float(rows["logs"].mean()))
    )
    best = here.loc[[min(settings.index, key=lambda key: settings[key])]].sort_values("seed")
    return Numbers.to_target(best["logs"].to_numpy(), best["reached"].to_numpy())


def _reached(table: pd.DataFrame) -> str:
    """Return in words how many seeds reached the target at each batch size."""
    counts = []
    for batch in sorted(table["batch"].unique()):
        missed = log_tokens(table, batch).censored
        counts.append(f"{int((~missed).sum())} of {len(missed)} at {batch:g}")
    return f"seeds that reach it, by batch size: {', '.join(counts)}"


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


def write(name: str, table: pd.DataFrame) -> None:
    """Write a table of the results."""
    Tables(RESULTS).write(name, table)


def main() -> None:
    """Write the tables of every part that was trained, and findings.csv."""
    global RESULTS  # the parts of this file read and write it
    parser = argparse.ArgumentParser(description=__doc__)
    add_directory(parser, RESULTS)
    parser.add_argument("--answers", action="store_true", help="without fits of single curves")
    options = parser.parse_args()
    RESULTS = options.results
    answered = [
        findings(read_questions(QUESTIONS), answers(fits=not options.answers), **PAPER),
        findings(read_questions(WIDTH_QUESTIONS), width_answers(), **PAPER),
        findings(read_questions(SETTING_QUESTIONS), setting_answers(), **PAPER),
    ]
    write("findings.csv", pd.concat(answered, ignore_index=True))


def answers(*, fits: bool = True) -> dict[str, Measured]:
    """Return the answers of every part that was trained, and write its tables.

    Args:
        fits: Whether to fit single curves, too.
    """
    found: dict[str, Measured] = {}
    donors: list[Cell] = []
    pairs = trained(*dict.fromkeys(pair.part for pair in PAIRS.values()))
    if fits:
        write("published.csv", published_table())
        for part in pairs:
            pair_fits(part)
    if trained(*GRID):
        if fits:
            grid_fits()
        donors = grid_cells(grid()[1])
        found |= grid_answers()
    for part in pairs:
        found |= pair_answers(part, donors)
    if parts := trained(*SCHEDULED, name="schedules.parquet"):
        found |= schedule_answers(f"c1-{SIZE}", parts, SCHEDULES, "schedules.csv")
    return found


if __name__ == "__main__":
    main()
