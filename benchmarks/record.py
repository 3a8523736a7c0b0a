"""What every benchmark writes beside its numbers, and how it is told: JSON, a table, the machine."""

import datetime
import os
import re
import shutil
import statistics
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from bss.files import write_json
from bss.provenance import commit

RESULTS = Path(__file__).parent / "results"
PACKAGES = ("jax", "jaxlib", "flax", "optax", "numpy", "torch")

Row = dict[str, Any]


def head(command: str, device: str, **more: Any) -> Row:
    """Command, commit, date, device and versions, before what was measured."""
    return {
        "command": command,
        "commit": commit(),
        "date": datetime.datetime.now().isoformat(timespec="seconds"),
        "device": device,
        "versions": {package: number for package in PACKAGES if (number := installed(package))},
        **more,
    }


def save(name: str, result: Row, folder: Path = RESULTS) -> None:
    """Writes a result, and says where it lies."""
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / f"{name}.json", result)
    print(f"{folder / name}.json")


def installed(package: str) -> str | None:
    """The version of a package; None where it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def ratio(above: Sequence[float], below: Sequence[float]) -> dict[str, float]:
    """Of two variants' rounds: the median of the ratios of each round, and their quartiles."""
    each = [a / b for a, b in zip(above, below, strict=True)]
    low, middle, high = statistics.quantiles(each, n=4, method="inclusive") if len(each) > 1 else (
        each * 3
    )
    return {"median": round(middle, 3), "low": round(low, 3), "high": round(high, 3)}


def told(one: Mapping[str, float] | None) -> str:
    """A ratio for people: its median, its quartiles in brackets; a dash where there is none."""
    return "–" if one is None else f"{one['median']:.2f} [{one['low']:.2f}, {one['high']:.2f}]"


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Markdown whose columns are aligned."""
    cells = [[*columns], *map(list, rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(columns))]
    cells.insert(1, ["-" * width for width in widths])
    padded = ([cell.ljust(width) for cell, width in zip(row, widths, strict=True)] for row in cells)
    return "\n".join(f"| {' | '.join(row)} |" for row in padded)


def busy_seconds(cores: Iterable[int], stat: Path = Path("/proc/stat")) -> float | None:
    """CPU seconds that these cores have worked since they started; None where none tells."""
    try:
        found = dict(re.findall(r"^cpu(\d+) (.+)$", stat.read_text(), re.M))
        told = [[*map(int, found[str(core)].split())] for core in cores]
    except (OSError, KeyError):
        return None
    ticks = os.sysconf("SC_CLK_TCK")
    # user, nice, system, idle, iowait, irq, softirq, steal
    return sum(sum(one[:8]) - one[3] - one[4] for one in told) / ticks


def gpu_users() -> str:
    """Who else is on the NVIDIA GPUs, in words; "" where nobody is, or there is no GPU."""
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
