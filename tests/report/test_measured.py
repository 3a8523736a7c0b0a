"""Reports of run tables: what they show, and why the rest is not there."""

import re
from dataclasses import dataclass

import numpy as np
import pandas as pd
import pytest

from bss.cli import main
from bss.report import measured as module
from bss.report.measured import measured_results, spread_runs
from bss.report.page import write_results
from bss.tables import check_runs

EXPERIMENT = {"title": "Runs", "command": "bss report runs.csv", "versions": {"bss": "0.1.0"}}


def losses(runs, **changes):
    """Runs of a trainer of another's: no more columns than `bss import` writes."""
    columns = ["run", "seq_len", "step", "tokens", "batch", "lr", "loss", "eval_loss"]
    return runs[columns].assign(**changes)


def measured(runs, **measuring):
    return measured_results(check_runs(runs), EXPERIMENT, measuring=measuring, resamples=10)


def text_of(page):
    return re.sub(r"<[^>]+>", "", re.sub(r"<svg.*?</svg>", "", page, flags=re.DOTALL))


@pytest.fixture(scope="module")
def two(planted):
    """Two constant batches: too few for a law."""
    return losses(planted.runs[planted.runs["batch"].isin((2, 8))])


def test_every_section_that_cannot_be_made_says_why(two, tmp_path):
    two.to_csv(tmp_path / "two.csv", index=False)
    assert main(["report", str(tmp_path / "two.csv")]) == 0
    page = (tmp_path / "two.html").read_text()
    assert re.findall(r"<h2>(.*?)</h2>", page) == [
        "Loss against tokens", "Loss of each run",
        "Not available", "How to reproduce this page",
    ]  # fmt: skip
    few = "points: 2 batch sizes reach a target; a law E(S) needs at least 3"
    assert f"E(S): tokens and steps to a target loss: no fit of E(S): {few}" in text_of(page)
    for told in (
        "The law of loss curves: no run changes its batch, nor its rate after the peak.",
        "The law of final losses: the runs have no params (non-embedding parameters).",
    ):
        assert told in text_of(page)


def test_runs_that_all_change_their_batch_are_drawn(two, tmp_path):
    grown = two.assign(batch=two["batch"].where(two["tokens"] < 500_000, 32)).drop(columns="step")
    names = grown["run"].map({"b2s0": "small", "b8s0": "large"})
    found = measured(grown.assign(model=names, params=1e6))
    assert found.missing.keys() == {
        "E(S): tokens and steps to a target loss",
        "The law of loss curves",
        "The law of final losses",
    }
    write_results(found, tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "Loss and batch size of runs that change them" in page


def test_runs_without_held_out_losses_are_left_out(two):
    only = two.assign(eval_loss=two["eval_loss"].where(two["batch"] == 2))
    found = measured(only)
    assert any("1 of 2 runs are left out" in text for text in found.warnings)
    assert found.points is not None and set(found.points["run"]) == {"b2s0"}
    every = measured(only.drop(columns="eval_loss")).points
    assert every is not None and set(every["run"]) == {"b2s0", "b8s0"}


@pytest.mark.slow
def test_the_page_of_a_whole_sweep_has_every_law(planted, tmp_path):
    small = losses(planted.runs, params=98_688)
    short = small[small["tokens"] < 600_000]
    short = short.assign(run="short " + short["run"])
    large = small.assign(run="large " + small["run"], params=400_000, loss=small["loss"] - 0.1)
    large["eval_loss"] = large["loss"]
    found = measured(pd.concat([small, short, large]), targets=(1.65, 1.55))
    assert [fit.KIND for _, fit in found.fits] == ["es", "es", "loss"]
    assert found.missing == {
        "The law of loss curves": "no run changes its batch, nor its rate after the peak"
    }
    write_results(found, tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "<h2>The law of final losses</h2>" in page


def many(seeds):
    """Runs of five schedules that differ in their batch sizes or in the tokens of the switch."""
    ways = [(4, 4, 0), (8, 8, 0), (4, 8, 5000), (4, 8, 9000), (4, 16, 9000)]
    tokens = np.arange(2048, 20481, 2048)
    frames = [
        pd.DataFrame({"run": f"{seed}-{i}", "tokens": tokens, "batch": np.where(tokens < at, a, b)})
        for seed in range(seeds)
        for i, (a, b, at) in enumerate(ways)
    ]
    return check_runs(pd.concat(frames).assign(seq_len=64, loss=3.0))


def test_a_part_of_many_runs_has_every_schedule():
    runs = many(6)
    some = spread_runs(runs, 8)
    assert some["run"].nunique() == 8
    assert {name.split("-")[1] for name in some["run"]} == {*"01234"}
    assert spread_runs(many(1), 8).equals(many(1))


def test_a_fit_to_a_part_of_the_runs_says_so(monkeypatch):
    @dataclass(frozen=True)
    class Fitted:
        runs: int
        warnings: tuple[str, ...] = ()

    monkeypatch.setattr(module, "fit_curve", lambda runs: Fitted(runs["run"].nunique()))
    told = "fitted to 24 of 30 runs, spread evenly over their schedules; `bss fit curve` fits all"
    assert module._curve_fit(many(6)) == Fitted(24, (told,))
    assert module._curve_fit(many(4)) == Fitted(20)
