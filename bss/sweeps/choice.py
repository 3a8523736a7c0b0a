"""How the runs of a sweep are trained on a machine, chosen by a measurement of seconds.

Alone in a worker a core, several side by side in each worker, or one after another by a worker on
all cores: which is fastest hangs on the model, the batch and the machine. RUNS/engine.json keeps
what was chosen for each shape of runs, so that a sweep that is continued goes on as it began.
"""

import math
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from bss.files import read_json, write_json
from bss.provenance import commit
from bss.sweeps.price import price
from bss.training.config import RunConfig
from bss.training.execution import Execution
from bss.training.running.fleet import fleet_key
from bss.training.running.timing import longest
from bss.values import from_dict, to_dict

FILE = "engine.json"
PAYS = 300.0
"""Expected seconds of each worker below which a shape's runs are not measured for."""
LEAST = 4
"""The fewest runs that are worth a program of their own."""
_BETTER = 1.1  # what another way must gain: a measurement of a second errs by less
_LARGE = 5_000_000  # parameters, by FLOPs: so many fill an accelerator, or several cores
_UNKNOWN = 1e14  # FLOP/s of an accelerator that no table knows
_ON_CPU, _ELSEWHERE = (8, 16), (16, 64, 256, 1024)


@dataclass(frozen=True)
class Machine:
    """What trains, as its workers tell it.

    Attributes:
        name: of the device and the processor.
        platform: "cpu", "gpu" or "tpu".
        devices: that train a run.
        peak_flops: of one; None where it is not known.
        cores: that may be used.
        workers: how many there are at once.
    """

    name: str
    platform: str
    devices: int
    peak_flops: float | None
    cores: int
    workers: int


@dataclass(frozen=True)
class Choice:
    """How runs of one shape are trained.

    Attributes:
        shape: the model, its batch and its sequences.
        machine, cores, workers: for which it was chosen.
        fleet: how many side by side in each worker; 1 for each run alone.
        whole: whether by one worker on all cores, in place of a worker a slot.
        measured: tokens per second of all workers, by what was tried; 0 for what did not fit.
        why: in words.
        commit, date: when.
    """

    shape: str
    machine: str
    cores: int
    workers: int
    fleet: int = 1
    whole: bool = False
    measured: Mapping[str, float] = field(default_factory=dict)
    why: str = ""
    commit: str = field(default_factory=commit)
    date: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))

    @property
    def way(self) -> str:
        """How, in words."""
        if self.whole:
            return f"1 worker on {self.cores} cores"
        each = f"{self.fleet} runs side by side in each" if self.fleet > 1 else "a run each"
        return f"{self.workers} worker{'s' * (self.workers > 1)}, {each}"

    def __str__(self) -> str:
        if not self.measured:
            return f"engine: {self.way} ({self.why})"
        speeds = {self.way: self.measured[self.way], **self.measured}
        told = (
            f"{way}: {speed / 1e3:.3g}k tokens/s" if speed else f"{way}: does not fit"
            for way, speed in speeds.items()
        )
        return f"engine: {self.shape}: {'; '.join(told)} ({self.why})"


Measure = Callable[[Sequence[RunConfig], Choice], float]
"""Tokens per second of all workers, each with these runs; 0 where their memory does not hold them.

The choice says how: side by side where it has a fleet, by one worker where it is whole.
"""


