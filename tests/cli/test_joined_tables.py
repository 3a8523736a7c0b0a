"""Several run tables, and directories of them, are one table for every command that reads runs."""

import itertools
import json

import numpy as np
import pandas as pd
import pytest

from bss.cli import main
from bss.tables import read_runs
from tests.cli.called import printed, refused
from tests.cli.test_points import rows

BATCHES = (2, 4, 8, 16)
POINTS = ["--targets", "1.9,1.8"]


@pytest.fixture
def tables(tmp_path):
    """A table of all runs, and the same runs in two tables of a directory."""
    runs = {batch: rows(f"b{batch}", batch, lr=2e-3, model="m", seed=3) for batch in BATCHES}
    folder = tmp_path / "parts"
    folder.mkdir()
    whole = tmp_path / "whole.csv"
    pd.concat(runs.values()).to_csv(whole, index=False)
    pd.concat([runs[2], runs[4]]).to_csv(folder / "small.csv", index=False)
    pd.concat([runs[8], runs[16]]).to_parquet(folder / "large.parquet", index=False)
    return str(whole), [str(folder / "small.csv"), str(folder / "large.parquet")], str(folder)


@pytest.mark.parametrize(
    "command",
    [
        ["points", *POINTS],
        ["fit", "es", *POINTS, "--law", "hyperbola", "--resamples", "10"],
    ],
)
def test_parts_are_read_as_the_whole(tables, capsys, command):
    whole, parts, folder = tables
    subcommands = command[: command.index("--targets")]
    options = command[len(subcommands) :]

    def result(*paths):
        told = printed(capsys, *subcommands, *paths, *options)
        return json.dumps(told, sort_keys=True)

    assert result(whole) == result(*parts)
    if "points" in command:
        by_run = [sorted(json.loads(r)["points"], key=str) for r in (result(whole), result(folder))]
        assert by_run[0] == by_run[1]


def test_a_report_of_parts(tables, tmp_path, capsys):
    _, parts, _ = tables
    page = tmp_path / "page.html"
    assert main(["report", *parts, "-o", str(page), *POINTS, "--resamples", "10"]) == 0
    text = page.read_text()
    assert "Runs of small.csv, large.parquet" in text and "b16" in text


def test_equal_names_of_runs_get_paths(tables, tmp_path, capsys):
    whole, _, _ = tables
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        table = read_runs(whole)
        table["loss"] += {"one": 0, "two": 0.001}[name]
        table.to_parquet(tmp_path / name / "runs.parquet", index=False)
    paths = [str(tmp_path / "one"), str(tmp_path / "two" / "runs.parquet")]
    told = printed(capsys, "points", *paths, *POINTS)["points"]
    runs = {point["run"] for point in told}
    assert runs == {f"{name}/b{batch}" for name in ("one", "two") for batch in BATCHES}


def test_what_is_not_joined_is_told(tables, tmp_path, capsys):
    whole, _, folder = tables
    assert main(["points", whole, *POINTS, "--out", f"{folder}/points.csv"]) == 0
    capsys.readouterr()
    told = printed(capsys, "points", folder, *POINTS)
    assert told["warnings"][0].endswith("read are its 2 run tables, not points.csv")
    line = refused(capsys, "points", whole, f"{folder}/points.csv", *POINTS)
    assert "has loss curves, and" in line and "measure the points of both first" in line
    assert "is given twice; name it once" in refused(capsys, "points", whole, whole, *POINTS)


def test_a_held_out_loss_of_another_name_is_told(tables, tmp_path, capsys):
    whole, _, _ = tables
    table = read_runs(whole)
    path = str(tmp_path / "named.csv")
    table.assign(val_loss=table["loss"] + 0.01).to_csv(path, index=False)
    told = printed(capsys, "points", path, *POINTS)
    assert "val_loss look like held-out losses and are not read" in told["warnings"][0]
    columns = ["--columns", "eval_loss=val_loss"]
    read = printed(capsys, "points", path, *POINTS, *columns)
    assert not any("look like held-out" in warning for warning in read["warnings"])


@pytest.fixture
def split(tmp_path):
    """A table as it is, and split over a CSV and a Parquet file of a directory."""

    def tables(whole, name):
        folder = tmp_path / name
        folder.mkdir()
        half = len(whole) // 2
        whole.to_csv(tmp_path / f"{name}.csv", index=False)
        whole[:half].to_csv(folder / "a.csv", index=False)
        whole[half:].to_parquet(folder / "b.parquet", index=False)
        (folder / "README.md").write_text("none")
        files = [str(folder / "a.csv"), str(folder / "b.parquet")]
        return [[str(tmp_path / f"{name}.csv")], files, [str(folder)]]

    return tables


def test_points_of_several_tables_are_one(split, capsys):
    batches = [8, 16, 32, 64, 128, 256]
    steps = [round(200 + 30_000 / batch) for batch in batches]
    ways = split(pd.DataFrame({"target_loss": 3.0, "batch": batches, "steps": steps}), "points")
    command = ["fit", "critical", "--reference-batch", "smallest", "--resamples", "10"]
    whole, *others = [printed(capsys, *command[:2], *paths, *command[2:]) for paths in ways]
    assert others == [whole, whole]
    seq_len = pd.DataFrame({"target_loss": 3.0, "batch": batches, "steps": steps, "seq_len": 64})
    ways = split(seq_len, "es")
    command = ["fit", "es", "--law", "hyperbola", "--resamples", "10"]
    whole, *others = [printed(capsys, *command[:2], *paths, *command[2:]) for paths in ways]
    assert others == [whole, whole]


def test_last_losses_of_several_tables_are_one(split, tmp_path, capsys):
    grid = itertools.product((1e8, 4e8), (2e9, 8e9), (64, 128, 256, 512))
    losses = pd.DataFrame([*grid], columns=["params", "tokens", "batch"]).assign(seq_len=1024)
    best = 128 * (losses["tokens"] / 2e9) ** 0.4
    bowl = 0.03 * np.log(losses["batch"] / best) ** 2
    losses["loss"] = 2.0 + 300 / losses["params"] ** 0.35 + bowl
    ways = split(losses, "losses")
    command = ["fit", "loss", "--form", "bowl", "--resamples", "10"]
    whole, *others = [printed(capsys, *command[:2], *paths, *command[2:]) for paths in ways]
    assert others == [whole, whole]
    fit = tmp_path / "fit.json"
    fit.write_text(json.dumps(whole))
    told = [
        printed(capsys, "predict", "--from", str(fit), *(x for p in paths for x in ("--runs", p)))
        for paths in ways
    ]
    assert len(told[0]["runs"]) == len(losses)
    assert told[1] == told[0] and told[2] == told[0]


def test_a_directory_without_such_tables_is_one_line(tables, tmp_path, capsys):
    _, _, folder = tables
    line = refused(capsys, "fit", "critical", folder)
    assert "holds no table of points; write one with `bss points`" in line
    (tmp_path / "empty").mkdir()
    assert "empty: " in refused(capsys, "fit", "loss", str(tmp_path / "empty"))
