"""The order of training sequences: a pure function of (data seed, position).

Positions count sequences of the run's length; a step takes the next B of them. So batch size,
devices, processes and restarts never change the order, and the state of a reader is one integer.
The shuffle is grain's stateless `index_shuffle`.
"""

import functools
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from grain.experimental import index_shuffle

from bss.data.shards import Shards, TokenArray
from bss.errors import InputError, check

MIN_SEQUENCES = 4
_ROUNDS = 4


@dataclass(frozen=True, eq=False)
class Stream:
    """Sequences of a split in training order.

    Sequence k of the split is its tokens k·T to (k+1)·T inclusive, where T is seq_len. Inputs and
    targets share one array, and neighbours overlap by one token. So every token but the first is
    predicted once per pass. Trailing tokens that fill no sequence are left out.

    Attributes:
        tokens: the tokens of the split.
        seq_len: T, tokens predicted per sequence, 1 or more.
        seed: the data seed, any integer; compared runs share it.
        repeat: continue after one pass, each pass in another order; if False, the end of the pass
            is an error.

    Raises:
        InputError: If the split has fewer than 4 sequences.
    """

    tokens: TokenArray
    seq_len: int
    seed: int
    repeat: bool = False

    def __post_init__(self) -> None:
        check(self.seq_len >= 1, "seq_len", self.seq_len, "a length of 1 or more tokens")
        if self.num_sequences < MIN_SEQUENCES:
            raise InputError(
                f"corpus: {len(self.tokens)} tokens are fewer than {MIN_SEQUENCES} sequences of "
                f"{self.seq_len}; prepare a larger corpus or shorten seq_len"
            )

    @property
    def num_sequences(self) -> int:
        """Sequences in one pass."""
        return max(len(self.tokens) - 1, 0) // self.seq_len

    def check(self, sequences: int) -> None:
        """Raise InputError if a run needs more sequences than one pass and `repeat` is False."""
        there = self.num_sequences
        if not self.repeat and sequences > there:
            raise InputError(
                f"tokens: {sequences * self.seq_len} requested, one pass over the corpus has "
                f"{there * self.seq_len} ({there} sequences of {self.seq_len}); "
                "train on fewer, prepare a larger corpus, or set data.repeat"
            )

    def index(self, position: int) -> int:
        """Return the number of the sequence at a position: a bijection within each pass.

        It takes 4 µs for passes of 10^6 sequences or more and 60 µs at 1,000, because grain's
        block cipher walks through at least 2^16 numbers.
        """
        epoch, offset = divmod(position, self.num_sequences)
        seed = _epoch_seed(self.seed, epoch)
        return index_shuffle(offset, max_index=self.num_sequences - 1, seed=seed, rounds=_ROUNDS)

    def sequences(self, position: int, count: int) -> np.ndarray:
        """Return the sequences at positions [position, position + count).

        Returns:
            int32 [count, seq_len + 1]; inputs are [:, :-1], targets [:, 1:].

        Raises:
            InputError: If the positions lie beyond the first pass and `repeat` is False.
        """
        self.check(position + count)
        return self.at(range(position, position + count))

    def at(self, positions: Iterable[int]) -> np.ndarray:
        """Return the sequences at some positions, of any pass, int32 [positions, seq_len + 1]."""
        starts = [self.index(int(p)) * self.seq_len for p in positions]
        return self.tokens.windows(starts, self.seq_len + 1)


@functools.lru_cache(maxsize=64)
def _epoch_seed(seed: int, epoch: int) -> int:
    if seed < 0:  # NumPy's entropy has no sign
        sequence = np.random.SeedSequence((-seed, epoch), spawn_key=(1,))
    else:
        sequence = np.random.SeedSequence((seed, epoch))
    return int(sequence.generate_state(1)[0])


def held_out(
    shards: Shards, split: str, seq_len: int, tokens: int, rows: Iterable[int] | None = None
) -> np.ndarray:
    """Return fixed sequences of "validation" or "test": the same for every run.

    The tokens // seq_len sequences are spread evenly over the split's consecutive, non-overlapping
    sequences: n of N take the numbers i·N // n. They depend only on the split, the length and the
    count, so not on batch size, seed or schedule.

    Returns:
        int32 [tokens // seq_len, seq_len + 1], or only the ones that are numbered in `rows`;
        inputs are [:, :-1], targets [:, 1:].

    Raises:
        InputError: If fewer than one sequence is requested, or more than the split has.
    """
    check(seq_len >= 1, "seq_len", seq_len, "a length of 1 or more tokens")
    array = shards.tokens(split)
    there = (len(array) - 1) // seq_len
    wanted = tokens // seq_len
    if not 1 <= wanted <= there:
        raise InputError(
            f"evaluation.tokens: {tokens} are not between one sequence ({seq_len}) and the {split} "
            f"split's {there * seq_len}; ask for others or prepare a larger corpus"
        )
    numbers = range(wanted) if rows is None else map(int, rows)
    return array.windows((i * there // wanted * seq_len for i in numbers), seq_len + 1)
