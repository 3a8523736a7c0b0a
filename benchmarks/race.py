"""Variants of one work, each in a process of its own, timed in turn, round by round.

All are alive and only one works: the others wait for a line of text. So what slows the machine for
a while slows all of them, and no two share a thread pool. A product of matrices takes its turn too,
and tells how fast the machine was.
"""

import importlib
import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from benchmarks.record import busy_seconds

TURN_SECONDS, LEAST_ROUNDS, MOST_ROUNDS = 0.4, 5, 60
WARM_STEPS = 16
"""Steps before the first turn, in two halves: the losses after them are compared."""

Turn = Callable[[int], float]
"""Takes so many steps, waits for the last, and returns its loss."""


@dataclass(frozen=True)
class Variant:
    """One of a race.

    Attributes:
        name: in the results.
        maker: "module:function" that makes its Turn of the settings.
        settings: what it is made of.
        unit: steps of a turn are a multiple of it.
        environment: variables of its process.
    """

    name: str
    maker: str
    settings: Mapping[str, Any]
    unit: int = 1
    environment: Mapping[str, str] = field(default_factory=dict)


PRODUCT = Variant("product", "benchmarks.race:product", {"side": 1024})


class Entry:
    """A variant's process."""

    def __init__(self, variant: Variant, cores: Sequence[int]):
        """Starts it; `ready` waits until it is warm."""
        self.variant = variant
        count = str(len(cores))
        threads = {"NPROC": count, "OMP_NUM_THREADS": count, "OPENBLAS_NUM_THREADS": count}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.race"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **threads, **variant.environment},
            text=True,
        )
        self.facts = self._ask({**asdict(variant), "cores": [*cores]})

    def turn(self, steps: int) -> dict[str, Any]:
        """Seconds and CPU seconds of so many steps, of each."""
        return self._ask(steps)

    def end(self) -> None:
        """Closes its input, at which it leaves."""
        assert self._process.stdin and self._process.stdout
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()

    def _ask(self, what: Any) -> dict[str, Any]:
        assert self._process.stdin and self._process.stdout
        print(json.dumps(what), file=self._process.stdin, flush=True)
        answer = self._process.stdout.readline()
        return json.loads(answer) if answer else {"error": "its process died; see standard error"}


def race(
    variants: Sequence[Variant], cores: Sequence[int], seconds: float, most: int = MOST_ROUNDS
) -> dict[str, Any]:
    """Times variants in turn on these cores, for about so many seconds, after all are warm.

    Returns:
        `rounds`; `variants`, by name what each has told of itself and the lists `seconds` and `cpu`
        (user and system) of a step in each round, or why it was not measured; `product_gflops` of
        the rounds; `others_cpu`, the share of these cores that other processes took, or None.
    """
    entries = [Entry(variant, cores) for variant in (*variants, PRODUCT)]
    told = {entry.variant.name: dict(entry.facts) for entry in entries}
    print("\n".join(f"  {name}: {one}" for name, one in told.items()), file=sys.stderr)
    racing = [entry for entry in entries if "seconds" in entry.facts]
    steps = {entry.variant.name: _steps(entry) for entry in racing}
    turn = sum(steps[e.variant.name] * e.facts["seconds"] for e in racing)
    rounds = min(max(math.floor(seconds / turn), LEAST_ROUNDS), max(most, 1))
    began, busy, own = time.perf_counter(), busy_seconds(cores), 0.0
    for one in told.values():
        one |= {"seconds": [], "cpu": []} if "seconds" in one else {}
    for index in range(rounds):
        for entry in racing[::-1] if index % 2 else racing:
            name = entry.variant.name
            answer = entry.turn(steps[name])
            for key in ("seconds", "cpu"):
                told[name][key].append(answer[key])
            told[name]["loss"] = answer["loss"]
            own += answer["whole_cpu"]
    wall, after = time.perf_counter() - began, busy_seconds(cores)
    for entry in entries:
        entry.end()
    products = told.pop(PRODUCT.name)["seconds"]
    others = None if busy is None or after is None else (after - busy - own) / wall / len(cores)
    return {
        "rounds": rounds,
        "variants": told,
        "product_gflops": [round(2e-9 * 1024**3 / x, 1) for x in products],
        "others_cpu": others and round(max(others, 0.0), 3),
    }


def _steps(entry: Entry) -> int:
    unit = entry.variant.unit
    return unit * max(round(TURN_SECONDS / entry.facts["seconds"] / unit), 1)


def product(side: int) -> Turn:
    """A float32 product by NumPy, which no variant uses."""
    import numpy as np

    x = np.random.default_rng(0).normal(size=(side, side)).astype(np.float32)

    def turn(count: int) -> float:
        for _ in range(count):
            y = x @ x
        return float(y[0, 0])

    return turn


def main() -> None:
    """Makes the variant that the first line names; then a turn for each line."""
    output, job = os.fdopen(os.dup(1), "w", buffering=1), json.loads(sys.stdin.readline())
    os.dup2(2, 1)  # what compilers and others print
    os.sched_setaffinity(0, job["cores"])
    module, _, name = job["maker"].partition(":")
    start = time.perf_counter()
    try:
        turn = getattr(importlib.import_module(module), name)(**job["settings"])
        losses = [turn(WARM_STEPS // 2) for _ in range(2)]
        facts = {"losses": losses, "start_seconds": round(time.perf_counter() - start, 2)}
        facts |= {"seconds": _timed(turn, job["unit"])["seconds"]}
    except ModuleNotFoundError as error:
        facts = {"not_measured": f"{error.name} is not installed"}
    except Exception as error:
        facts = {"error": f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"}
    print(json.dumps(facts), file=output)
    idle = time.process_time()
    for line in sys.stdin:
        told = _timed(turn, int(line))
        told["whole_cpu"] = time.process_time() - idle  # with what it took while others worked
        idle = time.process_time()
        print(json.dumps(told), file=output)


def _timed(turn: Turn, steps: int) -> dict[str, Any]:
    wall, before = time.perf_counter(), os.times()
    loss = turn(steps)
    wall, after = time.perf_counter() - wall, os.times()
    cpu = [after.user - before.user, after.system - before.system]
    return {"seconds": wall / steps, "cpu": [x / steps for x in cpu], "loss": loss}


if __name__ == "__main__":
    main()
