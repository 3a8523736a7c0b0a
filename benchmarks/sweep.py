"""A sweep's runs side by side, in pinned workers, and one after another: tokens per second.

    python -m benchmarks.sweep

Eight runs of nano that differ in their rates, at one batch; then the same at another. Workers are
kept from turn to turn, and what a run needs before its first step is in the time, as in a sweep.
"""

import dataclasses
import sys
from collections.abc import Iterator
from typing import Any

from benchmarks.command import MACHINE, Benchmark, machine_cells, pinned
from benchmarks.race import Turn, Variant, complete, race
from benchmarks.record import Row, ratio, spread, told
from bss.errors import InputError
from bss.schedules.batch import BatchSchedule
from bss.schedules.config import ScheduleConfig

MODEL, SEQ_LEN, RUNS, TOKENS = "nano", 64, 8, 2**17
BATCHES = (4, 32)
WORKERS = "workers"
ENGINES = {
    "one after another": {"workers": 1, "pin": False},
    WORKERS: {},
    "fleet": {"workers": 1, "pin": False, "fleet": RUNS},
    "fleets in workers": {"fleet": RUNS // 2},
}
"""Settings of the engine; without a number, there is a worker for each core."""


def swept(engine: Row, model: str, batch: int, runs: int, tokens: int) -> Turn:
    """A turn trains all runs, and tells the seconds of their steps, those of all summed."""
    from benchmarks.text import run_on_sources, scratch
    from bss.sweeps.engines import LocalEngine
    from bss.sweeps.setup import EngineConfig
    from bss.training.optimizers import AdamW

    schedule = ScheduleConfig(tokens, BatchSchedule.constant(batch))
    run, execution = run_on_sources(scratch(), model, SEQ_LEN, schedule)
    trainer, seed = LocalEngine(EngineConfig(**engine)), 0

    def turn(count: int) -> float:
        nonlocal seed
        seed += 1
        rates = (1e-3 * (1 + i / runs) for i in range(runs))
        each = [dataclasses.replace(run, optimizer=AdamW(lr=rate), seed=seed) for rate in rates]
        statuses = trainer.train(each, execution)
        for status in statuses.values():
            if not status.finished:
                raise InputError(status.message)
        return sum(status.seconds for status in statuses.values())

    return turn


def measured(options: Any) -> Iterator[Row]:
    """A row for each batch and number of cores."""
    settings = {"model": MODEL, "runs": RUNS, "tokens": TOKENS} | options.settings
    for batch in BATCHES:
        for start, on in pinned(options.cores):
            row = {"what": f"batch {batch}", **start}
            if "not_measured" not in row:
                each = {"batch": batch, **settings}
                variants = [
                    Variant(name, "benchmarks.sweep:swept", {"engine": engine, **each})
                    for name, engine in ENGINES.items()
                ]
                row |= each | complete(race(variants, on, options.seconds, options.rounds))
                row |= _found(row)
            yield row


def _found(row: Row) -> Row:
    """Tokens per second of each, and how many times as fast it is as the workers."""
    times = {name: one["seconds"] for name, one in row["variants"].items() if "seconds" in one}
    work = row["runs"] * row["tokens"]
    return {
        "tokens_per_second": {n: spread([work / x for x in one]) for n, one in times.items()},
        "ratios": {n: ratio(times[WORKERS], x) for n, x in times.items() if WORKERS in times},
    }


def cells(row: Row) -> list[list[str]]:
    """A line for each way to train them."""
    speeds = {name: f"{one['median']:,.0f}" for name, one in row["tokens_per_second"].items()}
    start, behind = [row["what"], str(row["cores"])], machine_cells(row)
    return [
        [*start, name, speed, told(row["ratios"][name]), *behind] for name, speed in speeds.items()
    ]


BENCHMARK = Benchmark(
    "sweep",
    __doc__ or "",
    measured,
    ("batch", "cores", "engine", "tokens/s", "× workers", *MACHINE),
    cells,
    seconds=120.0,
    cores="all",
    add=lambda parser: parser.set_defaults(settings={}),
)

if __name__ == "__main__":
    sys.exit(BENCHMARK.main())
