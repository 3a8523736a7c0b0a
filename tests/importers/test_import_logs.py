"""Logs read in Python: the same runs and the same report as `bss import` has."""

import json

import pandas as pd
import pytest

import bss
from bss.cli import main
from bss.errors import InputError

REGEX = r"bs(?P<batch>\d+)"


@pytest.fixture
def logs(tmp_path):
    """Two exports of a tracker, an empty file, and text that is no log."""
    folder = tmp_path / "logs"
    folder.mkdir()
    for batch in (8, 16):
        rows = [f"{step},{3 - step / 1000:.4f}" for step in range(100, 1100, 100)]
        text = "\n".join(["_step,train/loss", *rows, "1200,NaN"])
        (folder / f"run_bs{batch}.csv").write_text(text + "\n")
    (folder / "empty.csv").write_text("")
    (folder / "notes.txt").write_text("a word about the runs\n")
    return folder


def test_runs_and_what_was_left_out(logs):
    read = bss.import_logs(logs, seq_len=64, run_regex=REGEX)
    assert sorted(read.runs["batch"].unique()) == [8, 16]
    assert read.runs.groupby("batch")["tokens"].max().tolist() == [512_000, 1_024_000]
    left = read.left_out
    assert [*left] == ["file", "rows", "reason"]
    assert {"empty.csv", "notes.txt"} <= {name.rpartition("/")[2] for name in left["file"]}
    assert left["rows"].dropna().tolist() == [1, 1]
    assert repr(read).startswith("2 runs, 20 rows, batch sizes 8 to 16; left_out has")
    assert read._repr_html_().startswith("<p><b>2 runs")


def test_the_command_reports_what_python_does(logs, tmp_path, capsys):
    out = tmp_path / "runs.parquet"
    command = ["import", "auto", str(logs), "-o", str(out), "--seq-len", "64", "--json"]
    status = main([*command, "--run-regex", REGEX])
    told = json.loads(capsys.readouterr().out)
    read = bss.import_logs(str(logs), 64, run_regex=REGEX)
    assert told.pop("out") == str(out) and status == bool(read.report.unread)
    assert told == json.loads(json.dumps(read.report.to_dict()))
    pd.testing.assert_frame_equal(pd.read_parquet(out), read.runs, check_dtype=False)


@pytest.mark.parametrize("path", [None, 3, [], [None], "nowhere"])
def test_what_is_no_path_is_refused(path):
    with pytest.raises(InputError) as refusal:
        bss.import_logs(path)
    assert "\n" not in str(refusal.value)
