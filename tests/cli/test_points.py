"""bss points: the best of several rates, one of them, and runs directories for run tables."""

import numpy as np
import pandas as pd
import pytest

from bss.cli import main
from bss.sweeps.grid import expand, overlay, sweep_product
from bss.training.run_directory import RunStatus, open_run
from tests.cli.called import printed, refused

BATCHES, RATES = (2, 4, 8, 16), (1e-3, 2e-3, 4e-3)
TOKENS = 2_000_000
QUICK = ("--law", "hyperbola", "--resamples", "10")


def rows(run: str, batch: int, **columns) -> pd.DataFrame:
    """A planted surface, whose loss is lower at rate 2e-3 at batches up to 4, then at 4e-3."""
    rate = columns.get("lr") or 2e-3
    step = np.unique(np.geomspace(20, TOKENS / (16 * batch), 100).astype(int))
    off = np.log(rate / (2e-3 if batch <= 4 else 4e-3)) ** 2
    loss = 1 + 12 * step**-0.4 + 0.6 / batch + 0.01 * off
    return pd.DataFrame({"step": step, "loss": loss}).assign(
        run=run, batch=batch, seq_len=16, **columns
    )


def saved(path, rates, **columns):
    """A run table with the rates of each batch; None is one that is not told."""
    tables = [
        rows(f"{batch}/{i}", batch, lr=rate, **columns).astype({"lr": float})
        for batch, some in rates.items()
        for i, rate in enumerate(some)
    ]
    pd.concat(tables).to_csv(path, index=False)
    return str(path)


def test_the_best_rate_of_each_batch_is_taken_and_shown(tmp_path, capsys):
    path = saved(tmp_path / "runs.csv", dict.fromkeys(BATCHES, RATES))
    told = printed(capsys, "points", path, "--targets", "1.9,1.8")
    found = [(p["batch"], p["peak_lr"], p["trials"], p["bracketed"]) for p in told["points"]]
    assert sorted(set(found)) == [
        (2, 2e-3, 3, True), (4, 2e-3, 3, True), (8, 4e-3, 3, False), (16, 4e-3, 3, False),
    ]  # fmt: skip
    assert "--peak-lr" in told["warnings"][0]
    assert "at batch size 8, 16;" in told["warnings"][1] and len(told["warnings"]) == 2
    assert main(["points", path, "--targets", "1.9"]) == 0
    shown = capsys.readouterr().out
    assert "bracketed" in shown and "0.004" in shown
    one = printed(capsys, "points", path, "--targets", "1.9,1.8", "--peak-lr", "1.995e-3")
    assert {p["peak_lr"] for p in one["points"]} == {2e-3} and one["warnings"] == []
    assert "trials" not in one["points"][0]


@pytest.mark.slow
def test_fit_es_takes_the_same_points(tmp_path, capsys):
    path = saved(tmp_path / "runs.csv", {**dict.fromkeys(BATCHES, (2e-3,)), 4: RATES})
    arguments = ("fit", "es", path, "--targets", "1.9,1.8", *QUICK)
    told = printed(capsys, *arguments)["warnings"]
    assert any("batch size 4 (3 LRs)" in text for text in told)
    one = printed(capsys, *arguments, "--peak-lr", "2e-3")["warnings"]
    assert not [text for text in one if "lr" in text]


def test_a_rate_that_is_not_told_keeps_its_runs(tmp_path, capsys):
    path = saved(tmp_path / "runs.csv", {2: (1e-3, 2e-3, None), 4: (2e-3,)})
    found = printed(capsys, "points", path, "--targets", "1.9")["points"]
    assert [(p["run"], p["trials"]) for p in found] == [("2/1", 2), ("4/0", 1), ("2/2", 1)]
    unknown = saved(tmp_path / "runs.csv", {2: (None, None), 4: (None,)})
    assert len(printed(capsys, "points", unknown, "--targets", "1.9")["points"]) == 2  # a copy
    assert "the peak LRs are unknown" in refused(capsys, "points", unknown, "--peak-lr", "1e-3")
    path = saved(tmp_path / "runs.csv", {2: RATES})
    assert "the peak LRs are 1e-3, 2e-3, 4e-3" in refused(
        capsys, "points", path, "--peak-lr", "3e-3"
    )


@pytest.fixture
def trained(tiny_transformer, tmp_path):
    """A directory of runs at five batches, one of which was interrupted."""
    longer = overlay(tiny_transformer, {"schedule.tokens": TOKENS})
    runs = expand(longer, sweep_product({"schedule.batch": ["2", "4", "8", "16", "32"]}))
    states = ("finished", "running", "finished", "finished", "finished")
    for run, state in zip(runs, states, strict=True):
        batch = run.schedule.batch.batches[0]
        with open_run(tmp_path / "runs" / run.id) as directory:
            directory.check_config(run)
            table = rows(run.id, batch, lr=1e-2).drop(columns=["run", "seq_len"])
            directory.write_status(RunStatus(state, 16 * batch * int(table["step"].iloc[-1])))
            for row in table.assign(tokens=16 * batch * table["step"]).to_dict("records"):
                directory.add_row({**row, "eval_loss": row["loss"]})
    return tmp_path / "runs"


@pytest.mark.slow
def test_a_directory_of_runs_is_a_run_table(trained, capsys):
    told = printed(capsys, "points", str(trained), "--targets", "1.9")
    assert sorted(p["batch"] for p in told["points"]) == [2, 4, 8, 16, 32]
    assert told["warnings"][0] == "1 interrupted of 5 runs: read as far as they went"
    fit = printed(capsys, "fit", "es", str(trained), "--targets", "1.9", *QUICK)
    assert fit["kind"] == "es"
    table = printed(capsys, "fit", "loss", str(trained), "--resamples", "10")
    assert len(table["law"]["points"]["loss"]) == 4
    assert "1 interrupted of 5 runs: left out" in table["warnings"]
    path = str(trained.parent / "points.csv")
    assert main(["points", str(trained), "--targets", "1.9", "--out", path]) == 0
    capsys.readouterr()
    options = ("--reference-batch", "2", "--resamples", "10", "--level", "0.8", "--seed", "1")
    (at,) = printed(capsys, "fit", "critical", path, *options)["models"]
    assert (at["batch"], at["cbs"]["level"]) == ([2, 4, 8, 16, 32], 0.8)


def test_a_directory_without_a_finished_run_is_one_line(trained, tmp_path, capsys):
    for path in trained.glob("*/status.json"):
        path.unlink()
    assert "no run finished (5 to do); train one" in refused(capsys, "points", str(trained))
    (tmp_path / "empty").mkdir()
    for command in ("points", "fit es", "fit curve", "fit loss"):
        told = refused(capsys, *command.split(), str(tmp_path / "empty"))
        assert "no trained run; name a table" in told


def test_a_directory_with_a_run_table_is_that_table(tmp_path, capsys):
    saved(tmp_path / "runs.csv", dict.fromkeys(BATCHES, (2e-3,)))
    pd.read_csv(tmp_path / "runs.csv").to_parquet(tmp_path / "runs.parquet")
    inside = printed(capsys, "points", str(tmp_path), "--targets", "1.9")
    assert inside == printed(capsys, "points", str(tmp_path / "runs.csv"), "--targets", "1.9")


def test_a_target_that_no_run_reaches_is_one_line(tmp_path, capsys):
    path = saved(tmp_path / "runs.csv", dict.fromkeys(BATCHES, (2e-3,)))
    assert "no run reaches 0.5; the lowest" in refused(capsys, "points", path, "--targets", "0.5")
