"""What the notebook of E(S) shows, from the committed tables."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from bss.errors import InputError
from experiments.es_ablations import analysis as ablations
from experiments.es_wsd import measure
from experiments.preregister import digest
from experiments.tables import Tables

RESULTS = Path(__file__).resolve().parent.parent.parent / "results"
CONFIG = json.loads((RESULTS / "es_ablations" / "experiment.json").read_text())["config"]


def test_a_bound_has_one_end():
    measured = measure.conditions(pd.read_csv(RESULTS / "es_wsd" / "points.csv"))
    tuned = measure.optimum_table(measured["annealed", "envelope"])
    assert set(tuned["bound"]) == {"at most"}
    assert np.isnan(tuned["low"]).all()
    assert tuned["high"].tolist() == [1.0] * 5  # at most 1 sequence
    shared = measure.optimum_table(measured["stable", "shared"])
    assert shared["bound"].tolist() == ["at most", "at most", "", "", ""]
    assert np.isfinite(shared["low"][2:]).all()


def test_the_law_that_predicts_best_comes_first():
    laws = measure.read_laws(RESULTS / "es_wsd")["stable, shared"]
    found = laws.identified
    names = [row["law"] for row in laws.comparison.table if row["law"] in found]
    assert list(found) == names and "piecewise" not in found  # which is not identified
    assert len(measure.law_optimum(found["surface"])) == 2  # at the others the valley is flat


def test_gains_are_of_the_same_change_and_of_as_many_tokens_a_step():
    table = pd.read_csv(RESULTS / "es_ablations" / "contenders.csv")
    gains = ablations.gains(table, CONFIG)
    assert set(gains["contender"]) == {"batch 4 → 32", "batch 2 → 4 → 8"}
    longer = gains.loc[gains["change"] == "sequences × 4 at the switch"]
    assert set(longer["contender"]) == {"batch 4 → 32"}  # 8 sequences four times as long
    key = (gains["change"] == "cosine") & (gains["contender"] == "batch 4 → 32")
    assert gains.loc[key, "weights"].tolist() == ["cosine"]
    assert gains.loc[key, "difference"].tolist() == pytest.approx([0.016178], abs=1e-6)


def test_optima_are_named_by_their_parameters_and_optimizers():
    names = "points", "optima", "contenders"
    points, *others = (pd.read_csv(RESULTS / "es_ablations" / f"{name}.csv") for name in names)
    varied = ablations.varied(points, *others)
    assert len(varied) == len(points)
    called = ablations.by_size(varied, CONFIG)
    assert sorted(called.values()) == [
        "12,416 parameters", "27,816 parameters", "98,688 parameters",
    ]  # fmt: skip
    assert set(ablations.optimizers(CONFIG).values()) == {"Adam", "SGD"}
    drawn = ablations.optima_of(varied, called)
    assert set(drawn) == {"stable loss", "averaged loss"}
    assert set(drawn["stable loss"]["12,416 parameters"]["bound"]) == {"at most"}


def test_runs_of_another_registration_are_refused(tmp_path):
    registration = tmp_path / "guess.json"
    registration.write_text("{}")
    rows = {"run": ["a", "b"], "registration": [digest(registration), "not recorded"]}
    pd.DataFrame(rows).to_csv(tmp_path / "outcomes.csv", index=False)
    assert len(Tables(tmp_path).registered("outcomes.csv", registration)) == 2
    registration.write_text('{"guess": 2}')
    with pytest.raises(InputError, match=r"outcomes.csv: "):
        Tables(tmp_path).registered("outcomes.csv", registration)
    with pytest.raises(InputError, match=r"absent.csv is not there"):
        Tables(tmp_path).read("absent.csv")
