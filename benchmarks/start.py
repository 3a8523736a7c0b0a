"""From the command to the first step: `bss train` of a tiny run, the first time and again.

    python -m benchmarks.start

Cold is with an empty compilation cache, warm with the one that an earlier run has left. The clock
stops at the first row of the curve: imports, data, compiling, a step and an evaluation.
"""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.command import MACHINE, Benchmark, machine_cells, pinned
from benchmarks.race import Turn, Variant, complete, race
from benchmarks.record import Row, spread, told
from bss.errors import InputError
from bss.models.sizes import named
from bss.schedules.batch import BatchSchedule
from bss.schedules.config import ScheduleConfig

COMMAND = (sys.executable, "-c", "import sys; from bss.cli import main; sys.exit(main())", "train")
BATCH = 8
SEQ_LEN = 64
PATIENCE = 300.0
MODELS = ("nano", "micro")


def starts(model: str, warm: bool) -> Turn:
    """Return a turn: it starts the command and reports the seconds to its first step."""
    from benchmarks.text import run_on_sources, scratch
    from bss.values import to_dict

    folder = scratch()
    schedule = ScheduleConfig(2 * BATCH * SEQ_LEN, BatchSchedule.constant(BATCH))
    run, execution = run_on_sources(folder, model, SEQ_LEN, schedule)
    number = 0

    def turn(count: int) -> float:
        nonlocal number
        number += 1
        values = to_dict(run), to_dict(execution)
        values[0]["evaluation"]["first"] = BATCH * SEQ_LEN
        values[1]["runs"] = str(folder / f"runs-{number}")
        if not warm:
            values[1]["compilation_cache"] = str(folder / f"compiled-{number}")
        config = folder / "config.json"
        config.write_text(json.dumps(dict(zip(("run", "execution"), values, strict=True))))
        return _first_row([*COMMAND, str(config)], Path(values[1]["runs"]))

    return turn


def _first_row(command: list[str], runs: Path) -> float:
    """Seconds until a run's curve has a row; the command ends by itself.

    Raises:
        InputError: If the command ends without a row.
    """
    begun = time.perf_counter()
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    while True:
        ended = process.poll() is not None
        if any(curve.stat().st_size for curve in runs.glob("*/curve.jsonl")):
            break
        if ended or time.perf_counter() - begun > PATIENCE:
            process.kill()
            raise InputError(f"no first step: {process.communicate()[1]}")
        time.sleep(0.005)
    seconds = time.perf_counter() - begun
    process.communicate()
    return seconds


def measured(options: Any) -> Iterator[Row]:
    """Yield a row for each model and number of cores."""
    for model in options.models.split(","):
        named(model)  # a wrong name is told before anything is measured
        for start, on in pinned(options.cores):
            start = {"what": model, **start}
            if "not_measured" not in start:
                how = {"cold": False, "warm": True}
                variants = [
                    Variant(name, "benchmarks.start:starts", {"model": model, "warm": warm})
                    for name, warm in how.items()
                ]
                start |= complete(race(variants, on, options.seconds, options.rounds))
                for name, one in start["variants"].items():
                    if "told" in one:
                        start[name] = spread(one["told"])
            yield start


def cells(row: Row) -> list[list[str]]:
    """One line."""
    both = (told(row[name]) for name in ("cold", "warm"))
    return [[row["what"], str(row["cores"]), *both, *machine_cells(row)]]


BENCHMARK = Benchmark(
    "start",
    __doc__ or "",
    measured,
    ("model", "cores", "cold, s", "warm, s", *MACHINE),
    cells,
    seconds=40.0,
    cores="all",
    add=lambda parser: parser.add_argument("--models", default=",".join(MODELS)),
)

if __name__ == "__main__":
    sys.exit(BENCHMARK.main())
