"""The next batches, made and placed on the devices by a thread while the current step runs."""

from collections import deque
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Lock
from typing import Any, NamedTuple, TypeVar

import jax
import numpy as np

from bss.schedules.plan import Plan, StepSpec
from bss.training.average import shares
from bss.training.optimizers.base import StepSettings
from bss.training.running.bucketing import Ladder
from bss.training.running.stretches import Stretches
from bss.training.source import Source

T = TypeVar("T")
_AHEAD = 3


class Dispatch(NamedTuple):
    """Steps of one batch, without an event between them.

    Attributes:
        ends: tokens consumed after each.
        batch: of each, in sequences.
        buckets: in which each is done.
        program: which of the programs takes them.
        arguments: what it takes besides the state.
    """

    ends: tuple[int, ...]
    batch: int
    buckets: int
    program: int
    arguments: tuple[Any, ...]


def step_inputs(
    plan: Plan,
    stretches: Stretches,
    source: Source,
    ladder: Ladder,
    half_lives: tuple[str, ...] = (),
) -> Iterator[Dispatch]:
    """The steps of a plan, a stretch at a time: sequences, how many buckets a step has, settings.

    A step takes the sequences from its position on: position is tokens over sequence length,
    whatever the batch was before. `half_lives` are those of the weight averages.
    """
    capacity, most = ladder.capacity(plan), stretches.most
    for steps in stretches:
        start, batch = plan.tokens_at(steps[0]), plan.at(steps[0]).batch
        bucket, position, count = ladder.bucket(batch), start // plan.seq_len, batch * len(steps)
        sequences = source.batch(position, count, most * capacity[bucket], bucket)
        ends = tuple(plan.tokens_at(k + 1) for k in steps)
        each = [traced(plan.at(k), end, half_lives) for k, end in zip(steps, ends, strict=True)]
        arguments = sequences, np.int32(batch // bucket), *_together(each, most)
        yield Dispatch(ends, batch, batch // bucket, bucket, arguments)


def _together(each: list[StepSettings], most: int) -> tuple[Any, ...]:
    """A step's settings; of several those of each, filled up behind the last, and their number."""
    if most == 1:
        return (each[0],)
    filled = each + [each[-1]] * (most - len(each))
    return jax.tree.map(lambda *x: np.stack(x), *filled), np.int32(len(each))


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


def prefetch(inputs: Iterator[T], busy: "Lock | None" = None) -> Generator[T, None, None]:
    """The items of an iterator, made ahead on a thread; errors surface where they are taken.

    While `busy` is held nothing is made, nor is any on its way to the devices.
    """
    held, pool = busy or Lock(), ThreadPoolExecutor(1, "prefetch")

    def make() -> T | None:
        with held:
            return jax.block_until_ready(next(inputs, None))

    try:
        ahead = deque(pool.submit(make) for _ in range(_AHEAD))
        while (item := ahead.popleft().result()) is not None:
            ahead.append(pool.submit(make))
            yield item
    finally:
        pool.shutdown(cancel_futures=True)
