"""Where a run's sequences come from: token shards on the host, or the synthetic language.

Both address sequences by position alone, so that batch size, buckets and restarts never change
which sequence comes when.
"""

import functools
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import jax
import numpy as np
from jax.sharding import Mesh

from bss.data import synthetic
from bss.data.log_bilinear import SyntheticLanguage
from bss.data.shards import Shards, beside, open_shards
from bss.errors import InputError
from bss.models.family import ModelFamily
from bss.training.config import DataConfig, HeldOutSet, RunConfig
from bss.training.devices.mesh import by_position, own_columns
from bss.training.metrics import by_column_name

if TYPE_CHECKING:
    from bss.data.stream import Stream

SYNTHETIC = "synthetic"
"""The content of a data config whose sequences are the synthetic language's."""

_SEED_STRIDE = 1 << 48
_BLOCK = 1024


class TextSource:
    """Sequences of memory-mapped token shards, cut and shuffled on the host."""

    def __init__(self, shards: Shards, data: DataConfig, mesh: Mesh):
        from bss.data.stream import Stream  # here, so that only text needs grain

        self._shards, self._data = shards, data
        self._stream = Stream(shards.tokens("train"), data.seq_len, data.seed, data.repeat)
        self._mesh = mesh

    def check(self, sequences: int) -> None:
        """Refuses a run that needs more sequences than there are; tells one that repeats them."""
        self._stream.check(sequences)
        _tell_passes(self._stream, sequences)

    def batch(self, position: int, count: int, capacity: int, bucket: int) -> jax.Array:
        """Sequences from `position` on, on the devices.

        Returns:
            int32 [capacity, bucket, T+1], split over the devices along the bucket; only the first
            `count` sequences count, the others are zeros.
        """
        self._stream.check(position + count)
        shape = capacity, bucket, self._data.seq_len + 1
        return by_position(lambda n: self._stream.at(position + n), count, shape, self._mesh)

    def held_out(
        self, split: str, tokens: int, seq_len: int, rows: Sequence[int] | None = None
    ) -> np.ndarray:
        """Fixed sequences of the "validation" or "test" split, int32 [tokens // T, T+1].

        Where `rows` are given, those of these numbers.
        """
        from bss.data.stream import held_out

        return held_out(self._shards, split, seq_len, tokens, rows)

    def bytes_per_token(self, split: str) -> float | None:
        """Of a split; None where tokens are no text."""
        return self._shards.bytes_per_token(split)


class SyntheticSource:
    """Sequences of the synthetic language, made on the devices a block at a time.

    The data seed moves the positions, 2^48 apart, and leaves the language as it is.
    """

    def __init__(self, language: SyntheticLanguage, data: DataConfig, mesh: Mesh):
        self._language, self._offset = language, data.seed * _SEED_STRIDE
        self._mesh = mesh
        self._block = functools.lru_cache(maxsize=4)(self._made)

    def _made(self, index: int, first: int, bucket: int, columns: tuple[int, ...]) -> np.ndarray:
        """Block `index` of the sequences in some columns of the buckets from position `first` on.

        Returns:
            int32 [_BLOCK, T+1].
        """
        turns, column = np.divmod(index * _BLOCK + np.arange(_BLOCK), len(columns))
        places = (first + bucket * turns + np.take(columns, column)).astype(np.uint64)
        return np.asarray(synthetic.at(self._language, np.uint64(self._offset) + places))

    def check(self, sequences: int) -> None:
        """See `TextSource`; the language is endless, but two data seeds must not meet."""
        if sequences > _SEED_STRIDE:
            raise InputError(f"tokens: {sequences} sequences are asked for; at most {_SEED_STRIDE}")

    def batch(self, position: int, count: int, capacity: int, bucket: int) -> jax.Array:
        """See `TextSource`."""
        columns, width = tuple(own_columns(self._mesh, bucket).tolist()), bucket
        if len(columns) == bucket:  # all of them: one row of blocks serves every bucket
            columns, width = (0,), 1
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
"""Training and held-out sequences of one run."""


def open_source(run: RunConfig, shards: Path, mesh: Mesh) -> Source:
    """The source of a run.

    Raises:
        InputError: missing, damaged or changed shards; a model of another vocabulary.
    """
    data = run.data
    if data.content == SYNTHETIC:
        language = SyntheticLanguage(run.model.vocab_size, data.seq_len)
        return SyntheticSource(language, data, mesh)
    opened = open_shards(shards)
    opened.require(data.content)
    check_vocabulary(run.model, opened.vocab_size)
    return TextSource(opened, data, mesh)


def check_runs(runs: Sequence[RunConfig], shards: str = "") -> None:
    """Refuses metrics that there are not, and text that cannot serve, of the longest run first.

    Args:
        runs: of which those of the synthetic language need no text; passes over it are told.
        shards: their directory; empty where nothing is known of it.
    """
    for metrics in {run.evaluation.metrics for run in runs}:
        by_column_name(metrics)
    runs = [run for run in runs if run.data.content != SYNTHETIC]
    if not runs or not shards:
        return
    from bss.data.stream import Stream, held_out  # here, so that only text needs grain

    opened = open_shards(Path(shards))
    tokens = opened.tokens("train")
    for run in runs:
        check_vocabulary(run.model, opened.vocab_size)
    ordered = sorted(runs, key=lambda run: -run.schedule.tokens)
    for run in ordered:
        seq_len, asked = run.data.seq_len, run.evaluation
        stream = Stream(tokens, seq_len, seed=0, repeat=run.data.repeat)
        sequences = run.schedule.tokens // seq_len
        stream.check(sequences)
        if run is ordered[0]:
            _tell_passes(stream, sequences)
        for split, size in (("validation", asked.tokens), ("test", asked.test_tokens)):
            if size:
                held_out(opened, split, asked.seq_len or seq_len, size, rows=())
        for one in asked.sets:
            there = shards_of(one, run, opened)
            held_out(there, one.split, asked.seq_len or seq_len, one.tokens, rows=())


def shards_of(one: HeldOutSet, run: RunConfig, own: Shards) -> Shards:
    """Those of a held-out set: the run's own, or others beside them that were tokenized alike."""
    if one.content in ("", run.data.content):
        return own
    other = beside(own.directory, one.content)
    if other.manifest.tokenizer.hash != own.manifest.tokenizer.hash:
        raise InputError(
            f"evaluation.sets: {other.directory} has another tokenizer than {own.directory}; "
            "prepare it with that: its name, or the tokenizer.json there"
        )
    return other


def _tell_passes(stream: "Stream", sequences: int) -> None:
    if (passes := sequences / stream.num_sequences) > 1:
        warnings.warn(
            f"data.repeat: {passes:.2f} passes over the corpus", RuntimeWarning, stacklevel=3
        )


def check_vocabulary(model: ModelFamily, tokens: int) -> None:
    """Refuses a model that has other tokens than its tokenizer."""
    if model.vocab_size != tokens:
        raise InputError(
            f"model.vocab_size is {model.vocab_size}, the tokenizer has {tokens} tokens; "
            f"write model.vocab_size {tokens}"
        )
