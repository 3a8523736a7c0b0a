"""Train batch sizes at several learning rates until they reach a target; repeat the best.

A cell is a model at a sequence length. At constant LR with weight averages one run serves every
token budget of its cell, so the warm-up is a fixed number of tokens. With `warmup_share`, as Zhang
et al. (arXiv 2410.21676) train, every budget has separate runs.

The target of a model and budget is its loss there at the reference batch size. The sweep uses the
first seed. Then runs that missed a target are lengthened, learning rates are added while the best
one is at an end, and the best settings around the bend are trained at all seeds.
"""

import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bss.errors import InputError
from bss.laws import CriticalFit
from bss.laws.base import Options
from bss.models.sizes import named
from bss.plots.critical import critical_figure
from bss.points.curve import points, smooth_curve
from bss.sweeps.grid import overlay, product
from bss.sweeps.price import Price, price
from bss.sweeps.results import Results
from bss.sweeps.setup import planned_run
from bss.sweeps.table import run_table
from bss.sweeps.trainer import Trainer
from bss.training.run_config import RunConfig
from experiments.critical_batch import analysis
from experiments.critical_batch.analysis import BATCH, BETAS, CELL, Point, PointSet, minima
from experiments.study import PricedStudy, say

BATCHES_PAST_BEND = 4
MOST_WARMUP = 0.1  # of the smallest budget
FIRST_EVALUATION = 0.6  # of the smallest budget: before any batch size meets its target
LENGTHEN = 1.5
CONSTANT = "constant + average"
LEAST_LENGTHS = 3


@dataclass(frozen=True)
class BatchSweep:
    """One batch size and the hyper-parameters that it is tried at first.

    Attributes:
        tokens: Batch size in tokens.
        rates: Learning rates.
        beta2s: Second-moment decays per step; default: that of the setup.
        models: Sizes that the entry is for, in place of an entry for all; default: all.
    """

    tokens: int
    rates: tuple[float, ...]
    beta2s: tuple[float, ...] = ()
    models: tuple[str, ...] = ()


@dataclass(frozen=True)
class Bend:
    """A guess of b/a in tokens at a budget D: `tokens`·(D / `budget`)^`exponent`.

    It sets run lengths and the largest batch size only.
    """

    tokens: float
    budget: float
    exponent: float = 0.5

    def at(self, budget: float) -> float:
        """Return the guess at a budget."""
        return self.tokens * (budget / self.budget) ** self.exponent


@dataclass(frozen=True)
class Comparison:
    """Other LR schedules, compared with constant LR and weight averages at one point.

    Attributes:
        model: Size.
        tokens: Budget of the target.
        batches: Batch sizes in tokens.
        factors: Learning rates, as multiples of the best constant LR of the batch size.
        lengths: Lengths of annealed runs, as multiples of the tokens needed at constant LR; 3 or
            more.
        decay: Last fraction of a WSD run.
        warmup_share: Warm-up of the long-warm-up run, as a fraction of the budget.
    """

    model: str
    tokens: int
    batches: tuple[int, ...]
    factors: tuple[float, ...] = (1.0, 2.0)
    lengths: tuple[float, ...] = (0.7, 1.0, 1.4)
    decay: float = 0.2
    warmup_share: float = 0.25


