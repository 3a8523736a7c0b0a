"""How far the time that is expected of a step is from the time that was measured, row by row.

    python -m benchmarks.expected                    # of the committed rows of an H100
    python -m benchmarks.expected FILE.jsonl

Products and bytes are timed at the rates of the benchmark's own matmul and copy rows, so nothing is
fitted to a step but what steps take beside their work, by the smallest model, nano, in which there
is next to none. That term is kept as it narrows rows that it was not made from: those of 10M and
larger, whose errors with and without it are printed.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.accelerator.show import line, told_rows
from bss.errors import InputError
from bss.machines.targets import Reached

ROWS = Path("benchmarks/results/accelerator/h100.jsonl")
SMALLEST = "nano"
MEMORY_FRACTION = 0.92
"""That JAX took as the rows were measured."""

Row = dict[str, Any]


def reached(rows: Sequence[Row]) -> Reached:
    """What a device reached, of its rows: means of products and copies, the launches of nano."""
    machines = [row for row in rows if row["what"] == "machine"]
    flops, bandwidth = (_mean(machines, name) for name in ("matmul_flops", "bandwidth"))
    memory = _mean(machines, "limit_bytes") / MEMORY_FRACTION
    bare, small = Reached(memory, bandwidth, flops, 0.0, 0.0), steps(rows, small=True)
    if len({row["buckets"] for row in small}) < 2:
        raise InputError(f"no rows of {SMALLEST} in one bucket and in two; measure them")
    beside = [row["seconds_per_step"] - expected(row, bare) for row in small]
    counts = [[1, row["buckets"]] for row in small]
    step, bucket = np.linalg.lstsq(np.array(counts, float), np.array(beside))[0]
    return Reached(memory, bandwidth, flops, float(step), float(bucket))


def _mean(rows: Sequence[Row], name: str) -> float:
    return sum(row[name] for row in rows) / len(rows)


def steps(rows: Sequence[Row], *, small: bool) -> list[Row]:
    """The measured steps of which work and time are known: of the smallest model, or others."""
    return [
        row
        for row in rows
        if row["what"] == "step"
        and row.get("seconds_per_step")
        and row.get("bytes")
        and (row["model"] == SMALLEST) is small
    ]


def expected(row: Row, by: Reached) -> float:
    """Seconds of a row's step."""
    return by.seconds(row["flops"], row["bytes"], row["buckets"])


def ratios(rows: Sequence[Row], by: Reached) -> list[float]:
    """Expected over measured time of each step of 10M and larger."""
    return [expected(row, by) / row["seconds_per_step"] for row in steps(rows, small=False)]


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the rates, and the error of each row."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.expected", description=__doc__)
    parser.add_argument("rows", nargs="?", type=Path, default=ROWS)
    try:
        rows = told_rows(parser.parse_args(arguments).rows)
        by = reached(rows)
    except InputError as error:
        print(f"benchmarks.expected: {error}", file=sys.stderr)
        return 2
    plain = Reached(by.memory, by.bandwidth, by.flops, 0.0, 0.0)
    print(json.dumps(vars(by)))
    both = list(zip(*(ratios(rows, one) for one in (plain, by)), strict=True))
    for row, (bare, whole) in zip(steps(rows, small=False), both, strict=True):
        print(f"{bare:.3f} {whole:.3f}  {line(row)}")
    for name, values in zip(("plain sum", "with launches"), zip(*both, strict=True), strict=True):
        low, high = min(values), max(values)
        print(
            f"{name}: expected over measured {low:.3f} to {high:.3f}, "
            f"measured over expected {1 / high:.3f} to {1 / low:.3f}, {len(values)} rows"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
