"""What the notebook of E(S) shows, from the committed tables."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from bss.errors import InputError
from experiments.es_wsd_archive import measure
from experiments.preregister import digest
from experiments.tables import Tables

RESULTS = Path(__file__).resolve().parent.parent.parent / "results"


def test_a_bound_has_one_end():
    every = pd.read_csv(RESULTS / "es_wsd" / "points.csv")
    tuned = every.loc[(every["kind"] == "annealed") & (every["rates"] == "envelope")]
    table = measure.optimum_table(tuned)
    assert set(table["bound"]) == {"at most"}
    assert np.isnan(table["low"]).all()
    assert table["high"].tolist() == [1.0] * 5  # at most 1 sequence


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
