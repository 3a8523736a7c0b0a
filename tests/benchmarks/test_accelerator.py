"""The benchmark of accelerators at toy sizes: every case has a row, and the rows are right."""

import json
import math
import time
from pathlib import Path

import pytest

from benchmarks.accelerator.__main__ import OUT_OF_TIME, _measured, _resolved, main
from benchmarks.accelerator.cases import Case, full, tiny
from benchmarks.accelerator.measure import MEASURES, rows
from benchmarks.accelerator.show import line, markdown, read_rows

LOOPS = ("ramp", "fleet")
RESULTS = Path(__file__).parents[2] / "benchmarks/results/accelerator"


def measured_here(cases):
    told = [(index, row) for index, row in rows(cases, math.inf) if row is not None]
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
    assert {*first, "torch"} == set(MEASURES)
    return measured_here([case for what, case in first.items() if what not in LOOPS])


def found(measured, what):
    return [row for row in measured if row["what"] == what]


@pytest.mark.slow
def test_rows_are_shown_from_the_last_that_is_of_the_machine(measured, tmp_path):
    file = tmp_path / "rows.jsonl"
    told = sorted(measured, key=lambda row: row["what"] != "machine")
    told = [{**json.loads(json.dumps(row)), "commit": "abc"} for row in told]
    file.write_text("".join(json.dumps(row) + "\n" for row in [*told, *told]))
    assert read_rows(file) == told
    shown = markdown(read_rows(file))
    assert shown.count("| pico |") == len(found(measured, "step"))


@pytest.mark.slow
def test_steps_tell_their_speed_and_what_was_compiled(measured):
    for row in found(measured, "step"):
        tokens = row["buckets"] * row["bucket"] * row["seq_len"]
        assert row["tokens_per_second"] == pytest.approx(tokens / row["seconds_per_step"])
        assert row["peak_bytes"] > row["state_bytes"] + row["temp_bytes"]
        assert row["flops"] == pytest.approx(row["model_flops"], rel=0.03)
        assert math.isfinite(row["loss"])


def test_no_measured_step_beats_its_roofline():
    rows = [
        json.loads(text)
        for file in RESULTS.glob("*.jsonl")
        for text in file.read_text().splitlines()
    ]
    steps = [row for row in rows if row["what"] == "step" and row.get("bound")]
    assert len(steps) >= 32
    for row in steps:
        bound = row["buckets"] * row["bound"]["seconds"]
        launches = 2e-3  # of a step too small to fill the device
        assert bound < row["seconds_per_step"] < max(2.5 * bound, launches), row


@pytest.mark.slow
def test_numbers_are_those_of_float32_of_themselves_and_of_the_host(measured):
    (gradients,) = found(measured, "gradients")
    assert 0 < gradients["worst_error"] < 0.05
    assert gradients["tensors"][gradients["worst_tensor"]] == gradients["worst_error"]
    assert all(row["identical"] for row in found(measured, "repeats"))
    assert all(row["loss_difference"] == 0 for row in found(measured, "host"))


@pytest.mark.slow
def test_a_growing_batch_compiles_nothing_on_the_way_and_fleets_are_timed():
    fleet, ramp = measured_here([case for case in tiny()[0] if case.what in LOOPS])
    assert (fleet["runs"], fleet["steps"]) == (2, 448)
    assert fleet["steps_per_second"] > 0
    assert (ramp["status"], ramp["steps"], ramp["programs"]) == ("finished", 40, 2)
    assert ramp["recompilations"] == 0
    assert ramp["training_seconds"] < ramp["wall_seconds"]


def test_a_case_that_fails_costs_no_other():
    cases = [Case("step", {"model": "none"}), Case("torch"), Case("machine", {}, 10.0)]
    told = {index: row for index, row in rows(cases, math.inf) if row is not None}
    assert "TypeError" in told[0]["error"]
    reasons = told[1].get("not_measured", ""), told[1].get("error", "")
    assert reasons[0] == "torch is not installed" or "TypeError" in reasons[1]
    assert "error" not in told[2]


def test_what_a_process_dies_of_costs_one_case(monkeypatch):
    class Process:
        def __init__(self, cases, seconds, start):
            self.cases = cases

        def rows(self):
            for index, case in enumerate(self.cases):
                yield index, None
                if case.what == "host":
                    return
                yield index, {"what": case.what}

        def failure(self):
            return "died" if any(case.what == "host" for case in self.cases) else ""

    monkeypatch.setattr("benchmarks.accelerator.__main__._Process", Process)
    told = _measured([Case("machine"), Case("host"), Case("ramp")], math.inf, 0)
    assert list(told) == [
        {"what": "machine"},
        {"what": "host", "not_measured": "died"},
        {"what": "ramp"},
    ]


def test_what_does_not_fit_in_the_time_is_noted(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("benchmarks.accelerator.__main__.commit", lambda: "abc")
    file = tmp_path / "rows.jsonl"
    assert main(["--minutes", "0.01", "--output", str(file)]) == 0
    told = [json.loads(text) for text in file.read_text().splitlines()]
    assert [row["what"] for row in told] == [case.what for cases in full() for case in cases]
    assert {row["commit"] for row in told} == {"abc"}
    reasons = [row["not_measured"] for row in told]
    assert set(reasons) == {OUT_OF_TIME, "no two smaller buckets say what is the largest"}
    assert capsys.readouterr().out.count("not measured") == len(told)


def test_a_process_is_killed_when_its_time_is_over():
    (row,) = _measured([Case("machine")], time.monotonic() + 0.5, 0)
    assert row == {"what": "machine", "not_measured": OUT_OF_TIME}
    (row,) = _measured([Case("machine")], math.inf, 0.1)
    assert row == {"what": "machine", "not_measured": "took more than 0.4 s"}


def test_the_largest_bucket_is_told_by_the_memory_of_two():
    asked = {"model": "85M", "seq_len": 1024, "attention": "reference", "remat": False}
    done = [{"what": "machine", "limit_bytes": 100.0}]
    done += [{"what": "step", **asked, "bucket": b, "peak_bytes": 10.0 + 2 * b} for b in (2, 4)]
    case = Case("step", {**asked, "bucket": None})
    assert _resolved(case, done).settings["bucket"] == 32  # 10 + 2 · 42.5 is 95% of 100
    other = Case("step", {**asked, "bucket": None, "remat": True})
    assert _resolved(other, done).settings["bucket"] is None


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--minutes", "0"], "--minutes: 0 given; write a positive number"),
        (["--show", "none.jsonl"], "--show none.jsonl: cannot be read"),
    ],
)
def test_bad_input_is_told_in_one_line(arguments, told, capsys):
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert told in error and error.count("\n") == 1


@pytest.mark.slow
def test_the_whole_command_at_toy_sizes(tmp_path, capsys):
    file = tmp_path / "rows.jsonl"
    assert main(["--tiny", "--output", str(file)]) == 0
    assert len(read_rows(file)) >= sum(map(len, tiny()))
    assert capsys.readouterr().out.count("error: ") == 0
