import pytest
from hypothesis import given
from hypothesis import strategies as st

from bss.errors import InputError
from bss.schedules.batch import BatchSchedule
from bss.units import format_tokens, parse_number, parse_tokens


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("250M", 250_000_000),
        ("1.5B", 1_500_000_000),
        ("200K", 200_000),
        ("200k", 200_000),
        ("10T", 10**13),
        ("2^20", 1_048_576),
        ("2^62", 2**62),
        ("1e6", 1_000_000),
        ("1.25e+2", 125),
        (" 7 ", 7),
        (".5K", 500),
        ("0", 0),
        (10**13 + 1, 10**13 + 1),
        ("9007199254740993", 2**53 + 1),
    ],
)
def test_parse(text, count):
    assert parse_tokens(text) == count


def test_percent_of_a_total_rounds_down():
    assert parse_tokens("20%", total=10_000_000) == 2_000_000
    assert parse_tokens("12.5%", total=9) == 1
    assert parse_tokens("100%", total=2**53 + 1) == 2**53 + 1


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "not a count"),
        ("abc", "not a count"),
        ("-5", "not a count"),
        (-5, "negative"),
        ("nan", "not a count"),
        ("inf", "not a count"),
        ("1M5", "not a count"),
        ("1.5", "not a whole number"),
        ("1.2345K", "not a whole number"),
        ("2^99", "too large"),
        ("1e99", "too large"),
        ("1e999999", "not a count"),
        ("9" * 5000, "not a count"),
        ("20%", "share of nothing"),
        (1.5, "not a count"),
        (float("nan"), "not a count"),
        (True, "not a count"),
        (None, "not a count"),
    ],
)
def test_nonsense_is_refused_by_name(text, says):
    with pytest.raises(InputError, match=says) as error:
        parse_tokens(text, field="warmup")
    assert str(error.value).startswith("warmup: ") and "\n" not in str(error.value)


def test_more_than_the_whole_is_refused():
    with pytest.raises(InputError, match="more than the whole"):
        parse_tokens("101%", total=100)


@given(st.integers(0, 2**63 - 1))
def test_format_is_exact_and_no_longer_than_digits(count):
    text = format_tokens(count)
    assert parse_tokens(text) == count
    assert len(text) <= len(str(count))


@given(st.integers(1, 9999), st.integers(0, 14))
def test_format_of_round_counts_is_exact(mantissa, zeros):
    assert parse_tokens(format_tokens(mantissa * 10**zeros)) == mantissa * 10**zeros


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0"), (999, "999"), (1000, "1K"), (123_456, "123456"), (1_500_000_000, "1.5B"),
     (10**13, "10T"), (2_000_896, "2000896"), (100_000, "100K")],
)  # fmt: skip
def test_format(count, text):
    assert format_tokens(count) == text


@pytest.mark.parametrize(
    ("text", "number"),
    [(".1", 0.1), ("-.5", -0.5), ("2k", 2000), ("1.5M", 1.5e6), ("2^10", 1024), (" 3e-4 ", 3e-4)],
)
def test_a_number_has_the_suffixes_of_a_count(text, number):
    assert parse_number(text) == number


@pytest.mark.parametrize("text", ["", "x", "nan", "inf", "1e999", "1,5", "k", "20%"])
def test_what_is_no_finite_number_is_refused(text):
    with pytest.raises(InputError, match=r"lr: .* is not a number"):
        parse_number(text, field="lr")


@pytest.mark.parametrize(
    ("text", "schedule"),
    [
        ("2k", "2000"),
        (".5K", "500"),
        ("0:1K .1M:2^11", "0:1000 100K:2048"),
        ("1K-4K/1K:3M", "1000-4000/1000:3M"),
    ],
)
def test_batch_sizes_have_them_too(text, schedule):
    assert BatchSchedule.parse(text) == BatchSchedule.parse(schedule)


@pytest.mark.parametrize("text", ["0:x", "0:2.5", "0:20%", "0:-8", "x-8:1M", "2-x:1M", "0:"])
def test_what_is_no_batch_size_is_refused(text):
    with pytest.raises(InputError, match=r"^batch.*: .* write it like"):
        BatchSchedule.parse(text, total=1000)
