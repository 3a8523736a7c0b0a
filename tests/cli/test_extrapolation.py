"""How far a schedule, an export and a next run go beyond the runs of their fit is told."""

import json
from pathlib import Path

import pytest

import bss
from bss.advice.next_run import next_runs, untested_goal
from bss.cli import main
from bss.exports import EXPORTS
from bss.laws import read_fit
from bss.policies.beyond import beyond_measured
from bss.schedules.batch import BatchSchedule
from bss.tables import read_points
from tests.cli.called import printed
from tests.fits import fit_entry

RESULTS = Path(__file__).parents[2] / "results"


@pytest.fixture
def fit(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("fit.json").write_text(json.dumps(fit_entry("es")))
    return read_fit("fit.json")


def test_a_schedule_says_what_predict_refuses(fit, capsys):
    most = max(fit.rows["measured"])
    assert printed(capsys, "schedule", "--from", "fit.json", "--tokens", "100K")["warnings"] == []
    [beyond] = printed(capsys, "schedule", "--from", "fit.json", "--tokens", "1B")["warnings"]
    assert f"{10**9 / most:.3g} times as far" in beyond
    assert f"(loss {fit.fits[-1].target_loss:.4g}) nothing was measured" in beyond
    assert main(["schedule", "--from", "fit.json", "--tokens", "1B"]) == 0
    assert f"warning: {beyond}" in capsys.readouterr().out
    command = ["schedule", "--from", "fit.json", "--tokens", "10M", "--max-batch", "4096"]
    wide = printed(capsys, *command, "--min-batch", "4096")["warnings"]
    assert wide[-1].startswith("batch 4096: outside the measured 1 to ")


@pytest.mark.parametrize("trainer", EXPORTS)
def test_an_export_says_it_too(fit, trainer, capsys):
    command = ["schedule", "--from", "fit.json", "--tokens", "100M", "--approximate"]
    assert main([*command, "--multiple-of", "8", "--min-batch", "8", "--export", trainer]) == 0
    out, error = capsys.readouterr()
    assert "nothing was measured" in error
    assert ("nothing was measured" in out) == (trainer != "csv")


def test_a_fit_of_curves_and_one_of_final_losses_say_it(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("curve.json").write_text(json.dumps(fit_entry("curve")))
    command = ["schedule", "--from", "curve.json", "--tokens", "100M", "--policy", "late-switch"]
    assert main([*command, "--lr", "1e-3", "--export", "megatron"]) == 0
    out, error = capsys.readouterr()
    assert "# tokens" in out and "warning: tokens" in error
    table = bss.LossFit.from_dict(fit_entry("loss"))
    [beyond] = beyond_measured(table, BatchSchedule.constant(64), 10**14)
    assert "times outside" in beyond
    assert beyond_measured(table, BatchSchedule.constant(64), 10**10) == []


def test_in_python_the_schedule_has_warnings(fit):
    points = read_points(RESULTS / "demo/points.csv")
    far = bss.derive_schedule(fit, points, 10**9, bss.Limits(3))
    assert len(far.warnings) == 1 and "nothing was measured" in far.warnings[0]
    assert bss.derive_schedule(fit, points, 10**5, bss.Limits(3)).warnings == ()
    assert (
        "nothing was measured"
        in bss.derive_schedule(None, points, 10**9, bss.Limits(3)).warnings[0]
    )


def test_a_goal_outside_the_runs_is_told(fit, capsys):
    critical = bss.CriticalFit.from_dict(fit_entry("critical"))
    assert next_runs(critical, critical.goal).attrs["warnings"] == []
    Path("critical.json").write_text(json.dumps(fit_entry("critical")))
    assert printed(capsys, "next", "critical.json")["warnings"] == []
    high, low = (fit.fits[i].target_loss for i in (0, -1))
    [text] = untested_goal(fit, "B_opt@1.1")
    assert text == f"goal B_opt@1.1: outside the measured losses {low:g} to {high:g}"
    table = bss.LossFit.from_dict(fit_entry("loss"))
    assert untested_goal(table, "B_opt@300M,10B") == []
    assert "times outside" in untested_goal(table, "loss@300M,100T,256")[0]


def test_the_headline_of_a_prediction_is_the_best_batch(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    cases = json.loads((RESULTS / "demo/fits.json").read_text())
    Path("surface.json").write_text(json.dumps(cases["surface"]))
    loss = str(cases["surface"]["fits"][2]["target_loss"])
    assert main(["predict", "--from", "surface.json", "--loss", loss]) == 0
    assert capsys.readouterr().out.startswith("Predicted B_opt: ")
    assert main(["predict", "--from", "surface.json", "--loss", loss, "--batch", "0"]) == 2
    line = "bss predict: --batch 0: expected 1 sequence or more, e.g. 64\n"
    assert capsys.readouterr().err == line


def test_the_batch_of_the_lr_may_have_a_suffix(fit, capsys):
    command = ["schedule", "--from", "fit.json", "--tokens", "10M", "--lr", "1e-3"]
    command += ["--lr-coupling", "sqrt", "--lr-batch"]
    assert printed(capsys, *command, "2K") == printed(capsys, *command, "2000")
