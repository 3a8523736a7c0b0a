"""What decides the large batch: the parts end to end."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd
import pytest

from bss.errors import InputError
from bss.sweeps.setup import planned_run
from bss.values import from_dict
from configs.momentum import SIZES, get_config
from experiments.momentum import figures
from experiments.momentum.__main__ import choose, experiment, judged
from experiments.momentum.cuts import equal_cut, equal_cuts
from experiments.momentum.ended import BATCHES, Ended
from experiments.momentum.study import Study
from experiments.momentum.tables import kept
from experiments.preregister import check_first

RESULTS = Path(__file__).parents[2] / "results"


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


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"choosing": ()}, "has several rates; give seeds"),
        ({"choosing": (0, 5)}, r"seeds \[5\]: choose and are judged"),
        ({"arms": ()}, "arms are"),
    ],
)
def test_what_cannot_be_asked_is_refused(changes, says):
    with pytest.raises(InputError, match=says):
        replace(study_of("grid"), **changes)
    with pytest.raises(InputError, match="leaves batch 4, which is no arm"):
        replace(study_of("late"), arms=study_of("late").arms[:1])


@pytest.mark.slow
def test_the_smoke_size_end_to_end(tmp_path, moved):
    experiment(moved(study_of("smoke")))
    finals = pd.read_csv(tmp_path / "results/finals.csv")
    counts = finals.groupby(["seed", "ending"]).size().to_dict()
    # Of a seed that is judged four arms and a fork, at constant rate and decayed.
    assert counts == {(0, "decay"): 8, (5, "constant"): 5, (5, "decay"): 5,
                      (6, "constant"): 5, (6, "decay"): 5}  # fmt: skip
    tried = finals[finals["seed"] == 0]
    best = tried.loc[tried.groupby(["batch", "beta1"])["eval_loss"].idxmin()]
    judged = finals[(finals["seed"] == 5) & finals["batch"].isin(["2", "4"])]
    assert len(judged.merge(best, on=["batch", "beta1", "peak_lr"])) == len(judged) == 8


def test_the_cut_that_a_batch_change_equals_on_planted_curves():
    def curve(seed, batch, rate, beta1, stop, loss):
        tokens = [700_000, 1_000_000, stop] if stop > 1_000_000 else [700_000, 1_000_000]
        losses = [2.0, loss, loss - 0.1][: len(tokens)]
        told = {"seed": seed, "schedule.batch": batch, "peak_lr": rate, "optimizer.beta1": beta1}
        columns = {"tokens": tokens, "eval_loss": losses}
        return pd.DataFrame(columns).assign(**told, **{"optimizer.beta2": 0.95})

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


def test_a_cut_beyond_those_tried_is_drawn_on_and_one_the_other_way_is_none():
    assert equal_cut([2.0, 1.9, 1.8], 1.7) == pytest.approx(8)
    assert math.isnan(equal_cut([2.0, 1.9, 1.8], 2.1))
    assert equal_cut([2.0, 1.9, 1.95], 1.93) == pytest.approx(2**0.7)


def test_the_rates_that_were_chosen_are_read_from_the_results():
    study, unused = study_of("long"), cast(Any, None)
    rates = {(arm.batch, arm.beta1): rate for arm, rate in choose(study, unused, unused).items()}
    tried = Ended.read(study.chosen).tried.to_dict()
    for (batch, beta1), rate in rates.items():
        assert rate == min((4e-3, 8e-3), key=lambda rate: tried[str(batch), beta1, rate])
    assert set(rates.values()) == {4e-3, 8e-3}


def test_rows_of_runs_trained_elsewhere_stay(tmp_path):
    new = pd.DataFrame({"run": ["b", "c"], "test_loss": [2.5, 3.0]})
    assert kept(new, tmp_path / "finals.csv") is new
    pd.DataFrame({"run": ["a", "b"], "test_loss": [1.0, 2.0]}).to_csv(
        tmp_path / "finals.csv", index=False
    )
    both = kept(new, tmp_path / "finals.csv")
    assert [*zip(both["run"], both["test_loss"], strict=True)] == [
        ("a", 1.0),
        ("b", 2.5),
        ("c", 3.0),
    ]


def test_the_figures_read_the_committed_tables():
    finals = Ended.read("results/momentum/finals.csv").finals
    curves = pd.read_parquet("results/momentum/curves.parquet")
    cuts = equal_cuts(figures.part_cuts(curves))
    assert cuts.groupby(["beta1", "beta2"])["seed"].nunique().tolist() == [8, 8, 8]
    table = figures.cuts_table(cuts)
    assert table.index.tolist() == [
        f"batch × 4, {x}" for x in ("per step", "beta1 per token", "per token")
    ]
    first = [float(text.split()[0]) for text in table["at equal tokens"]]
    logs = np.log(cuts.groupby(["beta1", "beta2"])["at_tokens"].apply(list).tolist()).mean(axis=1)
    assert first == pytest.approx(np.exp(logs)[::-1], abs=0.006)
    own = figures.chosen(finals).loc[lambda x: x["own"]].set_index("batch")["beta1"]
    ended = Ended(finals)
    assert [own[batch] for batch in BATCHES] == [ended.own(batch) for batch in BATCHES]
    at = figures.judged_losses(finals)[2_000_000]
    steps = figures.steps_figure(finals).axes[0]
    gains = [float(y) for line in cast(Any, steps.containers) for y in line.lines[0].get_ydata()]
    assert min(abs(g - (at.loc[(32, 0.7)] - at.loc[(32, 0.9)]).mean()) for g in gains) < 1e-9
    left, right = figures.batches_figure(finals, curves).axes
    assert {len(bars.lines[0].get_xdata()) for bars in cast(Any, left.containers)} == {6}
    assert "2.1" in right.get_title(loc="right")
    assert len(figures.growing_figure(finals).axes) == 2
    assert len(figures.cuts_figure(curves, cuts).axes[0].lines) == 6
