"""Experiments end to end at their smoke size, as a person runs them."""

import json
import signal
import subprocess
import sys
import warnings
from pathlib import Path

import pandas as pd
import pytest
from absl.testing import flagsaver

from bss.stats import phases_of
from experiments.es_curve.run import Study, experiment
from experiments.main import run_experiment

ROOT = Path(__file__).parents[2]
loading = pytest.mark.filterwarnings("ignore:the load_module:DeprecationWarning")  # ml_collections


@pytest.fixture
def command(tmp_path, corpora):
    """An experiment's command at its smoke size, in a folder of the test's own."""

    def smoke(name: str, *more: str) -> list[str]:
        return [
            *("-m", f"experiments.{name}", f"--config=configs/{name}.py:smoke"),
            f"--config.results={tmp_path}/results",
            f"--config.setup.engine.runs={tmp_path}/runs",
            f"--config.setup.text.root={corpora}",
            *more,
        ]

    return smoke


@pytest.fixture
def run(command):
    """Runs an experiment as a process."""

    def process(*of: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, *command(*of)], cwd=ROOT, capture_output=True, text=True, check=False
        )

    return process


@pytest.fixture
def es_curve(command, monkeypatch, capsys):
    """Runs E(S) in this process: its status, and what it wrote to stdout and stderr."""
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    monkeypatch.setattr("bss.sweeps.engines.use_compilation_cache", lambda _: None)
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)  # put back afterwards

    def ended(*more: str, config: Path | None = None) -> tuple[int | str | None, str, str]:
        own = ["-m", "experiments.es_curve", f"--config={config}"]
        monkeypatch.setattr(sys, "argv", (own if config else command("es_curve", *more))[1:])
        with flagsaver.flagsaver(), pytest.raises(SystemExit) as left:
            run_experiment(Study, experiment)
        return left.value.code, *capsys.readouterr()

    return ended


SHORT = (
    *(
        "--config.setup.schedule.tokens=40000",
        "--config.setup.evaluation.first=8000",
        "--config.setup.evaluation.per_efold=10",
    ),
    *("--config.setup.engine.buckets=(1,2)", "--config.setup.engine.devices=1"),
    "--config.resamples=5",
    "--config.setup.optimizer.lr=0.03",
    '--config.setup.model={"family": "tests.models.bigram:Bigram"}',
    "--config.engine=bss.sweeps.engines:JointEngine",
)


@pytest.mark.slow
@loading
def test_es_curve_trains_measures_fits_schedules_and_reports(es_curve, tmp_path):
    status, printed, told = es_curve(*SHORT)
    assert status is None, told
    report = tmp_path / "report.html"
    assert printed.strip() == f"report: {report}"
    assert "<svg" in report.read_text()

    contenders = pd.read_csv(tmp_path / "results/contenders.csv")
    assert set(phases_of(contenders)) == {"constant", "averaged", "decayed"}
    assert {"constant", "schedule", "late"} <= set(contenders["role"])
    assert all(1 < loss < 5 for loss in contenders["test_loss"])
    record = json.loads((tmp_path / "results/experiment.json").read_text())
    assert record["trained_tokens"] < 600_000
    assert "--config=configs/es_curve.py:smoke" in record["command"]


# That a finished run, and an engine of finished runs, train nothing is tested by themselves.
@pytest.mark.slow
@loading
def test_es_curve_asked_again_writes_the_same(es_curve, tmp_path):
    tables = []
    for _ in range(2):
        status, _, told = es_curve(*SHORT)
        assert status is None, told
        tables.append(pd.read_csv(tmp_path / "results/contenders.csv"))
    assert tables[1].equals(tables[0])


@pytest.mark.slow
def test_late_switch_trains_a_trunk_its_switch_and_decays(run, tmp_path):
    done = run("late_switch")
    assert done.returncode == 0, done.stderr
    finals = pd.read_csv(tmp_path / "results/finals.csv")
    finals = finals.assign(phase=phases_of(finals)).set_index(["name", "phase"])
    assert {*finals.index.levels[1]} == {"constant", "averaged", "decayed"}
    assert all(1 < loss < 6 for loss in finals["test_loss"])
    trunk, late = (finals.loc[(name, "constant")] for name in ("constant 2", "x 4 at 70%"))
    assert 0 <= trunk["tokens"] - late["tokens"] < 512 and trunk["steps"] > late["steps"]
    runs = pd.read_parquet(tmp_path / "results/runs.parquet")
    curves = {name: own.set_index("tokens")["eval_loss"] for name, own in runs.groupby("name")}
    shared = [curves[name].loc[:28_000] for name in ("constant 2", "x 4 at 70%")]
    assert len(shared[0]) > 3 and shared[0].equals(shared[1])  # one trunk up to the switch


BAD = [
    ("--config=configs/es_curve.py:huge", "expected one of smoke, demo"),
    ("--config.stagess=3", "stages"),
    ("--config.batches=(0,2)", "batch"),
    ("--config.setup.text.corpus=nowhere", "nowhere"),
    ("--config.setup.text.corpus=files:none/*.txt", "'none/*.txt' matches no file"),
    ('--config.setup.model={"family": "x:Y"}', "model.family: x:Y cannot be imported"),
    ("--config.setup.schedule.tokens=1000000000", "repeat"),
    ("--config.setup.schedule.rate=cosine", "rate is cosine, which takes no decay"),
    ("--config.setup.schedule.rate=cosin", "did you mean 'cosine'?"),
]


def one_line(told: str) -> bool:
    return len([line for line in told.splitlines() if "run per batch size" not in line]) == 1


@loading
@pytest.mark.parametrize(("argument", "told"), BAD)
def test_bad_input_is_one_line(es_curve, argument, told):
    status, _, said = es_curve(argument)
    assert status == 2
    assert told in said and one_line(said)


@loading
def test_a_config_of_another_version_is_one_line(es_curve, tmp_path):
    config = tmp_path / "earlier.py"
    config.write_text(
        "from configs.es_curve import get_config as now\n\n\n"
        "def get_config():\n"
        "    config = now('smoke')\n"
        "    config.policies = ()\n"
        "    return config\n"
    )
    status, _, said = es_curve(config=config)
    assert status == 2
    assert "policies is not a field of Study" in said and one_line(said)


@pytest.mark.slow
@loading
def test_targets_that_no_run_reaches_are_one_line(es_curve):
    status, _, said = es_curve(*SHORT, "--config.setup.schedule.warmup=30000")
    assert status == 2
    assert "targets: " in said.splitlines()[-1]


@pytest.mark.slow
def test_bad_input_leaves_a_process_with_status_2(run):
    done = run("es_curve", BAD[1][0])
    assert done.returncode == 2
    assert BAD[1][1] in done.stderr and one_line(done.stderr)


@loading
@pytest.mark.parametrize(
    ("config", "differs"),
    [
        ({"title": "another"}, "title"),
        ({"setup": {"model": {"name": "pico", "num_layers": 2}}}, "setup"),
    ],
)
def test_the_results_of_another_study_are_not_overwritten(es_curve, tmp_path, config, differs):
    held = tmp_path / "results" / "experiment.json"
    held.parent.mkdir()
    held.write_text(json.dumps({"config": config}))
    status, _, said = es_curve('--config.setup.model={"name": "pico"}')
    assert status == 2
    assert f"holds another study ({differs} differs)" in said
    assert json.loads(held.read_text()) == {"config": config}
