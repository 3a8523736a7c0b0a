"""The template that a study is copied from, at a tiny size."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import bss
from experiments.template import analysis, run


@pytest.mark.slow
def test_the_template_trains_and_analyzes(tmp_path, monkeypatch):
    monkeypatch.setattr("bss.sweeps.engines.use_compilation_cache", lambda _: None)
    setup = replace(
        run.SETUP,
        model={"family": "tests.models.bigram:Bigram"},
        text=bss.TextConfig(corpus="synthetic", seq_len=32),
        schedule=bss.ScheduleConfig(tokens=8_000, warmup=500),
        evaluation=bss.EvaluationConfig(tokens=1_024, test_tokens=1_024, first=4_000),
        engine=replace(run.SETUP.engine, buckets=(2,), devices=1),
    )
    axes = {**run.AXES, "schedule.batch": [2, 8], "seed": [0, 1]}
    run.train(tmp_path, setup, axes, engine="bss.sweeps.engines:JointEngine")
    analysis.write(tmp_path)
    table = pd.read_csv(tmp_path / "table.csv")
    assert table["batch"].tolist() == [2, 8] and table["n"].tolist() == [2, 2]
    assert np.isfinite(table[["mean", "low", "high"]].to_numpy()).all()
    assert (table["mean"] != 0).all() and (tmp_path / "figure.png").exists()
