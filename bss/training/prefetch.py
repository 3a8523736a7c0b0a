"""The next batches, made and placed on the devices by a thread while the current step runs."""

import contextlib
import queue
import threading
from collections.abc import Iterator
from typing import NamedTuple

import jax
import numpy as np

from bss.schedules.plan import Plan, StepSpec
from bss.training.average import shares
from bss.training.bucketing import Ladder
from bss.training.optimizers.base import StepSettings
from bss.training.source import Source

_DEPTH = 2


class StepInput(NamedTuple):
    """Everything the program of one step takes besides the state, and the step's place."""

    spec: StepSpec
    end_tokens: int
    bucket: int
    sequences_NxbxT1: jax.Array
    buckets: np.int32
    settings: StepSettings


def step_inputs(
    plan: Plan,
    first: int,
    source: Source,
    ladder: Ladder,
    half_lives: tuple[str, ...] = (),
) -> Iterator[StepInput]:
    """Inputs of the steps of a plan from `first` on.

    A step takes the sequences from its position on: position is tokens over sequence length,
    whatever the batch was before.

    Args:
        plan: of the run.
        first: the first step.
        source: of the sequences.
        ladder: its buckets.
        half_lives: of the weight averages.
    """
    capacity = ladder.capacity(plan)
    for index in range(first, plan.steps):
        spec, end_tokens = plan.at(index), plan.tokens_at(index + 1)
        position, bucket = spec.tokens // plan.seq_len, ladder.bucket(spec.batch)
        yield StepInput(
            spec,
            end_tokens,
            bucket,
            source.batch(position, spec.batch, capacity[bucket], bucket),
            np.int32(spec.batch // bucket),
            traced(spec, end_tokens, half_lives),
        )


def traced(spec: StepSpec, end_tokens: int, half_lives: tuple[str, ...]) -> StepSettings:
    """The float32 settings of a step; 1 - beta is taken in float64 first."""
    s = spec.settings
    return StepSettings(
        np.float32(s.lr),
        np.float32(1 - s.beta1),
        np.float32(1 - s.beta2),
        np.float32(s.weight_decay),
        shares(half_lives, end_tokens, end_tokens - spec.tokens),
    )


class Prefetched:
    """An iterator run ahead on a thread; errors surface where the value is taken."""

    def __init__(self, source: Iterator[StepInput]):
        self._queue: queue.Queue = queue.Queue(_DEPTH)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._fill, args=(source,), daemon=True)
        self._thread.start()

    def _fill(self, source: Iterator[StepInput]) -> None:
        try:
            for item in source:
                self._put((item, None))
                if self._stop.is_set():
                    return
            self._put((None, StopIteration()))
        except Exception as error:
            self._put((None, error))

    def _put(self, pair: tuple) -> None:
        while not self._stop.is_set():
            with contextlib.suppress(queue.Full):
                self._queue.put(pair, timeout=0.1)
                return

    def __iter__(self) -> Iterator[StepInput]:
        while True:
            item, error = self._queue.get()
            if isinstance(error, StopIteration):
                return
            if error is not None:
                raise error
            yield item

    def close(self) -> None:
        """Stops the thread."""
        self._stop.set()
        self._thread.join()
