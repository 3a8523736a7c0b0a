"""The critical-batch experiment: its pure parts on planted curves, its smoke size end to end."""

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from bss.errors import InputError
from bss.models.sizes import named
from bss.training.execution import Execution
from bss.training.run_config import DataConfig, RunConfig
from bss.values import from_dict
from configs.critical_batch import get_config
from experiments.critical_batch.analysis import (
    BEST,
    Point,
    PointSet,
    around_bend,
    batches_by_source,
    fits_of,
    labelled,
    minima,
    published_fit,
    with_overhead,
)
from experiments.critical_batch.run import (
    Bend,
    Study,
    Trial,
    costs,
    experiment,
    fitted,
    measure,
    merged,
    next_trials,
    repeats,
    schedule_table,
    schedule_trials,
    sweep,
)
from experiments.shared import critical_table, laws_table
from tests.drawn import points, texts

SEQ_LEN, BEST_RATE, BEST_AVERAGE = 64, 0.008, "4%"
TRUTH = Bend(tokens=2_000.0, budget=100_000.0, exponent=0.5)


def study_of(size: str) -> Study:
    return from_dict(Study, json.loads(get_config(size).to_json_best_effort()))


@pytest.fixture(scope="module")
def study() -> Study:
    """The cpu size, of three budgets of one model, and a true guess."""
    whole = study_of("cpu")
    whole = replace(whole, setup=replace(whole.setup, text=replace(whole.setup.text, seq_len=64)))
    points = tuple(Point("pico", tokens) for tokens in (50_000, 100_000, 400_000))
    assert whole.schedules
    return replace(
        whole,
        designs=(PointSet("data", points),),
        bend=TRUTH,
        reference=128,
        margin=1.3,
        resamples=100,
        grid=tuple(
            replace(entry, rates=(BEST_RATE / 2, BEST_RATE, 2 * BEST_RATE)) for entry in whole.grid
        ),
        schedules=replace(whole.schedules, tokens=100_000, batches=(128, 2_048)),
    )


@pytest.fixture(scope="module")
def base(study) -> RunConfig:
    setup = study.setup
    return RunConfig(
        named("pico", 256),
        DataConfig(content="0" * 64, seq_len=SEQ_LEN),
        setup.optimizer,
        setup.schedule,
        setup.evaluation,
        setup.averages,
    )


def needed(budget, batch_tokens):
    """Tokens that a batch needs to where B_ref's limit of small batches is after `budget`."""
    return budget * (1 + batch_tokens / TRUTH.at(1) / budget**0.5)


def loss_at(tokens: np.ndarray, trial: Trial) -> np.ndarray:
    """The planted loss: data used well count, and the rate and the seed cost a factor of them."""
    budgets = np.geomspace(100, 1e8, 4_000)
    octaves = math.log2(trial.run.optimizer.lr / BEST_RATE)
    wasted = 1 + 0.1 * octaves**2 + 0.01 * trial.run.seed
    used = np.interp(np.log(tokens / wasted), np.log(needed(budgets, trial.batch_tokens)), budgets)
    return 6 - 0.3 * np.log(used)


def plant(trials: list[Trial], folder: Path) -> list[Trial]:
    """Writes the curve of every trial as a run that was trained."""
    for trial in trials:
        run = trial.run
        size, first = trial.batch_tokens, run.evaluation.first
        grid = first * np.exp(np.arange(0, math.log(run.schedule.tokens / first) + 0.05, 1 / 20))
        tokens = np.unique((grid / size).astype(int) * size)
        rows = [
            {
                "step": int(t) // size,
                "tokens": int(t),
                "batch": run.schedule.batch.constant_batch,
                "lr": run.optimizer.lr,
                "loss": float(loss),
                "eval_loss": float(loss) + 0.2,
                **{
                    f"eval_loss_avg_{h}": float(loss) + (0 if h == BEST_AVERAGE else 0.05)
                    for h in run.averages
                },
                "noise_scale": 10.0 if run.schedule.batch.constant_batch != 1 else None,
            }
            for t, loss in zip(tokens, loss_at(tokens.astype(float), trial), strict=True)
            if t > 0
        ]
        (folder / run.id).mkdir(parents=True, exist_ok=True)
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (folder / run.id / "curve.jsonl").write_text(text)
    return trials


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def trials(study, base, runs) -> list[Trial]:
    return plant(sweep(study, base), runs)


