"""BatchSchedule: the batch size as a piecewise constant function of a count.

The count is tokens consumed (samples in the regression theory), never steps. So a schedule means
the same at every batch size. Text may have starts in steps, which are converted when it is read.
The notation "0:8 2M:16 6M:32" reads "batch 8 from the start, 16 from 2M tokens, 32 from 6M";
Megatron-LM uses the same notation.
"""

import itertools
import math
import operator
import re
from bisect import bisect_right
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Self

import numpy as np

from bss.errors import InputError, check_type
from bss.units import format_tokens, parse_tokens

RAMP_STAGES = 15  # increments of a ramp without one of its own
_RAMP = re.compile(r"([^\s:/-]+)-([^\s:/-]+)(?:/([^\s:/-]+))?:(\S+)")
_STEPS = re.compile(r"(\S+)steps")
MOST = 10**18
"""Above all batch sizes: a step of them would have more tokens than a table can count."""
_SAMPLES = re.compile(r"(\d{1,18}) (\d{1,18}) (\d{1,18})(?::(\d{1,18}))?")


@dataclass(frozen=True)
class BatchSchedule:
    """Batch `batches[i]` from count `starts[i]` to `starts[i + 1]`; the last one has no end.

    Neighbours of equal batch size are merged on construction. So schedules that are equal as
    functions are equal as values.

    Attributes:
        starts: counts, strictly increasing, the first 0.
        batches: sequences per step, each at least 1.

    Raises:
        InputError: If the values do not form a schedule.

    Examples:
        >>> schedule = BatchSchedule((0, 2_000_000), (8, 16))
        >>> schedule(1_999_999), schedule(2_000_000), str(schedule)
        (8, 16, '0:8 2M:16')
    """

    starts: tuple[int, ...]
    batches: tuple[int, ...]

    def __post_init__(self) -> None:
        for name in ("starts", "batches"):
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
        switches = [i for i, batch in enumerate(batches) if i == 0 or batch != batches[i - 1]]
        object.__setattr__(self, "starts", tuple(starts[i] for i in switches))
        object.__setattr__(self, "batches", tuple(batches[i] for i in switches))

    def __call__(self, count: int) -> int:
        """Return the batch size, in sequences, at a count of 0 or more."""
        if count < 0:
            raise InputError(f"batch schedule: called at {count}; counts are 0 or more")
        return self.batches[bisect_right(self.starts, count) - 1]

    def __str__(self) -> str:
        """Return the notation, exact: `BatchSchedule.parse(str(schedule)) == schedule`."""
        if len(self.batches) == 1:
            return str(self.batches[0])
        pairs = zip(self.starts, self.batches, strict=True)
        return " ".join(f"{format_tokens(start)}:{batch}" for start, batch in pairs)

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
                `bss.units.parse_tokens`. "0:8 20000steps:16" has starts in steps. "128-512:50%" is
                a linear ramp up to that count; "128-512/16:50%" sets its increment. By default the
                increment is a divisor of both ends that makes `RAMP_STAGES` or more.
                "16 8 300000:512" is Megatron-LM's `--rampup-batch-size 16 8 300000`, i.e. first
                batch, increment and samples, with its global batch.
            total: count of which percentages are taken.
            seq_len: tokens per sequence, for starts in steps or samples.

        Raises:
            InputError: If the text is not a schedule.

        Examples:
            >>> str(BatchSchedule.parse("0:8 100steps:16", seq_len=64))
            '0:8 51.2K:16'
            >>> str(BatchSchedule.parse("2-8/2:600"))
            '0:2 100:4 300:6 500:8'
            >>> str(BatchSchedule.parse("0:.5K 1K:2K"))
            '0:500 1K:2000'
        """
        if not isinstance(text, str):
            raise InputError(f"batch: {text!r} given; write a text like '8' or '0:8 2M:16'")
        if samples := _SAMPLES.fullmatch(text.strip()):
            return cls._by_samples(samples, seq_len)
        pairs = text.split()
        starts: list[int] = []
        batches: list[int] = []
        if len(pairs) == 1 and ":" not in text:
            pairs = [f"0:{pairs[0]}"]
        elif pairs and (ramp := _RAMP.fullmatch(pairs[0])):
            low, high, increment, over = ramp.groups()
            problem = f"{pairs[0]} is no ramp; write it like '128-512/16:50%'"
            starts, batches = _ramp(
                _parse_size(low, problem),
                _parse_size(high, problem),
                _parse_size(increment or "0", problem),
                parse_tokens(over, field="batch schedule ramp", total=total),
            )
            pairs = pairs[1:]
        for pair in pairs:
            start, _, batch = pair.partition(":")
            problem = f"{pair} is not start:batch; write it like '0:8 2M:16'"
            size = _parse_size(batch if start else "", problem)
            if steps := _STEPS.fullmatch(start):
                step = parse_tokens(steps[1], field="batch schedule step")
                starts.append(_tokens_at(step, starts, batches, seq_len))
            else:
                starts.append(parse_tokens(start, field="batch schedule start", total=total))
            batches.append(size)
        return cls(tuple(starts), tuple(batches))

    @classmethod
    def _by_samples(cls, match: re.Match[str], seq_len: int | None) -> Self:
        """Return Megatron-LM's ramp: equal increments after equal numbers of samples."""
        first, increment, samples, last = match.groups()
        text = f"{first} {increment} {samples}"
        if last is None:
            raise InputError(f"batch: {text} has no global batch; add it, like '{text}:512'")
        if seq_len is None:
            raise InputError(f"batch: {text} needs the tokens of a sequence; give --seq-len")
        _growing(int(first), int(last))
        return cls.linear(int(first), int(last), int(samples) * seq_len, int(increment))

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


