"""The least-squares experiment: one row per task and procedure, the record, the figure."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from bss.theory.critical import critical_batches
from bss.theory.least_squares import LeastSquares
from bss.values import from_dict
from configs.critical_theory import get_config
from experiments.critical_theory.run import Study, experiment
from tests.drawn import points, texts


@pytest.fixture(scope="module")
def study() -> Study:
    full = from_dict(Study, json.loads(get_config("smoke").to_json_best_effort()))
    return replace(full, tasks=full.tasks[:2], procedures=full.procedures[::4])


@pytest.fixture(scope="module")
def results(study, tmp_path_factory, saved):
    folder = tmp_path_factory.mktemp("results")
    experiment(replace(study, results=str(folder)))
    return folder


@pytest.mark.slow
def test_tables_hold_every_task_with_every_procedure(study, results):
    table, points = (pd.read_csv(results / f"{name}.csv") for name in ("exponents", "points"))
    assert table["overhead"].tolist() == [0.2, 0.2, 0.5, 0.5]
    assert table["theory"].tolist() == pytest.approx([0.4, 0.625] * 2)
    assert len(points) == 4 * 4
    task = LeastSquares(1.5, 4.5, study.modes)
    found = critical_batches(task, [2**power for power in range(8, 12)], study.procedures[1])
    assert table["exponent"].iloc[3] == pytest.approx(found.exponent)
    np.testing.assert_allclose(points["cbs"].iloc[-4:], [point.cbs for point in found.points])


@pytest.mark.slow
def test_the_figure_and_the_record_are_written(results, saved):
    figure = saved["least_squares.png"]
    assert points(figure) == [2 * 4 + 2 * 4] and (results / "least_squares.png").exists()
    assert any(text.startswith("a = 1.5, b = 4.5: ") for text in texts(figure))
    record = json.loads((results / "experiment.json").read_text())
    assert record["trained_tokens"] == 0
    assert len(record["config"]["procedures"]) == 2
