"""bss design: its answer as JSON and as text, a small replay, and what it refuses."""

from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from bss.cli import main
from bss.design.replay import replayed
from tests.cli.called import printed, refused

ROOT = Path(__file__).parents[2]
FIT = str(ROOT / "bss/laws/published/steplaw_dense.json")


def test_three_runs_with_their_costs_and_intervals(capsys):
    told = printed(capsys, "design", FIT, "--goal", "B_opt:429M,50B")
    assert told["kind"] == "design" and len(told["runs"]) == 3
    ends = [told["before"], *(run["after"] for run in told["runs"])]
    widths = np.diff([[one["low"], one["high"]] for one in ends], axis=1)[:, 0]
    assert (np.diff(widths) < 0).all()
    for run in told["runs"]:
        assert run["cost"] == pytest.approx(6 * run["params"] * run["tokens"])
        assert run["share"] == pytest.approx(run["cost"] / told["spent"])
        assert run["lr"] is None and run["purpose"] in ("narrow", "check")


def test_a_goal_beyond_what_was_tested_is_told(capsys):
    assert main(["design", FIT, "--goal", "B_opt:1T,50B", "--pick", "1"]) == 0
    told = capsys.readouterr().out
    assert "params: 1e+12 is" in told and "there the interval is of the forms alone" in told
    assert main(["design", FIT, "--goal", "B_opt:429M,50B", "--pick", "1"]) == 0
    assert "forms alone" not in capsys.readouterr().out


def test_candidates_of_a_grid_and_a_picture(capsys, tmp_path):
    grid = "params=429M,tokens=50B,batch=64..1024:sqrt2,seeds=1|2"
    picture = tmp_path / "design.png"
    line = ["design", FIT, "--candidates", grid, "--plot", str(picture), "--pick", "1"]
    assert main([*line, "--cost", "hours", "--speed", "2e16FLOP/s"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("B_opt at 1074M") and " hours " in out and "after 1 run" in out
    assert picture.stat().st_size > 5000


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--pick", "0"], "--pick: 0"),
        (["--goal", "best"], "--goal best"),
        (["--cost", "dollars"], "--cost: dollars"),
        (["--cost", "hours"], "--speed"),
        (["--candidates", "batch=x"], "--candidates"),
        (["--candidates", "batch=0.1"], "sequence or more|number above"),
        (["--candidates", "params=70B,batch=64"], "params: .* times outside"),
        (["--candidates", "batch=64,lr=1e-3"], "rates of the fit do not vary"),
        (["--replay", "x.csv"], "one of them"),
    ],
)
def test_refusals(options, said, capsys):
    import re

    assert re.search(said, refused(capsys, "design", FIT, *options))


def test_what_it_is_given(capsys, tmp_path):
    assert "give a fit or a table" in refused(capsys, "design")
    (tmp_path / "es.json").write_text('{"kind": "es"}')
    assert "fits of kind 'table'" in refused(capsys, "design", str(tmp_path / "es.json"))
    table = tmp_path / "losses.csv"
    planted().to_csv(table, index=False)
    assert "--budget: 0%" in refused(capsys, "design", "--replay", str(table), "--budget", "0%")


def planted():
    """Losses of one (N, D): a lopsided valley at 24 sequences, six seeds of many batches."""
    draw, rows = np.random.default_rng(0), []
    for batch in 2.0 ** np.arange(12):
        x = np.log(batch / 24)
        loss = 2 + 0.01 * (np.exp(0.9 * x) / 0.9 + np.exp(-0.6 * x) / 0.6)
        rows += [(1e8, 1e9, batch, 512, loss + 0.003 * draw.standard_normal()) for _ in range(6)]
    return pd.DataFrame(rows, columns=["params", "tokens", "batch", "seq_len", "loss"])


def test_a_replay_narrows_more_than_random_runs(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("bss.cli.design.replayed", partial(replayed, seeds=(0, 1, 2)))
    table = tmp_path / "losses.csv"
    planted().to_csv(table, index=False)
    told = printed(capsys, "design", "--replay", str(table), "--budget", "35%")
    by = {}
    for run in told["runs"]:
        assert run["spent"] <= 0.35
        by.setdefault(run["method"], []).append(run["width"])
    assert set(by) == {"design", "D-optimal", "random", "grid"}
    assert np.median(by["design"]) < np.median(by["random"])
