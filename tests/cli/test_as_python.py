"""A command prints what the call in Python returns."""

import json
from dataclasses import asdict

import numpy as np
import pandas as pd
import pytest

import bss
from bss import rules
from bss.files import finite
from bss.laws import fit_from_dict
from bss.models import sizes
from bss.sweeps.sweep import planned
from bss.theory import regression
from bss.training.run_directory import open_run
from tests.cli.called import printed
from tests.cli.test_report import EXPERIMENT
from tests.fits import fit_entry
from tests.laws.es.known import hyperbola_fit
from tests.test_fuzz_python import critical, losses, runs

RUNS = {
    "es": {"loss": 1.8, "batch": 8},
    "critical": {"params": 10_000},
    "loss": {"params": "350M", "tokens": "20B", "batch": 256},
    "curve": {"batch": "0:4 50%:8", "tokens": "1M", "lr": 2e-3},
}


@pytest.fixture
def saved(tmp_path):
    """Saves a fit of each kind; one of E(S) has draws."""

    def save(kind):
        whole = hyperbola_fit(batches=(2.0, 8.0, 32.0, 128.0))
        fit = whole if kind == "es" else fit_from_dict(fit_entry(kind))
        fit.save(tmp_path / f"{kind}.json")
        return fit, tmp_path / f"{kind}.json"

    return save


@pytest.mark.parametrize("kind", RUNS)
def test_predict(capsys, saved, kind):
    fit, path = saved(kind)
    options = [part for n, x in RUNS[kind].items() for part in (f"--{n.replace('_', '-')}", x)]
    told = printed(capsys, "predict", "--from", path, *options)
    found = fit.predict(**RUNS[kind]).iloc[0]
    for name in (name for name in found.index if f"{name}_low" in found.index):
        ends = [told[name][end] for end in ("value", "low", "high")]
        assert ends == pytest.approx(found[[name, f"{name}_low", f"{name}_high"]].tolist())
    assert told["outside"] == [] and found["note"] == ""


@pytest.mark.parametrize(
    ("kind", "tokens", "how"),
    [("es", "1M", {}), ("loss", "20B", {"params": "350M"}), ("curve", "1M", {})],
)
def test_schedule(capsys, saved, kind, tokens, how):
    fit, path = saved(kind)
    sets = [part for n, x in how.items() for part in ("--set", f"{n}={x}")]
    told = printed(capsys, "schedule", "--from", path, "--tokens", tokens, "--stages", 3, *sets)
    derived = fit.schedule(tokens, stages=3, **how)
    assert (told["batch"], told["policy"]) == (str(derived), derived.policy)
    assert (told["law"], told["warnings"]) == (derived.law, [*derived.warnings])


def test_advise(capsys, saved):
    command = ["advise", "--params", "350M", "--tokens", "20B", "--seq-len", 2048]
    told = printed(capsys, *command)
    assert told == json.loads(json.dumps(finite(bss.advise("350M", "20B", 2048).to_dict())))
    _, path = saved("loss")
    own = printed(capsys, *command, "--from", path)
    assert own == json.loads(
        json.dumps(finite(bss.advise("350M", "20B", 2048, fit=path).to_dict()))
    )


def test_next(capsys, saved):
    fit, path = saved("curve")
    told = printed(capsys, "next", path)
    runs = bss.next_runs(fit, fit.goal)
    assert told["runs"] == json.loads(json.dumps(finite(runs.to_dict("records"))))


@pytest.mark.parametrize("kind", ["critical", "loss"])
def test_fit(capsys, tmp_path, kind):
    table = {"critical": critical, "loss": losses}[kind]()
    table.to_csv(tmp_path / "table.csv", index=False)
    more = {"critical": {"reference": "smallest"}, "loss": {}}[kind]
    options = ["--reference-batch", "smallest"] if kind == "critical" else []
    told = printed(capsys, "fit", kind, tmp_path / "table.csv", "--resamples", 10, *options)
    function = {"critical": bss.fit_critical, "loss": bss.fit_loss}[kind]
    function(pd.read_csv(tmp_path / "table.csv"), resamples=10, **more).save(tmp_path / "own.json")
    own = json.loads((tmp_path / "own.json").read_text())
    assert told.keys() == own.keys()
    assert np.all([told[key] == own[key] for key in told if key != "warnings"])


def as_printed(value):
    return json.loads(json.dumps(finite(value), default=str))


@pytest.fixture
def table(tmp_path):
    runs().to_parquet(tmp_path / "runs.parquet")
    return tmp_path / "runs.parquet"


