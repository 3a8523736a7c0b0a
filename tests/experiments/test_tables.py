"""Reading the tables of a results directory."""

import pandas as pd
import pytest

from bss.errors import InputError
from experiments.preregister import digest
from experiments.tables import Tables


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
