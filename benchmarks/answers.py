"""How long answers take: fits of the laws and a report, each by the command that users type.

    python -m benchmarks.answers

E(S) of the demo's runs, 170 published final losses, 30 loss curves, the page of a results
directory; with the default of resamples, start-up in the time.
"""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks.command import works
from benchmarks.race import Turn, Variant
from benchmarks.text import scratch
from bss.errors import InputError

RESULTS = Path(__file__).parents[1] / "results"
CURVES = 30
DEMO = str(RESULTS / "demo/runs.parquet")
COMMANDS = {
    "fit es": ("fit", "es", DEMO),
    "fit table": ("fit", "table", str(RESULTS / "published/steplaw_dense_best.csv")),
    "fit curve": ("fit", "curve", "CURVES", "--warmup", "50K", "--since", "50%"),
    "report": ("report", DEMO, "-o", "PAGE"),
}


def answered(command: list[str]) -> Turn:
    """A turn runs `bss` with these words, and tells its peak of memory."""
    places = {"CURVES": scratch() / "curves.parquet", "PAGE": scratch() / "page.html"}
    if "CURVES" in command:
        _write_curves(places["CURVES"])
    words = [str(places.get(word, word)) for word in command]

    def turn(count: int) -> dict[str, float]:
        return [run_bss(words)[1] for _ in range(count)][-1]

    return turn


def run_bss(words: list[str]) -> tuple[str, dict[str, float]]:
    """What the command prints, and its peak of memory in GB.

    Raises:
        InputError: where it refuses.
    """
    process = subprocess.Popen(
        [sys.executable, "-m", "bss", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout
    printed = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise InputError(f"bss {' '.join(words)} ended with {process.returncode}")
    return printed, {"peak_gb": usage.ru_maxrss / 2**20}


def _write_curves(file: Path) -> None:
    """Some of the committed runs whose rates decay."""
    import pandas as pd

    table = pd.read_parquet(RESULTS / "es_wsd/runs.parquet")
    first = [*table["run"].drop_duplicates()[:CURVES]]
    table[table["run"].isin(first)].to_parquet(file)


def _variants(options: Any) -> list[Variant]:
    names = options.works.split(",") if options.works else [*COMMANDS]
    if unknown := [name for name in names if name not in COMMANDS]:
        raise InputError(f"--works: {unknown[0]!r} is none of {', '.join(COMMANDS)}")
    return [
        Variant(name, "benchmarks.answers:answered", {"command": COMMANDS[name]}) for name in names
    ]


BENCHMARK = works(
    "answers",
    __doc__ or "",
    _variants,
    seconds=120.0,
    add=lambda parser: parser.add_argument("--works", default="", help=f"of {', '.join(COMMANDS)}"),
)

if __name__ == "__main__":
    sys.exit(BENCHMARK.main())