def _ramp(low: int, high: int, increment: int, over: int) -> tuple[list[int], list[int]]:
    """Return starts and batch sizes of a line from `low` at 0 to `high` at count `over`, rounded to
    nearest.

    The default increment is the greatest common divisor of both ends, halved until there are
    `RAMP_STAGES`.
    """
    _growing(low, high)
    if not increment:
        increment = math.gcd(low, high) or 1
        while increment % 2 == 0 and (high - low) // increment < RAMP_STAGES:
            increment //= 2
    n, rest = divmod(high - low, increment)
    if rest or not n or not over:
        raise InputError(
            f"batch: {low}-{high}/{increment} over {over} tokens is not a ramp; write a divisor of "
            "the difference, and where it ends, like '128-512/16:50%'"
        )
    starts = [0, *(over * (2 * i - 1) // (2 * n) for i in range(1, n + 1))]
    return starts, [low + increment * i for i in range(n + 1)]


def _growing(first: int, last: int) -> None:
    """Refuse a ramp that does not grow."""
    if last <= first:
        raise InputError(
            f"batch: the ramp from {first} to {last} does not grow; write the smaller batch first"
        )


def _parse_size(text: str, problem: str) -> int:
    """Return the batch size of a text such as 8 or 2K; raise InputError if it is none."""
    with suppress(InputError):
        size = parse_tokens(text)
        if size < MOST:
            return size
    raise InputError(f"batch: {problem}")


def _tokens_at(
    step: int, starts: Sequence[int], batches: Sequence[int], seq_len: int | None
) -> int:
    """Return the tokens consumed before a step, after stages that start at these counts.

    A stage begins at the first step that starts at or after its count, as in a plan.
    """
    if seq_len is None:
        raise InputError(f"batch: {step}steps needs the tokens of a sequence; give --seq-len")
    position = done = 0
    for i, batch in enumerate(batches):
        steps = step - done
        size = batch * seq_len
        if i + 1 < len(starts):
            steps = min(steps, max(0, -((position - starts[i + 1]) // size)))
        position += steps * size
        done += steps
    return position


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
