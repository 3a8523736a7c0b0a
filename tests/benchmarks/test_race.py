"""Variants in turn: what is told of each, and what disturbed them."""

import os

import pytest

from benchmarks.command import machine_cells, notes, pinned
from benchmarks.race import Variant, complete, race
from benchmarks.record import Others, busy_seconds, cpu_of, ratio, spread, table, told

STAT = "cpu  9 9 9 9\ncpu0 100 10 50 9000 70 5 5 30 0 0\ncpu1 200 0 0 1 0 0 0 0 0 0\nintr 1\n"


def small(name, **settings):
    return Variant(name, "benchmarks.race:product", {"side": 64, **settings}, unit=2, warm=4)


@pytest.mark.slow
def test_each_variant_has_as_many_turns_and_those_that_cannot_say_why():
    cores = sorted(os.sched_getaffinity(0))[-1:]
    wrong = Variant("wrong", "benchmarks.race:product", {"sides": 1})
    absent = Variant("absent", "benchmarks.nowhere:product", {})
    found = race([small("a"), wrong, small("b"), absent], cores, 1e-3, most=2)
    assert found["rounds"] == 2 and len(found["product_gflops"]) == 2
    for name in ("a", "b"):
        one = found["variants"][name]
        assert all(x > 0 for x in one["seconds"])
        assert [len(one[key]) for key in ("seconds", "cpu", "told")] == [2, 2, 2]
    assert found["variants"]["wrong"]["error"].startswith("TypeError: ")
    assert found["variants"]["absent"] == {"not_measured": "benchmarks.nowhere is not installed"}
    assert found["others_cpu"] is None or found["others_cpu"] >= 0
    assert complete(found)["not_measured"].startswith("wrong: TypeError")
    del found["variants"]["wrong"], found["variants"]["absent"]
    assert complete(found) == found


def test_spreads_are_those_of_the_rounds_ratios():
    assert ratio([2, 4, 6], [1, 1, 1]) == {"median": 4, "low": 3, "high": 5}
    assert spread([0.123456]) == {"median": 0.1235, "low": 0.1235, "high": 0.1235}
    assert told(ratio([2, 4, 6], [1, 1, 1])) == "4.00 [3.00, 5.00]"
    assert told(None) == "–"


def test_columns_of_a_table_are_aligned():
    assert table(("a", "bcd"), [("long", "x")]) == (
        "| a    | bcd |\n| ---- | --- |\n| long | x   |"
    )


def test_busy_cores_are_read_from_the_system_where_it_tells(tmp_path, monkeypatch):
    (tmp_path / "stat").write_text(STAT)
    tick = os.sysconf("SC_CLK_TCK")
    assert busy_seconds([0], tmp_path / "stat") == 200 / tick
    assert busy_seconds([0, 1], tmp_path / "stat") == 400 / tick
    assert busy_seconds([2], tmp_path / "stat") is None
    assert busy_seconds([0], tmp_path / "none") is None
    seen, clock = iter([10.0, 13.0]), iter([100.0, 102.0])
    monkeypatch.setattr("benchmarks.record.busy_seconds", lambda cores: next(seen))
    monkeypatch.setattr("benchmarks.record.time.perf_counter", lambda: next(clock))
    with Others([0, 1]) as others:
        others.own = 1.0
    assert others.share == 0.5  # 3 seconds of work, 1 of them its own, of 2 cores for 2 seconds


def test_cpu_seconds_are_those_of_all_that_was_started():
    before = os.times()
    user, system = cpu_of(os.getpid())
    assert user >= before.user + before.children_user - 0.02
    assert system >= before.system + before.children_system - 0.02
    assert cpu_of(2**30) == (0.0, 0.0)


def test_more_cores_than_there_are_is_a_row_that_says_so(monkeypatch):
    monkeypatch.setattr("benchmarks.command.present_cores", lambda: [0, 3])
    one, two, three = pinned([1, 2, 3])
    assert one == ({"cores": 1}, [3]) and two == ({"cores": 2}, [0, 3])
    assert notes({"what": "ramp", **three[0]}) == [
        "ramp on 3 cores: not measured: this process may use 2"
    ]


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ({"others_cpu": 0.04}, []),
        ({"others_cpu": None}, []),
        ({"others_cpu": 0.3}, ["x on 1 core: others took 30% of the cores' time"]),
        ({"apart": 0.06}, ["x on 1 core: losses are apart by 6%: not the same model"]),
        ({"variants": {"a": {"error": "E: no"}}}, ["x on 1 core, a: error: E: no"]),
        ({"variants": {"a": {"not_measured": "no"}}}, ["a: not measured: no"]),
    ],
)
def test_what_disturbed_a_row_is_noted(row, expected):
    assert notes({"shape": "x", "cores": 1, **row}) == expected


def test_the_machine_is_told_before_and_after():
    row = {"product_gflops": [101.2, 3.0, 99.9], "others_cpu": 0.031}
    assert machine_cells(row) == ("101 → 100", "3%")
    assert machine_cells({**row, "others_cpu": None})[1] == "–"
