"""The examples at the end of every help: two of them, which the options take and which run."""

import json
import shlex
import shutil
from pathlib import Path

import pytest
from bss.cli.kinds import KINDS

from bss.cli import COMMANDS, main, parser
from bss.values import to_dict
from tests.cli.test_sweep import CONFIG

ROOT = Path(__file__).parents[2]
OF_KINDS = {"fit": tuple(KINDS), "theory": ("risk", "optimal", "switch", "critical")}
LIGHT = {"plan", "rules", "models"}
ELSEWHERE = {"score"}  # in a repository of its own: test_register.py
STEPS = "model,params,seq_len,budget_tokens,target_loss,batch,steps\n" + "".join(
    f"m{n},{n}M,64,1B,2.5,{batch},{1000 * (1 + 40 * n**0.4 / batch):.1f}\n"
    for n in (10, 40, 160, 640)
    for batch in (64, 128, 256, 512, 1024, 4096)
)
ORDER = ["import", "train", "sweep", "fit", "points", "predict", "schedule", "register"]


def examples(command, capsys):
    """The lines at the end of the help of a command, and of each of its kinds."""
    for kind in ("", *OF_KINDS.get(command, ())):
        words = f"{command} {kind}".split()
        with pytest.raises(SystemExit) as left:
            main([*words, "--help"])
        assert left.value.code == 0
        heading, *lines = capsys.readouterr().out.splitlines()[-3:]
        assert heading == "examples:", words
        for line in lines:
            assert shlex.split(line)[: len(words) + 1] == ["bss", *words]
            yield line.strip()


@pytest.mark.parametrize("command", COMMANDS)
def test_two_examples_end_each_help(command, capsys):
    for line in examples(command, capsys):
        options = parser(command).parse_args(shlex.split(line)[1:])
        assert options.command == command
        if command in LIGHT:
            assert main(shlex.split(line)[1:]) == 0
            assert capsys.readouterr().out


@pytest.mark.slow
def test_every_example_runs(tiny_run, tiny_execution, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("bss.sweeps.engines.use_compilation_cache", lambda _: None)
    monkeypatch.setattr("signal.signal", lambda *_: None)
    job = {"run": to_dict(tiny_run), "execution": to_dict(tiny_execution)}
    Path("CONFIG.json").write_text(json.dumps(job))
    Path("SWEEP.json").write_text(json.dumps(CONFIG))
    Path("LOGS").mkdir()
    shutil.copy(ROOT / "tests/samples/wandb-chart.csv", "LOGS/chart.csv")
    Path("STEPS.csv").write_text(STEPS)
    shutil.copy(ROOT / "results/published/steplaw_dense_best.csv", "LOSSES.csv")
    shutil.copy(ROOT / "results/late_switch/fit.json", "CURVE.json")
    Path("TABLE.csv").write_text("run,batch,seq_len,step,lr\n" + "r,8,64,1000,2e-3\n")
    fit = f"fit es {ROOT}/results/demo/runs.parquet --targets 1.9,1.8 --resamples 10 --json"
    assert main(fit.split()) == 0
    Path("FIT.json").write_text(capsys.readouterr().out)
    for command in sorted(COMMANDS, key=lambda name: [*ORDER, name].index(name)):
        if command == "fit":
            shutil.copy(ROOT / "results/demo/runs.parquet", "RUNS.parquet")
        if command not in ELSEWHERE:
            for i, line in enumerate(examples(command, capsys)):
                arguments = shlex.split(line)[1:]
                if command == "register":
                    arguments[1] = f"name{i}"
                assert main(arguments) == 0, (line, capsys.readouterr().err)
