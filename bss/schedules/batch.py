"""BatchSchedule: the batch size as a piecewise constant function of a count.

The count is tokens consumed (samples in the regression theory), never steps. So a schedule means
the same at every batch size. Text may have starts in steps, which are converted when it is read.
The notation "0:8 2M:16 6M:32" reads "batch 8 from the start, 16 from 2M tokens, 32 from 6M";
Megatron-LM uses the same notation.
"""

import itertools
import math
import operator
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Self

import numpy as np

from bss.errors import InputError, check_type
from bss.schedules.notation import (
    UNITS,
    megatron_ramp,
    pairs_of,
    parse_size,
    ramp_of,
    ramp_parts,
    split_unit,
)
from bss.schedules.stretches import tokens_after
from bss.units import format_tokens, parse_tokens


@dataclass(frozen=True)
class BatchSchedule:
    """Batch `batches[i]` from count `starts[i]` to `starts[i + 1]`; the last one has no end.

    Neighbours of equal batch size are merged on construction. So schedules that are equal as
    functions are equal as values.

    Attributes:
        starts: counts, strictly increasing, the first 0.
        batches: sequences per step, each at least 1.
        seq_lens: tokens per sequence of each stage, if lengths change with the batch size; empty
            for a schedule of sequences of one length, which is given elsewhere.

    Raises:
        InputError: If the values do not form a schedule.

    Examples:
        >>> schedule = BatchSchedule((0, 2_000_000), (8, 16))
        >>> schedule(1_999_999), schedule(2_000_000), str(schedule)
        (8, 16, '0:8 2M:16')
    """

    starts: tuple[int, ...]
    batches: tuple[int, ...]
    seq_lens: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        for name in ("starts", "batches", "seq_lens"):
            check_type(name, getattr(self, name), (list, tuple), "a list of whole numbers")
        starts = [_integer(start, "batch schedule start") for start in self.starts]
        batches = [_positive(batch, "batch") for batch in self.batches]
        if not starts or len(starts) != len(batches):
            raise InputError(
                f"batch schedule: {len(starts)} starts for {len(batches)} batches; "
                "give one start for every batch, and at least one"
            )
        if starts[0] != 0:
            raise InputError(
                f"batch schedule: starts at {format_tokens(starts[0])}; the first start must be 0"
            )
        for before, after in itertools.pairwise(starts):
            if after <= before:
                raise InputError(
                    f"batch schedule: start {format_tokens(after)} follows "
                    f"{format_tokens(before)}; write starts in increasing order"
                )
        lengths = [_positive(length, "seq_len") for length in self.seq_lens]
        if lengths and len(lengths) != len(batches):
            raise InputError(
                f"batch schedule: {len(lengths)} lengths for {len(batches)} batches; give each one"
            )
        shapes = list(zip(batches, lengths or batches, strict=True))
        switches = [i for i, shape in enumerate(shapes) if i == 0 or shape != shapes[i - 1]]
        object.__setattr__(self, "starts", tuple(starts[i] for i in switches))
        object.__setattr__(self, "batches", tuple(batches[i] for i in switches))
        object.__setattr__(self, "seq_lens", tuple(lengths[i] for i in switches if lengths))

    def __call__(self, count: int) -> int:
        """Return the batch size, in sequences, at a count of 0 or more."""
        if count < 0:
            raise InputError(f"batch schedule: called at {count}; counts are 0 or more")
        return self.batches[bisect_right(self.starts, count) - 1]

    def __str__(self) -> str:
        """Return the notation, exact: `BatchSchedule.parse(str(schedule)) == schedule`."""
        if len(self.batches) == 1:
            return self.stage(0).partition(":")[2]
        return " ".join(self.stage(i) for i in range(len(self.batches)))

    def stage(self, number: int) -> str:
        """Return the text of a stage, e.g. "2M:16" or "2M:16x4096"."""
        size = str(self.batches[number])
        if self.seq_lens:
            size = f"{size}x{self.seq_lens[number]}"
        return f"{format_tokens(self.starts[number])}:{size}"

    @property
    def constant_batch(self) -> int:
        """The batch size of a schedule that has only one; InputError if it changes."""
        if len(self.batches) != 1:
            raise InputError(f"batch: {self} changes on the way; expected one batch throughout")
        return self.batches[0]

    def mean_batch(self, total: int) -> float:
        """Return the fixed batch size that takes the same number of steps over `total` counts.

        This is the harmonic mean weighted by counts, total / Σ length_i / batch_i, without the
        rounding of segments to whole steps (derived here).

        Examples:
            >>> BatchSchedule((0, 50), (1, 4)).mean_batch(100)
            1.6
        """
        _positive(total, "total")
        ends = [min(end, total) for end in (*self.starts[1:], total)]
        lengths = [max(0, end - start) for start, end in zip(self.starts, ends, strict=True)]
        steps = sum(Fraction(n, batch) for n, batch in zip(lengths, self.batches, strict=True))
        return float(total / steps)

    @classmethod
    def parse(cls, text: str, total: int | None = None, seq_len: int | None = None) -> Self:
        """Read a schedule from text.

        Args:
            text: "8" for a fixed batch size, or "0:8 2M:16" with starts as in
                `bss.units.parse_tokens`. "0:8 20000steps:16" has starts in steps, "0:8
                1Msamples:16" in samples. "128-512:50%" is a linear ramp up to that count;
                "128-512/16:50%" sets its increment; "128-512:20000steps" is linear in steps. By
                default the increment is a divisor of both ends that makes `RAMP_STAGES` or more.
                "16 8 300000:512" is Megatron-LM's `--rampup-batch-size 16 8 300000`, i.e. first
                batch, increment and samples, with its global batch. "0:1024x4096 252M:1024x8192"
                has a length of sequences for each stage.
            total: count of which percentages are taken.
            seq_len: tokens per sequence, for starts in steps or samples, and for stages without a
                length in the text.

        Raises:
            InputError: If the text is not a schedule.

        Examples:
            >>> str(BatchSchedule.parse("0:8 100steps:16", seq_len=64))
            '0:8 51.2K:16'
            >>> str(BatchSchedule.parse("2-8/2:600"))
            '0:2 100:4 300:6 500:8'
            >>> str(BatchSchedule.parse("0:.5K 1K:2K"))
            '0:500 1K:2000'
            >>> str(BatchSchedule.parse("0: 8 × 64, 1M: 8 × 128"))
            '0:8x64 1M:8x128'
        """
        if not isinstance(text, str):
            raise InputError(f"batch: {text!r} given; write a text like '8' or '0:8 2M:16'")
        if ramp := megatron_ramp(text):
            first, increment, samples, last = ramp
            if seq_len is None:
                raise InputError(f"batch: {text} needs the tokens of a sequence; give --seq-len")
            return cls.linear(first, last, samples * seq_len, increment)
        pairs = pairs_of(text)
        if len(pairs) == 1 and ":" not in pairs[0]:
            pairs = [f"0:{pairs[0]}"]
        stages = _Stages(total, seq_len)
        if pairs and (parts := ramp_parts(pairs[0])):
            low, high, increment, over, length = parts
            stages.add_ramp(low, high, increment, over, length)
            pairs = pairs[1:]
        for pair in pairs:
            start, _, size = pair.partition(":")
            stages.add(pair, start, size)
        return cls(*stages.parts())

    @classmethod
    def constant(cls, batch: int) -> Self:
        """Return a schedule with one batch size."""
        return cls((0,), (batch,))

    @classmethod
    def stages(cls, batches: Sequence[int], total: int) -> Self:
        """Return the given batch sizes in order, each for an equal share of `total` counts (rounded
        down).

        For stages of given lengths, pass their starts: `BatchSchedule(starts, batches)`.
        """
        n = len(batches)
        return cls(tuple(total * i // n for i in range(n)), tuple(batches))

    @classmethod
    def linear(cls, first: int, last: int, over: int, increment: int) -> Self:
        """Return a ramp from `first` to `last` in equal increments; `last` is reached at count
        `over`.

        The increments come at equal distances, as in Megatron-LM's `--rampup-batch-size`.
        """
        _positive(increment, "increment")
        n, rest = divmod(abs(last - first), increment)
        if rest or not n:
            raise InputError(
                f"increment: {increment} does not lead from batch {first} to {last}; "
                f"choose a divisor of their difference, {abs(last - first)}"
            )
        batches = (first + (last - first) // n * i for i in range(n + 1))
        return cls(tuple(over * i // n for i in range(n + 1)), tuple(batches))

    @classmethod
    def late_switch(cls, first: int, last: int, at: int) -> Self:
        """Return batch size `first` up to count `at`, and `last` from there on."""
        return cls((0, at), (first, last))

    @classmethod
    def follow(
        cls,
        function: Callable[[int], float],
        total: int,
        stages: int,
        *,
        multiple_of: int = 1,
        allowed: Sequence[int] | None = None,
    ) -> Self:
        """Approximate a function of the count by at most `stages` constant stages.

        The stages minimise the worst error |log(batch / function)| over [0, total), among all
        piecewise constant functions with these batch sizes (derived here). The resolution is a grid
        of counts. For a monotone function and free batch sizes, the boundaries are at log-equal
        levels of the function. Each batch size is then the geometric middle of its stage. The
        function is first clipped to the allowed batch sizes, so that a function that starts at zero
        can be followed.

        Args:
            function: count in [0, total) to the ideal batch size in sequences, a finite number.
            total: the count up to which to follow.
            stages: maximum number of stages; fewer are used if more do not lower the worst error.
            multiple_of: batch sizes are multiples of this, unless `allowed` is given.
            allowed: the allowed batch sizes.

        Raises:
            InputError: If the function returns NaN or an infinity, or an argument is not positive.
        """
        for field, value in (("total", total), ("stages", stages), ("multiple_of", multiple_of)):
            _positive(value, field)
        choices = sorted({_positive(batch, "allowed batch") for batch in allowed or ()})
        low, high = (choices[0], choices[-1]) if choices else (multiple_of, math.inf)

        def ideal(count: int) -> float:
            value = float(function(count))
            if not math.isfinite(value):
                raise InputError(f"batch function: {value} at count {count}; it must be finite")
            return min(max(value, low), high)

        nearest = partial(_nearest, choices=choices, multiple_of=multiple_of)
        grid = _grid(total)
        values = np.array([ideal(count) for count in grid])
        firsts, batches = _best_stages(values, stages, nearest)
        starts = [0]
        for first, before, after in zip(firsts[1:], batches, batches[1:], strict=False):
            middle = math.sqrt(before * after)
            exact = _crossing(ideal, middle, after > before, grid[first - 1], grid[first])
            readable = round(exact, 3 - len(str(exact)))  # three significant digits
            starts.append(max(readable, starts[-1] + 1))
        return cls(tuple(starts), tuple(batches))


class _Stages:
    """The stages of a text while it is read."""

    def __init__(self, total: int | None, seq_len: int | None) -> None:
        self.total = total
        self.seq_len = seq_len
        self.starts: list[int] = []
        self.batches: list[int] = []
        self.lengths: list[int | None] = []  # None if the text has none

    def add(self, pair: str, start: str, size: str) -> None:
        """Add the stage of a text like 2M:16 or 2M:16x4096."""
        problem = f"{pair} is not start:batch; write it like '0:8 2M:16'"
        batch, times, length = size.partition("x")
        number = parse_size(batch if start else "", problem)
        tokens = None
        if times:
            tokens = parse_size(length, f"{pair} has no length; write it like '0:1024x4096'")
        self._append(self._position(start), number, tokens)

    def add_ramp(self, low: int, high: int, increment: int, over: str, length: str) -> None:
        """Add the stages of a ramp, linear in tokens or in the steps or samples of its end."""
        tokens = None
        if length:
            example = "write it like '128-512x4096:50%'"
            tokens = parse_size(length, f"{length} is not a length of sequences; {example}")
        number, unit = split_unit(over)
        if unit not in UNITS:
            end = parse_tokens(number, field="batch schedule ramp", total=self.total)
            counts, batches = ramp_of(low, high, increment, end, "tokens")
            for start, batch in zip(counts, batches, strict=True):
                self._append(start, batch, tokens)
            return
        end = parse_tokens(number, field="batch schedule ramp")
        counts, batches = ramp_of(low, high, increment, end, unit)
        # Of increments within one step the last one is used.
        for count, batch in dict(zip(counts, batches, strict=True)).items():
            self._append(self._after(count, unit), batch, tokens)

    def _append(self, start: int, batch: int, length: int | None) -> None:
        self.starts.append(start)
        self.batches.append(batch)
        self.lengths.append(length)

    def parts(self) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
        """Return starts, batch sizes and lengths; no lengths if the text has none."""
        known = [self.seq_len if length is None else length for length in self.lengths]
        if self.lengths == [None] * len(known):
            return tuple(self.starts), tuple(self.batches), ()
        if None in known:
            number = known.index(None)
            stage = f"{format_tokens(self.starts[number])}:{self.batches[number]}"
            raise InputError(
                f"batch: the stage {stage} has no length, and others have; write it like "
                "0:1024x4096, or give --seq-len"
            )
        return tuple(self.starts), tuple(self.batches), tuple(n for n in known if n is not None)

    def _position(self, text: str) -> int:
        """Return the start of the next stage in tokens."""
        number, unit = split_unit(text)
        if unit in UNITS:
            count = parse_tokens(number, field=f"batch schedule {unit.removesuffix('s')}")
            return self._after(count, unit)
        return parse_tokens(number, field="batch schedule start", total=self.total)

    def _after(self, count: int, unit: str) -> int:
        """Return the tokens consumed after steps or samples of the stages so far."""
        if not self.starts:
            if count:
                raise InputError(
                    f"batch schedule: starts at {count}{unit}; the first start must be 0"
                )
            return 0
        schedule = BatchSchedule(*self.parts())
        if self.seq_len is None and not schedule.seq_lens:
            raise InputError(f"batch: {count}{unit} needs the tokens of a sequence; give --seq-len")
        return tokens_after(schedule, self.seq_len or 0, count, unit)


def _nearest(values: np.ndarray, choices: Sequence[int], multiple_of: int) -> np.ndarray:
    """Return the allowed batches closest to the values in log, the lower of two as close."""
    if choices:
        i = np.searchsorted(choices, values)
        lower = np.take(choices, np.maximum(i - 1, 0), mode="clip")
        upper = np.take(choices, i, mode="clip")
    else:
        lower = np.maximum(1, np.floor(values / multiple_of)) * multiple_of
        upper = lower + multiple_of
    return np.where(np.abs(np.log(upper / values)) < np.abs(np.log(lower / values)), upper, lower)


def _grid(total: int) -> list[int]:
    """Return counts in [0, total), dense both linearly and in log: the functions are powers of the
    count.
    """
    linear = np.linspace(0, total - 1, 1025)
    logarithmic = np.geomspace(1, total, 1025) - 1
    return sorted({min(int(count), total - 1) for count in (*linear, *logarithmic)})


def _best_stages(
    values: np.ndarray, stages: int, nearest: Callable[[np.ndarray], np.ndarray]
) -> tuple[list[int], list[int]]:
    """Return the first index and batch size of each stage; the worst log error is minimal.

    For a given error, stages that each extend as far as possible are the fewest. Bisecting the
    error finds the smallest one for which the number of stages suffices.
    """

    def within(error: float) -> tuple[list[int], list[int]]:
        """The stages; or the first of them, if they are too many."""
        firsts: list[int] = []
        batches: list[int] = []
        first = 0
        while first < len(values) and len(firsts) <= stages:
            low = np.minimum.accumulate(values[first:])
            high = np.maximum.accumulate(values[first:])
            batch = nearest(np.sqrt(low * high))
            beyond = np.log(np.maximum(high / batch, batch / low))[1:] > error
            length = 1 + int(beyond.argmax()) if beyond.any() else len(low)
            firsts.append(first)
            batches.append(int(batch[length - 1]))
            first += length
        return firsts, batches

    floor = np.abs(np.log(nearest(values) / values)).max()
    low = floor
    high = floor + math.log(values.max() / values.min())
    for _ in range(50):
        middle = (low + high) / 2
        if len(within(middle)[0]) <= stages:
            high = middle
        else:
            low = middle
    return within(high * (1 + 1e-12) + 1e-12)


def _crossing(
    ideal: Callable[[int], float], level: float, rising: bool, before: int, after: int
) -> int:
    """Return the first count in (before, after] at which the function is past the level."""
    while after - before > 1:
        middle = (before + after) // 2
        past = (ideal(middle) >= level) if rising else (ideal(middle) <= level)
        before, after = (before, middle) if past else (middle, after)
    return after


def _integer(value: int, field: str) -> int:
    try:
        return operator.index(value)
    except TypeError:
        raise InputError(f"{field}: {value!r} is not an integer; write a whole number") from None


def _positive(value: int, field: str) -> int:
    number = _integer(value, field)
    if number < 1:
        raise InputError(f"{field}: {value} is not positive; write an integer of at least 1")
    return number
