"""The examples at the end of every help page: two of each, which run."""

import json
import re
import shlex
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from bss.cli import COMMANDS, main
from bss.laws import check_rates, fit_lr
from bss.laws.base import Options
from bss.values import to_dict
from tests.cli.test_sweep import CONFIG
from tests.laws.equal.test_fit import contest
from tests.laws.lr.planted import planted_sweeps
from tests.laws.own import data_law
from tests.laws.own.test_fit import planted as of_own_law
from tests.points.test_agreement import pair

ROOT = Path(__file__).parents[2]
LIGHT = {"plan", "rules", "models"}
STEPS = "model,params,seq_len,budget_tokens,target_loss,batch,steps\n" + "".join(
    f"m{n},{n}M,64,1B,2.5,{batch},{1000 * (1 + 40 * n**0.4 / batch):.1f}\n"
    for n in (10, 40, 160, 640)
    for batch in (64, 128, 256, 512, 1024, 4096)
)
ORDER = ["check", "import", "train", "sweep", "fit es", "points", "predict", "schedule"]


def examples(command, capsys, monkeypatch):
    """The lines at the end of the help page of a command."""
    monkeypatch.setenv("COLUMNS", "200")
    assert main([*command.split(), "--help"]) == 0
    heading, *lines = re.split(r"\n\s*", capsys.readouterr().out.partition("Examples:")[2].strip())
    for line in (heading, *lines):
        assert line.startswith(f"bss {command}")
        yield line.strip()


@pytest.mark.parametrize("command", COMMANDS)
def test_two_or_three_examples_end_each_help(command, capsys, monkeypatch):
    found = list(examples(command, capsys, monkeypatch))
    assert 2 <= len(found) <= 3
    for line in found if command in LIGHT else ():
        if ".json" in line:  # the slow test below has the file
            continue
        assert main(shlex.split(line)[1:]) == 0
        assert capsys.readouterr().out


@pytest.mark.slow
def test_every_example_runs(tiny_run, tiny_execution, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("bss.sweeps.engines.use_compilation_cache", lambda _: None)
    monkeypatch.setattr("signal.signal", lambda *_: None)
    job = {"run": to_dict(tiny_run), "execution": to_dict(tiny_execution)}
    Path("RUN.json").write_text(json.dumps(job))
    Path("SWEEP.json").write_text(json.dumps(CONFIG))
    Path("LOGS").mkdir()
    shutil.copy(ROOT / "tests/samples/wandb-chart.csv", "LOGS/chart.csv")
    Path("STEPS.csv").write_text(STEPS)
    shutil.copy(Path(data_law.__file__), "mylaws.py")
    monkeypatch.syspath_prepend(tmp_path)
    contest().to_csv("CONTEST.csv", index=False)
    shutil.copy(ROOT / "results/late_switch/fit.json", "CURVE.json")
    Path("TABLE.csv").write_text("run,batch,seq_len,step,lr\n" + "r,8,64,1000,2e-3\n")
    noise = pd.DataFrame({"tokens": range(10**6, 10**7, 10**6)})
    noise.assign(noise_scale=1e4 * noise["tokens"] ** 0.2).to_csv("NOISE.csv", index=False)
    branches = [
        {"fork": i * 10**6, "batch": b, "seq_len": 64, "tokens": i * 10**6 + 10**5}
        | {"loss": 3 + (b - 8) * 0.01 / i}
        for i in range(1, 9)
        for b in (8, 16)
    ]
    pd.DataFrame(branches).to_csv("BRANCHES.csv", index=False)
    rates, *_ = planted_sweeps(np.random.default_rng(0))
    published = pd.read_csv(ROOT / "results/published/steplaw_dense_best.csv").iloc[:60]
    losses = {
        "fit loss": published.assign(optimizer=["adam", "muon"] * 30, family="low"),
        "fit lr": rates.rename(columns={"lr": "peak_lr"}).assign(seq_len=2048),
        "fit own": of_own_law(),
    }
    fit_lr(check_rates(rates.assign(seq_len=2048)), options=Options(10)).save("LR.json")
    one, other, *_ = pair("equal", 0)
    one.to_json("ONE_GPU.jsonl", orient="records", lines=True)
    other.to_json("EIGHT_GPUS.jsonl", orient="records", lines=True)
    two = pd.concat([one.assign(run="b64"), other.assign(run="b64-accumulated")])
    two.to_parquet("RUNS.parquet", index=False)
    fit = f"fit es {ROOT}/results/demo/runs.parquet --targets 1.9,1.8 --resamples 10 --json"
    assert main(fit.split()) == 0
    Path("FIT.json").write_text(capsys.readouterr().out)
    for command in sorted(COMMANDS, key=lambda name: [*ORDER, name].index(name)):
        if command == "import":
            Path("RUNS.parquet").unlink()
        if command == "fit es":
            shutil.copy(ROOT / "results/demo/runs.parquet", "RUNS.parquet")
        if command in losses:
            losses[command].to_csv("LOSSES.csv", index=False)
        for line in examples(command, capsys, monkeypatch):
            if "--on h100" in line:  # needs the compiler of a GPU
                continue
            assert main(shlex.split(line)[1:]) == 0, (line, capsys.readouterr().err)
