"""bss points, fit es and schedule on a run table as another trainer would write it."""

import json

import numpy as np
import pandas as pd
import pytest

from bss.cli import main
from bss.laws import EsFit

L_0, A, ALPHA, B = 1.0, 12.0, 0.4, 0.6
SEQ_LEN = 64
FEW = ("--resamples", "20")
LAWS = ("es", "critical", "loss", "curve")
BATCHES = (1, 2, 4, 8, 16, 32, 64)


def curve(run: str, batch: int, tokens: float = 4e6) -> pd.DataFrame:
    """A planted surface at constant batch: evaluations evenly spaced in log steps."""
    last = int(tokens / (batch * SEQ_LEN))
    steps = np.unique(np.geomspace(20, last, 150).astype(int))
    loss = L_0 + A * steps**-ALPHA + B / batch
    return pd.DataFrame(
        {"run": run, "batch": batch, "seq_len": SEQ_LEN, "step": steps, "loss": loss}
    )


@pytest.fixture
def runs(tmp_path):
    """Five columns, nothing of this project: run, batch, seq_len, step, loss."""
    path = tmp_path / "theirs.csv"
    pd.concat([curve(f"b{b}", b) for b in BATCHES]).to_csv(path, index=False)
    return path


def output(capsys, *arguments: str) -> dict:
    assert main([*arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.slow
def test_fit_es_recovers_a_planted_surface_from_five_columns(runs, capsys, reads_back):
    fit = output(capsys, "fit", "es", str(runs), "--targets", "1.9,1.8,1.7", *FEW)
    reads_back(EsFit, fit)
    assert (fit["kind"], fit["law"], fit["seq_len"]) == ("es", "surface", SEQ_LEN)
    assert {len(draws) for draws in fit["draws"].values()} == {20}
    assert fit["surface"]["alpha"] == pytest.approx(ALPHA, rel=0.03)
    assert fit["surface"]["b"] == pytest.approx(B, rel=0.05)
    for entry in fit["fits"]:
        excess = entry["target_loss"] - L_0
        truth = (1 + 1 / ALPHA) * B / excess
        assert entry["solver_status"] == "converged"
        assert entry["B_opt"]["value"] == pytest.approx(truth, rel=0.05)
        assert entry["B_opt"]["low"] <= truth * 1.02
        assert entry["B_opt"]["high"] >= truth * 0.98
        assert entry["B_opt"]["level"] == 0.9
        s_min = (A / excess) ** (1 / ALPHA)
        assert entry["S_min"] == pytest.approx(s_min, rel=0.05)
        assert entry["S_opt"] == pytest.approx((1 + ALPHA) ** (1 / ALPHA) * s_min, rel=0.05)
        assert entry["E_min"] == pytest.approx(
            entry["S_opt"] * entry["B_opt"]["value"] * SEQ_LEN, rel=1e-3
        )


@pytest.mark.parametrize(("law", "key"), [("hyperbola", "B_crit"), ("piecewise", "B_opt")])
def test_the_other_laws_have_the_same_shape(runs, capsys, reads_back, law, key):
    fit = output(capsys, "fit", "es", str(runs), "--targets", "1.9,1.8", "--law", law, *FEW)
    assert reads_back(EsFit, fit).joint is None
    for entry in fit["fits"]:
        assert set(entry[key]) >= {"value", "low", "high", "level"}
        assert {"S_min", "E_min", "S_opt", "status"} <= set(entry)
    if law == "piecewise":  # seven batches do not identify six parameters
        assert all(entry["solver_status"].startswith("unidentified") for entry in fit["fits"])
        assert fit["warnings"]


@pytest.mark.slow
def test_compare_ranks_the_planted_law_first(runs, capsys):
    fit = output(capsys, "fit", "es", str(runs), "--targets", "1.9,1.8,1.7", *FEW)
    assert fit["comparison"]["winner"] == "surface"


def test_a_batch_that_changes_inside_a_run_is_integrated(tmp_path, capsys):
    first, second = curve("x", 2, 1e6), curve("x", 8, 4e7)
    switch = first["step"].tolist()[-1]
    second = second.query("step > @switch")
    path = tmp_path / "ramp.csv"
    pd.concat([first, second]).to_csv(path, index=False)
    target = second["loss"].tolist()[5] - 1e-3
    points = output(capsys, "points", str(path), "--targets", str(target))["points"]
    steps = points[0]["steps"]
    tokens = switch * 2 * SEQ_LEN + (steps - switch) * 8 * SEQ_LEN
    assert steps > switch
    assert points[0]["tokens_to_target"] == pytest.approx(tokens, rel=2e-3)


def test_a_fit_becomes_a_schedule_that_grows_and_exports(runs, tmp_path, capsys):
    fit = output(capsys, "fit", "es", str(runs), "--targets", "1.9,1.8,1.7", *FEW)
    path = tmp_path / "fit.json"
    path.write_text(json.dumps({**fit, "a key of a later version": 1}))
    arguments = ("schedule", "--from", str(path), "--tokens", "20M", "--stages", "4")
    schedule = output(capsys, *arguments)
    batches = [segment["batch"] for segment in schedule["plan"]["segments"]]
    assert batches == sorted(batches)
    assert len(batches) == 4
    assert main([*arguments, "--lr", "1e-3", "--export", "megatron"]) == 0
    assert "--step-batch-size-schedule" in capsys.readouterr().out


def test_a_table_under_other_names_gives_the_same_points(runs, tmp_path, capsys):
    path = tmp_path / "renamed.csv"
    theirs = pd.read_csv(runs, dtype=str).rename(columns={"batch": "gbsz", "step": "it"})
    theirs.drop(columns="seq_len").to_csv(path, index=False)
    names = ("--columns", "batch=gbsz,step=it", "--seq-len", str(SEQ_LEN))
    ours = output(capsys, "points", str(runs), "--targets", "1.8")
    assert output(capsys, "points", str(path), "--targets", "1.8", *names) == ours


@pytest.mark.parametrize("command", ["points", *(f"fit {law}" for law in LAWS)])
def test_every_reader_of_a_table_takes_names(runs, capsys, command):
    assert main([*command.split(), str(runs), "--columns", "bach=gbsz", "--seq-len", "64"]) == 2
    assert "did you mean batch?" in capsys.readouterr().err


def test_unreached_targets_are_kept_and_said(runs, capsys):
    points = output(capsys, "points", str(runs), "--targets", "1.6")["points"]
    reached = {point["batch"]: point["reached"] for point in points}
    assert not reached[1]
    assert reached[8]


def test_the_best_batch_is_named_by_the_rate_of_all_runs(runs, tmp_path, capsys):
    path = tmp_path / "rates.csv"
    theirs = pd.read_csv(runs).assign(lr=4e-3)
    theirs.to_csv(path, index=False)
    arguments = ["fit", "es", str(path), "--targets", "1.9,1.8,1.7", *FEW]
    assert main(arguments) == 0
    assert "differs" not in capsys.readouterr().out
    theirs.assign(lr=1e-3 * theirs["batch"] ** 0.5).to_csv(path, index=False)
    fit = output(capsys, *arguments)
    assert "B_opt applies to these LRs" in fit["warnings"][-1]
    assert fit["fits"][0]["B_opt"]["value"] > 0


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda f: f.drop(columns="loss"), "loss"),
        (lambda f: f.drop(columns="seq_len"), "seq_len"),
        (lambda f: f.assign(loss=np.where(f.index == 3, np.nan, f["loss"])), "line"),
        (lambda f: pd.concat([f, f.iloc[-1:]]), "line"),
        (lambda f: f.assign(batch=0), "batch"),
        (lambda f: f.assign(tokens=f["step"] * 7), "line"),
    ],
)
def test_bad_tables_are_refused_in_one_line(tmp_path, capsys, change, told):
    path = tmp_path / "bad.csv"
    change(curve("x", 4).reset_index(drop=True)).to_csv(path, index=False)
    assert main(["fit", "es", str(path), "--targets", "1.9"]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert told in error


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--targets", "0.2"), "lowest loss reached"),
        (("--targets", "x"), "--targets"),
        (("--targets", "nan"), "--targets"),
        (("--targets", "1.9", "--smooth", "3 days"), "--smooth"),
    ],
)
def test_bad_options_are_refused_in_one_line(runs, capsys, arguments, told):
    assert main(["fit", "es", str(runs), *arguments]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert told in error


@pytest.mark.parametrize("text", ["", "[]", '{"kind": "plan"}', '{"kind": "es", "schema": 1}'])
def test_a_file_that_is_no_fit_is_refused_in_one_line(tmp_path, capsys, text):
    path = tmp_path / "fit.json"
    path.write_text(text)
    assert main(["schedule", "--from", str(path), "--tokens", "1M"]) == 2
    assert capsys.readouterr().err.count("\n") == 1
