"""Variants of one task, each in a separate process, timed alternately in rounds.

All are alive and only one works: the others wait for a line of text. So what slows the machine for
a while slows all of them, and no two share a thread pool. A matrix product is timed too, as a
measure of the machine's speed.
"""

import contextlib
import importlib
import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.record import Others, cpu_of
from bss.errors import InputError

TURN_SECONDS = 0.4
LEAST_ROUNDS = 3
MOST_ROUNDS = 60
ENVIRONMENT = {
    "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",  # as the workers of a sweep have it; here all
    "XLA_PYTHON_CLIENT_PREALLOCATE": "false",  # of a GPU's memory there must be some for others
}

Turn = Callable[[int], Any]
"""Takes so many steps, waits for the last, and tells something of them, as their last loss."""


@dataclass(frozen=True)
class Variant:
    """One of the programs that are compared.

    Attributes:
        name: in the results.
        maker: "module:function" that makes its Turn of the settings.
        settings: Arguments of the maker.
        unit: steps of a turn are a multiple of it.
        warm: steps before it reports that it is ready; their output is in the results.
    """

    name: str
    maker: str
    settings: Mapping[str, Any]
    unit: int = 1
    warm: int = 0


PRODUCT = Variant("product", "benchmarks.race:product", {"side": 1024})


class Entry:
    """A variant's process.

    Attributes:
        seconds: Seconds per step, one entry per turn. `cpu` has the CPU seconds of user and system,
            `told` the output of each turn.
        idle_cpu: CPU seconds that it took while others worked.
    """

    def __init__(self, variant: Variant, cores: Sequence[int]):
        """Starts it, and does not wait: what it compiles, all cores may compile."""
        self.variant = variant
        self.idle_cpu = 0.0
        self.seconds = list[float]()
        self.cpu = list[list[float]]()
        self.told = list[Any]()
        count = str(len(cores))
        threads = {"NPROC": count, "OMP_NUM_THREADS": count, "OPENBLAS_NUM_THREADS": count}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.race"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**ENVIRONMENT, **os.environ, **threads},
            text=True,
        )
        self._tell({**asdict(variant), "cores": [*cores]})

    def facts(self) -> dict[str, Any]:
        """Return its report once it is warm and pinned, or the reason of failure."""
        return self._answer()

    def turn(self, steps: int) -> float:
        """Take steps, notes what they took; the CPU seconds of all of it.

        Raises:
            InputError: If the process has died.
        """
        self._tell(steps)
        answer = self._answer()
        if "error" in answer:
            raise InputError(f"{self.variant.name}: {answer['error']}")
        self.seconds.append(answer["seconds"])
        self.cpu.append(answer["cpu"])
        self.told.append(answer["told"])
        self.idle_cpu += answer["idle_cpu"]
        return steps * sum(answer["cpu"]) + answer["idle_cpu"]

    def raced(self) -> dict[str, Any]:
        """Return the times of its turns; empty if it had none."""
        names = ("seconds", "cpu", "told", "idle_cpu")
        return {name: getattr(self, name) for name in names} if self.seconds else {}

    def forget(self) -> None:
        """The turns so far."""
        self.idle_cpu = 0.0
        for one in (self.seconds, self.cpu, self.told):
            one.clear()

    def end(self) -> None:
        """Close its input, at which it leaves."""
        assert self._process.stdin and self._process.stdout
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()

    def _tell(self, what: Any) -> None:
        with contextlib.suppress(BrokenPipeError):  # it says why where it is asked next
            print(json.dumps(what), file=self._process.stdin, flush=True)

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout
        answer = self._process.stdout.readline()
        return json.loads(answer) if answer else {"error": "its process died; see standard error"}


