"""bss fit critical on the published file and on files that are wrong."""

import json
from importlib.resources import files

import pytest

from bss.cli import main
from bss.laws import CriticalFit
from bss.laws.power import predict
from tests.cli.called import printed

PUBLISHED = str(files("bss.laws") / "published" / "cbs_steps.csv")
HEAD = "model,params_m,tokens,target_loss,batch,steps\n"
ROWS = [f"x,85,1741000000,3.4,{64 * 2**i},{1000 + 3_000_000 // (64 * 2**i)}" for i in range(8)]


def test_the_published_file_gives_models_law_and_warnings(capsys, reads_back, tmp_path):
    arguments = ["--overhead", "0.2", "--reference-batch", "256"]
    assert main(["fit", "critical", PUBLISHED, *arguments, "--json"]) == 0
    fit = json.loads(capsys.readouterr().out)
    law = reads_back(CriticalFit, fit).law
    assert [at["model"] for at in fit["models"]] == ["85M", "151M", "302M", "604M", "1.2B"]
    keys = {"model", "params", "tokens", "S_min", "E_min_sequences", "B_crit", "cbs", "status"}
    for at in fit["models"]:
        assert keys < set(at)
        assert at["B_crit"]["low"] < at["B_crit"]["value"] < at["B_crit"]["high"]
        assert at["cbs"]["value"] == pytest.approx(307.2 + 0.2 * at["B_crit"]["value"])
    assert fit["law"]["x"] == "params"
    assert fit["law"]["coefficient"]["value"] == pytest.approx(93.20, abs=0.01)
    assert fit["law"]["exponent"]["low"] < 0.468 < fit["law"]["exponent"]["high"]
    assert isinstance(fit["warnings"], list)
    (tmp_path / "fit.json").write_text(json.dumps(fit))
    ask = ("predict", "--from", f"{tmp_path}/fit.json", "--params", "7B", "--extrapolate")
    forecast = printed(capsys, *ask)["critical_batch"]
    assert predict(law, {"params": 7e9}).high == pytest.approx(forecast["high"])
    assert forecast["value"] == pytest.approx(93.2 * 7000**0.4683, rel=1e-3)
    assert forecast["low"] < forecast["value"] < forecast["high"]


def test_people_get_tables_and_the_law_in_a_line(capsys):
    assert main(["fit", "critical", PUBLISHED, "--resamples", "100"]) == 0
    out = capsys.readouterr().out
    for text in ("B_crit", "0.4683", "no joint law", "exponent of N"):
        assert text in out


@pytest.mark.parametrize(
    ("rows", "arguments", "told"),
    [
        (ROWS[:2], (), "2 batches"),
        (ROWS, ("--reference-batch", "-16"), "reference batch"),
        ([*ROWS, ROWS[0]], (), "line"),
        ([*ROWS[:4], "x,85,1741000000,3.4,1024,0", *ROWS[5:]], (), "steps is 0"),
        ([*ROWS[:4], "x,85,1741000000,3.4,1024,-5", *ROWS[5:]], (), "steps is -5"),
        (ROWS, ("--overhead", "-1"), "overhead"),
        (ROWS, ("--level", "2"), "level: 2.0 given"),
        (ROWS, ("--resamples", "0"), "--resamples"),
    ],
)
def test_bad_input_is_one_line(tmp_path, capsys, rows, arguments, told):
    path = tmp_path / "steps.csv"
    path.write_text("# a comment\n" + HEAD + "\n".join(rows) + "\n")
    assert main(["fit", "critical", str(path), *arguments]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert told in error


def test_mixed_sequence_lengths_are_refused(tmp_path, capsys):
    path = tmp_path / "steps.csv"
    rows = [f"{row},{512 if i < 4 else 1024}" for i, row in enumerate(ROWS)]
    path.write_text(HEAD.strip() + ",seq_len\n" + "\n".join(rows) + "\n")
    assert main(["fit", "critical", str(path)]) == 2
    assert "512, 1024 are mixed" in capsys.readouterr().err
