"""Train a size series: fixed batch sizes at the LRs that pilots chose.

muP transfers the LRs across widths. Each run is trained at constant LR and decayed to zero at half
of its tokens and at all of them.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain

from bss.sweeps.branching import decay_branch, decay_start, late_switch
from bss.sweeps.contenders import BatchRates
from bss.sweeps.grid import overlay, seeded
from bss.sweeps.results import Results
from bss.sweeps.setup import planned_run
from bss.sweeps.table import finals, run_table
from bss.training.run_config import RunConfig
from experiments.study import PricedStudy

WARMUP = 0.05  # of the tokens of a rung


@dataclass(frozen=True)
class Switch:
    """A late switch that forks from a fixed-batch run of its rung.

    Attributes:
        batch: Batch size before the switch, in sequences.
        grow: Factor on the batch size.
        at: Fraction of the tokens at which it forks.
    """

    batch: int
    grow: int
    at: float


@dataclass(frozen=True)
class Rung:
    """A model with its token budget.

    Attributes:
        name: Name in tables.
        tokens: Tokens of a run.
        grid: Fixed batch sizes with their LRs.
        changes: Fields of every run by dotted name, e.g. the model.
        switches: Late switches, at the first LR of their batch size.
    """

    name: str
    tokens: int
    grid: tuple[BatchRates, ...]
    changes: dict = field(default_factory=dict)
    switches: tuple[Switch, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Study(PricedStudy):
    """One part of the series.

    Attributes:
        rungs: What is trained.
        ends: Fractions of the tokens at which a forked run has decayed to zero.
        decay: Last fraction of those tokens, in which it decays.
    """

    rungs: tuple[Rung, ...]
    ends: tuple[float, ...] = (0.5, 1.0)
    decay: float = 0.2

    @property
    def forks(self) -> tuple[int, ...]:
        """Token counts at which runs keep a checkpoint for forked runs."""
        starts = {
            decay_start(round(end * rung.tokens), self.decay)
            for rung in self.rungs
            for end in self.ends
        }
        switches = {round(s.at * rung.tokens) for rung in self.rungs for s in rung.switches}
        return tuple(sorted(starts | switches))

    def runs(self, base: RunConfig, rung: Rung, seed: int) -> Iterator[RunConfig]:
        """Return the runs of a rung and a seed: at constant LR, their switches, and all decayed."""
        own = {**rung.changes, "schedule.warmup": round(WARMUP * rung.tokens)}
        own |= {"schedule.tokens": rung.tokens}
        for entry in rung.grid:
            axes = {"optimizer.lr": entry.rates, "schedule.batch": [str(entry.batch)]}
            constants = [
                overlay(base, own | {**changes}) for changes in seeded({"seed": [seed], **axes})
            ]
            yield from self._with_decays(constants, self.ends)
            for switch in (s for s in rung.switches if s.batch == entry.batch):
                at = round(switch.at * rung.tokens)
                batch = switch.grow * switch.batch
                yield from self._with_decays([late_switch(constants[0], at, batch)], (1.0,))

    def _with_decays(self, runs: list[RunConfig], ends: tuple[float, ...]) -> Iterator[RunConfig]:
        for run in runs:
            yield run
            for end in ends:
                tokens = round(end * run.schedule.tokens)
                yield decay_branch(overlay(run, {"schedule.tokens": tokens}), self.decay)


def experiment(study: Study) -> None:
    """Train a part, one seed after the other, and write the tables of the seeds so far."""
    if study.dry_run:
        base = planned_run(study.setup)
        parts = {one.name: [study.runs(base, one, s) for s in study.seeds] for one in study.rungs}
        study.print_hours({name: [*chain(*runs)] for name, runs in parts.items()})
        return
    results = Results(study)
    with study.training(study.forks) as (base, trainer):
        for seed in study.seeds:
            runs = [run for rung in study.rungs for run in study.runs(base, rung, seed)]
            trainer.train(runs, f"seed {seed}")
            finished = [*trainer.finished.values()]
            stable = [run for run in finished if not run.schedule.decay]
            tables = {"finals.csv": finals(finished, [trainer.status_of(run) for run in finished])}
            results.write(tables | {"curves.parquet": run_table(trainer.runs, stable)}, trainer)
