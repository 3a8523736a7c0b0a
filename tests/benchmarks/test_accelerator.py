"""The benchmark of accelerators at toy sizes: every case has a row, and the rows are right."""

import json
import math
import sys

import pytest

from benchmarks.accelerator.__main__ import UNKNOWN, line, main, with_bucket
from benchmarks.accelerator.__main__ import measured as measured_apart
from benchmarks.accelerator.cases import Case, full, tiny
from benchmarks.accelerator.measure import MEASURES, rows

LOOPS = ("ramp", "fleet")


def measured_here(cases):
    told = list(rows(cases, math.inf))
    assert {index for index, _ in told} == set(range(len(cases)))
    for index, row in told:
        assert row["what"] == cases[index].what
        assert {"device", "date", "versions"} <= row.keys()
        assert line(row).startswith(row["what"])
        assert "error" not in row
    return [row for _, row in told]


@pytest.fixture(scope="module")
def measured():
    """Rows of toy cases, one of each kind without a whole run, measured in this process."""
    first = {case.what: case for case in reversed(tiny()[0])}
    assert {*first} == set(MEASURES)
    return measured_here([case for what, case in first.items() if what not in LOOPS])


def found(measured, what):
    return [row for row in measured if row["what"] == what]


@pytest.mark.slow
def test_steps_tell_their_speed_and_what_was_compiled(measured):
    for row in found(measured, "step"):
        tokens = row["buckets"] * row["bucket"] * row["seq_len"]
        assert row["tokens_per_second"] == pytest.approx(tokens / row["seconds_per_step"])
        assert row["peak_bytes"] > row["state_bytes"] + row["temp_bytes"]
        assert row["model_flops"] > 0
        assert math.isfinite(row["loss"])


@pytest.mark.slow
def test_numbers_are_those_of_float32_and_of_themselves(measured):
    (gradients,) = found(measured, "gradients")
    assert 0 < gradients["worst_error"] < 0.05
    assert gradients["tensors"][gradients["worst_tensor"]] == gradients["worst_error"]
    assert all(row["identical"] for row in found(measured, "repeats"))


@pytest.mark.slow
def test_a_growing_batch_compiles_nothing_on_the_way_and_fleets_are_timed():
    fleet, ramp = measured_here([case for case in tiny()[0] if case.what in LOOPS])
    assert (fleet["runs"], fleet["steps"]) == (2, 448)
    assert fleet["steps_per_second"] > 0
    assert (ramp["status"], ramp["steps"], ramp["programs"]) == ("finished", 40, 2)
    assert ramp["recompilations"] == 0
    assert ramp["training_seconds"] < ramp["wall_seconds"]


def test_a_case_that_fails_costs_no_other():
    told = dict(rows([Case("step", {"model": "none"}), Case("machine", {}, 10.0)], math.inf))
    assert "TypeError" in told[0]["error"]
    assert "error" not in told[1]


def test_cases_of_a_process_that_dies_have_rows(monkeypatch):
    monkeypatch.setattr(sys, "executable", "/bin/false")
    told = list(measured_apart([Case("machine"), Case("ramp")], 1e6, 0))
    assert [row["what"] for row in told] == ["machine", "ramp"]
    assert all("status 1" in row["not_measured"] for row in told)


def test_what_does_not_fit_in_the_time_is_noted(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("benchmarks.accelerator.__main__.commit", lambda: "abc")
    file = tmp_path / "rows.jsonl"
    assert main(["--minutes", "0.01", "--output", str(file)]) == 0
    told = [json.loads(text) for text in file.read_text().splitlines()]
    assert [row["what"] for row in told] == [case.what for cases in full() for case in cases]
    assert {row["commit"] for row in told} == {"abc"}
    reasons = [row["not_measured"] for row in told]
    assert set(reasons) == {"out of time", UNKNOWN}
    assert capsys.readouterr().out.count("not_measured") == len(told)


def test_a_process_is_killed_when_its_time_is_over():
    (row,) = measured_apart([Case("machine")], 0.5, 0)
    assert row == {"what": "machine", "not_measured": "out of time"}
    (row,) = measured_apart([Case("machine")], 1e6, 0.1)
    assert row == {"what": "machine", "not_measured": "took more than 0.4 s"}


def test_the_largest_bucket_is_told_by_the_memory_of_two():
    asked = {"model": "85M", "seq_len": 1024, "attention": "reference", "remat": False}
    done = [{"what": "machine", "limit_bytes": 100.0}]
    done += [{"what": "step", **asked, "bucket": b, "peak_bytes": 10.0 + 2 * b} for b in (2, 4)]
    case = Case("step", {**asked, "bucket": None})
    assert with_bucket(case, done).settings["bucket"] == 32  # 10 + 2 · 42.5 is 95% of 100
    other = Case("step", {**asked, "bucket": None, "remat": True})
    assert with_bucket(other, done).settings["bucket"] is None


def test_bad_input_is_one_line(capsys):
    assert main(["--minutes", "0"]) == 2
    error = capsys.readouterr().err
    assert "--minutes" in error and error.count("\n") == 1


@pytest.mark.slow
def test_the_whole_command_at_toy_sizes(tmp_path):
    file = tmp_path / "rows.jsonl"
    assert main(["--tiny", "--output", str(file)]) == 0
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    assert len(rows) >= sum(map(len, tiny()))
    assert [row["error"] for row in rows if "error" in row] == []
