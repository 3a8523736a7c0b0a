"""One run as a user trains it: what it writes, and that an interrupted one continues."""

import json
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from absl.testing import flagsaver

from bss.plots.curves import varied_curves
from experiments.main import run_experiment
from experiments.train.__main__ import Study, experiment

ROOT = Path(__file__).parents[2]


def command(folder: Path) -> list[str]:
    return [
        *(sys.executable, "-m", "experiments.train", "--config=configs/train.py:pico"),
        *("--config.schedule.batch=0:8 10K:16", "--config.schedule.tokens=20480"),
        *("--config.schedule.warmup=1000", "--config.schedule.decay=5000"),
        *("--config.text.corpus=synthetic", "--config.text.seq_len=32"),
        '--config.model={"family": "tests.models.bigram:Bigram"}',
        *("--config.evaluation.tokens=2048", "--config.evaluation.first=2000"),
        *("--config.averages=('4%',)", "--config.buckets=(8,)"),
        *(f"--config.runs={folder}/runs", f"--config.results={folder}/results"),
    ]


def start(folder: Path) -> subprocess.Popen[str]:
    """Starts the command with an evaluation at every step, which leaves time to interrupt it."""
    return subprocess.Popen(
        [*command(folder), "--config.evaluation.per_efold=200"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.fixture
def trained(tmp_path, monkeypatch, capsys):
    """The same command in this process: its folder, and what it printed."""
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)  # put back afterwards
    monkeypatch.setattr(sys, "argv", command(tmp_path)[2:])
    with flagsaver.flagsaver(), pytest.raises(SystemExit) as left:
        run_experiment(Study, experiment)
    printed, told = capsys.readouterr()
    assert left.value.code is None, told
    return tmp_path, printed


@pytest.mark.slow
def test_an_interrupted_run_continues(tmp_path):
    for attempt in range(5):  # on a busy machine a run can end before the signal reaches it
        folder = tmp_path / str(attempt)
        process = start(folder)
        while process.poll() is None and not list(folder.glob("runs/*/curve.jsonl")):
            time.sleep(0.005)
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=300)
        if process.returncode:
            break
    assert process.returncode == 130, told
    assert "every run is saved" in told

    process = start(folder)
    printed, told = process.communicate(timeout=300)
    assert process.returncode == 0, told
    check_results(folder, printed)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:the load_module:DeprecationWarning")  # ml_collections
def test_a_run_writes_its_curve(trained):
    check_results(*trained)


def check_results(folder: Path, printed: str) -> None:
    results = folder / "results"
    assert printed.strip() == f"curve: {results / 'curve.png'}"
    record = json.loads((results / "experiment.json").read_text())
    assert record["config"]["schedule"]["batch"] == "0:8 10K:16"
    (status,) = folder.glob("runs/*/status.json")
    assert (status.parent.name, json.loads(status.read_text())["status"]) == (
        record["run"],
        "finished",
    )
    curve = pd.read_parquet(results / "runs.parquet")
    assert list(curve["batch"].unique()) == [8, 16]
    assert curve["eval_loss"].iloc[-1] < curve["eval_loss"].iloc[0]

    top, bottom = varied_curves(curve).axes
    assert [np.size(line.get_xdata()) for line in top.lines] == [len(curve)]
    assert np.array_equal(bottom.lines[0].get_ydata(), curve["batch"])
