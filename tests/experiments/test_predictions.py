"""Schedules drawn, predicted, committed, trained and scored."""

import dataclasses
import json
import math
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from bss.errors import InputError
from bss.laws.functional.curves import stack
from bss.laws.functional.paths import plan_path
from bss.laws.functional.values import law_losses
from bss.plots.predictions import score_figure
from bss.predictions.registration import digest, read_registration, register
from bss.predictions.score import LAW, score
from bss.schedules.batch import BatchSchedule
from bss.schedules.plan import resolve
from bss.schedules.rates import constant, cosine, wsd
from bss.sweeps.setup import Setup, planned_run
from bss.values import from_dict
from configs.predictions import get_config
from experiments.predictions import study as pilots
from experiments.predictions.__main__ import experiment, predictions_table
from experiments.predictions.register import registration
from experiments.predictions.study import Study, registered_runs
from tests.drawn import collisions

ROOT = Path(__file__).parents[2]
PILOTS = {"constant 1": "1", "constant 8": "8", "late": "0:1 50%:8"}


def study(size="cpu", **changes) -> Study:
    """The study as its config asks for it."""
    asked = from_dict(Study, json.loads(get_config(size).to_json()))
    return dataclasses.replace(asked, **changes)


@pytest.fixture(scope="module")
def asked():
    return study()


def finals():
    """Constants of three batches whose loss is 2 + log2(batch)/10 + |log2(rate / 2e-3)|/100."""
    rows = [
        {"role": "constant", "ending": ending, "batch": batch, "peak_lr": rate, "seed": seed}
        | {"eval_loss": 2 + math.log2(batch) / 10 + abs(math.log2(rate / 2e-3)) / 100 + off}
        for ending in ("constant", "decay", "cosine")
        for batch in (1, 4, 32)
        for rate in (1e-3, 2e-3, 4e-3)
        for seed, off in ((0, -0.01), (1, 0.01))
    ]
    return pd.DataFrame(rows)


def test_the_draw_is_that_of_its_seed_within_what_was_asked(asked):
    assert asked.drawn == study().drawn != study(draw=asked.draw + 1).drawn
    assert len(asked.drawn) == 24
    endings = [one.ending for one in asked.drawn]
    assert {ending: endings.count(ending) for ending in pilots.ENDINGS} == dict.fromkeys(
        pilots.ENDINGS, 8
    )
    for one in asked.drawn:
        assert {*one.schedule.batch.batches} <= {*asked.batches}
        assert (one.schedule.tokens, one.schedule.warmup) == (1_000_000, 50_000)


def test_the_setup_is_that_of_the_pilots(asked):
    record = json.loads((ROOT / "results/late_switch/experiment.json").read_text())
    held = from_dict(Setup, record["config"]["setup"])
    assert planned_run(asked.setup) == planned_run(held)
    assert asked.decay == record["config"]["decay"]


def test_the_pilots_are_mean_curves_of_every_ending(asked, monkeypatch):
    monkeypatch.chdir(ROOT)
    curves = pilots.curves(asked)
    names = sorted(set(curves["run"]))
    assert len(names) == 45
    for ending in pilots.ENDINGS.values():
        assert sum(f", {ending} at" in name for name in names) == 15
    every = pd.read_parquet("results/late_switch/runs.parquet")
    late = every[
        (every["name"] == "late") & (every["ending"] == "decay") & (every["peak_lr"] == 2e-3)
    ]
    last = late.groupby("seed")["eval_loss"].last().mean()
    assert curves.loc[curves["run"] == "late, decay at 0.002", "eval_loss"].iloc[-1] == last
    with pytest.raises(InputError, match=r"seeds: 1 is in .*runs.parquet; choose"):
        pilots.curves(study(seeds=(1, 10)))
    with pytest.raises(InputError, match="fitted: 'later' is no run"):
        pilots.curves(study(fitted=("later",)))


@pytest.mark.parametrize(
    ("batch", "peak", "loss", "clamped"),
    [
        ("4", 2e-3, 2.2, False),
        ("4", 2e-3 * 2**0.5, 2.205, False),
        ("2", 1e-3, 2.11, False),
        ("0:1 50%:32", 4e-3, 2.01 + math.log2(64 / 33) / 10, False),  # their harmonic mean
        ("32", 8e-3, 2.51, True),
        ("1", 5e-4, 2.01, True),
    ],
)
def test_the_baseline_is_the_constant_of_equal_steps(asked, batch, peak, loss, clamped):
    one = asked.drawn[1]
    assert one.ending == "wsd"
    schedule = dataclasses.replace(
        one.schedule, batch=BatchSchedule.parse(batch, total=one.schedule.tokens)
    )
    found = pilots.equal_steps(finals(), dataclasses.replace(one, schedule=schedule, peak_lr=peak))
    assert found == (pytest.approx(loss), clamped)


