"""The command line: a budget of minutes, spent on the cases in their order."""

import argparse
import dataclasses
import json
import math
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.accelerator.cases import START, Case, Processes, full, tiny
from benchmarks.accelerator.show import line, markdown, read_rows
from bss.errors import InputError
from bss.machines.slots import memory_environment
from bss.provenance import commit

RESULTS = Path("benchmarks/results/accelerator")
OUT_OF_TIME = "out of time"
PATIENCE = 4
"""A case that takes so many times what it should is given up."""

Row = dict[str, Any]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures or shows; returns the status of the command."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.accelerator", description=__doc__)
    add = parser.add_argument
    add("--minutes", type=float, default=8.0, help="at most so long")
    add("--tiny", action="store_true", help="toy sizes, on a CPU too")
    add("--output", type=Path, metavar="FILE", help="rows are appended to it; default by device")
    add("--show", type=Path, metavar="FILE", help="print what was measured, as Markdown")
    options = parser.parse_args(arguments)
    try:
        if options.show:
            print(markdown(read_rows(options.show)))
        else:
            measure(tiny() if options.tiny else full(), options)
    except InputError as error:
        print(f"benchmarks.accelerator: {error}", file=sys.stderr)
        return 2
    return 0


def measure(processes: Processes, options: argparse.Namespace) -> None:
    """Measures what fits in the budget; every case gets a row."""
    if not options.minutes > 0:
        raise InputError(f"--minutes: {options.minutes:g} given; write a positive number")
    until, done = time.monotonic() + 60 * options.minutes, []
    for cases in processes:
        cases = [_resolved(case, done) for case in cases]
        for row in _measured(cases, until, 0 if options.tiny else START):
            if row.get("platform") == "cpu" and not options.tiny:
                raise InputError("no accelerator is here; --tiny measures toy sizes on this CPU")
            row = _completed(row, done)
            done.append(row)
            _append(options.output or RESULTS / f"{_file_name(row)}.jsonl", row)
            print(line(row), flush=True)


def _measured(cases: list[Case], until: float, start: float) -> Iterator[Row]:
    """Rows of cases that share a process; what it dies of costs one case, and a new process."""
    left = until - time.monotonic()
    if any(case.settings.get("bucket", 0) is None for case in cases):
        yield from _noted(cases, "no two smaller buckets say what is the largest")
        return
    if left < start + cases[0].seconds:
        yield from _noted(cases, OUT_OF_TIME)
        return
    process, begun, untold = _Process(cases, left, start), -1, dict(enumerate(cases))
    for begun, row in process.rows():
        if row is not None:
            untold.pop(begun, None)
            yield row
    failure = process.failure()
    later = {index: case for index, case in untold.items() if index > begun}
    if failure and begun >= 0:
        yield from _noted([cases[begun]], failure)
        if later:
            yield from _measured(list(later.values()), until, start)
    else:
        yield from _noted(untold.values(), failure or OUT_OF_TIME)


def _noted(cases: Iterable[Case], reason: str) -> Iterator[Row]:
    """Rows of cases that were not measured."""
    for case in cases:
        yield {"what": case.what, **case.settings, "not_measured": reason}


class _Process:
    """A process that measures cases, with all that it starts; killed when its time is over.

    It is killed too where a case, with the `start` of a process, takes far longer than it should;
    with a start of 0 nobody knows how long that is.
    """

    def __init__(self, cases: list[Case], seconds: float, start: float):
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.accelerator.measure"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=memory_environment() | dict(os.environ),
            text=True,
            process_group=0,
        )
        self._cases, self._start, self._killed = cases, start, ""
        self._until = time.monotonic() + seconds
        self._watch(0)
        job = {"seconds": seconds, "cases": [dataclasses.asdict(case) for case in cases]}
        assert self._process.stdin
        self._process.stdin.write(json.dumps(job))
        self._process.stdin.close()

    def rows(self) -> Iterator[tuple[int, Row | None]]:
        """Rows as they come, each with the index of its case; None where a case begins."""
        assert self._process.stdout
        try:
            for text in self._process.stdout:
                message = json.loads(text)
                self._timer.cancel()
                self._watch(message["case"])
                yield message["case"], message["row"]
            self._process.wait()
        finally:
            self._timer.cancel()
            self._end()
            self._process.stdout.close()

    def failure(self) -> str:
        """What an ended process died of; "" where it finished or its time was over."""
        if self._killed == OUT_OF_TIME or self._process.returncode == 0:
            return ""
        return (
            self._killed
            or f"its process ended with status {self._process.returncode}; see standard error"
        )

    def _watch(self, index: int) -> None:
        """Sets the time until the next row of a case."""
        left, patience = self._until - time.monotonic(), math.inf
        if self._start:
            patience = PATIENCE * (self._start + self._cases[index].seconds)
        reason = OUT_OF_TIME if left < patience else f"took more than {patience:.3g} s"
        self._timer = threading.Timer(max(min(left, patience), 0), self._kill, [reason])
        self._timer.daemon = True
        self._timer.start()

    def _kill(self, reason: str) -> None:
        self._killed = reason
        self._end()

    def _end(self) -> None:
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()


def _resolved(case: Case, done: list[Row]) -> Case:
    """A case with a bucket: the largest power of two that memory is expected to hold.

    The compiler's peaks of two buckets say what one more sequence takes; 5% are left free.
    """
    if case.settings.get("bucket", 0) is not None:
        return case
    names = ("model", "seq_len", "attention", "remat", "unroll", "keep")
    like = {name: case.settings.get(name) for name in names}
    peaks = {
        row["bucket"]: row["peak_bytes"]
        for row in done
        if row["what"] == "step"
        and "peak_bytes" in row
        and like == {name: row.get(name) for name in names}
    }
    limit = next((row["limit_bytes"] for row in done if row.get("limit_bytes")), None)
    if limit is None or len(peaks) < 2:
        return case
    (low, one), (high, two) = sorted(peaks.items())[-2:]
    room = low + (0.95 * limit - one) * (high - low) / max(two - one, 1)
    bucket = 1 << (max(int(room), 1).bit_length() - 1)
    return dataclasses.replace(case, settings={**case.settings, "bucket": bucket})


def _completed(row: Row, done: list[Row]) -> Row:
    """With the commit, and the device of the others where the row does not know it."""
    known = (other["device"] for other in done if other["device"])
    return {**row, "device": row.get("device") or next(known, None), "commit": commit()}


def _file_name(row: Row) -> str:
    return re.sub(r"[^a-z0-9]+", "-", (row["device"] or "unknown").lower()).strip("-")


def _append(path: Path, row: Row) -> None:
    """Adds a row; it is on disk when this returns."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.write(json.dumps(row) + "\n")
        file.flush()
        os.fsync(file.fileno())


if __name__ == "__main__":
    sys.exit(main())
