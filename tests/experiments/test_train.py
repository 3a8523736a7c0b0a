"""One run as a user trains it: what it writes, and that an interrupted one continues."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd

from bss.plots.curves import run_figure

ROOT = Path(__file__).parents[2]


def start(folder: Path) -> subprocess.Popen[str]:
    command = [
        *(sys.executable, "-m", "experiments.train", "--config=configs/train.py:pico"),
        *("--config.schedule.batch=0:8 10K:16", "--config.schedule.tokens=100000"),
        *("--config.text.corpus=synthetic", "--config.text.seq_len=32"),
        *("--config.evaluation.tokens=2048", "--config.averages=('4%',)"),
        *(f"--config.runs={folder}/runs", f"--config.results={folder}/results"),
    ]
    return subprocess.Popen(
        command,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_an_interrupted_run_continues_and_writes_its_curve(tmp_path):
    process = start(tmp_path)
    while process.poll() is None and not list(tmp_path.glob("runs/*/curve.jsonl")):
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=300)
    assert process.returncode == 130, told
    assert "every run is saved" in told

    process = start(tmp_path)
    printed, told = process.communicate(timeout=300)
    assert process.returncode == 0, told
    results = tmp_path / "results"
    assert printed.strip() == f"curve: {results / 'curve.png'}"
    record = json.loads((results / "experiment.json").read_text())
    assert record["config"]["schedule"]["batch"] == "0:8 10K:16"
    (status,) = tmp_path.glob("runs/*/status.json")
    assert (status.parent.name, json.loads(status.read_text())["status"]) == (
        record["run"],
        "finished",
    )
    curve = pd.read_parquet(results / "runs.parquet")
    assert list(curve["batch"].unique()) == [8, 16]
    assert curve["eval_loss"].iloc[-1] < curve["eval_loss"].iloc[0]

    top, bottom = run_figure(curve).axes
    assert [np.size(line.get_xdata()) for line in top.lines] == [len(curve)] * 3
    assert np.array_equal(bottom.lines[0].get_ydata(), curve["batch"])