@pytest.fixture(scope="module")
def measured(study, trials, runs) -> pd.DataFrame:
    return measure(study, trials, runs)


def test_one_run_serves_every_budget_and_batches_reach_past_the_bend(study, trials):
    assert len({trial.run.id for trial in trials}) == len(trials)
    batches = sorted({trial.run.schedule.batch.constant_batch for trial in trials})
    assert batches == [1 << k for k in range(len(batches))]
    assert 0.7 < batches[-1] * SEQ_LEN / (4 * TRUTH.at(400_000)) < 1.42
    for trial in trials:
        assert trial.budgets == (50_000, 100_000, 400_000)
        expected = study.margin * needed(400_000, trial.batch_tokens)
        assert trial.run.schedule.tokens == pytest.approx(expected, rel=1e-3)
        assert trial.run.evaluation.first == 30_000


def test_targets_are_the_losses_of_the_reference_batch_at_its_best(measured, trials):
    reference = next(t for t in trials if t.batch_tokens == 128 and t.run.optimizer.lr == BEST_RATE)
    for budget, rows in measured.groupby("budget_tokens"):
        assert set(rows["target_loss"]) == {rows["target_loss"].iloc[0]}
        own = loss_at(np.array([float(budget)]), reference)[0]  # pyright: ignore[reportArgumentType]
        assert rows["target_loss"].iloc[0] == pytest.approx(own, abs=2e-3)


def test_crossings_are_known_to_a_percent_and_the_best_setting_is_found(study, measured):
    best = minima(measured)
    assert len(best) == 3 * measured["batch"].nunique()
    assert set(best["trials"]) == {9}
    assert {*best["reached"], *best["bracketed"]} == {True}
    assert set(best["peak_lr"]) == {BEST_RATE}
    assert set(best["average"]) == {BEST_AVERAGE}
    for row in best.to_dict("records"):
        at_reference = float(
            np.interp(
                row["budget_tokens"],
                needed(np.geomspace(1e3, 1e7, 9_000), 128),
                np.geomspace(1e3, 1e7, 9_000),
            )
        )
        expected = needed(at_reference, row["batch"] * SEQ_LEN)
        assert row["tokens_to_target"] == pytest.approx(expected, rel=0.01)


def test_the_bend_and_its_exponent_in_the_data_come_out(study, measured):
    fit = fitted(study, measured)["data"]
    for at in fit.fits:
        assert at.B_crit.value == pytest.approx(TRUTH.at(at.curve.tokens) / SEQ_LEN, rel=0.08)
        assert max(at.curve.settings) == 9
    law = fit.laws["tokens"]
    assert set(fit.laws) == {"tokens"}
    by_kappa = next(d for d in fit.definitions if d.name == "b/a")
    assert by_kappa.law and by_kappa.law.exponents[0].value == pytest.approx(0.5, abs=0.03)
    assert law.points == 3
    assert laws_table({"data": fit})["variable"].tolist() == ["tokens"]
    assert len(critical_table({"data": fit})) == 3


def test_the_batch_of_twice_the_tokens_and_its_neighbours_are_around_the_bend(study, measured):
    best = with_overhead(minima(measured), study.reference)
    for budget, cell in best.groupby("budget_tokens"):
        bend = TRUTH.at(float(budget)) / SEQ_LEN  # pyright: ignore[reportArgumentType]
        low, middle, high = around_bend(cell)
        assert (low, high) == (middle / 2, middle * 2)
        assert 0.6 < middle / bend < 1.7
        assert dict(zip(cell["batch"], cell["overhead"], strict=True))[2] == 0


