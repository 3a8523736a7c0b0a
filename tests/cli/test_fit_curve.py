"""bss fit curve, and bss schedule from what it prints."""

import json
from pathlib import Path

import pytest

from bss.cli import main
from bss.laws import CurveFit
from tests.cli.called import printed, refused

CONSTANT = ("--min-batch", "4", "--max-batch", "4")
DEMO = Path(__file__).parents[2] / "results" / "demo"
OF_STEPS = json.loads((DEMO / "fits.json").read_text())["surface"]


@pytest.fixture(scope="module")
def runs(planted_curves, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    constants = planted_curves.table(planted_curves.constants)
    constants.to_parquet(folder / "constants.parquet")
    switches = planted_curves.table(planted_curves.constants + planted_curves.two_stage)
    switches.to_csv(folder / "all.csv", index=False)
    return folder


@pytest.mark.slow
def test_a_fit_becomes_a_schedule(runs, tmp_path, capsys, reads_back):
    arguments = ("fit", "curve", str(runs / "all.csv"), "--clock", "sgd", "--resamples", "10")
    fit = printed(capsys, *arguments)
    reads_back(CurveFit, fit)
    assert (fit["kind"], fit["schema"], fit["identified"]) == ("curve", 2, True)
    assert fit["status"] == "converged"
    assert fit["rmse"] < 2e-3
    assert (fit["losses"], fit["measured"], len(fit["draws"])) == (9 * 32, 9 * 40, 10)
    assert fit["cv_errors"]["sgd"] < 5e-3
    assert fit["parameters"]["s"]["value"] == pytest.approx(0.5, rel=0.05)
    assert fit["parameters"]["s"]["level"] == 0.9
    path = tmp_path / "fit.json"
    path.write_text(json.dumps({**fit, "a key of a later version": 1}))
    told = printed(capsys, "schedule", "--from", str(path), "--tokens", "4M", "--stages", "3")
    assert {"batch", "lr", "plan"} <= set(told)
    segments = [segment["batch"] for segment in told["plan"]["segments"]]
    assert segments == sorted(segments) and len(segments) > 1
    assert told["lr"]["peak"] == 4e-3
    assert told["plan"]["tokens"] <= 4_000_000


def test_a_terminal_shows_what_is_at_work(monkeypatch, capsys, tmp_path):
    command = ["report", str(tmp_path / "none.csv")]
    main(command)
    alone = capsys.readouterr()
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    main(command)
    told = capsys.readouterr()
    assert told.out == alone.out == ""
    assert "bss report" in told.err.replace(alone.err, "") and alone.err in told.err


def test_people_get_a_table(planted_curves, runs, tmp_path, capsys):
    path = tmp_path / "fit.json"
    path.write_text(json.dumps(planted_curves.fit.to_dict()))
    arguments = ["schedule", "--from", str(path), "--tokens", "2M", "--lr", "4e-3"]
    assert main([*arguments, "--decay", "20%", "--stages", "2"]) == 0
    told = capsys.readouterr().out
    assert told.startswith("--batch")
    assert main([*arguments, "--decay", "20%", *CONSTANT, "--export", "megatron"]) == 0
    assert "--lr-wsd-decay-samples" in capsys.readouterr().out
    assert "warning" not in told
    arguments[arguments.index("2M")] = "20M"
    assert main([*arguments, *CONSTANT]) == 0
    assert "warning: tokens 2e+07 is 10 times the largest measured" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--resamples", "3"), "--resamples: Invalid value"),
        (("--warmup", "soon"), "--warmup"),
        (("--warmup", "3M"), "no losses after the warm-up"),
        (("--since", "2M"), "no losses after the warm-up and 2M tokens"),
    ],
)
def test_bad_options_of_the_fit_are_one_line(runs, capsys, arguments, told):
    assert told in refused(capsys, "fit", "curve", str(runs / "all.csv"), *arguments)


@pytest.mark.parametrize(
    ("entry", "arguments", "told"),
    [
        (OF_STEPS, ("--policy", "functional-best"), "reads a fit of `bss fit curve`"),
        ({"kind": "curve", "schema": 7}, (), "schema 7"),
        ({"kind": "curve"}, (), "damaged"),
        (None, ("--multiple-of", "64"), "no multiple of 64"),
        (None, ("--warmup", "1K"), "--warmup"),
    ],
)
def test_bad_input_of_the_schedule_is_one_line(
    planted_curves, tmp_path, capsys, entry, arguments, told
):
    path = tmp_path / "fit.json"
    path.write_text(json.dumps(entry or planted_curves.fit.to_dict()))
    error = refused(capsys, "schedule", "--from", str(path), "--tokens", "2M", *arguments)
    assert told in error
