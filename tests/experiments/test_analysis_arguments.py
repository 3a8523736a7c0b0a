"""Every analysis takes the directory of its tables, as docs/experiments.md says."""

import shutil
import sys
from importlib import import_module
from pathlib import Path

import pandas as pd
import pytest

from experiments.tables import Tables

RESULTS = Path(__file__).parents[2] / "results"
NAMES = ("es_wsd", "late_switch", "ladder", "critical_batch")


@pytest.mark.parametrize("name", NAMES)
def test_a_directory_that_is_not_there_is_one_line(name, monkeypatch, capsys):
    module = import_module(f"experiments.{name}.analysis")
    monkeypatch.setattr(sys, "argv", ["analysis", "no/such"])
    run = getattr(module, "main", None) or (lambda: module.analyze("", module.write))
    with pytest.raises(SystemExit) as ended:
        run()
    assert ended.value.code == 2 and "no/such" in capsys.readouterr().err.splitlines()[-1]


def test_the_tables_of_another_directory_are_analysed(tmp_path, monkeypatch):
    from experiments.late_switch import analysis

    part = tmp_path / "results/b1c"
    part.mkdir(parents=True)
    shutil.copy(RESULTS / "late_switch/b1c/finals.csv", part)
    for name in ("RESULTS", "TABLES"):
        monkeypatch.setattr(analysis, name, getattr(analysis, name))
    monkeypatch.setattr(analysis, "write_findings", lambda tables, *_, **__: seen.append(tables))
    seen: list[Tables] = []
    analysis.main([str(part.parent)])
    assert seen == [Tables(part.parent)] and (part / "differences.csv").is_file()
    analysis.main([str(part)])  # a part alone, as the smoke size leaves it
    kept = pd.read_csv(RESULTS / "late_switch/b1c/differences.csv")
    assert len(pd.read_csv(part / "differences.csv")) == len(kept)


def test_the_committed_folder_is_analysed_whole_and_not_as_one_part(monkeypatch):
    """results/es_wsd has runs.parquet of an earlier study beside the folders of parts."""
    from experiments.es_wsd import analysis

    seen: list[Tables] = []
    monkeypatch.setattr(analysis, "measure_part", lambda tables: pytest.fail(str(tables)))
    monkeypatch.setattr(analysis, "write_findings", lambda tables, *_, **__: seen.append(tables))
    monkeypatch.setattr(sys, "argv", ["analysis", "--answers", str(RESULTS / "es_wsd")])
    for name in ("RESULTS", "TABLES"):
        monkeypatch.setattr(analysis, name, getattr(analysis, name))
    analysis.main()
    assert seen == [Tables(RESULTS / "es_wsd")]
