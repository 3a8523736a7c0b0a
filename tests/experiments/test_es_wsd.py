"""E(S) under WSD without training: what is refused, who competes, how horizons are told."""

import json

import pandas as pd
import pytest

from bss.laws import EsFit
from bss.laws.es import LAWS
from bss.schedules.batch import BatchSchedule
from bss.sweeps.contenders import (
    constant_contenders,
    growing_contenders,
    late_contenders,
)
from bss.sweeps.grid import overlay
from bss.sweeps.setup import planned_run
from bss.sweeps.table import finals
from bss.training.record.status import RunStatus
from bss.values import from_dict
from configs.es_wsd import get_config
from experiments.es_wsd_archive import measure
from experiments.es_wsd.__main__ import experiment, trunk_overlays
from experiments.es_wsd.study import Study

STUDY = from_dict(Study, json.loads(get_config("cpu").to_json()))
BASE = planned_run(STUDY.setup)
COMMON = (BASE, STUDY.rates, STUDY.seeds)


def test_every_batch_is_tried_at_the_shared_rate_too():
    rates = {}
    for changes in trunk_overlays(STUDY):
        rates.setdefault(changes["schedule.batch"], set()).add(changes["optimizer.lr"])
    assert all(STUDY.shared_rate in tried for tried in rates.values())
    assert len(rates["1"]) == 4
    assert len(trunk_overlays(STUDY)) == 3 * 22


def test_every_contender_has_three_rates_and_all_seeds():
    growing = BatchSchedule.parse("0:1 200K:2 400K:8")
    late = BatchSchedule.late_switch(4, 32, 700_000)
    found = [
        *constant_contenders(*COMMON, [growing, late]),
        *growing_contenders(*COMMON, "growing", growing, ("none", "sqrt")),
        *late_contenders(*COMMON, late, ("none", "sqrt")),
    ]
    table = pd.DataFrame(
        [(c.name, c.role, c.run.optimizer.lr, c.run.seed, c.run.id) for c in found],
        columns=["name", "role", "ending", "seed", "run"],
    )
    assert set(table.groupby("name").size()) == {9}
    assert set(table.groupby("name")["ending"].nunique()) == {3}
    assert table["run"].is_unique
    roles = dict(zip(table["name"], table["role"], strict=True))
    # 1M tokens in 200K/1 + 200K/2 + 600K/8 units are 2.67, and in 700K/4 + 300K/32 5.42.
    assert [name for name, role in roles.items() if role == "average"] == [
        "constant 3",
        "constant 5",
    ]
    assert {"growing, LR × sqrt", "late 4 → 32", "late 4 → 32, LR × sqrt"} < set(roles)


def test_a_late_switch_branches_from_the_trunk_of_its_first_batch():
    late = BatchSchedule.late_switch(4, 32, 700_000)
    trunks = {overlay(BASE, change).id for change in trunk_overlays(STUDY)}
    for contender in late_contenders(*COMMON, late):
        parent = contender.run.parent
        assert parent is not None
        assert parent.run in trunks
        assert 700_000 <= parent.tokens < 700_000 + 4 * 64
        assert str(contender.run.schedule.batch) == "0:4 700K:32"


def test_horizons_keep_the_best_rate_of_a_batch_and_pair_its_seeds(monkeypatch):
    losses = {(4, 1e-3): 1.60, (4, 2e-3): 1.50, (8, 1e-3): 1.58, (8, 2e-3): 1.52}
    runs, statuses = [], {}
    for (batch, lr), loss in losses.items():
        for seed in (0, 1):
            change = {"schedule.batch": str(batch), "optimizer.lr": lr, "seed": seed}
            runs.append(overlay(BASE, change))
            ended = {"eval_loss": loss + 0.1 * seed, "test_loss": loss + 0.3 * seed + 0.01}
            statuses[runs[-1].id] = RunStatus("finished", losses=ended)
    monkeypatch.setattr(measure, "predicted_loss", lambda law, tokens, batch: -batch)
    law = EsFit(LAWS["surface"], 64, ())
    table = measure.horizon_table(finals(runs, statuses), law)
    assert list(table["batch"]) == [4, 8]
    assert list(table["peak_lr"]) == [2e-3, 2e-3]
    assert list(table["trials"]) == [2, 2]
    assert list(table["best"]) == [True, False]
    assert list(table["law_best"]) == [False, True]
    assert table["excess"].to_list() == pytest.approx([0, 0.02])
    assert table["excess_error"].to_list() == pytest.approx([0, 0])


def test_the_papers_size_prints_its_price_and_trains_nothing(capsys):
    experiment(from_dict(Study, json.loads(get_config("paper").to_json()) | {"dry_run": True}))
    lines = capsys.readouterr().out.splitlines()
    costs = {line.split()[0]: float(line.split()[1]) for line in lines}
    assert costs["all"] == pytest.approx(sum(costs.values()) / 2, rel=0.01)
    assert 1e20 < costs["trunks"] < 1e22
