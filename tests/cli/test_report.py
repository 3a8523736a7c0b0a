import json

import pytest

from bss.cli import main
from bss.sweeps.grid import expand, sweep_product
from bss.training.run_directory import RunStatus, open_run
from tests.cli.called import printed

EXPERIMENT = {
    "title": "Nothing yet", "command": "python -m experiments.none", "commit": "0123abc",
    "date": "2026-11-20", "device": "cpu", "cores": 2, "seconds": 1.0, "trained_tokens": 0,
    "evaluated_tokens": 0, "versions": {}, "config": {},
}  # fmt: skip


def test_report_writes_a_page_and_says_where(tmp_path, capsys):
    (tmp_path / "experiment.json").write_text(json.dumps(EXPERIMENT))
    told = printed(capsys, "report", tmp_path, "-o", tmp_path / "page.html")
    assert told == {"report": str(tmp_path / "page.html")}
    assert "<h1>Nothing yet</h1>" in (tmp_path / "page.html").read_text()


def test_a_directory_of_runs_is_a_page_that_says_which_did_not_finish(tiny_run, tmp_path, capsys):
    runs = expand(tiny_run, sweep_product({"schedule.batch": ["2", "4"], "seed": [0, 1]}))
    for run, state in zip(runs, ("finished", "diverged", "finished", "running"), strict=True):
        with open_run(tmp_path / "runs" / run.id) as directory:
            directory.check_config(run)
            directory.write_status(RunStatus(state, 8192))
            for step in range(100, 1000, 100):
                tokens = 16 * step * run.schedule.batch.batches[0]
                loss = 2 + 5 / step**0.5
                directory.add_row(
                    {"step": step, "tokens": tokens, "batch": run.schedule.batch.batches[0],
                     "lr": 1e-2, "loss": loss, "eval_loss": loss}
                )  # fmt: skip
    assert main(["report", str(tmp_path / "runs"), "--resamples", "10"]) == 0
    assert capsys.readouterr().out == f"report: {tmp_path}/runs/report.html\n"
    page = (tmp_path / "runs" / "report.html").read_text()
    assert "<h1>Runs of runs</h1>" in page
    assert "1 diverged, 1 interrupted of 4 runs: read as far as they went" in page
    assert "<h2>Loss against tokens</h2>" in page
    assert "The law of loss curves: no run changes its batch" in page


@pytest.mark.parametrize(
    ("source", "options", "told"),
    [
        ("nowhere", (), "no such file"),
        ("", (), "no run table, no experiment.json and no trained run"),
        ("runs.csv", (), "no column batch"),
        ("good.csv", ("--resamples", "9"), "--resamples: "),
        ("good.csv", ("--targets", "low"), "--targets 'low'"),
        ("good.csv", ("--training-loss",), "have only held-out losses"),
    ],
)
def test_bad_sources_and_options_are_one_line(tmp_path, capsys, source, options, told):
    (tmp_path / "runs.csv").write_text("run,step,seq_len,loss\na,1,64,2.0\n")
    (tmp_path / "good.csv").write_text("run,step,seq_len,batch,eval_loss\na,1,64,8,2.0\n")
    assert main(["report", str(tmp_path / source), *options]) == 2
    error = capsys.readouterr().err
    assert told in error and error.count("\n") == 1
    assert not list(tmp_path.glob("*.html"))
