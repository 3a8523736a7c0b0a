"""A command prints what the call in Python returns."""

import json

import numpy as np
import pandas as pd
import pytest

import bss
from bss.files import finite
from bss.laws import fit_from_dict
from tests.cli.called import printed
from tests.fits import fit_entry
from tests.laws.es.known import hyperbola_fit
from tests.test_fuzz_python import critical, losses

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
