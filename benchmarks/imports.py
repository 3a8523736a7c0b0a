"""What importing many runs costs: W&B histories of ten thousand rows, by `bss import`.

    python -m benchmarks.imports                 # writes benchmarks/results/imports.json
    python -m benchmarks.imports --runs 10       # prints only

The histories have ten columns as `scan_history` gives them, a held-out loss in every hundredth row.
Each kind of file is imported by a process of its own, whose clock, CPU and peak memory are told.
"""

import argparse
import datetime
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd

from bss.files import write_json
from bss.provenance import commit, machine

RUNS, ROWS, SEQ_LEN = 1000, 10_000, 1024
KINDS = ("parquet", "csv", "jsonl")
IMPORT = (
    "import pathlib, sys; from bss.cli import main; status = main(sys.argv[1:]); "
    "told = pathlib.Path('/proc/self/status').read_text(); "
    "print(told.partition('VmHWM:')[2].split()[0], file=sys.stderr); sys.exit(status)"
)
"""The command, and its peak memory in kB: that of resource.getrusage starts with its parent's."""


def main() -> None:
    """Times the import of each kind of file, and prints and saves what it took."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=RUNS)
    options = parser.parse_args()
    result = {
        "command": "python -m benchmarks.imports",
        "commit": commit(),
        "date": datetime.date.today().isoformat(),
        "device": machine(),
        "runs": options.runs,
        "rows": ROWS,
        "table": [_imported(kind, options.runs) for kind in KINDS],
    }
    print(json.dumps(result, indent=2))
    if options.runs == RUNS:
        write_json(Path(__file__).parent / "results/imports.json", result)


def _imported(kind: str, runs: int) -> dict[str, float | str]:
    """Seconds and memory of one import."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "histories"
        folder.mkdir()
        _write_histories(folder, kind, runs)
        named = r"size(?P<size>\d+M)-b(?P<batch>\d+)-s(?P<seed>\d+)"
        table = str(Path(scratch) / "runs.parquet")
        command = ["import", "auto", str(folder), "-o", table, "--seq-len", str(SEQ_LEN)]
        before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        process = subprocess.run(
            [sys.executable, "-c", IMPORT, *command, "--run-regex", named, "--json"],
            check=True, capture_output=True, text=True,
        )  # fmt: skip
        seconds, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
        assert sum(run["rows"] for run in json.loads(process.stdout)["runs"]) == runs * ROWS
        cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        size = sum(file.stat().st_size for file in folder.iterdir())
    return {
        "kind": kind,
        "seconds": round(seconds, 1),
        "cpu_seconds": round(cpu, 1),
        "peak_memory_mb": round(int(process.stderr.split()[-1]) / 1024),
        "size_mb": round(size / 1e6),
    }


def _write_histories(folder: Path, kind: str, runs: int) -> None:
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


if __name__ == "__main__":
    main()
