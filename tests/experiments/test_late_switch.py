"""Late switching without training: what is refused, what branches where, how tables are made."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from bss.laws import CurveFit, fit_curve
from bss.laws.base import Options
from bss.laws.functional.forecast import schedule_losses
from bss.schedules.batch import BatchSchedule
from bss.schedules.rates import cosine, wsd
from bss.stats import Comparison
from bss.sweeps.branching import branched
from bss.sweeps.contenders import Contender, constant_contenders
from bss.sweeps.grid import overlay
from bss.sweeps.setup import planned_run
from bss.values import from_dict
from configs.late_switch import ES_NAMES, get_config
from experiments.late_switch.analysis import (
    catch_up,
    differences,
    experiment,
    exponent,
    law_switch,
    predictions,
    scores,
    switch_points,
    switches,
    with_law,
)
from experiments.late_switch.run import (
    Entry,
    Study,
    decaying,
    going_on,
    law_schedules,
    switching,
)

VALUES = json.loads(get_config("cpu").to_json())
# Without the schedules that depend on the tables of another experiment.
VALUES["schedules"] = [e for e in VALUES["schedules"] if e["name"] not in ES_NAMES]
STUDY = from_dict(Study, VALUES)
BASE = planned_run(STUDY.setup)
CONSTANTS = list(constant_contenders(BASE, STUDY.rates, STUDY.seeds))
SWITCHED = switching(STUDY, BASE, CONSTANTS)


def named(contenders: list[Contender], name: str, lr: float = 2e-3, seed: int = 0) -> Contender:
    """The one contender of a name, rate and seed."""
    (found,) = (
        c for c in contenders if (c.name, c.run.optimizer.lr, c.run.seed) == (name, lr, seed)
    )
    return found


def test_schedules_branch_from_the_last_checkpoint_that_they_share():
    trunk = named(CONSTANTS, "constant 4").run
    for name, fork in (("early", 200_000), ("middle", 504_000), ("at 85%", 800_000)):
        run = named(SWITCHED, name).run
        assert run.parent is not None
        assert run.parent.run == trunk.id
        assert fork <= run.parent.tokens < fork + 4 * 64
    assert named(SWITCHED, "last 10% of 63%").run.schedule.tokens == 630_000
    back = overlay(trunk, {"schedule.batch": "0:4 504K:32 800K:8"})
    found = branched(back, [c.run for c in [*CONSTANTS, *SWITCHED]], STUDY.fork_tokens)
    assert found.parent is not None
    assert found.parent.run == named(SWITCHED, "middle").run.id
    # Nothing of another rate, seed or first batch is shared.
    for change in ({"optimizer.lr": 3e-3}, {"seed": 9}, {"schedule.batch": "0:5 504K:32"}):
        other = overlay(back, change)
        assert branched(other, [c.run for c in CONSTANTS], STUDY.fork_tokens) == other


def test_a_decay_starts_at_its_own_run_unless_the_batch_grows_inside_it():
    found = decaying(STUDY, SWITCHED, [*CONSTANTS, *SWITCHED])
    parents = {}
    for name in ("early", "at 85%"):
        run = named(found, name).run
        assert run.schedule.decay == 200_000
        assert run.parent is not None
        assert run.parent.tokens >= 800_000
        parents[name] = run.parent.run
    assert parents["early"] == named(SWITCHED, "early").run.id
    # At 80% the last switch is still the small batch, and its own run starts there.
    assert parents["at 85%"] == named(CONSTANTS, "constant 4").run.id


def test_the_large_batch_goes_on_without_touching_its_trunk():
    study = dataclasses.replace(STUDY, continued=2.0, continued_seeds=(0,))
    (found,) = going_on(study, CONSTANTS)
    trunk = named(CONSTANTS, "constant 32").run
    assert found.run.parent is not None
    assert found.run.parent.run == trunk.id
    assert found.run.id != trunk.id
    assert found.run.schedule.tokens == 2_000_000
    assert going_on(dataclasses.replace(STUDY, continued=1.0), CONSTANTS) == []


ENGINE = dataclasses.replace(STUDY.setup.engine, buckets=(2,))
PLANTED = dataclasses.replace(
    STUDY,
    small=2,
    large=16,
    shared_rate=4e-3,
    resamples=10,
    setup=dataclasses.replace(STUDY.setup, engine=ENGINE),
    schedules=(Entry("early", "0:2 20%:16"), Entry("late", "0:2 70%:16")),
)
"""A study of the batches and the rate of the planted curves."""
GRID = np.geomspace(80_000, 1_000_000, 400)


def planted(at: int, exponent: float, offset: float = 0.0):
    """A curve; at every budget the best tokens after a switch are ∝ budget^exponent."""
    after = np.maximum(GRID - at, 1.0)
    best = 0.3 * 1e6 * (GRID / 1e6) ** exponent
    loss = 2 + offset + 0.1 * np.log(after / best) ** 2
    return pd.DataFrame({"tokens": GRID, "step": GRID / 256, "eval_loss": loss})


def run_table_of(**names):
    """The run table of curves by name and seed, at constant LR."""
    return pd.concat(
        curve.assign(name=name.replace("_", " "), seed=seed, ending="constant", peak_lr=4e-3)
        for name, seeds in names.items()
        for seed, curve in seeds.items()
    )


def test_the_exponent_of_the_best_switch_is_recovered():
    at = (100_000, 200_000, 320_000, 504_000, 700_000, 800_000)
    curves = {tokens: {s: planted(tokens, 0.7, 0.1 * s) for s in (0, 1)} for tokens in at}
    large = {s: planted(0, 0.7, 0.1 * s) for s in (0, 1)}
    small = {s: large[s].assign(eval_loss=3 + 0.1 * s) for s in (0, 1)}
    study = dataclasses.replace(PLANTED, budgets=(0.4, 0.63, 1.0))
    runs = run_table_of(constant_2=small, constant_16=large)
    table = switch_points(study, runs, curves)
    assert table["interior"].tolist() == [True] * 3
    assert table["after"].to_numpy() == pytest.approx([158_000, 217_000, 300_000], rel=0.01)
    assert table["best_measured"].tolist()[-1] == 700_000
    found = exponent(table, "measured")
    assert found["exponent"] == pytest.approx(0.7, abs=0.02)
    assert found["low"] < found["exponent"] < found["high"]
    # A small batch that is best throughout leaves nothing to fit.
    lowest = {s: large[s].assign(eval_loss=1.0) for s in (0, 1)}
    runs = run_table_of(constant_2=lowest, constant_16=large)
    study = dataclasses.replace(PLANTED, budgets=(0.4, 1.0))
    edges = switch_points(study, runs, curves)
    assert edges["interior"].tolist() == [False] * 2
    assert list(edges["best_measured"]) == [400_000, 1_000_000]
    found = exponent(edges, "measured")
    assert found["exponent"] is None
    assert "0 points" in found["note"]


def test_catch_up_at_equal_tokens_and_at_equal_steps():
    tokens = np.array([100.0, 200.0, 300.0, 400.0])

    def curve(losses, steps):
        return pd.DataFrame({"tokens": tokens, "step": steps, "eval_loss": losses})

    small = {s: curve([4.0, 3.5, 3.3, 3.2], [10.0, 20.0, 30.0, 40.0]) for s in (0, 1)}
    early = {s: curve([4.0, 3.1, 2.9, 2.8], [10.0, 15.0, 20.0, 25.0]) for s in (0, 1)}
    late = {s: curve([4.0, 3.5, 3.0, 2.8 + s / 10], [10.0, 20.0, 25.0, 30.0]) for s in (0, 1)}
    large = {s: curve([5.0, 4.0, 3.5, 3.0], [5.0, 10.0, 15.0, 20.0]) for s in (0, 1)}
    longer = {0: large[0]}
    runs = run_table_of(constant_2=small, constant_16=large, constant_16_continued=longer)
    table = catch_up(PLANTED, runs, {100: early, 200: late})
    rows = table.loc[table["switch"] == 200]
    assert list(rows["after_tokens"]) == [0, 100, 200]
    assert rows["to_small"].to_numpy() == pytest.approx([0.0, -0.3, -0.35])
    assert rows["to_small_error"].iloc[-1] == pytest.approx(0.1)
    assert rows["to_earliest"].to_numpy() == pytest.approx([0.4, 0.1, 0.05])
    assert rows["to_large"].to_numpy() == pytest.approx([-0.5, -0.5, -0.15])
    # 20 steps of the large batch were taken, 25 were not.
    at_steps = rows["to_large_at_steps"].to_numpy()
    assert at_steps[0] == pytest.approx(0.5)
    assert np.isnan(at_steps[1:]).all()


def test_differences_are_paired_by_seed():
    rows = [
        (name, "decay", seed, loss + seed, 2e-3)
        for name, losses in {"late": (1.6, 1.6, 1.6), "constant 4": (1.5, 1.52, 1.51)}.items()
        for seed, loss in enumerate(losses)
    ]
    table = pd.DataFrame(rows, columns=["name", "ending", "seed", "test_loss", "peak_lr"])
    found = differences(Comparison(table), ["late", "absent"]).to_dict("records")
    assert [(row["name"], row["against"]) for row in found] == [("late", "constant 4")]
    assert found[0]["difference"] == pytest.approx(0.09)
    assert found[0]["error"] == pytest.approx(2 * 0.01 / np.sqrt(3))
    assert found[0]["p_adjusted"] == pytest.approx(0.00409, abs=1e-5)


def test_the_best_switch_of_the_law_is_lower_than_its_neighbours(planted_curves):
    fit = planted_curves.fit
    tokens, warmup = 1_000_000, PLANTED.setup.schedule.warmup
    after, loss = law_switch(PLANTED, fit, tokens)
    assert 2 * 16 * 64 < after < tokens
    for moved in (0.7 * after, 1.4 * after, 0.99 * tokens):
        schedule = BatchSchedule.late_switch(2, 16, tokens - round(moved))
        assert schedule_losses(fit, schedule, tokens, wsd(4e-3, tokens, warmup, 0))[0] > loss - 1e-6


@pytest.mark.slow
def test_the_law_is_asked_for_batches_within_bounds(planted_curves):
    found = law_schedules(PLANTED, planted_curves.fit, BASE)
    assert list(found) == ["law", "law, for WSD", "law, for cosine"]
    for schedule in found.values():
        assert all(batch in range(2, 17, 2) for batch in schedule.batches)
    assert found["law"].batches[-1] > found["law"].batches[0]


def test_the_papers_size_prints_its_price_and_trains_nothing(capsys):
    values = json.loads(get_config("paper").to_json())
    experiment(from_dict(Study, values | {"dry_run": True}))
    lines = capsys.readouterr().out.splitlines()
    costs = {line.split()[0]: float(line.split()[1]) for line in lines}
    assert costs["all"] == pytest.approx(sum(costs.values()) / 2, rel=0.01)
    assert 1e21 < costs["constants"] < 1e23


RESULTS = Path(__file__).parents[2] / "results/late_switch"


def same(found, name, columns=None):
    kept = pd.read_csv(RESULTS / name)
    columns = [*kept] if columns is None else columns
    pd.testing.assert_frame_equal(
        found[columns].reset_index(drop=True), kept[columns], check_dtype=False, rtol=1e-6
    )


def test_the_committed_tables_are_those_of_the_committed_runs_and_fit():
    fit = CurveFit.from_dict(json.loads((RESULTS / "fit.json").read_text()))
    study = from_dict(Study, json.loads((RESULTS / "experiment.json").read_text())["config"])
    runs = pd.read_parquet(RESULTS / "runs.parquet")
    switched, whole = switches(study, runs, {})
    same(catch_up(study, runs, whole), "catch_up.csv")
    measured = switch_points(study, runs, switched)
    kept = pd.read_csv(RESULTS / "switch_points.csv")
    kept = kept.loc[kept["source"] == "measured"]
    assert measured["after"].to_numpy() == pytest.approx(kept["after"].to_numpy(), rel=1e-6)
    predicted = with_law(study, fit, predictions(study, pd.read_csv(RESULTS / "every_rate.csv")))
    same(predicted, "predictions.csv")
    same(scores(predicted, study.shared_rate), "scores.csv")


@pytest.mark.slow
def test_the_committed_fit_is_that_of_the_committed_pilots():
    held = CurveFit.from_dict(json.loads((RESULTS / "fit.json").read_text()))
    pilots = pd.read_parquet(RESULTS / "pilots.parquet")
    warmup = STUDY.setup.schedule.warmup
    fit = fit_curve(
        pilots, clock=held.clock, warmup=warmup, since=held.since, options=Options(resamples=10)
    )
    assert fit.rmse == pytest.approx(held.rmse, rel=0.01)
    schedule = BatchSchedule.late_switch(4, 32, 900_000)
    for rate in (wsd(2e-3, 1_000_000, warmup, 200_000), cosine(2e-3, 1_000_000, warmup)):
        ours, theirs = (schedule_losses(one, schedule, 1_000_000, rate)[0] for one in (fit, held))
        assert ours == pytest.approx(theirs, abs=2e-3)
