"""What accumulating a batch from buckets costs against a program compiled for the whole batch.

python -m benchmarks.buckets
"""

import sys
from collections.abc import Iterator
from typing import Any

from benchmarks.command import MACHINE, Benchmark, machine_cells, pinned
from benchmarks.race import Variant, complete, race
from benchmarks.record import Row, ratio, told

MODEL, SEQ_LEN, BATCHES, BUCKET = "nano", 128, (8, 16, 32, 64), 8


def measured(options: Any) -> Iterator[Row]:
    """A row for each batch: seconds in buckets over those of the whole."""
    for batch in BATCHES:
        for start, on in pinned(options.cores):
            row = {"what": f"batch {batch}", **start}
            if "not_measured" not in row:
                shape = {"model": MODEL, "seq_len": SEQ_LEN, "batch": batch}
                row |= shape | {"bucket": BUCKET}
                variants = [
                    Variant(name, "benchmarks.step.ours:ours", {**shape, "buckets": [bucket]})
                    for name, bucket in (("buckets", BUCKET), ("whole", batch))
                ]
                row |= complete(race(variants, on, options.seconds, options.rounds))
            if "not_measured" not in row:
                times = (row["variants"][name]["seconds"] for name in ("buckets", "whole"))
                row["time_ratio"] = ratio(*times)
            yield row


def cells(row: Row) -> list[list[str]]:
    """One line."""
    return [[row["what"], str(row["cores"]), told(row["time_ratio"]), *machine_cells(row)]]


BENCHMARK = Benchmark(
    "buckets",
    __doc__ or "",
    measured,
    (f"in buckets of {BUCKET}", "cores", "× the time of the whole", *MACHINE),
    cells,
    seconds=15.0,
)

if __name__ == "__main__":
    sys.exit(BENCHMARK.main())
