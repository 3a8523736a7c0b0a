import json

import pytest

from bss.cli import main

EXPERIMENT = {
    "title": "Nothing yet", "command": "python -m experiments.none", "commit": "0123abc",
    "date": "2026-11-20", "device": "cpu", "cores": 2, "seconds": 1.0, "trained_tokens": 0,
    "evaluated_tokens": 0, "versions": {}, "config": {},
}  # fmt: skip


def test_report_writes_a_page_and_says_where(tmp_path, capsys):
    (tmp_path / "experiment.json").write_text(json.dumps(EXPERIMENT))
    assert main(["report", str(tmp_path), "-o", str(tmp_path / "page.html"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"report": str(tmp_path / "page.html")}
    assert "<h1>Nothing yet</h1>" in (tmp_path / "page.html").read_text()


@pytest.mark.parametrize(
    ("source", "options", "told"),
    [
        ("nowhere", (), "no run table, no experiment.json and no run that was trained"),
        ("runs.csv", (), "no column batch"),
        ("good.csv", ("--resamples", "9"), "--resamples 9: expected 10 or more"),
        ("good.csv", ("--targets", "low"), "--targets 'low'"),
        ("good.csv", ("--training-loss",), "have held-out losses alone"),
    ],
)
def test_bad_sources_and_options_are_one_line(tmp_path, capsys, source, options, told):
    (tmp_path / "runs.csv").write_text("run,step,seq_len,loss\na,1,64,2.0\n")
    (tmp_path / "good.csv").write_text("run,step,seq_len,batch,eval_loss\na,1,64,8,2.0\n")
    assert main(["report", str(tmp_path / source), *options]) == 2
    error = capsys.readouterr().err
    assert told in error and error.count("\n") == 1
    assert not list(tmp_path.glob("*.html"))
