"""What a part of the ladder asks: models with their tokens, batches and rates, and the endings."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from bss.errors import InputError
from bss.sweeps.branching import decay_branch, decay_start, late_switch
from bss.sweeps.contenders import BatchRates
from bss.sweeps.grid import overlay, seeded
from bss.training.run_config import RunConfig
from experiments.study import PricedStudy, check_names, check_parts

WARMUP = 0.05
"""Of the tokens of a rung."""


@dataclass(frozen=True)
class Switch:
    """A late switch: what leaves a constant of its rung.

    Attributes:
        batch: of the constant, in sequences.
        grow: factor of the batch from there.
        at: part of the tokens at which it leaves.
    """

    batch: int
    grow: int
    at: float


@dataclass(frozen=True)
class Rung:
    """A model with its budget.

    Attributes:
        name: in what is told.
        tokens: of a run.
        grid: constant batches with the rates that each is tried at.
        changes: fields of every run, by dotted names: the model first of all.
        switches: late ones, at the first rate of their batch.
    """

    name: str
    tokens: int
    grid: tuple[BatchRates, ...]
    changes: dict = field(default_factory=dict)
    switches: tuple[Switch, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Study(PricedStudy):
    """A part of the ladder.

    Attributes:
        registration: the file of what is expected, which its runs record; empty for pilots.
        rungs: what is trained.
        ends: parts of the tokens at which the rate has been decayed to zero, in branches.
        decay: the last part of those tokens, in which it is.
    """

    registration: str
    rungs: tuple[Rung, ...]
    ends: tuple[float, ...] = (0.5, 1.0)
    decay: float = 0.2

    def __post_init__(self) -> None:
        super().__post_init__()
        check_parts(self, "decay")
        self.setup.schedule.check_decay()
        check_names("rungs", [rung.name for rung in self.rungs])
        for rung in self.rungs:
            batches = {entry.batch for entry in rung.grid}
            for switch in rung.switches:
                if switch.batch not in batches or not 0 < switch.at < 1 - self.decay:
                    raise InputError(
                        f"rungs: {rung.name} switches from {switch.batch} at {switch.at:g}; "
                        f"expected one of its batches, {sorted(batches)}, before the decay"
                    )

    @property
    def forks(self) -> tuple[int, ...]:
        """Where runs keep a checkpoint for branches, in tokens."""
        starts = {
            decay_start(round(end * rung.tokens), self.decay)
            for rung in self.rungs
            for end in self.ends
        }
        switches = {round(s.at * rung.tokens) for rung in self.rungs for s in rung.switches}
        return tuple(sorted(starts | switches))

    def runs(self, base: RunConfig, rung: Rung, seed: int) -> Iterator[RunConfig]:
        """The runs of a rung and a seed: at constant rate, their switches, and all decayed."""
        warmup = round(WARMUP * rung.tokens)
        own = overlay(base, {**rung.changes, "schedule.warmup": warmup})
        for entry in rung.grid:
            axes = {
                "seed": [seed],
                "optimizer.lr": entry.rates,
                "schedule.batch": [str(entry.batch)],
            }
            trunks = [
                overlay(own, {**changes, "schedule.tokens": rung.tokens})
                for changes in seeded(axes)
            ]
            yield from self._ended(trunks, self.ends)
            for switch in (s for s in rung.switches if s.batch == entry.batch):
                at, batch = round(switch.at * rung.tokens), switch.grow * switch.batch
                yield from self._ended([late_switch(trunks[0], at, batch)], (1.0,))

    def _ended(self, runs: list[RunConfig], ends: tuple[float, ...]) -> Iterator[RunConfig]:
        """Runs at constant rate, and the branches of each that are decayed by their ends."""
        for run in runs:
            yield run
            for end in ends:
                tokens = round(end * run.schedule.tokens)
                yield decay_branch(overlay(run, {"schedule.tokens": tokens}), self.decay)
