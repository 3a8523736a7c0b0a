"""The command line: a budget of minutes, spent on the cases in their order."""

import argparse
import dataclasses
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.accelerator.cases import START, Case, Processes, full, tiny
from bss.errors import InputError
from bss.provenance import commit
from bss.training.hardware import memory_environment

RESULTS = Path("benchmarks/results/accelerator")
PATIENCE = 4
"""Cases that take so many times what they should are stopped."""
UNKNOWN = "two smaller micro-batches are needed to estimate the largest"

Row = dict[str, Any]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure; return the status of the command."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.accelerator", description=__doc__)
    add = parser.add_argument
    add("--minutes", type=float, default=8.0, help="at most so long")
    add("--tiny", action="store_true", help="toy sizes, on a CPU too")
    add("--output", type=Path, metavar="FILE", help="rows are appended to it; default by device")
    options = parser.parse_args(arguments)
    try:
        measure(tiny() if options.tiny else full(), options)
    except InputError as error:
        print(f"benchmarks.accelerator: {error}", file=sys.stderr)
        return 2
    return 0


def measure(processes: Processes, options: argparse.Namespace) -> None:
    """Measure what fits in the budget; every case gets a row."""
    if not options.minutes > 0:
        raise InputError(f"--minutes: {options.minutes:g} given; write a positive number")
    until = time.monotonic() + 60 * options.minutes
    done = list[Row]()
    for cases in processes:
        cases = [with_bucket(case, done) for case in cases]
        for row in measured(cases, until - time.monotonic(), 0 if options.tiny else START):
            if row.get("platform") == "cpu" and not options.tiny:
                raise InputError("no accelerator is here; --tiny measures toy sizes on this CPU")
            known = (other["device"] for other in done if other["device"])
            device = row.get("device") or next(known, None)
            done.append(row | {"device": device, "commit": commit()})
            name = re.sub(r"[^a-z0-9]+", "-", (device or "unknown").lower()).strip("-")
            path = options.output or RESULTS / f"{name}.jsonl"
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("a") as file:
                file.write(json.dumps(done[-1]) + "\n")
            print(line(done[-1]), flush=True)


def measured(cases: list[Case], left: float, start: float) -> Iterator[Row]:
    """Yield rows of cases that share a process, and why others have none.

    Args:
        cases: each without a bucket is noted.
        left: seconds; the process is killed when they are over, or if it takes far longer than its
            cases should.
        start: seconds until the process measures; 0 if nobody knows how long a case takes.
    """
    missing = dict(enumerate(cases))
    reason = "out of time"
    if any(case.settings.get("bucket", 0) is None for case in cases):
        reason = UNKNOWN
    elif left >= start + cases[0].seconds:
        usual = PATIENCE * (start + sum(case.seconds for case in cases)) if start else left
        limit = min(left, usual)
        job = {"seconds": left, "cases": [dataclasses.asdict(case) for case in cases]}
        process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.accelerator.measure", json.dumps(job)],
            stdout=subprocess.PIPE,
            env=memory_environment() | dict(os.environ),
            text=True,
            process_group=0,
        )
        timer = threading.Timer(limit, os.killpg, [process.pid, signal.SIGKILL])
        timer.start()
        with process:
            assert process.stdout
            for text in process.stdout:
                message = json.loads(text)
                missing.pop(message["case"], None)
                yield message["row"]
        timer.cancel()
        status = process.returncode
        if status == -signal.SIGKILL and limit < left:
            reason = f"took more than {limit:.3g} s"
        elif status and status != -signal.SIGKILL:
            reason = f"its process ended with status {status}; see standard error"
    yield from ({"what": x.what, **x.settings, "not_measured": reason} for x in missing.values())


def with_bucket(case: Case, done: list[Row]) -> Case:
    """Return a case with a bucket: the largest power of two that memory is expected to hold.

    The compiler's peaks of two micro-batch sizes give the memory of one more sequence; 5% stay
    free.
    """
    if case.settings.get("bucket", 0) is not None:
        return case
    like = {name: x for name, x in case.settings.items() if name != "bucket"}
    peaks = {
        row["bucket"]: row["peak_bytes"]
        for row in done
        if row["what"] == "step" and "peak_bytes" in row and like.items() <= row.items()
    }
    limit = next((row["limit_bytes"] for row in done if row.get("limit_bytes")), None)
    if limit is None or len(peaks) < 2:
        return case
    (low, one), (high, two) = sorted(peaks.items())[-2:]
    room = low + (0.95 * limit - one) * (high - low) / max(two - one, 1)
    bucket = 1 << (max(int(room), 1).bit_length() - 1)
    return dataclasses.replace(case, settings={**case.settings, "bucket": bucket})


SHOWN = (
    "not_measured", "error", "matmul_flops", "bandwidth", "tokens_per_second", "mfu", "peak_bytes",
    "device_peak_bytes", "compile_seconds", "worst_error", "loss_error", "identical",
    "steps_per_second", "recompilations", "seconds_lost",
)  # fmt: skip


def line(row: Row) -> str:
    """Return one row as a line: its settings, then its main numbers."""
    names = (
        "model",
        "bucket",
        "buckets",
        "attention",
        "remat",
        "unroll",
        "remat_policy",
        "repeatable",
    )
    named = [f"{key} {row[key]}" for key in (*names, "runs") if row.get(key)]
    numbers = ((key, row[key]) for key in SHOWN if row.get(key) is not None)
    texts = (f"{k} {x:.4g}" if isinstance(x, float) else f"{k} {x}" for k, x in numbers)
    return f"{' '.join([row['what'], *named])}: {', '.join(texts)}"


if __name__ == "__main__":
    sys.exit(main())
