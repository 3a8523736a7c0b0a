"""Seconds of a call that a device works on while the host goes on."""

import statistics
import time
from collections.abc import Callable
from typing import NamedTuple

ROUNDS = 5
ROUND_SECONDS = 0.3
MOST = 50


class Timed(NamedTuple):
    """Median seconds of one call, and how far the rounds are apart, as a part of it."""

    seconds: float
    spread: float


def timed(call: Callable[[], object], wait: Callable[[], object]) -> Timed:
    """Times rounds of calls, each round waited for at its end, after two calls to warm up.

    Calls within a round are dispatched without waiting, as in a training loop.
    """
    seconds(call, wait)
    once = seconds(call, wait)
    count = min(max(round(ROUND_SECONDS / once), 1), MOST)
    rounds = [seconds(call, wait, count) for _ in range(ROUNDS)]
    median = statistics.median(rounds)
    return Timed(median, (max(rounds) - min(rounds)) / median)


def seconds(call: Callable[[], object], wait: Callable[[], object], count: int = 1) -> float:
    """Return the seconds per call, of several calls with one wait."""
    start = time.perf_counter()
    for _ in range(count):
        call()
    wait()
    return (time.perf_counter() - start) / count
