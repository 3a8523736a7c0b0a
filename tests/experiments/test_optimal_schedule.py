"""The theory's experiment at its smoke size: tables, figures, record."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from bss.values import from_dict
from configs.optimal_schedule import get_config
from experiments.optimal_schedule.run import Study, experiment
from tests.drawn import points, texts

TABLES = (
    *("switches", "early_and_late", "catch_up", "catch_up_times", "optima", "law"),
    *("law_under_rates", "decays", "exponents"),
)
FIGURES = (
    *("switch_points", "early_and_late", "catch_up", "optimal_schedules", "exponents"),
    *("law", "law_under_rates", "decays"),
)


@pytest.fixture(scope="module")
def study() -> Study:
    return from_dict(Study, json.loads(get_config("smoke").to_json_best_effort()))


@pytest.fixture(scope="module")
def results(study, tmp_path_factory, saved):
    folder = tmp_path_factory.mktemp("results")
    experiment(replace(study, results=str(folder)))
    return folder


@pytest.mark.slow
def test_tables_figures_and_record_are_written(results, saved):
    for name in TABLES:
        numbers = pd.read_csv(results / f"{name}.csv").select_dtypes("number")
        assert np.isfinite(numbers.to_numpy()).all(), name
    for name in FIGURES:
        assert (results / f"{name}.png").exists() and min(points(saved[f"{name}.png"])) > 10, name
    assert "four stages" in texts(saved["law.png"]) and len(saved["exponents.png"].axes) == 3
    record = json.loads((results / "experiment.json").read_text())
    assert record["trained_tokens"] == 0
    assert record["config"]["hard"][0] == {"source": 0.3, "capacity": 4.0}


@pytest.mark.slow
def test_the_measured_exponents_are_those_of_the_theory(results):
    table = pd.read_csv(results / "exponents.csv")
    errors = np.abs(table["value"].to_numpy() - table["theory"].to_numpy())
    exact = table["quantity"].isin(["data after the switch", "catch-up gap"]).to_numpy()
    assert errors[~exact].max() < 0.02
    assert errors[exact].max() < 0.1  # 32 modes, small budgets
