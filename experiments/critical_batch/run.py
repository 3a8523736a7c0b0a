"""Train every batch size at several constant LRs and seeds, with weight averages.

    python -m experiments.critical_batch --config=configs/critical_batch.py:c1-12k

A part is a set of models, batch sizes with their LRs, and seeds. All runs of one seed share
initialization and data order. One run serves every token budget of its model, because its LR does
not depend on its end. An LR is added while the best one is at an end of those tried.
`analysis.py` reads the tables that are written here: runs.parquet (loss curves) and, for other LR
schedules, schedules.parquet.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from bss.errors import InputError
from bss.sweeps.branching import decay_branch, decay_start
from bss.sweeps.contenders import Contender
from bss.sweeps.grid import overlay
from bss.sweeps.results import Results
from bss.sweeps.setup import planned_run
from bss.sweeps.trainer import Trainer
from bss.training.run_config import RunConfig
from experiments.study import PricedStudy, named_curves, say


@dataclass(frozen=True, kw_only=True)
class BatchSweep:
    """One batch size and what it is trained with.

    Attributes:
        tokens: Batch size in tokens.
        rates: Peak LRs.
        beta2: Second-moment decay per step.
        length: Tokens of its runs, as a multiple of the largest budget.
        ends: Horizons of annealed runs in tokens, for the comparison of LR schedules.
    """

    tokens: int
    rates: tuple[float, ...]
    beta2: float
    length: float
    ends: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Variant:
    """Fields of a run by dotted name, which replace the fields of its batch size."""

    name: str
    changes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Schedule(Variant):
    """Another LR schedule, and the factor on the LRs of a batch size.

    `annealed`: one run for each horizon; else one to the last horizon. `branch`: decays of runs at
    constant LR to each horizon, from their checkpoints.
    """

    factor: float = 1.0
    annealed: bool = False
    branch: bool = False


@dataclass(frozen=True, kw_only=True)
class Study(PricedStudy):
    """One part of the experiment.

    Attributes:
        models: Model sizes by name in tables; a named size or a group of fields.
        grid: Batch sizes, a factor of 2 apart.
        budgets: Token budgets D; runs are long enough for the largest.
        lengths: Sequence lengths in tokens; by default the setup's.
        variants: Other fields of all runs; the name replaces the model's in tables.
        rounds: Rounds of adding LRs.
        schedules: Other LR schedules.
        decay: Last fraction of the tokens of a decay branch; 0 for no branches.

    Raises:
        InputError: If the warm-up is more than a tenth of the smallest budget.
    """

    models: Mapping[str, Any]
    grid: tuple[BatchSweep, ...]
    budgets: tuple[int, ...]
    lengths: tuple[int, ...] = ()
    variants: tuple[Variant, ...] = ()
    rounds: int = 1
    schedules: tuple[Schedule, ...] = ()
    decay: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        warmup = self.setup.schedule.warmup
        most = min(self.budgets) // 10
        if warmup > most:
            raise InputError(
                f"setup.schedule.warmup is {warmup}; expected at most {most}, 10% of the smallest "
                "budget: one run serves every budget"
            )

    @property
    def forks(self) -> list[int]:
        """Tokens at which decay branches start."""
        ends = {end for entry in self.grid for end in entry.ends} if self.decay else set()
        return sorted(decay_start(end, self.decay) for end in ends)


def experiment(study: Study) -> None:
    """Train a part and write its tables; print its cost if it is a dry run."""
    if study.dry_run:
        runs = [arm.run for arm in arms(study, planned_run(study.setup))]
        study.print_hours({"constant LR": runs})
        return
    results = Results(study)
    with study.training(study.forks) as (base, trainer):
        constant = trainer.contend(arms(study, base), "constant LR")
        for k in range(study.rounds):
            more = wider(constant, trainer)
            constant += trainer.contend(more, f"more LRs, round {k + 1}")
        files = {"runs.parquet": named_curves(trainer, constant)}
        results.write(files, trainer)
        if study.schedules:
            others = trainer.contend(scheduled(study, constant), "other LR schedules")
            curves = named_curves(trainer, [*others])
            results.write({**files, "schedules.parquet": curves}, trainer)


def arms(study: Study, base: RunConfig) -> list[Contender]:
    """Return every run at constant LR: model, sequence length, batch size, LR and seed."""
    found = []
    for model, fields in study.models.items():
        for seq_len in study.lengths or (base.data.seq_len,):
            for entry in study.grid:
                if entry.tokens % seq_len == 0:
                    at = {"model": fields, "data.seq_len": seq_len}
                    run = overlay(base, at)
                    for variant in study.variants or (Variant(name=model),):
                        found += _runs(study, run, entry, variant)
    return found


def _runs(study: Study, run: RunConfig, entry: BatchSweep, variant: Variant) -> Iterator[Contender]:
    common = {
        "schedule.batch": str(entry.tokens // run.data.seq_len),
        "schedule.tokens": round(entry.length * max(study.budgets)),
        "optimizer.beta2": entry.beta2,
    }
    for lr in entry.rates:
        for seed in study.seeds:
            changes = {**common, "optimizer.lr": lr, "seed": seed, "data.seed": seed}
            trained = overlay(run, {**changes, **variant.changes})
            yield Contender("", "constant", "constant", trained, size=variant.name)


def wider(constant: Sequence[Contender], trainer: Trainer) -> list[Contender]:
    """Return runs at twice the highest or half the lowest LR where the best one is at that end.

    The best LR of a model and batch size has the lowest final held-out loss, averaged over seeds.
    The best weight average counts; diverged seeds do not.
    """
    table = named_curves(trainer, constant)
    averages = [name for name in table if str(name).startswith("eval_loss_avg")]
    last = table.groupby("run")[["eval_loss", *averages]].last().min(axis=1)
    by_setting: dict[tuple[str, int, str], dict[float, list[Contender]]] = {}
    for arm in constant:
        setting = arm.size, arm.run.data.seq_len, str(arm.run.schedule.batch)
        rates = by_setting.setdefault(setting, {})
        rates.setdefault(arm.run.optimizer.lr, []).append(arm)
    added = []
    for rates in by_setting.values():
        best = min(rates, key=lambda lr: sum(last[a.run.id] for a in rates[lr]) / len(rates[lr]))
        new = [best * 2] * (best == max(rates)) + [best / 2] * (best == min(rates))
        for lr in new:
            added += [
                replace(arm, run=overlay(arm.run, {"optimizer.lr": lr})) for arm in rates[best]
            ]
    say(f"{len(added)} runs at more LRs")
    return added


def scheduled(study: Study, constant: Sequence[Contender]) -> list[Contender]:
    """Return the runs of other LR schedules at the batch sizes that have horizons."""
    found = []
    by_batch = {entry.tokens: entry for entry in study.grid if entry.ends}
    for arm in constant:
        tokens = arm.run.schedule.batch.constant_batch * arm.run.data.seq_len
        entry = by_batch.get(tokens)
        if entry is None or arm.run.optimizer.lr not in entry.rates:
            continue
        for schedule in study.schedules:
            lr = arm.run.optimizer.lr * schedule.factor
            run = overlay(arm.run, {"optimizer.lr": lr, **schedule.changes})
            ends = entry.ends if schedule.annealed or schedule.branch else entry.ends[-1:]
            for one in (overlay(run, {"schedule.tokens": end}) for end in ends):
                one = decay_branch(one, study.decay) if schedule.branch else one
                found.append(Contender(schedule.name, "constant", schedule.name, one))
    return found
