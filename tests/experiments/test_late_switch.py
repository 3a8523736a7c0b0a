"""Late switches: parts, refused plans, tables and answers from planted numbers; nothing trained."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from bss.errors import InputError
from bss.laws import CurveFit
from bss.laws.functional.values import schedule_losses
from bss.schedules.batch import BatchSchedule
from bss.schedules.rates import WarmupStableDecay, wsd
from bss.stats import LR_PHASES, answers, effect_of
from bss.sweeps.setup import planned_run
from bss.values import from_dict
from configs.late_switch import AFTER, BUDGETS, PARTS, get_config, points
from experiments import preregister
from experiments.findings import read_questions
from experiments.late_switch import analysis, difficulty, endings
from experiments.late_switch.run import Study, arms, decayed, experiment
from experiments.late_switch.switching import best_switches, exponents
from experiments.tables import Tables

JUDGED = [part for part in PARTS if part not in ("smoke", "pilot", "gpu")]


def study(part, **fields):
    return from_dict(Study, json.loads(get_config(part).to_json()) | fields)


def runs_of(one):
    return arms(one, planned_run(one.setup))


def test_every_part_has_runs_and_judged_parts_a_registration():
    for part in PARTS:
        one = study(part)
        runs = runs_of(replace(one, seeds=one.seeds[:2]))
        assert len({arm.run.id for arm in runs}) == len(runs) >= 3
        assert bool(one.registration) == (part in JUDGED)
        assert part not in JUDGED or min(one.seeds) >= 10


def test_the_registered_questions_are_those_that_are_answered():
    file = preregister.FOLDER / "late_switch_seeds.json"
    registered = preregister.read_json(file, "")["statements"]
    asked = {q.key: q.number for q in read_questions(analysis.QUESTIONS) if q.registered}
    assert {one["key"]: one["number"] for one in registered} == asked


def test_runs_of_one_language_and_seed_share_a_trunk():
    one = study("b4", seeds=(60,))
    runs = runs_of(one)
    trunks = {arm.group: arm.run for arm in runs if arm.run.parent is None}
    assert [*trunks] == ["mode_decay 0", "mode_decay 0.5", "mode_decay 1"]
    assert len({trunk.data.content for trunk in trunks.values()}) == 3
    for arm in runs:
        assert arm.run.data.content == trunks[arm.group].data.content
        assert arm.run.parent is None or arm.run.parent.run == trunks[arm.group].id


def test_switches_are_forked_from_one_trunk_at_the_switch():
    one = study("b1", seeds=(40,))
    runs = {arm.name: arm.run for arm in runs_of(one)}
    trunk = runs["constant 4"]
    assert trunk.parent is None and runs["constant 16"].parent is None
    for name, at in (("x 2 at 30%", 300_000), ("x 8 at 70%", 700_000), ("x 4 at 95%", 950_000)):
        assert runs[name].parent.run == trunk.id
        assert at <= runs[name].parent.tokens < at + 4 * 64
    stages = runs["stages 4, 8, 12, 16"]
    assert stages.parent.run == trunk.id and stages.parent.tokens < 501_000


def test_a_decay_starts_before_a_switch_inside_it():
    one = study("b1", seeds=(40,))
    constant = runs_of(one)
    ids = {arm.name: arm.run.id for arm in constant}
    branches = {arm.name: arm.run for arm in decayed(one, constant)}
    assert {run.schedule.decay for run in branches.values()} == {200_000}
    assert branches["x 4 at 30%"].parent.run == ids["x 4 at 30%"]
    assert branches["x 4 at 95%"].parent.run == ids["constant 4"]
    assert all(800_000 <= run.parent.tokens < 801_100 for run in branches.values())


def test_a_large_batch_is_continued_from_its_own_run():
    one = study("b2", seeds=(40,))
    runs = {arm.name: arm.run for arm in runs_of(one)}
    longer = runs["constant 16 on"]
    assert longer.parent.run == runs["constant 16"].id
    steps = runs["x 4 at 30%"].plan().steps
    assert steps <= longer.plan().steps + longer.plan().step_at(longer.start) <= steps + 1_500
    assert longer.schedule.tokens == pytest.approx(1_900_000, rel=0.01)


def arm(**fields):
    return {"name": "x 4", "batch": "0:4 50%:16", **fields}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"arms": [arm(batch="0:4 1100000:16")]}, "switches at 1,100,000 tokens and ends at"),
        ({"arms": [arm(tokens=80_000)]}, "in the warm-up of 50,000"),
        (
            {"arms": [arm(joins="large"), {"name": "large", "batch": "16", "tokens": 400_000}]},
            "large ends at step 390, so they never meet",
        ),
        ({"arms": [arm(joins="other")]}, "joins 'other'"),
        ({"arms": [arm(), arm()]}, "each name once"),
    ],
)
def test_a_plan_that_cannot_be_trained_or_compared_is_refused(changes, said):
    with pytest.raises(InputError, match=said):
        study("b1", **changes)


def test_a_budget_whose_switch_lies_in_the_warm_up_is_refused():
    with pytest.raises(InputError, match="in the warm-up"):
        study("b3", arms=points((60_000,), AFTER))


def test_the_priced_part_trains_nothing(capsys):
    experiment(study("gpu"))
    totals = [line.split()[1] for line in capsys.readouterr().out.splitlines() if "all" in line]
    assert [1e17 < float(total) < 1e19 for total in totals] == [True]


# Planted numbers


def finals(losses, phase="constant"):
    """Final losses by name: batch, role, one loss per seed."""
    rows = [
        {"name": name, "batch": batch, "role": role, "seed": seed, "run": "r"}
        | LR_PHASES[phase].columns
        | {"tokens": 999_936, "steps": 100, "eval_loss": loss, "test_loss": loss, "peak_lr": 8e-3}
        for name, (batch, role, values) in losses.items()
        for seed, loss in enumerate(values)
    ]
    return pd.DataFrame(rows)


def test_differences_are_to_the_best_constant_the_trunk_and_the_early_switch():
    base = np.array([1.80, 1.82, 1.81])
    table = analysis.differences(
        finals(
            {
                "constant 4": ("4", "constant", base),
                "constant 16": ("16", "constant", base - 0.01),
                "x 4 at 30%": ("0:4 300K:16", "late", base - 0.02),
                "x 4 at 70%": ("0:4 700K:16", "late", base - 0.05),
            }
        )
    ).set_index("name")
    late = table.loc["x 4 at 70%"]
    assert late["best"] == "constant 16"
    expected = [-0.04, -0.05, -0.03]
    assert late[["to_best", "to_trunk", "to_early"]].to_list() == pytest.approx(expected)
    assert late["to_trunk_half"] == pytest.approx(0, abs=1e-9)


def test_a_growing_batch_replaces_the_decay_if_it_is_as_low():
    noise = np.array([0.001, -0.001, 0.0005, -0.0005])
    [growing] = [q for q in read_questions(analysis.QUESTIONS) if q.key == "growing"]

    def word(values):
        return answers({"growing": growing.claim}, {"growing": effect_of(values)})["growing"].word

    assert [word(noise + at) for at in (0, -0.1, 0.1)] == ["supported"] * 2 + ["contradicted"]
    assert word(100 * noise) == "inconclusive"


def curve(batch, tokens, loss, name, seed):
    table = pd.DataFrame({"tokens": tokens, "eval_loss": loss})
    schedule = BatchSchedule.parse(batch)
    ends = [*schedule.starts[1:], np.inf]
    spans = zip(schedule.starts, ends, schedule.batches, strict=True)
    steps = sum(np.clip(tokens - a, 0, b - a) / (64 * size) for a, b, size in spans)
    own = {"name": name, "seed": seed, "run": f"{name}-{seed}", "seq_len": 64}
    return table.assign(step=steps, **{"schedule.batch": batch, "batch": 4, "lr": 8e-3}, **own)


def falling(steps, batch):
    return 1.5 + 6 * np.asarray(steps, float) ** -0.3 + 0.4 / batch


def caught(gap):
    """Runs of part b2 whose switched run stays a gap above the large batch at equal steps."""
    tables, tokens = [], np.geomspace(60_000, 2_500_000, 60)
    for seed in range(3):
        shift = 0.01 * seed
        for factor in (2, 4):
            large = 4 * factor
            name, on = f"x {factor} at 30%", f"constant {large} on"
            switched = curve(f"0:4 300K:{large}", tokens[tokens <= 1e6], 0.0, name, seed)
            switched["eval_loss"] = falling(switched["step"], large) + gap
            own = tokens / (64 * large)
            tables += [
                switched,
                curve(str(large), tokens, falling(own, large), on, seed),
                curve(
                    str(large), tokens, falling(own, large) + 0.02, f"x {factor} at 10% on", seed
                ),
            ]
        tables.append(curve("4", tokens, falling(tokens / 256, 4), "constant 4", seed))
        for table in tables:
            table.loc[table["seed"] == seed, "eval_loss"] += shift
            shift = 0.0
    return pd.concat(tables, ignore_index=True)


@pytest.mark.parametrize("gap", [0.0, 0.03])
def test_the_gap_is_measured_at_equal_steps(gap):
    table = analysis.catch_up(caught(gap))
    for _, own in table.loc[table["factor"] == "x 4"].groupby("seed"):
        assert own["after"].iloc[0] == 0
        assert own["tokens"].iloc[0] == pytest.approx(300_000, abs=256)
        # Before the switch the small batch is higher by 0.4 (1/4 - 1/16).
        assert own["to_large"].iloc[0] == pytest.approx(0.075, abs=0.012)
        tail = own.loc[own["share"] >= 0.8]
        assert tail["to_large"].mean() == pytest.approx(gap, abs=0.012)


def test_saved_tokens_are_logs_at_equal_loss():
    saved = analysis.saved_tokens(caught(0.0)).set_index("factor")
    # The same loss at the same steps: 1M tokens after the switch, 1.9M of the large batch alone.
    assert saved.loc["x 4", "log_tokens"].mean() == pytest.approx(-np.log(1.9), abs=0.1)
    assert saved["reached"].all()
    missed = analysis.saved_tokens(caught(-0.5))
    assert not missed["reached"].any()
    assert (missed["log_tokens"] < 0).all()


def switched(exponent, budgets):
    """Final losses of switches by 8 whose best point grows as a power of the budget."""
    losses, generator = {}, np.random.default_rng(0)
    for budget in budgets:
        best = 30_000 * (budget / 250_000) ** exponent
        for share in AFTER:
            after = round(budget * share)
            apart = 0.02 * (np.log(after) - np.log(best)) ** 2
            noise = 0.0005 * generator.standard_normal(5)
            name = f"x 8, last {share:.0%} of {budget}"
            losses[name] = (f"0:4 {budget - after}:32", "late", 2 - budget / 1e8 + apart + noise)
    return finals(losses)


def test_planted_switch_points_have_their_exponent():
    table = best_switches(switched(0.6, BUDGETS))
    assert len(table) == len(BUDGETS) * 5
    assert exponents(table) == pytest.approx(np.full(5, 0.6), abs=0.08)
    at = table.loc[table["budget"] == 1_000_000, "after"].mean()
    assert at == pytest.approx(30_000 * 4**0.6, rel=0.1)


def test_hard_and_easy_languages_have_their_planted_differences(tmp_path, capsys):
    tables = Tables(tmp_path)
    ends, curves = [], []
    tokens = np.geomspace(50_000, 2_000_000, 30)
    for group, switch, task in ((difficulty.HARD, 0.4, 0.2), (difficulty.EASY, 0.9, 0.7)):
        ends.append(switched(switch, BUDGETS[:4]).assign(group=group))
        for seed in range(5):
            loss = 2 + 0.01 * seed + 0.3 * (tokens / 1e6) ** -(task + 0.01 * seed)
            own = curve("4", tokens, loss, difficulty.TRUNK, seed).assign(group=group)
            curves.append(own.assign(**{difficulty.AVERAGED: loss, "params": 12_000}))
    tables.write("finals.csv", pd.concat(ends).rename(columns={"name": "arm"}))
    runs = pd.concat(curves).rename(columns={"name": "arm"})
    runs = runs.assign(model="1x32", peak_lr=8e-3)
    tables.write("runs.parquet", runs)
    config = {"config": {"setup": {"optimizer": {"beta2": 0.95}}}}
    (tables.folder / "experiment.json").write_text(json.dumps(config))
    difficulty.measure(tables)
    assert capsys.readouterr().err == ""  # every best switch lies inside the grid
    found = difficulty.answer(tables)
    value = {key: one.effect.value for key, one in found.items()}
    assert value["task_exponent"] == pytest.approx(0.5, abs=0.01)
    assert value["switch_later_if_hard"] == pytest.approx(-0.5 * np.log(8) / 2, abs=0.1)
    assert value["switch_exponent_if_hard"] == pytest.approx(-0.5, abs=0.1)
    asked = read_questions(difficulty.QUESTIONS)
    assert {one.key for one in asked} == {*found}
    decided = answers(
        {one.key: one.claim for one in asked}, {k: v.effect for k, v in found.items()}
    )
    assert {one.word for one in decided.values()} == {"supported"}


def test_every_ending_of_two_sizes_has_its_planted_gain(tmp_path):
    noise = 0.001 * np.array([1, -1, 0.5, -0.5])
    gains = {"constant": -0.04, "averaged": -0.006, "decayed": 0.005, "cosine": 0.007}
    config = {"config": {"setup": {"optimizer": {"beta2": 0.95}}}}
    for params, parts in ((99_000, endings.SIZES["99k"]), (394_000, endings.SIZES["394k"])):
        for part, phases in zip(parts, ([*gains][:3], ["cosine"]), strict=True):
            ends = []
            for phase in phases:
                gain = gains[phase] - 0.02 * (params == 394_000)
                losses = {
                    endings.TRUNK: ("4", "constant", 1.8 + 0 * noise),
                    endings.LATE: ("0:4 700K:16", "late", 1.8 + gain + noise),
                    endings.LATER: ("0:4 950K:16", "late", 1.79 + gain + noise**2),
                }
                ends.append(finals(losses, phase))
            table = pd.concat(ends)
            tables = Tables(tmp_path / part)
            tables.folder.mkdir()
            tables.write("finals.csv", table)
            runs = table.drop_duplicates(["name", "seed"])
            tables.write("runs.parquet", runs.assign(params=params, model="m", seq_len=64, batch=4))
            (tables.folder / "experiment.json").write_text(json.dumps(config))
    found = {}
    for measured in endings.answers_of(tmp_path).values():
        found |= measured()
    asked = read_questions(endings.QUESTIONS)
    assert {one.key for one in asked} == {*found}
    for phase, gain in gains.items():
        assert found[f"tuned_99k_{phase}"].effect.value == pytest.approx(gain)
        assert found[f"tuned_394k_{phase}"].effect.value == pytest.approx(gain - 0.02)
    assert found["tuned_99k_later"].effect.value == pytest.approx(-0.01, abs=1e-5)
    assert found["tuned_sizes"].effect.value == pytest.approx(-0.02)
    assert found["tuned_sizes"].conditions.sizes == "99k and 394k parameters"


@pytest.mark.slow
def test_the_law_predicts_schedules_of_a_planted_law(monkeypatch):
    monkeypatch.setattr(analysis, "SINCE", (0.25,))
    fit = CurveFit.from_dict(json.loads((analysis.RESULTS / "fit.json").read_text()))
    total = 1_000_000
    tokens = np.geomspace(60_000, total, 30).round()
    batches = {f"constant {b}": str(b) for b in (4, 8, 16)}
    batches |= {f"x 4 at {s}%": f"0:4 {s}0K:16" for s in (10, 30, 50, 70, 85, 95)}
    batches |= {f"x {f} at {s}%": f"0:4 {s}0K:{4 * f}" for f in (2, 8) for s in (30, 70)}
    tables, ends, decays = [], {}, {}
    for name, batch in batches.items():
        schedule, rate = BatchSchedule.parse(batch), WarmupStableDecay(8e-3, total, analysis.WARMUP)
        losses = schedule_losses(fit, schedule, total, rate, tokens)
        role = "constant" if name.startswith("constant") else "late"
        ends[name] = (batch, role, [losses[-1]] * 2)
        falls = wsd(8e-3, total, analysis.WARMUP, total // 5)
        decays[name] = (batch, role, [float(schedule_losses(fit, schedule, total, falls)[0])] * 2)
        for seed in (0, 1):
            sizes = [schedule(int(at) - 1) for at in tokens]
            one = curve(batch, tokens, losses, name, seed)
            tables.append(one.assign(batch=sizes, loss=losses, step=one["step"].round()))
    last = pd.concat([finals(ends), finals(decays, "decayed")])
    every = analysis.predictions(pd.concat(tables), last, analysis.PILOTS["b1"])
    assert set(every.loc[every["lr_phase"] == "decayed", "name"]) == {*batches} - {
        *list(batches)[:3]
    }
    assert every["law_error"].abs().max() < 0.01
    table = every.loc[every["lr_phase"] == "constant"]
    assert set(table["name"]) == {"x 2 at 30%", "x 2 at 70%", "x 8 at 30%", "x 8 at 70%"}
    assert (every["low"] <= every["law"]).all() and (every["law"] <= every["high"]).all()
    assert (table["equal_steps_error"].abs() > table["law_error"].abs()).all()


def test_a_large_batch_that_can_wait_reaches_the_small_ones_loss_earlier():
    tokens = np.geomspace(60_000, 1_000_000, 40)
    loss = 2 - 0.1 * np.log(tokens / 60_000)
    tables = [
        curve("4", tokens, loss, analysis.TRUNK, 0),
        curve("0:4 700K:16", tokens, loss - 0.03 * (tokens > 700_000), analysis.LATE, 0),
        curve("0:4 700K:32", tokens, loss + 0.03, "worse", 0),
    ]
    rows = analysis.waited(pd.concat(tables)).set_index("name")
    assert rows.loc[analysis.TRUNK, "log_tokens"] == pytest.approx(0, abs=1e-6)
    assert -0.36 < rows.loc[analysis.LATE, "log_tokens"] < -0.2
    assert rows["reached"].to_dict() == {
        analysis.TRUNK: True, analysis.LATE: True, "worse": False,
    }  # fmt: skip
