"""Coverage and bias of a fitted L_0: planted tables, and the whole experiment, small."""

import json
import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from bss.data.synthetic import entropy
from bss.laws import EsFit
from bss.laws.base import Estimate
from bss.laws.es import LAWS
from bss.models.sizes import named
from bss.schedules.config import ScheduleConfig
from bss.training.batches import SYNTHETIC
from bss.training.run_config import DataConfig, RunConfig
from bss.values import from_dict
from configs.irreducible_loss import get_config
from experiments.irreducible_loss.analysis import SURFACES, estimate_row, summarize
from experiments.irreducible_loss.run import (
    Study,
    constant_runs,
    corrected,
    experiment,
    held_out_surprise,
    language_of,
    reference_runs,
)

TRUTH, REACHED, HALF = 1.5, 1.52, 0.02


def planted(law: str, values: list[float]) -> list[dict]:
    """Rows of fits whose L_0 are `values`, each with an interval of ± HALF."""
    rows = []
    for seed, value in enumerate(values):
        interval = Estimate(value, value - HALF, value + HALF)
        fit = EsFit(LAWS["surface"], 32, (), joint_intervals={"L_0": interval})
        fit = replace(fit, rows={"relative_loss": (0.003, -0.004)})
        rows.append(estimate_row(seed, law, fit, TRUTH, REACHED))
    return rows


@pytest.fixture(scope="module")
def study() -> Study:
    return from_dict(Study, json.loads(get_config("smoke").to_json_best_effort()))


def test_coverage_and_bias_are_counted_over_seeds():
    rows = planted("low", [1.40, 1.44, 1.485]) + planted("high", [1.519, 1.530, 1.541])
    low, high = summarize(pd.DataFrame(rows)).to_dict("records")
    assert (low["law"], low["covered"], low["covered_reached"], low["seeds"]) == ("low", 1, 0, 3)
    assert low["bias"] == pytest.approx(-0.175 / 3)
    assert low["bias_to_reached"] == pytest.approx(-0.175 / 3 - 0.02)
    assert low["standard_error"] == pytest.approx(np.std([0.1, 0.06, 0.015], ddof=1) / 3**0.5)
    assert low["rms_relative_residual"] == pytest.approx(math.sqrt(12.5e-6))
    assert (high["covered"], high["covered_reached"]) == (1, 2)
    assert high["bias_to_reached"] == pytest.approx(0.01)
    assert high["median_width"] == pytest.approx(2 * HALF)


def test_what_the_held_out_tokens_are_harder_than_the_language_is_known():
    data = DataConfig(SYNTHETIC, content=SYNTHETIC, seq_len=8)
    run = RunConfig(named("pico", 8), data)
    run = replace(run, evaluation=replace(run.evaluation, tokens=32_768))
    truth = entropy(language_of(run), sequences=2048)
    luck = held_out_surprise(run) - truth.nats
    assert 0 < abs(luck) < 0.03  # a surprise has a deviation near 1 nat: 0.006 for 32k tokens
    losses = pd.DataFrame({"eval_loss": [truth.nats + luck]})
    assert corrected(losses, luck)["eval_loss"].iloc[0] == pytest.approx(truth.nats)


def test_batches_of_a_seed_share_their_data_and_references_are_longer(study):
    base = RunConfig(named("pico", 16), schedule=ScheduleConfig(tokens=700_000, warmup=10_000))
    trunks, references = constant_runs(study, base), reference_runs(study, base)
    assert len(trunks) == len(study.seeds) * len(study.batches)
    assert len(references) == study.references
    assert all(run.seed == run.data.seed for run in trunks + references)
    assert {run.schedule.tokens for run in references} == {study.reference_tokens}
    assert not any(run.depends_on_stop for run in trunks)


@pytest.mark.slow
def test_every_law_is_judged_from_runs(study, tmp_path):
    setup = replace(
        study.setup,
        schedule=replace(study.setup.schedule, tokens=100_000, warmup=5_000),
        evaluation=replace(study.setup.evaluation, tokens=2_048, first=8_000),
        engine=replace(study.setup.engine, runs=str(tmp_path / "runs"), buckets=(4,)),
    )
    small = replace(
        study,
        setup=setup,
        seeds=(0, 1),
        batches=(4, 8, 16),
        targets=4,
        target_warmup=10_000,
        reference_tokens=150_000,
        reference_batch=32,
        references=1,
        entropy_sequences=1024,
        resamples=20,
        results=str(tmp_path / "results"),
    )
    experiment(small)
    estimates = pd.read_csv(tmp_path / "results/irreducible.csv")
    assert set(zip(estimates["seed"], estimates["law"], strict=True)) == {
        (seed, law) for seed in (0, 1) for law in SURFACES
    }
    assert np.all(estimates["low"].to_numpy(float) <= estimates["high"].to_numpy(float))
    record = json.loads((tmp_path / "results/experiment.json").read_text())
    assert record["L_0"] < record["model_reached"] < math.log(16)
