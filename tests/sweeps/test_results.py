"""The record of a results directory: the last file that is written, and never ignored."""

import json
from dataclasses import dataclass

import pandas as pd
import pytest

from bss.errors import InputError
from bss.sweeps.results import Results


@dataclass(frozen=True)
class Study:
    """A study with one setting."""

    results: str
    tokens: int = 1
    title: str = "a study"


@pytest.fixture
def study(tmp_path):
    return Study(str(tmp_path / "results"))


def test_the_record_is_written_after_all_tables(study, tmp_path, monkeypatch):
    files = {"finals.csv": pd.DataFrame({"x": [1]}), "fit.json": {"a": 1}}
    Results(study).write(files)
    record = tmp_path / "results" / "experiment.json"
    written = record.read_bytes()
    monkeypatch.setattr("bss.sweeps.results.write_table", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        Results(study).write(files)
    assert record.read_bytes() == written
    record.unlink()
    with pytest.raises(ZeroDivisionError):
        Results(study).write(files)
    assert not record.exists()


@pytest.mark.parametrize(
    "text", ["", '{"title": "x", "config": {"tok', "[]", "{}", '{"config": 3}', "\udcff"]
)
def test_a_damaged_record_is_refused_and_stays(study, tmp_path, text):
    file = tmp_path / "results" / "experiment.json"
    file.parent.mkdir()
    file.write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(InputError, match=r"results: .*experiment.json: .*; choose another --out"):
        Results(study, option="--out")
    assert file.read_bytes() == text.encode(errors="surrogateescape")


def test_another_study_is_refused_and_the_same_goes_on(study):
    Results(study).write({})
    Results(study)
    with pytest.raises(InputError, match="another study \\(tokens differs\\)"):
        Results(Study(study.results, tokens=2))


def test_a_record_without_a_table_is_json(study, tmp_path):
    Results(study).write({}, conclusions=["none"])
    record = json.loads((tmp_path / "results" / "experiment.json").read_text())
    assert record["conclusions"] == ["none"] and record["config"]["tokens"] == 1
