"""Run tables of this package are a format: joined, they keep every column, and losses as logged."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from bss.importers import IMPORTERS, LogOptions
from bss.tables import read_runs
from tests.cli.called import printed
from tests.importers.imported import the_run

DEMO = Path("results/demo/runs.parquet")


def table(run, batch, **columns):
    steps = np.arange(10, 60, 10)
    constant = {"model": "m1", "params": 12_000, "seed": 3, "peak_lr": 2e-3, "corpus": "web"}
    varying = {"lr": 1e-3, "loss": 5 - steps / 100, "grad_norm": 1 / steps, "phase": list("aabbb")}
    rows = {"run": run, **constant, "batch": batch, "seq_len": 64, "step": steps, **varying}
    return pd.DataFrame(rows | columns)


def imported(capsys, tmp_path, *paths):
    out = tmp_path / "joined.parquet"
    told = printed(capsys, "import", "auto", *map(str, paths), "-o", str(out))
    return pd.read_parquet(out), told


def same(found, wanted):
    assert {*wanted} <= {*found}
    found = found[wanted.columns].reset_index(drop=True)
    pd.testing.assert_frame_equal(found, wanted.reset_index(drop=True), check_dtype=False)


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_every_column_is_kept(capsys, tmp_path, suffix):
    whole = pd.concat([table("b8", 8), table("b16", 16, seed=4)], ignore_index=True)
    whole["loss"] += whole["batch"] / 1000
    path = tmp_path / f"a.{suffix}"
    whole.to_csv(path, index=False) if suffix == "csv" else whole.to_parquet(path, index=False)
    found, told = imported(capsys, tmp_path, path)
    same(found, whole)
    assert not any(run["notes"] for run in told["runs"])


def test_the_table_of_a_sweep_comes_back(capsys, tmp_path):
    whole = pd.read_parquet(DEMO)
    found, _ = imported(capsys, tmp_path, DEMO)
    filled = [name for name in whole if whole[name].notna().any()]
    same(found, whole[filled])


def test_tables_of_other_columns_and_formats_are_joined(capsys, tmp_path):
    folder = tmp_path / "tables"
    folder.mkdir()
    first = table("b8", 8)
    second = table("b16", 16, optimizer="muon").drop(columns=["seed", "phase"])
    first.to_csv(folder / "a.csv", index=False)
    second.to_parquet(folder / "b.parquet", index=False)
    found, _ = imported(capsys, tmp_path, folder)
    by_run = dict(list(found.groupby("run")))
    same(by_run["b8"], first)
    same(by_run["b16"], second)
    assert by_run["b8"]["optimizer"].isna().all() and by_run["b16"]["seed"].isna().all()


def test_a_training_loss_that_was_not_logged_is_not_written(capsys, tmp_path):
    unlogged = table("b8", 8).rename(columns={"loss": "eval_loss"})
    unlogged.to_csv(tmp_path / "a.csv", index=False)
    first, _ = imported(capsys, tmp_path, tmp_path / "a.csv")
    assert "loss" not in first and len(read_runs(tmp_path / "joined.parquet")) == 5
    unlogged.assign(loss=unlogged["eval_loss"]).to_csv(tmp_path / "a.csv", index=False)
    table("b16", 16).assign(eval_loss=4.0).to_csv(tmp_path / "b.csv", index=False)
    both, told = imported(capsys, tmp_path, tmp_path / "a.csv", tmp_path / "b.csv")
    assert both.loc[both["run"] == "b8", "loss"].isna().all()
    assert told["runs"][0]["missing"] == ["loss"]
    assert "no training loss was logged" in told["runs"][0]["notes"][0]


def test_last_losses_are_no_run_table(tmp_path):
    last = pd.DataFrame({"run": ["a", "b"], "batch": 8, "seq_len": 64, "step": 9, "loss": [3, 4.0]})
    last.to_csv(tmp_path / "finals.csv", index=False)
    text = (tmp_path / "finals.csv").read_text()
    assert IMPORTERS["bss"].reader(tmp_path / "finals.csv", text, {}) is None


def test_names_of_columns_are_for_files_that_have_them(capsys, tmp_path):
    table("b8", 8).to_csv(tmp_path / "a.csv", index=False)
    (tmp_path / "c.csv").write_text("it,ce,batch,seq_len\n1,5,8,64\n2,4,8,64\n3,3,8,64\n")
    out = ["-o", str(tmp_path / "joined.csv"), "--columns", "step=it,loss=ce"]
    told = printed(capsys, "import", "auto", str(tmp_path / "a.csv"), str(tmp_path / "c.csv"), *out)
    assert [run["rows"] for run in told["runs"]] == [5, 3]


def test_a_table_with_semicolons_keeps_what_is_constant(tmp_path):
    whole = table("b8", 8)
    whole.to_csv(tmp_path / "a.csv", index=False, sep=";", decimal=",")
    found, _ = the_run([tmp_path / "a.csv"], LogOptions(), "auto")
    names = ["model", "params", "seed", "peak_lr", "loss"]
    same(found, whole[names])


def test_equal_names_of_runs_in_two_tables_get_paths(capsys, tmp_path):
    for name, shift in (("one", 0.0), ("two", 0.5)):
        whole = table("b8", 8)
        whole["loss"] += shift
        (tmp_path / "t" / name).mkdir(parents=True)
        whole.to_parquet(tmp_path / "t" / name / "runs.parquet")
    found, told = imported(capsys, tmp_path, tmp_path / "t")
    assert [run["run"] for run in told["runs"]] == list(dict.fromkeys(found["run"]))
    first, second = dict.fromkeys(found["run"])
    assert "one" in first and "two" in second and first.endswith("b8")


@pytest.mark.parametrize(
    ("name", "note"),
    [
        ("dev/loss", "dev/loss is read as the held-out loss, by its name"),
        ("heldout_web_ce_loss", "heldout_web_ce_loss is read as the held-out loss, by its name"),
        ("dev_perplexity_loss", "not read, in perplexity by name: dev_perplexity_loss"),
        ("best_val_loss", "not read, by name held-out losses: best_val_loss; "),
    ],
)
def test_a_held_out_loss_under_another_name_is_read_or_named(tmp_path, name, note):
    rows = "".join(f"a,8,64,{10 * i},{5 - i / 9},{6 - i / 9}\n" for i in range(1, 6))
    (tmp_path / "a.csv").write_text(f"run,batch,seq_len,step,loss,{name}\n{rows}")
    table, report = the_run([tmp_path / "a.csv"], LogOptions(), "auto")
    assert list(table["loss"]) == [5 - i / 9 for i in range(1, 6)]
    assert any(line.startswith(note) for line in report.notes)
    column = "eval_loss" if "is read" in note else name
    assert list(table[column]) == [6 - i / 9 for i in range(1, 6)]
    assert ("eval_loss" in table) == ("is read" in note)


def test_the_noise_scale_of_a_users_loop_is_a_column(tmp_path):
    path = tmp_path / "own.csv"
    path.write_text("step,batch,loss,noise_scale\n10,8,3.2,12.5\n20,8,3.1,13.5\n30,8,3.0,14\n")
    table, _ = the_run([path], LogOptions(seq_len=64), "auto")
    assert table["noise_scale"].tolist() == [12.5, 13.5, 14.0]
