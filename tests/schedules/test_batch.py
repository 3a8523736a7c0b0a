import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bss.errors import InputError
from bss.schedules.batch import BatchSchedule


@st.composite
def schedules(draw, largest=10**13):
    starts = [0, *sorted(draw(st.sets(st.integers(1, largest), max_size=6)))]
    batches = [draw(st.integers(1, 4096)) for _ in starts]
    return BatchSchedule(tuple(starts), tuple(batches))


def test_value_at_every_count():
    schedule = BatchSchedule.parse("0:8 3:16 5:4")
    assert [schedule(count) for count in range(8)] == [8, 8, 8, 16, 16, 4, 4, 4]


@given(schedules())
def test_text_round_trips(schedule):
    assert BatchSchedule.parse(str(schedule)) == schedule


@given(schedules(), st.integers(0, 10**13))
def test_lookup_agrees_with_a_scan(schedule, count):
    stages = zip(schedule.starts, schedule.batches, strict=True)
    assert schedule(count) == [batch for start, batch in stages if start <= count][-1]


def test_equal_neighbours_are_merged():
    assert BatchSchedule((0, 5, 9), (8, 8, 16)) == BatchSchedule((0, 9), (8, 16))


@pytest.mark.parametrize(
    ("text", "total", "printed"),
    [
        ("8", None, "8"),
        ("0:8", None, "8"),
        ("0:8 2M:16 6M:32", None, "0:8 2M:16 6M:32"),
        ("0:1 50%:8", 2**20, "0:1 524288:8"),
        ("0:1 2^12:8", None, "0:1 4096:8"),
        ("0%:1 0.1%:8", 1000, "0:1 1:8"),
    ],
)
def test_parse(text, total, printed):
    assert str(BatchSchedule.parse(text, total)) == printed


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "0 starts"),
        ("1M:8", "first start must be 0"),
        ("0:8 2M:16 1M:32", "increasing"),
        ("0:8 2M:16 2M:32", "increasing"),
        ("0:0", "at least 1"),
        ("0:-8", "start:batch"),
        ("0:8.5", "start:batch"),
        ("0:nan", "start:batch"),
        ("0:8 16", "start:batch"),
        (":8", "start:batch"),
        ("0:8 x:16", "not a count"),
        ("0:8 50%:16", "share of nothing"),
    ],
)
def test_nonsense_is_refused(text, says):
    with pytest.raises(InputError, match=says):
        BatchSchedule.parse(text)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: BatchSchedule((0,), (8.5,)), "whole number"),  # pyrefly: ignore
        (lambda: BatchSchedule((0, 5), (8,)), "2 starts for 1 batches"),
        (lambda: BatchSchedule.constant(8)(-1), "0 or more"),
        (lambda: BatchSchedule.stages([], 100), "at least one"),
        (lambda: BatchSchedule.stages([1, 2, 3], 2), "increasing"),
        (lambda: BatchSchedule.linear(8, 32, 100, 7), "divisor"),
        (lambda: BatchSchedule.linear(8, 32, 100, 0), "increment"),
        (lambda: BatchSchedule.follow(lambda count: math.nan, 100, 2), "nan at count 0"),
        (lambda: BatchSchedule.follow(lambda count: 1.0, 0, 2), "total"),
        (lambda: BatchSchedule.follow(lambda count: 1.0, 9, 0), "stages"),
        (lambda: BatchSchedule.constant(8).mean_batch(0), "total"),
        (lambda: BatchSchedule.parse("0:2 1K:4").constant_batch, "0:2 1K:4 changes"),
    ],
)
def test_bad_arguments_are_refused(make, says):
    with pytest.raises(InputError, match=says):
        make()


@pytest.mark.parametrize(
    ("schedule", "printed"),
    [
        (BatchSchedule.constant(8), "8"),
        (BatchSchedule.stages([8, 16, 32], 100), "0:8 33:16 66:32"),
        (BatchSchedule.linear(8, 32, 900, 8), "0:8 300:16 600:24 900:32"),
        (BatchSchedule.linear(32, 8, 900, 12), "0:32 450:20 900:8"),
        (BatchSchedule.late_switch(1, 512, 99_000), "0:1 99K:512"),
    ],
)
def test_constructors(schedule, printed):
    assert str(schedule) == printed


@settings(max_examples=30, deadline=None)
@given(schedules(largest=5000), st.integers(1, 6000))
def test_mean_batch_takes_as_many_steps(schedule, total):
    steps = sum(1 / schedule(count) for count in range(total))
    assert schedule.mean_batch(total) == pytest.approx(total / steps, rel=1e-9)


def worst_error(schedule, function, total):
    counts = {round(total * i / 3000) for i in range(3000)}
    return max(abs(math.log(schedule(c) / function(c))) for c in counts if c < total)


@pytest.mark.parametrize("stages", [1, 2, 3, 5])
def test_following_a_power_reaches_the_log_equal_optimum(stages):
    total = 10**9

    def function(count):
        return 1000 * (1 + 100 * count / total) ** 0.5

    schedule = BatchSchedule.follow(function, total, stages)
    best = 0.5 * math.log(101) / (2 * stages)
    assert len(schedule.batches) == stages
    assert worst_error(schedule, function, total) == pytest.approx(best, rel=0.01)
    for i, start in enumerate(schedule.starts):
        assert math.log(function(start) / 1000) == pytest.approx(2 * best * i, abs=0.01)


def test_following_chooses_among_the_allowed():
    schedule = BatchSchedule.follow(
        lambda count: 0.01 * count**0.5, 10**6, 4, allowed=[1, 2, 4, 8, 16]
    )
    assert str(schedule) == "0:1 20K:2 80K:4 320K:8"
    multiples = BatchSchedule.follow(lambda count: 1 + count**0.5, 10**6, 5, multiple_of=24)
    assert all(batch % 24 == 0 for batch in multiples.batches) and len(multiples.batches) == 5


def test_following_a_fall_and_a_constant():
    falling = BatchSchedule.follow(lambda count: 64.0 / 2 ** (count // 250), 1000, 4)
    assert str(falling) == "0:64 250:32 500:16 750:8"
    assert str(BatchSchedule.follow(lambda count: 8.2, 1000, 4)) == "8"


@pytest.mark.slow
@settings(max_examples=15, deadline=None)
@given(st.integers(1, 5), st.floats(0.05, 1.5), st.integers(10, 10**13))
def test_following_never_exceeds_the_stages_nor_loses_to_equal_stages(stages, power, total):
    def function(count):
        return 4 * (1 + 1000 * count / total) ** power

    schedule = BatchSchedule.follow(function, total, stages, multiple_of=4)
    assert len(schedule.batches) <= stages
    middles = [function(total * (2 * i + 1) // (2 * stages)) for i in range(stages)]
    equal = BatchSchedule(
        tuple(total * i // stages for i in range(stages)),
        tuple(max(1, round(middle / 4)) * 4 for middle in middles),
    )
    assert worst_error(schedule, function, total) <= worst_error(equal, function, total) + 0.02