@dataclass(frozen=True, kw_only=True)
class Study(PricedStudy):
    """One size of the experiment.

    Attributes:
        designs: Points that are fitted together.
        grid: Batch sizes, a factor of 2 apart, and their hyper-parameters.
        reference: B_ref in tokens, in the regime of linear scaling.
        bend: Guess that sets run lengths and the largest batch size.
        overhead: r of the definition.
        margin: Factor on the guessed run lengths.
        rounds: Rounds of lengthening runs and of adding learning rates.
        warmup_share: Warm-up as a fraction of each budget; 0 for the setup's warm-up.
        noise_half_life: Half-life in tokens of the gradient noise scale's averages; 0 for none.
        noise_split: Halve the micro-batch where a batch is a single one.
        schedules: Comparison of LR schedules, or None.

    Raises:
        InputError: If the warm-up is no small part of a budget that one run serves.
    """

    designs: tuple[PointSet, ...]
    grid: tuple[BatchSweep, ...]
    reference: int
    bend: Bend
    overhead: float = 0.2
    margin: float = 1.3
    rounds: int = 2
    warmup_share: float = 0.0
    noise_half_life: int = 0
    noise_split: bool = False
    schedules: Comparison | None = None
    resamples: int = 2000

    def __post_init__(self) -> None:
        super().__post_init__()
        most = round(MOST_WARMUP * min(budgets[0] for budgets in self.cells().values()))
        warmup = self.setup.schedule.warmup
        if not self.warmup_share and warmup > most:
            raise InputError(
                f"setup.schedule.warmup is {warmup}; expected at most {most}, {MOST_WARMUP:.0%} of "
                "the smallest budget: one run serves every budget"
            )

    def cells(self) -> dict[tuple[str, int], tuple[int, ...]]:
        """Return the budgets by (model, sequence length), ascending."""
        by_cell: dict[tuple[str, int], set[int]] = {}
        for design in self.designs:
            for point in design.points:
                by_cell.setdefault(self.cell(point), set()).add(point.tokens)
        return {cell: tuple(sorted(budgets)) for cell, budgets in by_cell.items()}

    def cell(self, point: Point) -> tuple[str, int]:
        """Return model and sequence length of a point."""
        return point.model, point.seq_len or self.setup.text.seq_len

    def batches(self, model: str, seq_len: int, budget: int) -> list[BatchSweep]:
        """Return the batch sizes of a cell, up to the one nearest to 4 times the guessed bend."""
        by_tokens = {entry.tokens: entry for entry in self.grid if not entry.models}
        by_tokens |= {entry.tokens: entry for entry in self.grid if model in entry.models}
        whole = [by_tokens[size] for size in sorted(by_tokens) if size % seq_len == 0]
        enough = BATCHES_PAST_BEND * self.bend.at(budget) / math.sqrt(2)
        last = next((i for i, e in enumerate(whole) if e.tokens >= enough), len(whole) - 1)
        return whole[: last + 1]

    def length(self, budget: int, batch_tokens: int) -> int:
        """Return the tokens after which a batch size should have met the target of a budget."""
        return round(self.margin * budget * (1 + batch_tokens / self.bend.at(budget)))


@dataclass(frozen=True)
class Trial:
    """A run, the name of its model, and the budgets at whose targets it is measured."""

    run: RunConfig
    model: str
    budgets: tuple[int, ...]

    @property
    def cell(self) -> tuple[str, int]:
        """Model and sequence length."""
        return self.model, self.run.data.seq_len

    @property
    def batch_tokens(self) -> int:
        """Tokens per step."""
        return self.run.schedule.batch.constant_batch * self.run.data.seq_len

    def changed(self, changes: Mapping[str, Any]) -> "Trial":
        """Return the trial with fields of the run replaced, by dotted name."""
        return replace(self, run=overlay(self.run, changes))

    def serves(self, row: Mapping[Any, Any]) -> bool:
        """Whether the trial is of the cell, budget and batch size of a row of `minima`."""
        return (
            self.cell == (row["size"], row["seq_len"])
            and self.run.schedule.batch.constant_batch == row["batch"]
            and row["budget_tokens"] in self.budgets
        )


