"""What decides the large batch: the parts end to end."""

import json
from pathlib import Path
from typing import Any, cast

import pandas as pd
import pytest

from bss.errors import InputError
from bss.sweeps.setup import planned_run
from bss.values import from_dict
from configs.momentum import SIZES, get_config
from experiments.momentum.analysis import chosen, equal_cuts
from experiments.momentum.run import Study, choose, judged
from experiments.preregister import check_first


def study_of(size: str) -> Study:
    return from_dict(Study, json.loads(get_config(size).to_json_best_effort()))


def test_the_registration_is_that_of_the_first_commit():
    check_first(
        Path(study_of("grid").registration),
        pd.DataFrame(columns=["run", "status", "commit", "registration"]),
    )


@pytest.mark.parametrize("part", [part for part in SIZES if part != "smoke"])
def test_the_judged_runs_of_every_part(part):
    study = study_of(part)
    base = planned_run(study.setup)
    runs = [*judged(study, base, {arm: arm.rates[0] for arm in study.arms}, 7)]
    assert len(runs) == {"grid": 72, "late": 8, "long": 12, "cuts": 6}[part]
    assert len({run.id for run in runs}) == len(runs)
    for run in runs:
        assert (run.seed, run.data.seed) == (7, 7) and run.plan().steps
    known = {run.id: run for run in runs}
    for parent in (run.parent for run in runs if run.parent):
        assert known[parent.run].seed == 7
        assert parent.tokens >= min(study.kept)
    stops = {run.schedule.tokens for run in runs}
    assert max(stops) == (1_900_000 if part == "cuts" else study.tokens)


def test_the_cut_that_a_batch_change_equals_on_planted_curves():
    def curve(seed, batch, rate, beta1, stop, loss):
        tokens = [700_000, 1_000_000, stop] if stop > 1_000_000 else [700_000, 1_000_000]
        losses = [2.0, loss, loss - 0.1][: len(tokens)]
        own = {"seed": seed, "schedule.batch": batch, "peak_lr": rate, "optimizer.beta1": beta1}
        columns = {"tokens": tokens, "eval_loss": losses}
        return pd.DataFrame(columns).assign(**own, **{"optimizer.beta2": 0.95})

    curves = pd.concat(
        curve(seed, batch, rate, beta1, stop, loss + 0.01 * seed)
        for seed in (5, 6)
        for batch, rate, beta1, stop, loss in (
            ("4", 4e-3, 0.9, 1_000_000, 1.9),
            ("4", 2e-3, 0.9, 1_300_000, 1.8),
            ("4", 1e-3, 0.9, 1_900_000, 1.7),
            ("0:4 700160:16", 4e-3, 0.9, 1_900_000, 1.75),
            ("0:4 700160:16", 4e-3, 0.6561, 1_900_000, 1.85),
        )
    )
    rows = equal_cuts(curves).to_dict("list")
    wanted = {0.9: (2**1.5, 2**1.5), 0.6561: (2**0.5, 2**0.75)}  # at the end 1.9, 1.7 and 1.6
    assert sorted(rows["seed"]) == [5, 5, 6, 6]
    for beta1, *cuts in zip(rows["beta1"], rows["at_tokens"], rows["at_sums"], strict=True):
        assert cuts == pytest.approx(wanted[beta1])


def test_the_rates_that_were_chosen_are_read_from_the_results():
    study, unused = study_of("long"), cast(Any, None)
    rates = {(arm.batch, arm.beta1): rate for arm, rate in choose(study, unused, unused).items()}
    best = chosen(pd.read_csv(study.chosen, dtype={"batch": str}))
    for row in best.to_dict("records"):
        if (row["batch"], row["beta1"]) in rates:
            assert rates[row["batch"], row["beta1"]] == row["peak_lr"]
    assert set(rates.values()) == {4e-3, 8e-3}


def test_a_seed_that_chooses_is_not_compared():
    config = json.loads(get_config("smoke").to_json_best_effort())
    with pytest.raises(InputError, match=r"seeds: \[5\]"):
        from_dict(Study, config | {"choosing": [5]})