def race(
    variants: Sequence[Variant], cores: Sequence[int], seconds: float, most: int = MOST_ROUNDS
) -> dict[str, Any]:
    """Time variants alternately on these cores, for about `seconds`, after all are warm.

    Returns:
        `rounds`; `variants`, by name the report and `Entry.raced`, or "not_measured" or "error"
        with the reason. Also `product_gflops` of the rounds and `others_cpu`, the CPU share of
        other processes, or None.
    """
    entries = [Entry(variant, cores) for variant in (*variants, PRODUCT)]
    try:
        facts = {entry.variant.name: entry.facts() for entry in entries}
        racing = [entry for entry in entries if "warm_seconds" in facts[entry.variant.name]]
        steps = [_steps(entry) for entry in racing]
        once = sum(max(TURN_SECONDS, least) for _, least in steps)
        rounds = min(max(math.floor(seconds / once), min(LEAST_ROUNDS, most)), most)
        with Others(cores) as others:
            for index in range(rounds):
                turns = [*zip(racing, steps, strict=True)]
                for entry, (count, _) in turns[::-1] if index % 2 else turns:
                    others.own += entry.turn(count)
    finally:
        for entry in entries:
            entry.end()
    return {
        "rounds": rounds,
        "variants": {e.variant.name: facts[e.variant.name] | e.raced() for e in entries[:-1]},
        "product_gflops": [round(2e-9 * 1024**3 / x, 1) for x in entries[-1].seconds],
        "others_cpu": others.share,
    }


def complete(found: dict[str, Any]) -> dict[str, Any]:
    """Return the results; "not_measured" for a single variant."""
    for name, one in found["variants"].items():
        if why := one.get("not_measured") or one.get("error"):
            return {**found, "not_measured": f"{name}: {why}"}
    return found


def _steps(entry: Entry) -> tuple[int, float]:
    """Return the steps per turn of a variant, and the seconds of the calibration."""
    unit = entry.variant.unit
    entry.turn(unit)
    seconds = unit * entry.seconds[0]
    entry.forget()
    return unit * max(round(TURN_SECONDS / seconds), 1), seconds


def product(side: int) -> Turn:
    """Return a float32 product by NumPy, which no variant uses."""
    import numpy as np

    x = np.random.default_rng(0).normal(size=(side, side)).astype(np.float32)

    def turn(count: int) -> None:
        for _ in range(count):
            _ = x @ x

    return turn


def _made(job: dict[str, Any]) -> tuple[Turn, dict[str, Any]]:
    """Return a job's Turn, warm, and its process's report, or the reason of failure."""
    module, _, name = job["maker"].partition(":")
    start = time.perf_counter()
    try:
        turn = getattr(importlib.import_module(module), name)(**job["settings"])
        warm = turn(job["warm"]) if job["warm"] else None
    except ModuleNotFoundError as error:
        return lambda _: None, {"not_measured": f"{error.name} is not installed"}
    except Exception as error:  # what one variant dies of must not cost the others
        message = (str(error).splitlines() or [""])[0]
        return lambda _: None, {"error": f"{type(error).__name__}: {message}"}
    return turn, {"warm": warm, "warm_seconds": round(time.perf_counter() - start, 2)}


def main() -> None:
    """Make the variant that the first line names; then a turn for each line."""
    output = os.fdopen(os.dup(1), "w", buffering=1)
    job = json.loads(sys.stdin.readline())
    os.dup2(2, 1)  # what compilers and others print
    turn, answer = _made(job)
    with contextlib.suppress(OSError, AttributeError):  # where nobody can, cores are as they come
        for thread in os.listdir("/proc/self/task"):
            os.sched_setaffinity(int(thread), job["cores"])
    print(json.dumps(answer), file=output)
    after = cpu_of(os.getpid())
    for line in sys.stdin:
        steps = int(line)
        before = cpu_of(os.getpid())
        wall = time.perf_counter()
        told = turn(steps)
        wall = time.perf_counter() - wall
        idle = sum(before) - sum(after)
        after = cpu_of(os.getpid())
        cpu = [(late - early) / steps for late, early in zip(after, before, strict=True)]
        answer = {"seconds": wall / steps, "cpu": cpu, "told": told, "idle_cpu": idle}
        print(json.dumps(answer), file=output)


if __name__ == "__main__":
    main()