def test_other_seeds_repeat_the_best_setting_and_tell_the_noise(study, trials, measured, runs):
    again = merged(repeats(study, trials, measured))
    assert {t.run.seed for t in again} == {t.run.data.seed for t in again} == {1, 2}
    assert {t.run.optimizer.lr for t in again} == {BEST_RATE}
    whole = {t.run.id: t.run.schedule.tokens for t in trials}
    for trial in again:
        assert trial.run.schedule.tokens <= whole[trial.changed({"seed": 0, "data.seed": 0}).run.id]
    chosen = {}
    for budget, cell in with_overhead(minima(measured), study.reference).groupby("budget_tokens"):
        chosen[budget] = {2, *around_bend(cell)}
    best = minima(measure(study, merged([*trials, *plant(again, runs)]), runs))
    for row in best.to_dict("records"):
        repeated = row["batch"] in chosen[row["budget_tokens"]]
        assert row["seeds"] == 3 if repeated else row["seeds"] in (1, 3)
        noise = 0.01 if row["seeds"] == 3 else math.nan
        assert row["seed_noise"] == pytest.approx(noise, rel=0.2, nan_ok=True)
    assert {1, 3} == set(best["seeds"])


def test_a_missed_target_is_kept_and_its_best_run_lengthened(study, trials, runs):
    largest = max(trial.batch_tokens for trial in trials)
    cut = [
        t.changed({"schedule.tokens": 300_000}) if t.batch_tokens == largest else t for t in trials
    ]
    measured = measure(study, cut, runs)
    best = minima(measured)
    missed = best.loc[~best["reached"].to_numpy(bool)]
    assert set(missed["batch"]) == {largest / SEQ_LEN}
    assert 400_000 in set(missed["budget_tokens"])
    overhead = with_overhead(best, study.reference)["overhead"].to_numpy(float)
    assert np.isnan(overhead).sum() == len(missed)
    longer = merged(next_trials(cut, measured))
    assert [(t.batch_tokens, t.run.optimizer.lr) for t in longer] == [(largest, BEST_RATE)]
    assert longer[0].run.schedule.tokens == 450_000
    fit = fitted(study, measured)["data"]
    assert fit.fits[-1].curve.censored.keys() == {largest / SEQ_LEN}


def test_a_best_rate_at_an_end_gets_the_next_one(study, trials, runs):
    low = [t for t in trials if t.run.optimizer.lr < BEST_RATE]
    added = merged(next_trials(low, measure(study, low, runs)))
    rates = {t.run.optimizer.lr for t in added}
    assert rates == {BEST_RATE / 4, BEST_RATE}  # alone, it is at both ends
    two = [t for t in trials if t.run.optimizer.lr <= BEST_RATE]
    added = merged(next_trials(two, measure(study, two, runs)))
    assert {t.run.optimizer.lr for t in added} == {2 * BEST_RATE}
    assert {t.run.id for t in added} == {t.run.id for t in trials} - {t.run.id for t in two}