@pytest.mark.parametrize(
    "kind",
    # A fit of the functional law takes seconds, and its command returns what `fit es` returns.
    ["es", pytest.param("curve", marks=pytest.mark.slow)],
)
def test_fit_of_loss_curves(capsys, table, tmp_path, kind):
    options = {"es": ["--targets", "3.4,3.2", "--law", "hyperbola"], "curve": ["--clock", "sgd"]}
    how = {"es": {"targets": [3.4, 3.2], "law": "hyperbola"}, "curve": {"clock": "sgd"}}
    told = printed(capsys, "fit", kind, table, "--resamples", 10, *options[kind])
    function = {"es": bss.fit_es, "curve": bss.fit_curve}[kind]
    function(pd.read_parquet(table), resamples=10, **how[kind]).save(tmp_path / "own.json")
    own = json.loads((tmp_path / "own.json").read_text())
    assert [key for key in told if told[key] != own.get(key)] in ([], ["warnings"])


def test_points(capsys, table):
    told = printed(capsys, "points", table, "--targets", "3.4,3.2")
    measured, warnings = bss.measure_points(table, [3.4, 3.2])
    assert told["points"] == as_printed(measured.to_dict("records"))
    assert told["warnings"] == warnings


def test_plan(capsys):
    how = ["--warmup", "100K", "--decay", "20%"]
    given = ["--tokens", "10M", "--seq-len", 128, "--batch", "0:8 2M:16", "--lr", 1e-3]
    told = printed(capsys, "plan", *given, *how, "--export", "megatron")
    lr = bss.LRSchedule("wsd", peak=1e-3, warmup="100K", decay="20%")
    plan = bss.plan("0:8 2M:16", "10M", 128, lr=lr)
    own = as_printed(plan.to_dict())
    for segment, expected in zip(told.pop("segments"), own.pop("segments"), strict=True):
        assert segment == segment | expected
    assert told == told | own and told["export"] == plan.export("megatron").rstrip()


def test_import(capsys, tmp_path):
    (tmp_path / "logs").mkdir()
    for batch in (8, 16):
        rows = "\n".join(["_step,train/loss", *(f"{10 * i},{4 / i}" for i in range(1, 6)), ""])
        (tmp_path / f"logs/bs{batch}.csv").write_text(rows)
    out = tmp_path / "runs.csv"
    regex = r"bs(?P<batch>\d+)"
    command = ["import", "auto", tmp_path / "logs", "-o", out, "--seq-len", 64]
    told = printed(capsys, *command, "--run-regex", regex)
    logs = bss.import_logs(tmp_path / "logs", seq_len=64, run_regex=regex)
    assert told == as_printed({"out": str(out), **logs.report.to_dict()})
    assert pd.read_csv(out)["loss"].tolist() == logs.runs["loss"].tolist()


def test_check(capsys, tmp_path, table):
    run = runs().query("run == 'b8'")
    for name in ("one", "other"):
        run.to_csv(tmp_path / f"{name}.csv", index=False)
    told = printed(capsys, "check", tmp_path / "one.csv", tmp_path / "other.csv")
    curve = bss.check_runs(run)
    assert told["agreement"] == as_printed(asdict(bss.compare_curves(curve, curve)))


def test_rules(capsys):
    told = printed(capsys, "rules", "--params", "85M", "--tokens", "2.5B", "--seq-len", 1024)
    found = rules.answers(rules.Setting(85e6, 2.5e9, 1024), rules.RULES)
    assert told["rules"] == as_printed([answer.to_dict() for answer in found])


def test_models(capsys):
    assert printed(capsys, "models")["models"] == as_printed(sizes.table(512, None))


def test_theory(capsys):
    task = ["--source", 0.3, "--capacity", 4, "--modes", 64]
    told = printed(capsys, "theory", "risk", *task, "--data", 1024, "--batch", 4)
    shape = regression.Task(0.3, 4, modes=64)
    parts = regression.stages(bss.BatchSchedule.constant(4), 1024, 0.1)
    assert told["risk"] == pytest.approx(float(regression.final_risk(shape, parts)))


def test_runs_and_report(capsys, tmp_path, tiny_run):
    with open_run(tmp_path / "runs" / tiny_run.id) as directory:
        directory.check_config(tiny_run)
    assert printed(capsys, "runs", tmp_path / "runs")["runs"] == bss.list_runs(tmp_path / "runs")
    (tmp_path / "experiment.json").write_text(json.dumps(EXPERIMENT))
    printed(capsys, "report", tmp_path, "-o", tmp_path / "one.html")
    bss.write_report(tmp_path, tmp_path / "two.html")
    assert (tmp_path / "one.html").read_text() == (tmp_path / "two.html").read_text()


def test_sweep_is_priced(capsys, tmp_path):
    setup = {"model": "pico", "schedule": {"tokens": 100_000}}
    (tmp_path / "sweep.json").write_text(json.dumps({"setup": setup, "axes": {"seed": [0, 1]}}))
    told = printed(capsys, "sweep", tmp_path / "sweep.json", "--dry-run")
    schedule = bss.ScheduleConfig(tokens=100_000)
    found = planned(bss.Setup("pico", schedule=schedule), [bss.sweep_product({"seed": [0, 1]})])
    assert told == as_printed(asdict(bss.estimate_cost(found)))
