"""The cost of a growing batch: a run of four stages, and runs at each of its batch sizes.

    python -m benchmarks.ramp

Each stage is compared with equal steps of a run at its batch size. The first dispatch after each
switch is compared with the median of its stage. Evaluation and saving come behind.
"""

import dataclasses
import statistics
import sys
import time
from collections.abc import Iterator
from concurrent.futures import wait
from itertools import pairwise
from typing import Any, NamedTuple
from unittest.mock import patch

from benchmarks.command import MACHINE, Benchmark, machine_cells, pinned
from benchmarks.race import Turn, Variant, complete, race
from benchmarks.record import Row, ratio, spread, told
from bss.schedules.batch import BatchSchedule
from bss.schedules.config import ScheduleConfig

MODEL = "nano"
SEQ_LEN = 64
BATCHES = (4, 8, 16, 32)
STEPS = 192


class Dispatched(NamedTuple):
    """A dispatch: tokens before and after it, its steps, and its seconds."""

    start: int
    end: int
    steps: int
    seconds: float


def dispatches(run: Any, execution: Any) -> tuple[list[Dispatched], Any]:
    """Train a run from its beginning, and times what it dispatches; its status too.

    All is compiled before the first, which takes as long as the devices need to begin.
    """
    from bss.training import loop

    ends: list[tuple[int, int, float]] = []

    compile_group = loop.compile_group
    record_metrics = loop.record_metrics

    def compiled(*arguments: Any, **options: Any) -> Any:
        group = compile_group(*arguments, **options)
        wait(group.programs.values())  # a stage of seconds is shorter than a compilation
        ends.append((0, 0, time.perf_counter()))
        return group

    def recorded(batch: Any, *rest: Any) -> Any:
        norms = record_metrics(batch, *rest)
        ends.append((batch.ends[-1], len(batch.ends), time.perf_counter()))
        return norms

    with (
        patch.object(loop, "compile_group", compiled),
        patch.object(loop, "record_metrics", recorded),
    ):
        status = loop.train(run, execution)
    return [Dispatched(a[0], b[0], b[1], b[2] - a[2]) for a, b in pairwise(ends)], status


def rounds(model: str, seq_len: int, batches: list[int], steps: int) -> Turn:
    """Return a turn: it trains the ramp and fixed batch sizes, and reports their times."""
    from benchmarks.text import run_on_sources, scratch

    folder = scratch()
    lengths = [steps * batch * seq_len for batch in batches]
    starts = [sum(lengths[:i]) for i in range(len(batches))]
    ramp = ScheduleConfig(sum(lengths), BatchSchedule((*starts,), (*batches,)))
    constants = [
        ScheduleConfig(length, BatchSchedule.constant(batch))
        for length, batch in zip(lengths, batches, strict=True)
    ]
    seed = 0

    def trained(schedule: ScheduleConfig) -> list[Dispatched]:
        run, execution = run_on_sources(folder, model, seq_len, schedule)
        return dispatches(dataclasses.replace(run, seed=seed), execution)[0]

    def turn(count: int) -> Row:
        nonlocal seed
        seed += 1
        found = trained(ramp)
        spans = zip(starts, lengths, strict=True)
        stages = [[d for d in found if s <= d.start < s + n] for s, n in spans]
        others = stages[1:]
        return {
            "stages": [_paced(stages[0]), *(sum(d.seconds for d in stage) for stage in others)],
            "constants": [_paced(trained(one)) for one in constants],
            "switches": [_switch([d.seconds / d.steps for d in stage]) for stage in others],
        }

    def _paced(found: list[Dispatched]) -> float:
        """Return the seconds of a stage's steps, at the pace after a run's first dispatch."""
        steady = found[1:] or found
        return steps * sum(d.seconds for d in steady) / sum(d.steps for d in steady)

    return turn


def _switch(seconds: list[float]) -> float:
    """Return the time per step of the first dispatch over the median of the others."""
    return seconds[0] / statistics.median(seconds[1:] or seconds)


def measured(options: Any) -> Iterator[Row]:
    """Yield a row for each number of cores."""
    settings = {"model": MODEL, "seq_len": SEQ_LEN, "batches": BATCHES, "steps": STEPS}
    settings |= options.settings
    for start, on in pinned(options.cores):
        start = {"what": "ramp", **start}
        if "not_measured" not in start:
            ramp = Variant("ramp", "benchmarks.ramp:rounds", settings)
            start |= settings | complete(race([ramp], on, options.seconds, options.rounds))
            start |= _found(start["variants"]["ramp"].get("told", []))
        yield start


def _found(turns: list[Row]) -> Row:
    """Ratios of the whole, of each stage and of each switch, over the rounds."""
    if not turns:
        return {}

    def by_place(name: str) -> list[tuple[float, ...]]:
        return [*zip(*(turn[name] for turn in turns), strict=True)]

    pairs = zip(by_place("stages"), by_place("constants"), strict=True)
    sums = ([sum(turn[name]) for turn in turns] for name in ("stages", "constants"))
    return {
        "ratio": ratio(*sums),
        "stage_ratios": [ratio(*pair) for pair in pairs],
        "switch_ratios": [spread(one) for one in by_place("switches")],
    }


def cells(row: Row) -> list[list[str]]:
    """Return a line for the whole, and one for each stage."""
    cores = str(row["cores"])
    batches = row["batches"]
    whole = [cores, " → ".join(map(str, batches)), told(row["ratio"]), "", *machine_cells(row)]
    switches = ["", *map(told, row["switch_ratios"])]
    stages = zip(batches, row["stage_ratios"], switches, strict=True)
    return [whole, *([cores, str(b), told(one), at, "", ""] for b, one, at in stages)]


BENCHMARK = Benchmark(
    "ramp",
    __doc__ or "",
    measured,
    ("cores", "batch", "× its constants", "first dispatch × median", *MACHINE),
    cells,
    seconds=60.0,
    add=lambda parser: parser.set_defaults(settings={}),
)

if __name__ == "__main__":
    sys.exit(BENCHMARK.main())
