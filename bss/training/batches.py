"""The batches of a run: sequences by position, grouped into steps, prefetched to the devices.

Sources address sequences by position alone, so that batch size, micro-batches and restarts never
change the order of the data. A dispatch takes all steps up to the next event (evaluation, fork
point, batch change). Fewer dispatches are faster: a program allocates its memory again at each
call, which costs 10 to 20% of a small step on CPUs. One program takes any number of steps
(`step_capacity`), so their number does not change the bits.
"""

import dataclasses
import functools
import warnings
from collections import deque
from collections.abc import Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple, TypeVar

import jax
import numpy as np
from jax.sharding import Mesh

from bss.data import synthetic
from bss.data.shards import Shards, open_shards, sibling
from bss.data.synthetic import SyntheticLanguage, is_synthetic, language_of
from bss.errors import InputError
from bss.models.base import ModelFamily
from bss.schedules.buckets import LARGEST, BucketSizes
from bss.schedules.plan import Plan
from bss.training.distributed import is_multihost
from bss.training.execution import Execution
from bss.training.run_config import DataConfig, RunConfig
from bss.training.sharding import by_position, own_columns
from bss.training.step import step_settings

T = TypeVar("T")

SYNTHETIC = synthetic.NAME
"""The `content` of a data config of the synthetic language with its default settings."""
MAX_STEPS = 64
"""Maximum of steps per dispatch."""
DISPATCH_FLOPS = 2.7e11
"""FLOPs of a dispatch, about 4 s of a CPU core: the delay of a stop."""

_SEED_STRIDE = 1 << 48
_SHIFTING_SEEDS = synthetic.HELD_OUT["validation"] // _SEED_STRIDE
_BLOCK = 1024
_AHEAD = 3


class TextSource:
    """Sequences of memory-mapped token shards, shuffled on the host."""

    def __init__(self, shards: Shards, data: DataConfig, mesh: Mesh | None) -> None:
        from bss.data.stream import Stream  # imports grain, which only text needs

        self._shards = shards
        self._data = data
        self._stream = Stream(shards.tokens("train"), data.seq_len, data.seed, data.repeat)
        self._mesh: Any = mesh

    def check(self, sequences: int) -> None:
        """Check that there are enough sequences; warn about repeated ones.

        Raises:
            InputError: If the run needs more sequences than there are, without `data.repeat`.
        """
        self._stream.check(sequences)
        if (passes := sequences / self._stream.num_sequences) > 1:
            what = f"data.repeat: {passes:.2f} passes over the corpus"
            warnings.warn(what, RuntimeWarning, stacklevel=2)

    def batch(self, position: int, count: int, capacity: int, bucket: int) -> jax.Array:
        """Return `count` sequences from `position`, on the devices.

        Returns:
            int32 [capacity, bucket, T+1], sharded along the bucket; zeros after the first `count`
            sequences.
        """
        self._stream.check(position + count)
        shape = capacity, bucket, self._data.seq_len + 1
        return by_position(lambda n: self._stream.at(position + n), count, shape, self._mesh)

    def held_out(
        self, split: str, tokens: int, seq_len: int, rows: Sequence[int] | None = None
    ) -> np.ndarray:
        """Return the fixed sequences of a split, int32 [tokens // T, T+1], or some rows of them."""
        from bss.data.stream import held_out

        return held_out(self._shards, split, seq_len, tokens, rows)

    def bytes_per_token(self, split: str) -> float | None:
        """Return the bytes per token of a split; None if tokens are not text."""
        return self._shards.bytes_per_token(split)


