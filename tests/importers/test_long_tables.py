"""Tables with a row per value, under any names of columns."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bss.tables import read_runs
from tests.cli.called import printed, refused

STEPS = (10, 20, 30)
NAMES = "run=trial,metric=what,value=number"


def values(names, shift: float = 0.0):
    """Values of two runs: training and held-out losses."""
    for run in ("a", "b"):
        for step in STEPS:
            for k, name in enumerate(names):
                yield run, name, 5 - step / 20 + k / 4 + shift * (run == "b"), step


def table_of(path, header, rows) -> str:
    path.write_text(header + "\n" + "".join(",".join(map(str, row)) + "\n" for row in rows))
    return str(path)


def imported(tmp_path, capsys, path, *options, format="long"):
    out = str(tmp_path / "o.csv")
    command = ["import", format, path, "-o", out, "--batch", "8", "--seq-len", "64", *options]
    runs = printed(capsys, *command)["runs"]
    return [(run["run"], run["rows"]) for run in runs], read_runs(out)


@pytest.mark.parametrize("format", ["long", "auto"])
def test_columns_of_any_name(tmp_path, capsys, format):
    rows = values(["train/loss", "val/loss"], 0.1)
    path = table_of(tmp_path / "a.csv", "trial,what,number,step", rows)
    runs, table = imported(tmp_path, capsys, path, "--columns", NAMES, format=format)
    assert runs == [("a", 3), ("b", 3)]
    assert list(table["loss"][:3]) == [4.5, 4.0, 3.5]
    assert list(table["eval_loss"][:3]) == [4.75, 4.25, 3.75]


@pytest.mark.parametrize(("ours", "last"), [("step", 15360), ("tokens", 30), ("samples", 30 * 64)])
def test_the_count_may_have_any_name_too(tmp_path, capsys, ours, last):
    path = table_of(tmp_path / "a.csv", "trial,what,number,at", values(["loss"], 0.1))
    named = f"{NAMES},{ours}=at"
    out = str(tmp_path / "o.csv")
    length = "64" if ours != "tokens" else "1"
    batch = "8" if ours == "step" else "1"
    command = ["import", "long", path, "-o", out, "--batch", batch, "--seq-len", length]
    printed(capsys, *command, "--columns", named)
    assert read_runs(out)["tokens"].iloc[-1] == last


def test_metrics_of_any_name(tmp_path, capsys):
    path = table_of(tmp_path / "a.csv", "trial,what,number,step", values(["my/ce", "dev/ce9"], 0.1))
    named = f"{NAMES},loss=my/ce,eval_loss=dev/ce9"
    runs, table = imported(tmp_path, capsys, path, "--columns", named)
    assert runs == [("a", 3), ("b", 3)] and list(table["eval_loss"][:3]) == [4.75, 4.25, 3.75]


@pytest.mark.parametrize("kind", ["parquet", "jsonl", "tsv"])
def test_long_tables_of_other_kinds(tmp_path, capsys, kind):
    rows = [dict(zip(("trial", "what", "number", "step"), row, strict=True))
            for row in values(["loss", "eval_loss"], 0.1)]  # fmt: skip
    path = tmp_path / f"a.{kind}"
    if kind == "parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    elif kind == "jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        lines = ["\t".join(rows[0]), *("\t".join(map(str, row.values())) for row in rows)]
        path.write_text("\n".join(lines) + "\n")
    runs, _ = imported(tmp_path, capsys, str(path), "--columns", NAMES)
    assert runs == [("a", 3), ("b", 3)]


def test_what_is_missing_or_for_another_format_is_refused(tmp_path, capsys):
    path = table_of(tmp_path / "a.csv", "trial,what,number,step", values(["loss"], 0.1))
    command = ["import", "long", path, "-o", str(tmp_path / "o.csv"), "--columns"]
    line = refused(capsys, *command, NAMES.replace("what", "name"))
    assert "no column name for metric; it has trial, what, number, step" in line
    command[1] = "plain"
    assert "--columns metric: is for the format long" in refused(capsys, *command, NAMES)
