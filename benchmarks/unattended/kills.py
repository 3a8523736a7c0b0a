"""Random SIGKILLs of short runs that save all the time, until each has ended as undisturbed."""

import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.unattended.runs import STEPS, a_run, an_execution, directory_of, rows_of
from bss.files import write_json
from bss.training.run_directory import is_being_written, read_status
from bss.values import to_dict

PARTS = {"one process": 140, "fleet of 4": 40, "two processes": 14, "Ray": 6}
"""Kills of each kind, of 200; Ray's are of its workers, which the sweep starts again itself."""
SIDE_BY_SIDE = {"fleet of 4": 4, "Ray": 2}
KILLS_A_RUN = 5
_MOST_SAVES = STEPS // 8  # between two kills, so that a run lasts for all of its kills
SAVES_ALL_THE_TIME = 0.0
"""Seconds between the checkpoints of runs that are killed."""
SAVES_AT_THE_END = 1e9
"""The same of runs that end undisturbed."""
_LOOK_SECONDS = 0.002  # a save takes longer; looking without a pause would cost more than training
_PATIENCE = 300.0  # of one start, with saves at every step on a busy machine


def commands(part: str, seeds: Sequence[int], folder: Path, seconds: float) -> list[list[str]]:
    """Process ids of the training processes."""
    if part != "two processes":
        told = [str(folder), ",".join(map(str, seeds)), str(seconds)]
        told += ["Ray"] if part == "Ray" else []
        return [[sys.executable, "-m", "benchmarks.unattended.runs", *told]]
    execution = an_execution(folder, seconds)
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "c.json", {"run": to_dict(a_run(seeds[0])), "execution": vars(execution)})
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        coordinator = f"--coordinator=127.0.0.1:{free.getsockname()[1]}"
    command = [sys.executable, "-m", "bss", "train", str(folder / "c.json"), "--processes=2"]
    return [[*command, coordinator, f"--process={i}"] for i in range(2)]


def started(
    part: str, seeds: Sequence[int], folder: Path, seconds: float
) -> list[subprocess.Popen]:
    """Return the processes, one device each; what they print goes to a file."""
    planned = commands(part, seeds, folder, seconds)
    folder.mkdir(parents=True, exist_ok=True)
    environment = os.environ | {"JAX_NUM_CPU_DEVICES": "1", "JAX_PLATFORMS": "cpu"}
    with open(folder / "log", "a") as log:
        return [subprocess.Popen(c, stdout=log, stderr=log, env=environment) for c in planned]


def ended(processes: Sequence[subprocess.Popen]) -> bool:
    """Return whether all leave by themselves; one that does not is ended, and that is a mistake."""
    until = time.monotonic() + _PATIENCE
    try:
        for process in processes:
            process.wait(max(until - time.monotonic(), 0.1))
    except subprocess.TimeoutExpired:
        for process in processes:
            process.kill()
            process.wait()
        return False
    return True