class SyntheticSource:
    """Sequences of the synthetic language, generated on the devices, one block at a time.

    Data seeds of 15 bits shift the positions by multiples of 2^48, all below those of held-out
    data. Any other seed has different sequences, drawn with another key. The language is the same.
    """

    def __init__(self, language: SyntheticLanguage, data: DataConfig, mesh: Mesh | None) -> None:
        self._language = language
        self._trained = language
        self._offset = 0
        if 0 <= data.seed < _SHIFTING_SEEDS:
            self._offset = data.seed * _SEED_STRIDE
        else:
            self._trained = dataclasses.replace(language, sequence_seed=data.seed)
        self._mesh: Any = mesh
        self._block = functools.lru_cache(maxsize=4)(self._generate)

    def _generate(
        self, index: int, first: int, bucket: int, columns: tuple[int, ...]
    ) -> np.ndarray:
        """Return block `index` of some columns of the micro-batches from position `first` on.

        Returns:
            int32 [_BLOCK, T+1].
        """
        turns, column = np.divmod(index * _BLOCK + np.arange(_BLOCK), len(columns))
        places = (first + bucket * turns + np.take(columns, column)).astype(np.uint64)
        return np.asarray(synthetic.at(self._trained, np.uint64(self._offset) + places))

    def check(self, sequences: int) -> None:
        """See `TextSource`; the number of sequences is the distance between two data seeds."""
        if sequences > _SEED_STRIDE:
            raise InputError(f"tokens: {sequences} sequences requested; at most {_SEED_STRIDE}")

    def batch(self, position: int, count: int, capacity: int, bucket: int) -> jax.Array:
        """See `TextSource`."""
        columns = tuple(own_columns(self._mesh, bucket).tolist())
        width = bucket
        if len(columns) == bucket:  # all: the same blocks serve every micro-batch size
            columns = (0,)
            width = 1
        turns, first = divmod(position, width)

        def rows(numbers: np.ndarray) -> np.ndarray:
            start = turns * len(columns)
            indices = range(start // _BLOCK, (start + len(numbers) - 1) // _BLOCK + 1)
            blocks = [self._block(index, first, width, columns) for index in indices]
            return np.concatenate(blocks)[start % _BLOCK :][: len(numbers)]

        shape = capacity, bucket, self._language.seq_len + 1
        return by_position(rows, count, shape, self._mesh)

    def held_out(
        self, split: str, tokens: int, seq_len: int, rows: Sequence[int] | None = None
    ) -> np.ndarray:
        """See `TextSource`; the language depends on the length of its sequences."""
        if seq_len != self._language.seq_len:
            raise InputError(
                f"evaluation.seq_len is {seq_len}; the synthetic language of this run has "
                f"sequences of {self._language.seq_len}, so leave it out"
            )
        return synthetic.held_out(self._language, split, tokens, rows)

    def bytes_per_token(self, split: str) -> float | None:
        """See `TextSource`."""
        return None


Source = TextSource | SyntheticSource
"""The training and held-out sequences of a run."""


def open_source(run: RunConfig, shards: Path, mesh: Mesh | None = None) -> Source:
    """Open the source of a run; without a mesh, only to check that there are enough sequences.

    Raises:
        InputError: If shards are missing, damaged or changed, or the vocabulary is another.
    """
    data = run.data
    if is_synthetic(data.content):
        language = language_of(data.content, run.model.vocab_size, data.seq_len)
        return SyntheticSource(language, data, mesh)
    opened = open_shards(shards)
    opened.require(data.content)
    check_vocabulary(run.model, opened.vocab_size)
    return TextSource(opened, data, mesh)


def other_shards(content: str, own: Shards) -> Shards:
    """Return the shards of some content in the same folder as a run's own.

    Raises:
        InputError: If they have another tokenizer.
    """
    other = sibling(own.directory, content)
    if other.manifest.tokenizer.hash != own.manifest.tokenizer.hash:
        raise InputError(
            f"evaluation.sets: {other.directory} has another tokenizer than {own.directory}; "
            "prepare it with that: its name, or the tokenizer.json there"
        )
    return other


def check_vocabulary(model: ModelFamily, tokens: int) -> None:
    """Raise InputError if a model has another vocabulary size than its tokenizer."""
    if model.vocab_size != tokens:
        raise InputError(
            f"model.vocab_size is {model.vocab_size}, the tokenizer has {tokens} tokens; "
            f"write model.vocab_size {tokens}"
        )


class StepBatch(NamedTuple):
    """The input of one dispatch: steps of one batch size, without an event between them.

    Attributes:
        ends: tokens consumed after each step.
        batch: batch size of a step, in sequences.
        buckets: number of micro-batches of a step.
        program: key of the program that takes them.
        arguments: arguments of the program after the state.
    """

    ends: tuple[int, ...]
    batch: int
    buckets: int
    program: int
    arguments: tuple[Any, ...]


def max_steps_per_dispatch(execution: Execution, mesh: Mesh, *, vmapped: bool = False) -> int:
    """Return the maximum of steps per dispatch.

    It is the requested one, else many on one CPU device or in a program of several runs.
    """
    if is_multihost() or mesh.size > 1 or not execution.checkpoint_seconds:
        return 1
    many = vmapped or mesh.devices.flat[0].platform == "cpu"
    by_default = MAX_STEPS if many else 1
    return min(execution.steps_per_dispatch or by_default, MAX_STEPS)


def step_capacity(execution: Execution, mesh: Mesh, *, vmapped: bool = False) -> int:
    """Return the number of steps for which a program is compiled; a dispatch may take fewer.

    The compiler fuses a loop over steps differently from a single step. Then one program rounds a
    product before it is added, and the other does not. So all requests on one CPU device use one
    program, and a run keeps its bits when `execution.steps_per_dispatch` or
    `execution.checkpoint_seconds` changes. Several devices always take one step.
    """
    if vmapped:
        return MAX_STEPS
    on_cpu = mesh.devices.flat[0].platform == "cpu"
    if on_cpu and mesh.size == 1 and not is_multihost():
        return MAX_STEPS
    return max_steps_per_dispatch(execution, mesh)


def microbatch_capacity(buckets: BucketSizes, plan: Plan, capacity: int) -> dict[int, int]:
    """Return, by micro-batch size, the most of them that one step of a program may accumulate.

    A program of several steps takes LARGEST sequences per step or more, so that runs of
    smaller batch sizes share it. On GPUs a single micro-batch has a faster program.
    """
    most = buckets.max_microbatches(plan)
    if capacity == 1:
        return most
    return {bucket: max(count, LARGEST // bucket) for bucket, count in most.items()}


def step_chunks(
    plan: Plan,
    first: int,
    events: frozenset[int] = frozenset(),
    most: int = 1,
    flops_per_token: float = 0.0,
) -> Iterator[range]:
    """Yield ranges of consecutive steps without an event inside (derived here).

    Args:
        plan: the plan of the run.
        first: index of the first step.
        events: token counts at which a range must end, batch changes among them.
        most: maximum of steps in a range.
        flops_per_token: FLOPs of all runs together, which limit a range to DISPATCH_FLOPS; 0 sets
            no limit.
    """
    step = first
    flops = flops_per_token * plan.seq_len
    while step < plan.steps:
        allowed = int(DISPATCH_FLOPS / max(flops * plan.at(step).batch, 1.0))
        end = min(step + max(1, min(most, allowed)), plan.steps)
        end = next((k for k in range(step + 1, end) if plan.tokens_at(k) in events), end)
        yield range(step, end)
        step = end


def step_batches(
    plan: Plan,
    chunks: Iterator[range],
    most: int,
    source: Source,
    buckets: BucketSizes,
    max_microbatches: Mapping[int, int],
    half_lives: tuple[str, ...] = (),
) -> Iterator[StepBatch]:
    """Yield the batches of a run.

    The position of a step's first sequence is its tokens over the sequence length, whatever the
    batch size was before.

    Args:
        plan: the plan of the run.
        chunks: the steps of each batch, from `step_chunks`.
        most: the capacity of a program in steps.
        source: the sequences.
        buckets: the micro-batch sizes.
        max_microbatches: see `microbatch_capacity`.
        half_lives: Half-lives of the weight averages.
    """
    for steps in chunks:
        batch = plan.at(steps[0]).batch
        bucket = buckets.bucket(batch)
        position = plan.tokens_at(steps[0]) // plan.seq_len
        count = batch * len(steps)
        sequences = source.batch(position, count, most * max_microbatches[bucket], bucket)
        ends = tuple(plan.tokens_at(k + 1) for k in steps)
        each = [
            step_settings(plan.at(k), end, half_lives) for k, end in zip(steps, ends, strict=True)
        ]
        settings = stack_settings(each, most) if most > 1 else (each[0],)
        arguments = sequences, np.int32(batch // bucket), *settings
        yield StepBatch(ends, batch, batch // bucket, bucket, arguments)


def stack_settings(each: list[Any], most: int) -> tuple[Any, np.int32]:
    """Return the settings of steps, the last one repeated to [most, ...], and their number."""
    filled = each + [each[-1]] * (most - len(each))
    return jax.tree.map(lambda *x: np.stack(x), *filled), np.int32(len(each))


def prefetch(inputs: Iterator[T], busy: "Lock | None" = None) -> Generator[T, None, None]:
    """Yield the items of an iterator, made ahead by a thread; errors are raised in the reader.

    While `busy` is locked nothing is made or transferred to the devices.
    """
    lock = busy or Lock()
    pool = ThreadPoolExecutor(1, "prefetch")

    def make() -> T | None:
        with lock:
            return jax.block_until_ready(next(inputs, None))

    try:
        ahead = deque(pool.submit(make) for _ in range(_AHEAD))
        while (item := ahead.popleft().result()) is not None:
            ahead.append(pool.submit(make))
            yield item
    finally:
        pool.shutdown(cancel_futures=True)