def test_a_mean_batch_beyond_the_constants_is_refused(asked):
    few = finals().query("batch < 32 and ending == 'constant'")
    large = next(one for one in asked.drawn if str(one.schedule.batch) in ("16", "24", "32"))
    with pytest.raises(InputError, match=r"mean batch is .*measured at .*narrow batches"):
        pilots.equal_steps(few, large)


def test_the_committed_registration_is_that_of_the_draw_and_the_pilots(asked, monkeypatch):
    monkeypatch.chdir(ROOT)
    held, known = read_registration(asked.file), pilots.constants(asked)
    assert (held.seed, held.ranges, held.exclusions) == (asked.draw, asked.ranges, asked.exclusions)
    for one, drawn in zip(held.predictions, asked.drawn, strict=True):
        assert (one.name, one.schedule, one.peak_lr) == (drawn.name, drawn.schedule, drawn.peak_lr)
        assert one.baselines[pilots.STEPS] == pytest.approx(pilots.equal_steps(known, drawn)[0])


@pytest.fixture
def told(asked, planted_curves):
    """A registration of the study by a planted law, the baseline 2% above it."""
    base = planned_run(asked.setup)
    values = {one.name: (2.0, one.peak_lr > 4e-3) for one in asked.drawn}
    return registration(asked, planted_curves.fit, asked.drawn, base, values)


def test_what_is_registered_says_how_it_was_made(asked, told):
    assert told.metric == "eval_loss"
    assert (told.seed, told.ranges) == (asked.draw, asked.ranges)
    assert len(told.runs) == 72
    beyond = [one.name[:2] for one in asked.drawn if one.peak_lr > 4e-3]
    assert told.baselines[pilots.STEPS].endswith(f"nearest of them: {', '.join(beyond)}")
    assert (told.fit["fitted"]["runs"], told.exclusions) == (asked.fitted, asked.exclusions)


def test_other_runs_than_the_registered_are_refused(asked, told):
    base = planned_run(asked.setup)
    assert [run.id for run in registered_runs(asked, base, told)] == told.runs
    seeds = dataclasses.replace(asked, seeds=(10, 11, 13))
    with pytest.raises(InputError, match=rf"run {told.runs[2]} is registered, this config asks"):
        registered_runs(seeds, base, told)
    with pytest.raises(InputError, match="48 runs are asked for, 72 registered"):
        registered_runs(dataclasses.replace(asked, seeds=(10, 11)), base, told)


def test_nothing_is_trained_before_the_commit(told, tmp_path, asked):
    here = dataclasses.replace(asked, predictions=str(tmp_path), results=str(tmp_path / "results"))
    with pytest.raises(InputError, match="there is no such file"):
        experiment(here)
    register(told, tmp_path)
    with pytest.raises(InputError, match="is not committed; commit it before its runs are trained"):
        experiment(here)
    assert not (tmp_path / "results").exists()


def scored(told, failed=()):
    """Its score where runs end 1% below the law, and its predictions.csv."""
    rng = np.random.default_rng(0)
    rows = [
        {"run": run, "status": "finished", "tokens": one.tokens}
        | {"eval_loss": one.loss.value * (0.99 + 0.002 * rng.standard_normal())}
        for one in told.predictions
        for run in one.runs
    ]
    ended = pd.DataFrame(rows)
    ended.loc[ended["run"].isin(failed), "status"] = "diverged"
    found = score(told, ended, resamples=100)
    return found, predictions_table(told, found, ended, (10, 11, 12))


def test_the_table_and_the_figure_have_every_schedule(told):
    found, table = scored(told, failed=told.runs[:1])
    assert table["measured"].isna().tolist() == [True] + 23 * [False]
    seeds = table[["seed_10", "seed_11", "seed_12"]].mean(axis=1)
    assert table["measured"][1:].tolist() == pytest.approx(seeds[1:].tolist())
    assert table[[f"mean of {LAW} and {pilots.STEPS}"]].to_numpy() == pytest.approx(
        (table[[LAW]].to_numpy() + table[[pilots.STEPS]].to_numpy()) / 2
    )
    figure = score_figure(found)
    assert collisions(figure) == []
    panels = [ax for ax in figure.axes if ax.get_title(loc="left")]
    titles = [ax.get_title(loc="left") for ax in panels]
    assert [" ".join(title.split()) for title in titles] == [
        LAW,
        pilots.STEPS,
        f"mean of {LAW} and {pilots.STEPS}",
    ]
    assert max(len(line) for title in titles for line in title.splitlines()) <= 24
    marks = [[line for line in ax.lines if line.get_marker() != "None"] for ax in panels]
    assert [len(some) for some in marks] == [23, 23, 23]
    hollow = [sum(line.get_markerfacecolor() == "white" for line in some) for some in marks]
    assert hollow == [sum(not one.covered for one in found.schedules[1:]), 0, 0]
    assert "median error 1.0" in panels[0].texts[0].get_text()


