"""Lengths as configs write them: tokens, percentages, steps or samples, resolved to tokens.

Steps and samples depend on the batch sizes. So a length is resolved with the schedule that it
belongs to: from the start for a budget and a warm-up, from the end for a decay.
"""

from collections.abc import Callable
from dataclasses import dataclass

from bss.errors import InputError
from bss.schedules.batch import BatchSchedule
from bss.schedules.notation import UNITS, split_unit
from bss.schedules.stretches import tokens_after, tokens_of_last
from bss.units import LARGEST, format_tokens, parse_tokens


@dataclass(frozen=True)
class Budget:
    """A schedule with its budget, by which lengths are resolved to tokens.

    Attributes:
        schedule: batch sizes over tokens.
        seq_len: tokens per sequence; of the first stage, if the schedule has several lengths.
        tokens: the budget.

    Examples:
        >>> run = Budget.read("0:512 50000steps:1024 115000steps:2048", "255000steps", 2048)
        >>> run.tokens, run.from_start("2000steps", "warmup"), run.to_end("20000steps", "decay")
        (775946240000, 2097152000, 83886080000)
    """

    schedule: BatchSchedule
    seq_len: int
    tokens: int

    @classmethod
    def read(
        cls,
        batch: str | BatchSchedule,
        tokens: str | int,
        seq_len: int | None,
        field: str = "tokens",
    ) -> "Budget":
        """Return the schedule and the budget that two texts mean together.

        Args:
            batch: Batch sizes, as text or as a schedule.
            tokens: The budget: tokens, or a number of steps or samples of this schedule.
            seq_len: Tokens per sequence; None if the schedule has its lengths.
            field: Name of the budget in an error.

        Raises:
            InputError: If a text is invalid, or the lengths of sequences contradict each other.
        """
        number, unit = split_unit(tokens)
        if unit not in UNITS:
            total = parse_tokens(number, field=field)
            return cls(*settled(_scheduled(batch, total, seq_len), seq_len), total)
        count = parse_tokens(number, field=field)

        def end(total: int | None) -> int:
            return tokens_after(*settled(_scheduled(batch, total, seq_len), seq_len), count, unit)

        total = _fixed_point(end) if isinstance(batch, str) and "%" in batch else None
        schedule, length = settled(_scheduled(batch, total, seq_len), seq_len)
        budget = tokens_after(schedule, length, count, unit)
        return cls(schedule, length, parse_tokens(budget, field=field))

    def over(self, horizon: str | int | None, field: str = "horizon") -> "Budget":
        """Return the same schedule over a longer budget, by which an LR schedule is laid out.

        Raises:
            InputError: If the horizon is before the end.
        """
        if horizon is None:
            return self
        tokens = self.from_start(horizon, field)
        if tokens < self.tokens:
            raise InputError(
                f"{field}: {horizon} ends at {format_tokens(tokens)} tokens, before the end of the "
                f"run at {format_tokens(self.tokens)}; write a longer one, or leave it out"
            )
        return Budget(self.schedule, self.seq_len, tokens)

    def from_start(self, length: str | int, field: str) -> int:
        """Return the tokens of a length from the start; percentages are shares of the budget."""
        number, unit = split_unit(length)
        if unit not in UNITS:
            return parse_tokens(number, field=field, total=self.tokens)
        count = parse_tokens(number, field=field)
        return tokens_after(self.schedule, self.seq_len, count, unit)

    def to_end(self, length: str | int, field: str) -> int:
        """Return the tokens of a length up to the end of the last step of the budget."""
        number, unit = split_unit(length)
        if unit not in UNITS:
            return parse_tokens(number, field=field, total=self.tokens)
        count = parse_tokens(number, field=field)
        return tokens_of_last(self.schedule, self.seq_len, count, unit, self.tokens, field)


def settled(schedule: BatchSchedule, seq_len: int | None) -> tuple[BatchSchedule, int]:
    """Return a schedule and its tokens per sequence; a schedule with one length becomes plain.

    Raises:
        InputError: If the length is missing, or the schedule does not have the given length.
    """
    lengths = dict.fromkeys(schedule.seq_lens)
    if not lengths:
        if seq_len is None:
            raise InputError("seq_len: missing; give --seq-len, or lengths like 0:1024x4096")
        return schedule, seq_len
    if seq_len is not None and seq_len not in lengths:
        raise InputError(
            f"seq_len: {seq_len} is not a length in {schedule}; leave it out, or write one of "
            f"{', '.join(map(str, lengths))}"
        )
    if len(lengths) == 1:
        return BatchSchedule(schedule.starts, schedule.batches), schedule.seq_lens[0]
    return schedule, schedule.seq_lens[0]


def check_plain(length: str | int | None, field: str, why: str) -> None:
    """Raise InputError for a length in steps or samples; tokens and percentages are fine."""
    if isinstance(length, str) and split_unit(length)[1] in UNITS:
        raise InputError(f"{field}: {length} depends on {why}; write tokens, e.g. 2B, or 10%")


def _scheduled(batch: str | BatchSchedule, total: int | None, seq_len: int | None) -> BatchSchedule:
    if isinstance(batch, BatchSchedule):
        return batch
    return BatchSchedule.parse(batch, total=total, seq_len=seq_len)


def _fixed_point(end: Callable[[int], int]) -> int:
    """Return the smallest total that its own percentages fill, by bisection.

    A larger total moves each switch by less than itself, so that total − end(total) grows.
    """
    low = 0
    high = LARGEST
    if high < end(high):
        raise InputError("tokens: too large; write a count below 2^63")
    while high - low > 1:
        middle = (low + high) // 2
        try:
            enough = middle >= end(middle)
        except InputError:  # percentages of so few tokens are not distinct
            enough = False
        if enough:
            high = middle
        else:
            low = middle
    return high
