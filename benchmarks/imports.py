"""What importing many runs costs: W&B histories of ten thousand rows, by `bss import`.

    python -m benchmarks.imports                       # a thousand runs
    python -m benchmarks.imports --runs 10

The histories have ten columns as `scan_history` gives them, a held-out loss in every hundredth row.
Each kind of file is imported by a process of its own, whose CPU and peak memory are told.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.answers import run_bss
from benchmarks.command import works
from benchmarks.race import Turn, Variant
from benchmarks.text import scratch
from bss.errors import InputError

RUNS, ROWS, SEQ_LEN = 1000, 10_000, 1024
KINDS = ("parquet", "csv", "jsonl")


def imported(kind: str, runs: int) -> Turn:
    """A turn imports all runs, and tells its peak of memory and the size of the files."""
    folder, table = scratch() / "histories", scratch() / "runs.parquet"
    _write_histories(folder, kind, runs)
    size = sum(file.stat().st_size for file in folder.iterdir())
    named = r"size(?P<size>\d+M)-b(?P<batch>\d+)-s(?P<seed>\d+)"
    words = ["import", "auto", str(folder), "-o", str(table), "--seq-len", str(SEQ_LEN), "--json"]

    def turn(count: int) -> dict[str, float]:
        printed, peak = run_bss([*words, "--run-regex", named])
        assert sum(run["rows"] for run in json.loads(printed)["runs"]) == runs * ROWS
        return peak | {"files_gb": size / 1e9}

    return turn


def _write_histories(folder: Path, kind: str, runs: int) -> None:
    folder.mkdir()
    generator = np.random.default_rng(0)
    step = np.arange(1, ROWS + 1)
    for i in range(runs):
        batch = 2 ** (4 + i % 6)
        loss = 3 + 4 * step**-0.3 + generator.normal(0, 0.02, ROWS)
        history = pd.DataFrame(
            {
                "_step": step,
                "_runtime": 0.3 * step,
                "_timestamp": 1.7e9 + 0.3 * step,
                "train/loss": loss,
                "train/learning_rate": 1e-3 * np.minimum(step / 500, 1),
                "train/grad_norm": generator.uniform(0.1, 1, ROWS),
                "eval/loss": np.where(step % 100 == 0, loss + 0.01, np.nan),
                "train/global_step": step,
                "throughput/tokens": step * batch * SEQ_LEN,
                "system/gpu": generator.uniform(0, 100, ROWS),
            }
        )
        file = folder / f"size85M-b{batch}-s{i}.{kind}"
        if kind == "parquet":
            history.to_parquet(file, index=False)
        elif kind == "csv":
            history.to_csv(file, index=False)
        else:
            history.to_json(file, orient="records", lines=True)


def _variants(options: Any) -> list[Variant]:
    kinds = options.kinds.split(",")
    if unknown := [kind for kind in kinds if kind not in KINDS]:
        raise InputError(f"--kinds: {unknown[0]!r} is none of {', '.join(KINDS)}")
    return [
        Variant(kind, "benchmarks.imports:imported", {"kind": kind, "runs": options.runs})
        for kind in kinds
    ]


def _add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--kinds", default=",".join(KINDS), help="of files, with commas")


BENCHMARK = works("imports", __doc__ or "", _variants, seconds=60.0, add=_add)

if __name__ == "__main__":
    sys.exit(BENCHMARK.main())
