"""Records of benchmarks: machine, versions, disturbances, and their text."""

import datetime
import os
import re
import shutil
import statistics
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from bss.files import write_json

RESULTS = Path(__file__).parent / "results"
PACKAGES = ("jax", "jaxlib", "flax", "optax", "numpy", "torch")

Row = dict[str, Any]


def head(command: str, device: str, **more: Any) -> Row:
    """Command, commit, date, device and versions, before what was measured."""
    from bss.provenance import commit  # loads JAX, which PyTorch's process shall not

    return {
        "command": command,
        "commit": commit(),
        "date": datetime.datetime.now().isoformat(timespec="seconds"),
        "device": device,
        "versions": {package: number for package in PACKAGES if (number := installed(package))},
        **more,
    }


def save(name: str, result: Row, folder: Path = RESULTS) -> None:
    """Write a result, and says where it lies."""
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / f"{name}.json", result)
    print(f"{folder / name}.json")


def installed(package: str) -> str | None:
    """Return the version of a package; None if it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def ratio(above: Sequence[float], below: Sequence[float]) -> dict[str, float]:
    """Return the median and quartiles of the ratios of two variants, by round."""
    return spread([a / b for a, b in zip(above, below, strict=True)])


def spread(values: Sequence[float]) -> dict[str, float]:
    """Return the median of some rounds, and their quartiles, to four digits."""
    each = [*values] * (1 if len(values) > 1 else 2)
    low, middle, high = statistics.quantiles(each, n=4, method="inclusive")
    return {
        name: float(f"{x:.4g}") for name, x in (("median", middle), ("low", low), ("high", high))
    }


def told(one: Mapping[str, float] | None, digits: str = ".2f") -> str:
    """Return a spread as text: its median, with quartiles in brackets; a dash for None."""
    if one is None:
        return "–"
    text = {name: format(value, digits) for name, value in one.items()}
    return f"{text['median']} [{text['low']}, {text['high']}]"


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Markdown whose columns are aligned."""
    cells = [[*columns], *map(list, rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(columns))]
    cells.insert(1, ["-" * width for width in widths])
    padded = ([cell.ljust(width) for cell, width in zip(row, widths, strict=True)] for row in cells)
    return "\n".join(f"| {' | '.join(row)} |" for row in padded)


def present_cores() -> list[int]:
    """Return the cores that this process may use, in order."""
    known = hasattr(os, "sched_getaffinity")
    return sorted(os.sched_getaffinity(0)) if known else [*range(os.cpu_count() or 1)]


def busy_seconds(cores: Iterable[int], stat: Path = Path("/proc/stat")) -> float | None:
    """Return the CPU seconds of these cores since boot; None if unknown."""
    try:
        found = dict(re.findall(r"^cpu(\d+) (.+)$", stat.read_text(), re.M))
        told = [[*map(int, found[str(core)].split())] for core in cores]
    except (OSError, KeyError):
        return None
    ticks = os.sysconf("SC_CLK_TCK")
    # user, nice, system, idle, iowait, irq, softirq, steal
    return sum(sum(one[:8]) - one[3] - one[4] for one in told) / ticks


def cpu_of(process: int) -> tuple[float, float]:
    """CPU seconds, of user and system, of a process and all that it has started, ended or not."""
    folder = Path(f"/proc/{process}")
    ticks = os.sysconf("SC_CLK_TCK")
    try:
        fields = (folder / "stat").read_text().rpartition(")")[2].split()
        children = [
            one for task in folder.glob("task/*/children") for one in task.read_text().split()
        ]
    except OSError:  # it has just ended
        return 0.0, 0.0
    user = (int(fields[11]) + int(fields[13])) / ticks  # of itself, and of children that have ended
    system = (int(fields[12]) + int(fields[14])) / ticks
    below = [cpu_of(int(one)) for one in children]
    return (
        user + sum(one[0] for one in below),
        system + sum(one[1] for one in below),
    )


class Others:
    """The share of some cores' time that others take while a block runs.

    Attributes:
        own: CPU seconds of the block, which the caller sets.
        share: Share of the time of the cores; None if unknown.
    """

    def __init__(self, cores: Sequence[int]):
        self.cores = cores
        self.own = 0.0
        self.share: float | None = None

    def __enter__(self) -> "Others":
        self._begun = time.perf_counter()
        self._before = busy_seconds(self.cores)
        return self

    def __exit__(self, *_: object) -> None:
        wall = time.perf_counter() - self._begun
        after = busy_seconds(self.cores)
        if self._before is not None and after is not None:
            taken = after - self._before - self.own
            self.share = round(max(taken, 0.0) / wall / len(self.cores), 3)


def gpu_users() -> str:
    """Return the other processes on the NVIDIA GPUs, as text; "" for none."""
    if not (command := shutil.which("nvidia-smi")):
        return ""
    asked = ["--query-gpu=memory.used,utilization.gpu", "--format=csv,noheader,nounits"]
    done = subprocess.run([command, *asked], capture_output=True, text=True, check=False)
    found = re.findall(r"^\s*(\d+),\s*(\d+)", done.stdout, re.M)
    used = [(int(memory), int(busy)) for memory, busy in found]
    if all(memory < 1000 and busy < 5 for memory, busy in used):
        return ""
    each = ", ".join(f"{memory / 1000:.1f} GB and {busy}% of the time" for memory, busy in used)
    return f"others use the GPUs: {each}; these numbers are not of a quiet machine"