def test_other_schedules_are_trained_around_what_the_constant_rate_needs(
    study, trials, measured, runs
):
    asked = study.schedules
    others = schedule_trials(study, asked, trials, measured)
    assert set(others) == {"cosine", "WSD", "schedule-free", "25% warm-up"}
    for name, members in others.items():
        per_batch = 2 * (3 if name in ("cosine", "WSD") else 1)
        assert len(members) == 2 * per_batch
        assert {t.batch_tokens for t in members} == {128, 2_048}
        assert all(t.run.plan() for t in members)
    assert {t.run.optimizer.chosen for t in others["schedule-free"]} == {"schedule_free"}
    assert {t.run.schedule.warmup for t in others["25% warm-up"]} == {25_000}
    planted = [t for name in ("25% warm-up", "WSD", "cosine") for t in others[name]]
    plant(planted, runs)
    for trial in others["WSD"] + others["cosine"]:  # one loss each, as of a fifth more tokens
        run, size = trial.run, trial.batch_tokens
        end = run.schedule.tokens // size * size
        loss = float(loss_at(np.array([1.2 * end]), trial)[0])
        row = {"step": end // size, "tokens": end, "batch": size // SEQ_LEN, "eval_loss": loss}
        (runs / run.id / "curve.jsonl").write_text(json.dumps(row) + "\n")
    for trial in others["schedule-free"]:  # never gets there
        plant([trial], runs)
        curve = runs / trial.run.id / "curve.jsonl"
        rows = [json.loads(line) for line in curve.read_text().splitlines()]
        text = "".join(json.dumps(row | {"eval_loss": row["eval_loss"] + 1}) + "\n" for row in rows)
        curve.write_text(text)
    table = schedule_table(study, asked, trials, measured, others, runs)
    relative = {}
    for row in table.to_dict("records"):
        assert row["reached"] == (row["schedule"] != "schedule-free")
        relative.setdefault(row["schedule"], []).append(row["relative"])
    assert relative["constant + average"] == pytest.approx([1, 1])
    assert relative["25% warm-up"] == pytest.approx([1, 1], rel=0.01)
    for name in ("WSD", "cosine"):
        assert relative[name] == pytest.approx([1 / 1.2] * 2, rel=0.06)


def test_a_design_shares_no_runs_where_the_warm_up_is_a_part_of_the_budget(study, base):
    retrained = sweep(replace(study, warmup_share=0.25), base)
    assert {t.budgets for t in retrained} == {(50_000,), (100_000,), (400_000,)}
    assert {t.run.schedule.warmup for t in retrained} == {12_500, 25_000, 100_000}


@pytest.mark.parametrize("size", ["smoke", "cpu", "gpu", "paper"])
def test_every_size_is_a_study_with_a_price(size):
    study = study_of(size)
    assert all(cost.flops > 0 for cost in costs(study).values())
    assert len(costs(study)) == len(study.cells())
    if size in ("cpu", "gpu"):
        by_name = {design.name: design for design in study.designs}
        sizes = {p.model: named(p.model).counts().non_embedding
                 for p in by_name["size"].points}  # fmt: skip
        budgets = {p.tokens for p in by_name["data"].points}
        assert len(sizes) >= 4 and max(sizes.values()) >= 8 * min(sizes.values())
        assert len(budgets) >= 4 and max(budgets) >= 8 * min(budgets)
        assert len({p.tokens for p in by_name["size"].points}) == 1
        assert len({p.model for p in by_name["data"].points}) == 1


RESULTS = Path(__file__).parents[2] / "results/critical_batch"


def test_the_published_sources_have_their_laws():
    fits = fits_of(RESULTS)
    table, laws = batches_by_source(fits, published_fit())
    best = table.loc[table["source"] == BEST]
    low, batch, high = best[["low", "batch_tokens", "high"]].to_numpy(float).T
    assert len(best) == 17 and np.all(low < batch) and np.all(batch < high)
    assert len(laws) == 3
    # Best batch sizes grow with the data, not with the model.
    in_size, in_data = (one.value for one in laws[BEST].exponents)
    assert in_size < 0.1 and in_data > 0.4
    names = [at.curve.model for at in labelled(fits)["both"].fits]
    assert len(set(names)) == len(names)


def test_a_warm_up_longer_than_a_tenth_of_a_budget_is_refused(study):
    schedule = replace(study.setup.schedule, warmup=6_000)
    with pytest.raises(InputError, match="warmup is 6000; expected at most 5000"):
        replace(study, setup=replace(study.setup, schedule=schedule))


def test_targets_that_no_run_reaches_are_one_line(study, trials, runs):
    with pytest.raises(InputError, match="no run of 128 tokens per batch reached a budget"):
        measure(study, [t.changed({"schedule.tokens": 40_000}) for t in trials], runs)


@pytest.mark.slow
def test_the_smoke_size_end_to_end_and_again(tmp_path, moved, saved):
    study = moved(study_of("smoke"))
    experiment(study)
    results = tmp_path / "results"
    steps = pd.read_csv(results / "steps.csv")
    assert set(steps["size"]) == {"1x24", "pico"}
    assert steps["reached"].to_numpy(float).mean() > 0.7
    assert {row["seeds"] for row in steps.to_dict("records") if row["batch"] == 2} == {2}
    assert set(pd.read_csv(results / "schedules.csv")["schedule"]) >= {"constant + average"}
    noise = pd.read_csv(results / "noise_scale.csv")
    assert np.isfinite(noise["noise_scale"]).all()
    assert {"critical batch", "linear scaling"} <= texts(saved["critical_together.png"])
    assert points(saved["critical_together.png"])[0] > 8
    record = json.loads((results / "experiment.json").read_text())
    again = Execution(runs=str(tmp_path / "runs"))
    kept = sorted(path.name for path in Path(again.runs).iterdir())
    experiment(study)
    assert sorted(path.name for path in Path(again.runs).iterdir()) == kept
    assert pd.read_csv(results / "steps.csv").equals(steps)
    assert record["trained_tokens"] < 10_000_000