def experiment(study: Study) -> None:
    """Train and write tables and figures; print the price if it is a dry run."""
    if study.dry_run:
        study.print_hours(costs(study))
        return
    results = Results(study)
    with study.training() as (base, trainer):
        trials, measured = train(study, trainer, base)
        others = train_schedules(study, trainer, trials, measured)
    say("fitting the laws")
    fits = fitted(study, measured)
    curve = curves(trials, trainer.runs)
    files = {"runs.parquet": curve, **analysis.tables(curve, measured, fits, study.reference)}
    files |= {f"critical_{name}.png": critical_figure(fit) for name, fit in fits.items()}
    if study.schedules is not None:
        table = schedule_table(study, study.schedules, trials, measured, others, trainer.runs)
        files["schedules.csv"] = table
    results.write(files, trainer)


def fitted(study: Study, measured: pd.DataFrame) -> dict[str, CriticalFit]:
    """Return the fit of every design, by name."""
    return analysis.fit_designs(
        study.designs,
        measured,
        study.setup.text.seq_len,
        reference=study.reference,
        overhead=study.overhead,
        options=Options(study.resamples, 0.95),
    )


def costs(study: Study) -> dict[str, Price]:
    """Return the price of the sweep at the first seed, by cell; no data are read."""
    first = sweep(study, planned_run(study.setup))
    return {
        f"{model} at {seq_len}": price([t.run for t in first if t.cell == (model, seq_len)])
        for model, seq_len in study.cells()
    }


def train(study: Study, trainer: Trainer, base: RunConfig) -> tuple[list[Trial], pd.DataFrame]:
    """Return every trial that finished, and the table of `measure`."""
    trials = trainer.contend(merged(sweep(study, base)), "1/4 sweep")
    measured = measure(study, trials, trainer.runs)
    for k in range(study.rounds):
        title = f"2/4 more learning rates, longer runs ({k + 1} of {study.rounds})"
        more = trainer.contend(merged(next_trials(trials, measured)), title)
        trials = merged([*trials, *more])
        measured = measure(study, trials, trainer.runs)
    again = trainer.contend(merged(repeats(study, trials, measured)), "3/4 other seeds")
    trials = merged([*trials, *again])
    return trials, measure(study, trials, trainer.runs)


def merged(trials: Sequence[Trial]) -> list[Trial]:
    """Return equal runs once, at their farthest stop."""
    by_id: dict[str, Trial] = {}
    for trial in trials:
        known = by_id.get(trial.run.id, trial)
        by_id[trial.run.id] = max(known, trial, key=lambda t: t.run.schedule.tokens)
    return list(by_id.values())


# The trials


def sweep(study: Study, base: RunConfig) -> list[Trial]:
    """Return the first runs: every batch size at its learning rates and betas, first seed."""
    trials = []
    for (model, seq_len), budgets in study.cells().items():
        shares = [(budget,) for budget in budgets] if study.warmup_share else [budgets]
        for served in shares:
            for entry in study.batches(model, seq_len, served[-1]):
                trials += _trials(study, base, (model, seq_len), served, entry)
    return trials


