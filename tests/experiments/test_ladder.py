"""The ladder: its parts, what was registered, and how it is scored."""

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from bss.laws import fit_critical
from bss.laws.base import Estimate, Options
from bss.sweeps.setup import planned_run
from bss.values import from_dict
from configs.ladder import SIZES, get_config
from experiments.ladder import analysis
from experiments.ladder.run import Study, experiment
from experiments.preregister import check_first
from experiments.shared import critical_table, laws_table

RESULTS = Path("results/ladder")


def study_of(part):
    return from_dict(Study, json.loads(get_config(part).to_json_best_effort()))


@pytest.mark.parametrize("part", SIZES)
def test_every_part_prices_its_runs_without_training(part, capsys):
    experiment(replace(study_of(part), dry_run=True))
    told = capsys.readouterr()
    assert len((told.out + told.err).splitlines()) >= len(study_of(part).rungs)


def test_a_run_is_a_trunk_and_its_two_endings():
    study = study_of("es_99k")
    (rung,) = study.rungs
    base = planned_run(study.setup)
    runs = [*study.runs(base, rung, 0)]
    assert len(runs) == 3 * 7
    trunk, half = runs[:2]
    assert (trunk.schedule.tokens, half.schedule.tokens) == (990_000, 495_000)
    assert [one.parent and one.parent.run for one in runs[:3]] == [None, trunk.id, trunk.id]
    assert {one.id for one in runs} == {one.id for one in study.runs(base, rung, 0)}


def test_the_registration_is_older_than_its_runs():
    file = Path("results/predictions/ladder.json")
    parts = [RESULTS / part / "finals.csv" for part in analysis.PARTS]
    registered = pd.concat(pd.read_csv(path) for path in parts if path.is_file())
    assert len(registered) >= 42
    check_first(file, registered.assign(status="finished"))


def test_the_committed_losses_are_those_of_the_committed_runs():
    found = analysis.losses(RESULTS)
    kept = pd.read_csv(RESULTS / "losses.csv")
    pd.testing.assert_frame_equal(found, kept, check_dtype=False, rtol=1e-6)


def test_the_committed_critical_batches_are_those_of_the_committed_curves():
    fits = {"ladder": analysis.fit(RESULTS)}
    for name, table in (("critical", critical_table(fits)), ("laws", laws_table(fits))):
        kept = pd.read_csv(RESULTS / f"{name}.csv")
        kept = kept.dropna(axis=1)
        found = table.reindex(columns=kept.columns)
        pd.testing.assert_frame_equal(found, kept, check_dtype=False, rtol=1e-5)


@pytest.mark.parametrize(
    ("found", "verdict"),
    [
        (Estimate(1.2, 0.9, 3.0), "right"),
        (Estimate(3.0, 0.9, 4.0), "undecided"),
        (Estimate(5.0, 4.0, 9.0), "wrong"),
        (Estimate(None, None, 8.0), "right"),
        (Estimate(None, None, 1.5), "undecided"),
        (Estimate(None, None, 0.5), "wrong"),
        (Estimate(None, None, None), "undecided"),
    ],
)
def test_an_interval_beside_another(found, verdict):
    row = analysis.overlap("batches", "a rung", Estimate(1.0, 0.7, 2.0), found)
    assert (row["verdict"], row["measured"]) == (verdict, found.value)


def test_a_switch_at_constant_rate_is_not_decayed():
    finals = pd.read_csv(RESULTS / "mixture/finals.csv")
    found = analysis.decayed(finals, "mixture")
    assert found["schedule.decay"].tolist() == [198_000] * 6
    assert found["batch"].tolist() == ["1", "2", "4", "0:4 693K:32", "8", "16"]


def test_where_the_loss_bends():
    rows = [("1", 1.0), ("2", 0.9), ("4", 0.95), ("8", 1.05), ("0:4 1K:8", 0.1), ("8", 1.2)]
    table = pd.DataFrame(rows, columns=["batch", "test_loss"])
    assert analysis.bend(table) == pytest.approx(math.exp((math.log(4) + math.log(8)) / 2))
    assert math.isnan(analysis.bend(table.loc[table["test_loss"] < 1.0]))


def test_measured_rates_carry_over_widths_under_mup_alone():
    found: dict[str, list[float]] = {}
    for name, _, *pair in analysis.transfers(analysis.finished(RESULTS)):
        found.setdefault(name, []).append(analysis.cost(*pair))
    assert max(found["width 64 to 128, mup"]) <= analysis.COST
    assert max(found["width 64 to 128, standard"]) > 3 * analysis.COST


def planted_curves(bend, batches, tokens=2_000_000):
    """Constants of which a batch takes 1 + (B - 1)/(1 + bend) times the tokens of batch 1."""
    rows = []
    for batch in batches:
        for at in np.geomspace(20_000, tokens, 60).round():
            progress = at * (1 + bend) / (batch + bend)
            loss = 1.5 + (progress / 1e5) ** -0.3
            rows.append((f"run{batch}", at / (256 * batch), at, batch, loss))
    table = pd.DataFrame(rows, columns=["run", "step", "tokens", "batch", "eval_loss"])
    same = {"model": "2x64", "params": 98_752, "seq_len": 256, "seed": 0, "data_seed": 0}
    return table.assign(peak_lr=0.002, **same)


def test_critical_batches_are_those_of_planted_curves():
    met = analysis.steps(planted_curves(5.0, (1, 2, 4, 8, 16)))
    assert sorted(met["budget_tokens"].unique()) == [250_000, 500_000, 1_000_000]
    assert (
        met.loc[met["budget_tokens"] == 1_000_000, "reached"].tolist() == [True] * 3 + [False] * 2
    )
    fit = fit_critical(met, reference=1, options=Options(20))
    assert [at.B_crit.value for at in fit.fits] == [pytest.approx(5.0, rel=0.05)] * 3


def test_targets_that_two_batches_reach_are_left_out():
    met = analysis.steps(planted_curves(0.5, (1, 2, 4, 8)))
    assert sorted(met["budget_tokens"].unique()) == [250_000, 500_000]