def planted_pilots(folder, law):
    """Tables as a late-switch study leaves them, of losses that follow a law."""
    tokens, seq_len, curves, ends = 60_000, 64, [], []
    for name, text in PILOTS.items():
        schedule = BatchSchedule.parse(text, total=tokens)
        plan = resolve(schedule, tokens, seq_len)
        steps = sorted({plan.step_at(round(x)) for x in np.geomspace(8_000, tokens, 30)})
        at = np.array([plan.tokens_at(step) for step in steps])
        for peak in (4e-3, 8e-3):
            rates = {
                "constant": constant(peak, 3_000),
                "decay": wsd(peak, tokens, 3_000, 12_000),
                "cosine": cosine(peak, tokens, 3_000),
            }
            for ending, rate in rates.items():
                path = plan_path(schedule, tokens, seq_len, rate, at)
                loss = law_losses(law, stack([path], seq_len))[0, : len(at)]
                about = {"name": name, "ending": ending, "peak_lr": peak, "seed": 0}
                about |= {"seq_len": seq_len, "run": f"{name} {ending} {peak}"}
                columns = {"step": steps, "tokens": at, "loss": loss, "eval_loss": loss}
                columns |= {"batch": [plan.at(s - 1).batch for s in steps], "lr": rate(at)}
                curves.append(pd.DataFrame(columns).assign(**about))
                role = "constant" if name != "late" else "late"
                ends.append(about | {"role": role, "batch": text, "eval_loss": loss[-1]})
    folder.mkdir(parents=True)
    pd.concat(curves).to_parquet(folder / "runs.parquet", index=False)
    pd.DataFrame(ends).to_csv(folder / "every_rate.csv", index=False)


@pytest.mark.slow
def test_a_study_is_registered_committed_trained_and_scored(tmp_path, corpora, planted_curves):
    """In a repository of its own: commits are told by that of the code that trains."""
    for name in ("bss", "experiments", "configs"):
        unused = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, tmp_path / name, ignore=unused)
    (tmp_path / ".gitignore").write_text("runs/*/*/\n__pycache__\n")
    planted_pilots(tmp_path / "runs/predictions_smoke/pilots", planted_curves.law)

    def git(*arguments):
        who = "-c", "user.name=test", "-c", "user.email=test@example.org"
        subprocess.run(["git", *who, *arguments], cwd=tmp_path, check=True, capture_output=True)

    def run(module):
        config = ["--config=configs/predictions.py:smoke", f"--config.setup.text.root={corpora}"]
        config.append("--config.results=results/smoke")
        return subprocess.run(
            [sys.executable, "-m", module, *config], cwd=tmp_path, capture_output=True, text=True
        )

    git("init", "--quiet")
    git("add", "--all")
    git("commit", "--quiet", "--message", "code and pilots")
    made = run("experiments.predictions.register")
    assert made.returncode == 0, made.stderr
    file = tmp_path / "runs/predictions_smoke/schedules.json"
    assert digest(file) in made.stderr
    early = run("experiments.predictions")
    assert early.returncode == 2
    assert early.stderr.count("\n") == 1 and "is not committed; commit it before" in early.stderr
    git("add", "--all", "--force", str(file))
    git("commit", "--quiet", "--message", "predictions")
    done = run("experiments.predictions")
    assert done.returncode == 0, done.stderr
    results = tmp_path / "results/smoke"
    found = json.loads((results / "scores.json").read_text())
    assert (found["sha256"], found["failures"]) == (digest(file), [])
    assert set(pd.read_csv(results / "outcomes.csv")["registration"]) == {digest(file)}
    table = pd.read_csv(results / "predictions.csv")
    assert table["measured"].tolist() == table["seed_10"].tolist()
    assert table["measured"].between(1, 6).all() and len(table) == 6
    assert (results / "predictions.png").exists()
