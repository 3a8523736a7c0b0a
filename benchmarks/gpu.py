"""All measurements of a machine with an NVIDIA GPU, in order, in one JSON to send.

    make gpu                                  # all parts, each at most ten minutes
    python -m benchmarks.gpu --only ramp,kill

Each part is a command of this repository, in a separate process. The JSON has its exit status, its
seconds, the end of what it printed, and the numbers that it saved. Without a GPU every part is "not
measured".
"""

import argparse
import contextlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.record import RESULTS
from bss.provenance import commit, machine
from bss.training.hardware import gpus

PART_SECONDS = 600.0
"""Most seconds of a part; then it is stopped and the next one begins."""
STOP_SECONDS = 30.0
"""Seconds in which a part that is stopped may save."""
PRINTED = 4000
"""Characters that are kept of what a part prints, the last ones."""

Json = dict[str, Any]


@dataclass(frozen=True)
class Part:
    """A command and what it leaves.

    Attributes:
        name: its name.
        command: words after `python`; {out} is an empty folder.
        results: reads the numbers from that folder.
        whole: False if it is expected to run until it is stopped.
    """

    name: str
    command: tuple[str, ...]
    results: Callable[[Path], Any] = lambda _: None
    whole: bool = True


def _saved(out: Path) -> Any:
    """Return the JSON files of a folder by name, and the rows of its JSON lines."""
    whole = {file.stem: json.loads(file.read_text()) for file in sorted(out.glob("*.json"))}
    return whole | {file.stem: _rows(file) for file in sorted(out.glob("*.jsonl"))}


def _curves(out: Path) -> Any:
    """Return the loss curves of the runs that have begun, by run."""
    return {file.parent.name: _rows(file) for file in sorted(out.glob("**/curve.jsonl"))}


def _rows(file: Path) -> list[Json]:
    """Return the rows of JSON lines, up to one that was cut when its writer was stopped."""
    rows = []
    with contextlib.suppress(json.JSONDecodeError):
        for line in file.read_text().splitlines():
            rows.append(json.loads(line))
    return rows


_RUNS = "--config.setup.engine.runs={out}/runs"
PARTS = (
    Part(
        "devices",
        ("-m", "benchmarks.accelerator", "--minutes", "8", "--output", "{out}/devices.jsonl"),
        _saved,
    ),
    Part(
        "step",
        ("-m", "benchmarks.step", "--shapes", "85M", "--seconds", "120", "--results", "{out}"),
        _saved,
    ),
    Part("ramp", ("-m", "benchmarks.ramp", "--seconds", "60", "--results", "{out}"), _saved),
    Part(
        "kill",
        ("-m", "benchmarks.unattended", "--kills", "4", "--part", "one process"),
    ),
    Part(
        "es_wsd",
        (
            *("-m", "experiments.es_wsd", "--config=configs/es_wsd.py:gpu"),
            *("--config.dry_run=False", "--config.results={out}/results", _RUNS),
        ),
        _curves,
        whole=False,
    ),
)


def measured(part: Part, seconds: float = PART_SECONDS) -> Json:
    """Run a part for at most `seconds`; return its results."""
    with tempfile.TemporaryDirectory() as folder:
        words = [word.replace("{out}", folder) for word in part.command]
        file = Path(folder) / "printed"
        start = time.monotonic()
        with file.open("wb") as printed:
            process = subprocess.Popen(
                [sys.executable, *words], stdout=printed, stderr=subprocess.STDOUT
            )
            stopped = _wait(process, seconds)
        took = time.monotonic() - start
        text = file.read_text(errors="replace")[-PRINTED:]
        file.unlink()
        good = process.returncode == 0 and not stopped
        return {
            "part": part.name,
            "command": ["python", *part.command],
            "passed": good or (stopped and not part.whole),
            "status": process.returncode,
            "stopped": stopped,
            "seconds": round(took, 1),
            "printed": text,
            "results": part.results(Path(folder)),
        }


def _wait(process: subprocess.Popen[bytes], seconds: float) -> bool:
    """Wait for a process; return True if it had to be stopped."""
    try:
        process.wait(seconds)
        return False
    except subprocess.TimeoutExpired:
        process.terminate()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    return True


def rows(names: Sequence[str]) -> Iterator[Json]:
    """Yield what each part left, in order."""
    present = bool(gpus())
    for part in PARTS:
        if part.name in names:
            why = {"part": part.name, "not_measured": "no NVIDIA GPU is here"}
            yield measured(part) if present else why


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the parts and write the JSON; return 1 if one failed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    known = [part.name for part in PARTS]
    parser.add_argument("--only", default=",".join(known), help=f"parts of {','.join(known)}")
    parser.add_argument("--out", type=Path, default=RESULTS / "gpu.json", help="the JSON")
    options = parser.parse_args(arguments)
    names = options.only.split(",")
    if unknown := sorted({*names} - {*known}):
        print(f"--only: {unknown[0]!r} is none of {', '.join(known)}", file=sys.stderr)
        return 2
    found: list[Json] = []
    for row in rows(names):
        found.append(row)
        head = {"commit": commit(), "machine": machine(), "parts": found}
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(head, indent=1) + "\n")
        told = row.get("not_measured") or ("passed" if row["passed"] else "FAILED")
        print(f"{row['part']}: {told}", flush=True)
    print(options.out)
    return int(any(row.get("passed") is False for row in found))


if __name__ == "__main__":
    sys.exit(main())