class Chooser:
    """Chooses for the runs that are left of a sweep, shape by shape, the dearest run's first."""

    def __init__(
        self,
        runs: Sequence[RunConfig],
        execution: Execution,
        workers: int,
        *,
        whole: bool = False,
        few: bool = False,
    ):
        """Nothing is measured yet.

        Args:
            runs: that are left.
            execution: where and how they are trained.
            workers: how many train at once.
            whole: whether one worker may have all cores in their place.
            few: whether the sweep has fewer runs than workers.
        """
        self.execution, self._few, self._whole = execution, few and whole, whole
        self._share = math.ceil(len(runs) / workers)
        self.by_shape: dict[str, list[RunConfig]] = {}
        for run in sorted(runs, key=lambda run: -price([run]).flops):
            self.by_shape.setdefault(self._shape(run), []).append(run)

    def is_open(self) -> bool:
        """Whether there may be a better way than a run in each worker."""
        return any(
            self._few or (self._whole and self._is_large(runs[0])) or self._together(runs)
            for runs in self.by_shape.values()
        )

    def choices(
        self, machine: Machine, kept: Mapping[str, Choice], measure: Measure
    ) -> dict[str, Choice]:
        """Of each shape: what was kept, if it was measured on such a machine; else a new one."""
        made: dict[str, Choice] = {}
        for shape, runs in self.by_shape.items():
            new = Choice(shape, machine.name, machine.cores, machine.workers)
            why, known = "", kept.get(shape)
            if known and known.measured:
                if (known.machine, known.cores) == (new.machine, new.cores):
                    made[shape] = known
                    continue
                why = f", as it was on {known.machine} with {known.cores} cores before"
            made[shape] = self._chosen(new, runs, machine, measure, why, first=not made)
        return made

    def _chosen(
        self,
        new: Choice,
        runs: Sequence[RunConfig],
        machine: Machine,
        measure: Measure,
        why: str,
        *,
        first: bool,
    ) -> Choice:
        cpu, large = machine.platform == "cpu", self._is_large(runs[0])
        group = self._together(runs) if machine.devices == 1 else []
        fleets = {min(number, len(group)) for number in (_ON_CPU if cpu else _ELSEWHERE)} - {0}
        whole = cpu and first and self._whole and (self._few or large)
        if not (fleets or whole):
            return replace(new, why=f"fewer than {LEAST} runs of one shape for each")
        if (seconds := self._expected(runs, machine)) < PAYS:
            many = 1 if cpu or large else min(64, max(len(group), 1))
            return replace(new, fleet=many, why=f"not measured, as about {seconds:.0f} s are left")
        began, best, speeds = time.monotonic(), new, {new.way: measure(runs[:1], new)}
        for fleet in sorted(fleets):
            way = replace(new, fleet=fleet)
            speeds[way.way] = measure(group[:fleet], way)
            if speeds[way.way] <= _BETTER * speeds[best.way]:
                break  # more would not fit either, or not gain
            best = way
        if whole:
            way = replace(new, whole=True)
            speeds[way.way] = measure(runs[:1], way)
            best = way if speeds[way.way] > _BETTER * speeds[best.way] else best
        why = f"measured in {time.monotonic() - began:.0f} s{why}"
        return replace(best, measured=speeds, why=why)

    def _together(self, runs: Sequence[RunConfig]) -> list[RunConfig]:
        """The most runs of one key that a worker would be given; none where they are too few."""
        keys = {run.id: fleet_key(run, self.execution) for run in runs}
        key = Counter(keys.values()).most_common(1)[0][0]
        group = [run for run in runs if key and keys[run.id] == key][: self._share]
        return group if len(group) >= LEAST else []

    def _expected(self, runs: Sequence[RunConfig], machine: Machine) -> float:
        """Seconds of each worker: a quarter of the peak, and no step below a millisecond."""
        flops = (machine.peak_flops or _UNKNOWN) * machine.devices / 4
        each = (max(price([r]).flops / flops, self.execution.plan(r).steps / 1e3) for r in runs)
        return sum(each) / min(machine.workers, len(runs))

    def _is_large(self, run: RunConfig) -> bool:
        return run.model.forward_flops_per_token(run.data.seq_len) / 2 >= _LARGE

    def _shape(self, run: RunConfig) -> str:
        """What of a run decides how fast it goes, in words."""
        batch = longest(self.execution.plan(run)).batch
        size = run.model.forward_flops_per_token(run.data.seq_len) / 1e6
        few = ", fewer runs than workers" if self._few else ""
        model = f"{run.model.label} ({size:.3g} MFLOPs a token)"
        return f"{model}, batch {batch} of {run.data.seq_len} tokens{few}"


def read_choices(runs: str) -> dict[str, Choice]:
    """What a directory of runs keeps, by shape; InputError where its file is damaged."""
    if not (path := Path(runs) / FILE).exists():
        return {}
    kept = read_json(path, "delete it, and it is measured again")
    return {shape: from_dict(Choice, one, strict=False) for shape, one in kept.items()}


def write_choices(runs: str, choices: Mapping[str, Choice]) -> None:
    """Keeps them, in place of those of the same shapes."""
    kept = {**read_choices(runs), **choices}
    Path(runs).mkdir(parents=True, exist_ok=True)
    write_json(Path(runs) / FILE, {shape: to_dict(one) for shape, one in kept.items()})
