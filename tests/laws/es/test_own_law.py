"""A law in a file of a user's own goes wherever a registered one goes."""

import json
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from bss.cli import main
from bss.errors import InputError
from bss.laws import EsFit, fit_es
from bss.laws.base import Options
from bss.laws.es import LAWS
from bss.laws.es.compare import compare
from bss.registry import load
from bss.report import write_report

FILE = '''
"""log E is a parabola in log B."""

from typing import NamedTuple

import jax.numpy as jnp

from bss.laws.es.law import PerTarget


class Parameters(NamedTuple):
    E_min: float
    B_opt: float
    width: float


class Parabola(PerTarget):
    formula = "log(E/E_min) = (log(B/B_opt)/width)^2"
    parameters = Parameters
    units = ((1, 0), (0, 1), (0, 0))
    batches = ("B_opt",)
    least = 4
    starts = ((0.0, 0.0, 0.5), (0.0, -1.0, 1.0), (0.0, 1.0, 1.0))
    lower, upper = (-3.0, -4.0, -2.0), (3.0, 4.0, 3.0)

    def sequences(self, p, batch, target=None):
        return p.E_min * jnp.exp((jnp.log(batch / p.B_opt) / p.width) ** 2)

    def quantities(self, p, target=None):
        return {"E_min": p.E_min, "S_opt": p.E_min / p.B_opt, "B_opt": p.B_opt}


LAW = Parabola("parabola")
'''
BATCHES, TARGETS, QUICK = (1, 2, 4, 8, 16, 32), (1.9, 1.8, 1.7), Options(8)


def truth(batch, loss):
    """E in sequences, and B_opt: both rise as the loss falls."""
    E_min, B_opt = 2e4 * (loss - 1) ** -3.0, 4 * (loss - 1) ** -1.5
    return E_min * np.exp((np.log(batch / B_opt) / 2.5) ** 2), B_opt


@pytest.fixture
def own_law(tmp_path, monkeypatch):
    """A module in the working directory, as a user has it."""
    (tmp_path / "parabola_law.py").write_text(FILE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield load("parabola_law:LAW", "law")
    LAWS.loaded.clear()
    sys.modules.pop("parabola_law")


@pytest.fixture
def points(planted):
    return planted.points(lambda b, loss: truth(b, loss)[0], batches=BATCHES, targets=TARGETS)


@pytest.mark.slow
def test_it_is_fitted_compared_and_read_back(own_law, points):
    assert len(FILE.splitlines()) <= 40
    fit = fit_es(points, own_law, options=QUICK)
    for at in fit.fits:
        assert at.status == "converged"
        assert at.batches["B_opt"].value == pytest.approx(truth(1, at.target_loss)[1], rel=0.05)
        assert (at.S_min, set(at.intervals)) == (None, {"E_min", "S_opt"})
    assert compare(points, ["hyperbola", "surface", own_law]).winner == "parabola"
    entry = json.loads(json.dumps(fit.to_dict()))
    assert entry["law"] == "parabola_law:LAW"
    assert EsFit.from_dict(entry) == fit
    with pytest.raises(InputError, match="'parabola' is unknown"):
        EsFit.from_dict(entry | {"law": "parabola"})


@pytest.mark.slow
def test_the_command_line_fits_it_derives_a_schedule_and_reports(own_law, tmp_path, capsys):
    rows = [
        {"run": f"b{batch}", "batch": batch, "seq_len": 64, "loss": loss,
         "step": round(truth(batch, loss)[0] / batch)}
        for batch in BATCHES for loss in np.linspace(2.3, 1.6, 80)
    ]  # fmt: skip
    pd.DataFrame(rows).to_csv("runs.csv", index=False)
    pd.DataFrame(rows).to_parquet("runs.parquet")
    measure = ["runs.csv", "--targets", "1.9,1.8,1.7"]
    command = ["fit", "es", *measure, "--law", "parabola_law:LAW", "--json"]
    assert main([*command, "--resamples", "50", "--plot", "law.svg"]) == 0
    told = capsys.readouterr().out
    fit, comparison = json.loads(told), json.loads(told)["comparison"]
    assert comparison["winner"] == "parabola"
    Path("fit.json").write_text(told)
    assert main(["schedule", "--from", "fit.json", "--tokens", "20M", "--json"]) == 0
    schedule = json.loads(capsys.readouterr().out)
    assert (schedule["law"], schedule["batch"].startswith("0:")) == ("parabola", True)
    assert main(["points", *measure, "--json"]) == 0
    results = tmp_path / "results"
    results.mkdir()
    pd.DataFrame(json.loads(capsys.readouterr().out)["points"]).to_csv(results / "points.csv")
    run = dict.fromkeys(("title", "command", "commit", "date", "device"), "own") | {
        "cores": 1, "seconds": 1, "trained_tokens": 1, "evaluated_tokens": 1, "versions": {},
        "config": {},
    }  # fmt: skip
    files = {"experiment": run, "comparison": comparison, "fits": {"parabola": fit}}
    for name, value in files.items():
        (results / f"{name}.json").write_text(json.dumps(value))
    write_report(results, tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    assert "parabola" in page
    B_opt = next(one["B_opt"] for one in fit["fits"] if one["target_loss"] == 1.7)
    assert "{value:.3g} sequences, 90% interval {low:.3g} to {high:.3g}".format(**B_opt) in page