def workers_of(runs: Path) -> list[int]:
    """Return the worker processes of a sweep, by where their logs are."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            log = os.readlink(process / "fd/2")
        except OSError:
            continue
        if log.startswith(str(runs / "logs")):
            found.append(int(process.name))
    return sorted(found)


class Disturbed:
    """Runs of some seeds below a folder, killed until they were killed often enough."""

    def __init__(self, part: str, seeds: Sequence[int], folder: Path, draw: random.Random):
        self.part = part
        self.seeds = seeds
        self.folder = folder
        self.draw = draw
        self.paths = [directory_of(a_run(seed), folder) for seed in seeds]
        self.plan = a_run().plan()
        self.found = Counter[str]()

    def kill(self) -> bool:
        """Start the processes and kills one, drawn, at a drawn moment; False where they ended."""
        processes = started(self.part, self.seeds, self.folder, SAVES_ALL_THE_TIME)
        self._await_moment(processes)
        victim = self.draw.choice(processes)
        victim.kill()
        self.found["left running"] += not ended(processes)
        if victim.returncode != -9:
            return False
        self._count()
        self.found["locked"] += any(map(is_being_written, self.paths))
        return True

    def _await_moment(self, processes: Sequence[subprocess.Popen]) -> None:
        """Return behind some more saves, half of the time inside one; or where a process ended."""
        before = self._saves()
        steps = self.draw.randint(1, _MOST_SAVES)
        inside = self.draw.random() < 0.5
        delay = self.draw.uniform(0, 0.05)
        while all(process.poll() is None for process in processes):
            if self._saves() >= before + steps and (not inside or self._saving()):
                break
            time.sleep(_LOOK_SECONDS)
        time.sleep(0 if inside else delay)

    def _count(self) -> None:
        self.found["kills"] += 1
        self.found["after a second checkpoint"] += self._checkpoints() >= 2
        self.found["inside a save"] += self._saving()

    def finish(self, expected: Path) -> None:
        """Train them to their end, and compares."""
        assert ended(started(self.part, self.seeds, self.folder, SAVES_AT_THE_END))
        for path in self.paths:
            rows = rows_of(path)
            other = rows_of(expected / "runs" / path.name)
            status = read_status(path).status
            self.found["curves"] += 1
            self.found["bit-identical"] += rows == other
            self.found["not finished"] += status != "finished"
            self.found["rows missing"] += len(rows) != len(other) or not rows
            if rows != other and len(rows) == len(other):
                pairs = [(a[k], b[k]) for a, b in zip(rows, other, strict=True) for k in a]
                close = [np.isclose(*pair, rtol=2e-6, atol=0) for pair in pairs if None not in pair]
                self.found["beyond 2e-6"] += not all(close)

    def _saving(self) -> bool:
        return any([*path.glob("*/*.orbax-checkpoint-tmp*")] for path in self.paths)

    def _saves(self) -> int:
        """Return the steps to the newest common checkpoint, or the rows if they are more."""
        return min((self._newest(path) for path in self.paths), default=0)

    def _newest(self, path: Path) -> int:
        saved = path / "checkpoints"
        names = os.listdir(saved) if saved.is_dir() else []
        tokens = max((int(name) for name in names if name.isdigit()), default=0)
        curve = path / "curve.jsonl"
        rows = curve.read_bytes().count(b"\n") if curve.exists() else 0
        return max(self.plan.step_at(tokens), rows)

    def _checkpoints(self) -> int:
        whole = [[p for p in q.glob("checkpoints/*") if p.name.isdigit()] for q in self.paths]
        return min(map(len, whole))


class OnRay(Disturbed):
    """Runs of a sweep whose workers are killed; the sweep itself goes on."""

    _sweep: Sequence[subprocess.Popen] = ()

    def kill(self) -> bool:
        """Kills a worker, drawn, at a drawn moment; False where the sweep has ended."""
        if not self._sweep:
            self._sweep = started(self.part, self.seeds, self.folder, SAVES_ALL_THE_TIME)
        self._await_moment(self._sweep)
        workers = workers_of(self.folder / "runs")
        if not workers or self._sweep[0].poll() is not None:
            return False
        os.kill(self.draw.choice(workers), signal.SIGKILL)
        self._count()
        return True

    def finish(self, expected: Path) -> None:
        """Awaits the end of the sweep, and compares."""
        self.found["left running"] += not ended(self._sweep)
        self.found["left running"] += len(workers_of(self.folder / "runs"))
        self.found["locked"] += any(map(is_being_written, self.paths))
        super().finish(expected)


def measured(part: str, count: int, folder: Path, draw: random.Random) -> dict[str, int]:
    """Return counts of the effects of kills; runs not "bit-identical" agree within 2e-6."""
    found = Counter[str]()
    number = 0
    seeds = [*range(SIDE_BY_SIDE.get(part, 1))]
    kind = OnRay if part == "Ray" else Disturbed
    assert ended(started(part, seeds, folder / "undisturbed", SAVES_AT_THE_END))
    while found["kills"] < count:
        disturbed = kind(part, seeds, folder / f"killed-{number}", draw)
        for _ in range(min(KILLS_A_RUN, count - found["kills"])):
            if not disturbed.kill():
                break
        disturbed.finish(folder / "undisturbed")
        found.update(disturbed.found)
        number += 1
    return dict(found)