def _trials(
    study: Study,
    base: RunConfig,
    cell: tuple[str, int],
    budgets: tuple[int, ...],
    entry: BatchSweep,
) -> list[Trial]:
    """Return the runs of one batch size that serve some budgets of a cell, at the first seed."""
    model, seq_len = cell
    axes = {
        "optimizer.lr": entry.rates,
        "optimizer.beta2": entry.beta2s or (base.optimizer.beta2,),
    }
    fixed = {
        "model": asdict(named(model, base.model.vocab_size)),
        "data.seq_len": seq_len,
        "schedule.tokens": max(study.length(budget, entry.tokens) for budget in budgets),
        "schedule.batch": str(entry.tokens // seq_len),
        "evaluation.first": round(FIRST_EVALUATION * budgets[0]),
        "seed": study.seeds[0],
        "data.seed": study.seeds[0],
        "noise_scale": {"half_life": study.noise_half_life, "split": study.noise_split},
    }
    if study.warmup_share:
        fixed["schedule.warmup"] = round(study.warmup_share * budgets[0])
    if entry.beta2s:
        fixed["optimizer.beta2_half_life"] = 0
    return [Trial(overlay(base, {**fixed, **changes}), model, budgets) for changes in product(axes)]


def next_trials(trials: Sequence[Trial], measured: pd.DataFrame) -> list[Trial]:
    """Return longer runs where a batch size missed a target, and the next LR at an end."""
    added = []
    lowest = {run: min(losses) for run, losses in measured.groupby("trial")["lowest_loss"]}
    for row in minima(measured).to_dict("records"):
        tried = [t for t in trials if t.serves(row)]
        if not row["reached"]:
            best = min(tried, key=lambda t: lowest[t.run.id])
            length = round(LENGTHEN * best.run.schedule.tokens)
            added.append(best.changed({"schedule.tokens": length}))
        elif not row["bracketed"]:
            rates = sorted({t.run.optimizer.lr for t in tried})
            best, lr = best_trial(tried, row), row["peak_lr"]
            new = [lr / 2] * (lr == rates[0]) + [lr * 2] * (lr == rates[-1])
            added += [best.changed({"optimizer.lr": rate}) for rate in new]
    return added


def repeats(study: Study, trials: Sequence[Trial], measured: pd.DataFrame) -> list[Trial]:
    """Return the best setting of B_ref and of the batch sizes around each bend, other seeds."""
    best = analysis.with_overhead(minima(measured), study.reference)
    again = []
    for _, cell in best.groupby(CELL, sort=False):
        chosen = {*analysis.around_bend(cell), study.reference // int(cell["seq_len"].iloc[0])}
        reached = cell.loc[cell["reached"] & cell["batch"].isin([*chosen])]
        for row in reached.to_dict("records"):
            trial = best_trial(trials, row)
            enough = round(study.margin * row["tokens_to_target"])
            length = {"schedule.tokens": min(trial.run.schedule.tokens, enough)}
            again += [
                trial.changed(length | {"seed": seed, "data.seed": seed})
                for seed in study.seeds[1:]
            ]
    return again


def best_trial(trials: Sequence[Trial], row: Mapping[Any, Any]) -> Trial:
    """Return the trial at the first seed whose LR and BETAS are those of a row of `minima`."""
    return next(
        trial
        for trial in trials
        if trial.serves(row)
        and trial.run.optimizer.lr == row["peak_lr"]
        and all(getattr(trial.run.optimizer, name) == row[name] for name in BETAS)
    )


# Steps to the targets


def curves(trials: Sequence[Trial], runs: Path) -> pd.DataFrame:
    """Return the run table of trials, each up to its stop, with size and BETAS."""
    table = run_table(runs, [trial.run for trial in trials])
    by_run = {trial.run.id: trial for trial in trials}
    of = [by_run[run] for run in table["run"]]
    betas = {name: [getattr(trial.run.optimizer, name) for trial in of] for name in BETAS}
    table = table.assign(size=[trial.model for trial in of], **betas)
    stops = np.array([trial.run.schedule.tokens for trial in of])
    return table.loc[table["tokens"].to_numpy() <= stops].reset_index(drop=True)


def target_loss(reference: pd.DataFrame, budget: int) -> float | None:
    """Return the loss at a budget of the best setting of the reference batch, mean over seeds.

    Args:
        reference: Runs of the reference batch size, from `by_average`.
        budget: D in tokens.

    Returns:
        The lowest loss of the settings that have the most seeds; None if no run reached D.
    """
    losses: dict[tuple, list[float]] = {}
    for _, run in reference.groupby("run", sort=False):
        first, last = run.iloc[0], run.iloc[-1]
        if last["tokens"] >= budget:
            curve = smooth_curve(run, "averaged")
            at = float(np.interp(math.log(budget), curve.log_tokens, curve.loss))
            losses.setdefault((first["peak_lr"], *first[[*BETAS, "average"]]), []).append(at)
    most = max(map(len, losses.values()), default=0)
    return min((sum(v) / most for v in losses.values() if len(v) == most), default=None)


def measure(study: Study, trials: Sequence[Trial], runs: Path) -> pd.DataFrame:
    """Return the points of every trial, budget and average.

    Returns:
        The columns of points with BETAS and average, size, trial (run id), lowest_loss of the
        average; `budget_tokens` is D.

    Raises:
        InputError: If no run reaches the target of a cell.
    """
    groups: dict[tuple, list[Trial]] = {}
    for trial in trials:
        groups.setdefault((trial.cell, trial.budgets), []).append(trial)
    tables = []
    for ((size, seq_len), budgets), members in groups.items():
        table = analysis.by_average(curves(members, runs), study.setup.averages)
        reference = table.loc[table["batch"] * table["seq_len"] == study.reference]
        targets = {target_loss(reference, budget): budget for budget in budgets}
        if budget := targets.pop(None, None):
            say(f"{size} at {seq_len}: skipped; no reference run reached {budget} tokens")
        if targets:
            tables.append(_points(table, targets))
    if not tables:
        raise InputError(
            f"reference: no run of {study.reference} tokens per batch reached a budget, so there "
            "is no target; add it to the grid or raise margin"
        )
    return pd.concat(tables, ignore_index=True)


def _points(table: pd.DataFrame, targets: dict) -> pd.DataFrame:
    """Return the points of one cell's runs, at the targets of its budgets."""
    met = _few_evaluations(table, list(targets), "averaged", "averaged")
    by_run = table.groupby("run").agg(
        size=("size", "first"), trial=("trial", "first"), lowest_loss=("averaged", "min")
    )
    return met.assign(budget_tokens=met["target_loss"].map(targets.get)).join(by_run, on="run")


def _few_evaluations(
    table: pd.DataFrame, targets: Sequence[float], column: str, kind: str
) -> pd.DataFrame:
    """Return points, without a warning for each large batch size that has few evaluations."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "points: .* fewer than")
        return points(table, targets, column=column, kind=kind)


# Other LR schedules


def train_schedules(
    study: Study, trainer: Trainer, trials: list[Trial], measured: pd.DataFrame
) -> dict[str, list[Trial]]:
    """Return the finished trials of the other LR schedules, by name."""
    if study.schedules is None:
        return {}
    planned = schedule_trials(study, study.schedules, trials, measured)
    flat = [trial for members in planned.values() for trial in members]
    done = {trial.run.id for trial in trainer.contend(merged(flat), "4/4 schedules")}
    finished = {name: [t for t in members if t.run.id in done] for name, members in planned.items()}
    return {name: members for name, members in finished.items() if members}


def schedule_trials(
    study: Study, comparison: Comparison, trials: Sequence[Trial], measured: pd.DataFrame
) -> dict[str, list[Trial]]:
    """Return runs of the other LR schedules, by name, around each batch's best constant LR."""
    by_name: dict[str, list[Trial]] = {}
    for row in _baseline(study, comparison, measured):
        best, needed = best_trial(trials, row), row["tokens_to_target"]
        for name, run in _schedules(comparison, best.run, needed):
            by_name.setdefault(name, []).append(Trial(run, comparison.model, (comparison.tokens,)))
    return by_name


def _baseline(study: Study, comparison: Comparison, measured: pd.DataFrame) -> list[dict]:
    """Return the rows of `minima` at the comparison's point and batch sizes that met the target."""
    seq_len, best = study.setup.text.seq_len, minima(measured)
    here = (best["size"] == comparison.model) & (best["seq_len"] == seq_len)
    here &= best["budget_tokens"] == comparison.tokens
    here &= (best["batch"] * seq_len).isin(comparison.batches) & best["reached"]
    return best.loc[here].to_dict("records")


def _schedules(
    comparison: Comparison, best: RunConfig, needed: float
) -> Iterator[tuple[str, RunConfig]]:
    """Return every other schedule's runs at a batch size that needs this many tokens."""
    longest = round(max(comparison.lengths) * needed)
    alone = {"averages": [], "noise_scale": {}}
    for factor in comparison.factors:
        tuned = {"optimizer.lr": factor * best.optimizer.lr}
        for part in comparison.lengths:
            tokens = round(part * needed)
            ends = {"schedule.tokens": tokens, "evaluation.first": tokens, **alone, **tuned}
            yield "cosine", overlay(best, {**ends, "schedule.rate": "cosine"})
            yield "WSD", overlay(best, {**ends, "schedule.decay": round(comparison.decay * tokens)})
        free = {"optimizer.name": "schedule_free", "schedule.tokens": longest, **alone, **tuned}
        yield "schedule-free", overlay(best, free)
        warmup = round(comparison.warmup_share * comparison.tokens)
        long = {"schedule.warmup": warmup, "schedule.tokens": longest, **tuned}
        yield f"{comparison.warmup_share:.0%} warm-up", overlay(best, long)


def schedule_table(
    study: Study,
    comparison: Comparison,
    trials: Sequence[Trial],
    measured: pd.DataFrame,
    others: dict[str, list[Trial]],
    runs: Path,
) -> pd.DataFrame:
    """Return the steps of each LR schedule to the target.

    A run whose LR depends on its stop gives one loss. Cosine and WSD are trained to several
    lengths, and the length that ends at the target is interpolated.

    Returns:
        Columns of `minima` with `schedule`, and `relative`: steps over those of CONSTANT.
    """
    baseline = _baseline(study, comparison, measured)
    if not baseline:
        raise InputError("schedules.batches: no run at constant LR reached the target; add others")
    needed = {row["batch"]: row["tokens_to_target"] for row in baseline}
    constant = curves([t for t in trials if any(t.serves(row) for row in baseline)], runs)
    tables = {
        CONSTANT: analysis.by_average(constant, study.setup.averages),
        "constant": constant,
    }
    for name, members in others.items():
        table = curves(members, runs)
        if any(trial.run.depends_on_stop for trial in members):
            table = _final_losses(table)
        if members[0].run.averages:
            table = analysis.by_average(table, study.setup.averages)
        if len(table):
            tables[name] = table
    found = []
    for name, table in tables.items():
        column = "averaged" if "averaged" in table else "eval_loss"
        met = _met(table, baseline[0]["target_loss"], column)
        best = minima(met.assign(size=comparison.model, budget_tokens=comparison.tokens))
        best["relative"] = best["tokens_to_target"] / best["batch"].map(needed.get)
        found.append(best.assign(schedule=name))
    columns = ["reached", "steps", "trials", "peak_lr", "bracketed", "relative"]
    return pd.concat(found, ignore_index=True).reindex(columns=["schedule", *BATCH, *columns])


def _met(table: pd.DataFrame, target: float, column: str) -> pd.DataFrame:
    """Return points at a target, also if no run of the table reaches it."""
    lowest = min(float(smooth_curve(run, column).loss[-1]) for _, run in table.groupby("run"))
    met = _few_evaluations(table, [max(target, lowest)], column, "stable")
    return met.assign(target_loss=target, reached=met["reached"] & (lowest <= target))


def _final_losses(table: pd.DataFrame) -> pd.DataFrame:
    """Return the last row of every run; lengths of one batch size, LR and seed form one curve.

    A curve of fewer than 3 lengths, because runs diverged, is left out.
    """
    last = table.drop_duplicates("run", keep="last")
    keys = zip(last["batch"], last["peak_lr"], last["seed"], strict=True)
    last = last.assign(run=[f"batch {batch}, LR {lr:g}, seed {seed}" for batch, lr, seed in keys])
    lengths = last["run"].value_counts().to_dict()
    enough = last["run"].map(lengths.get) >= LEAST_LENGTHS
    return last.loc[enough].sort_values(by=["run", "tokens"]).reset_index(drop=True)
