"""The law of loss curves piece by piece: paths, problems, terms and forecasts that are known."""

import dataclasses
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pandas as pd
import pytest

from bss.errors import InputError
from bss.laws.fitting.estimate import Estimate, Options
from bss.laws.functional.curves import Curves, curves_of, stack, unidentified_by_design
from bss.laws.functional.fit import fit_curve
from bss.laws.functional.forecast import along, forecast, last_losses, predict_runs, untested
from bss.laws.functional.forecast import tested as what_was_tested
from bss.laws.functional.free import GRID, free_batches
from bss.laws.functional.law import CurveLaw, Pieces, Readings, kernel_total
from bss.laws.functional.paths import Path, plan_path, run_path
from bss.laws.functional.problem import curve_problem, in_units, law_of
from bss.laws.functional.values import (
    check_drive,
    check_sequences,
    law_losses,
    schedule_losses,
    undriven,
)
from bss.schedules.batch import BatchSchedule
from bss.tables import check_runs
from tests.laws import unsolved
from tests.laws.golden import assert_golden, numbers

LAW = CurveLaw(1.5, 2.0, 0.5, 0.1, 25.0, 10.0, 2.0, 1.5, 1.3, 0.9, 3.0)


def rows(step, batch, lr, loss=None, first=0, seq_len=10):
    """A run's rows, each of the batch of the steps since the row before."""
    step, batch = np.array(step), np.array(batch)
    tokens = np.cumsum(np.diff(step, prepend=first) * batch) * seq_len
    loss = 4 - np.log1p(step) / 9 if loss is None else loss
    table = pd.DataFrame({"run": "x", "step": step, "tokens": tokens, "batch": batch})
    return table.assign(seq_len=seq_len, lr=lr, loss=loss)


def paths():
    """Tables of all kinds as paths."""
    many = np.arange(1, 301)
    wave = 1e-3 * (1 + np.cos(np.pi * many / 300)) / 2
    stage = np.where(many < 100, 2, 8)
    plain = rows([10, 20, 30, 40], [2, 2, 8, 8], 1.0)
    within = plain.assign(tokens=[200, 400, 400 + 4 * 20 + 6 * 80, 960 + 800])
    mixed = plain.assign(batch=2, tokens=[200, 450, 700, 900])
    return {
        "plain": run_path(plain, 0, 0),
        "switch": run_path(within, 0, 0),
        "mixed": run_path(mixed, 0, 0),
        "hardly": run_path(plain.assign(tokens=plain["tokens"] + [0, 19, 0, 79]), 0, 0),
        "warm-up": run_path(rows([10, 20, 30, 40], 2, [0.5, 1.0, 0.8, 0.6]), 150, 0),
        "warm-up ends at a row": run_path(rows([10, 20, 30, 40], 2, 1.0), 200, 0),
        "warm-up over a switch": run_path(plain, 500, 0),
        "warm-up beyond": run_path(rows([10, 20, 30, 40], 2, 1.0), 900, 0, last=True),
        "rising": run_path(rows([10, 20, 30, 40], 2, [0.2, 0.6, 1.0, 1.0]), 0, 0),
        "since": run_path(rows([10, 20, 30, 40], 2, 1.0), 0, 400),
        "before the first step": run_path(rows([0, 10, 20], 2, [0.0, 1.0, 0.5]), 0, 0),
        "no loss at some": run_path(rows([5, 9, 14, 20], 2, 1.0, [3.0, np.nan, 2.0, np.inf]), 0, 0),
        "last": run_path(rows([5, 9, 14], 2, 1.0, [3.0, 2.5, np.nan]), 0, 0, last=True),
        "none": run_path(rows([5, 9, 14], 2, 1.0, np.nan), 0, 0, last=True),
        "few": run_path(rows(many[:40], 2, wave[:40]), 0, 0, readings=7),
        "dense": run_path(rows(many, stage, wave), 0, 0),
        "dense, few readings": run_path(rows(many, stage, wave), 0, 0, readings=5),
        "many stages": run_path(rows(many, 2 + many // 4, wave), 0, 0, readings=8),
        "128 rows": run_path(rows(many[:128], 2, 1.0), 0, 0),
        "129 rows": run_path(rows(many[:129], 2, 1.0), 0, 0),
        "steep": run_path(rows([50, 100, 150, 200], [2, 4, 4, 2], [1.0, 0.5, 1e-3, 0.0]), 0, 0),
    }


def test_tables_as_paths_keep_their_numbers():
    assert_golden("functional-paths", numbers(paths()), rel=1e-6)


def test_plans_as_paths_keep_their_numbers():
    def rate(at):
        return 1e-3 * np.minimum(np.asarray(at) / 1e4, 1) * (1 - 0.9 * np.asarray(at) / 2e5)

    def schedule(text):
        return BatchSchedule.parse(text, total=200_000)

    results = {
        "constant": plan_path(schedule("4"), 200_000, 64, 1e-3),
        "falling": plan_path(schedule("0:1 30%:4 80%:16"), 200_000, 64, rate),
        "read": plan_path(schedule("0:2 50%:4"), 200_000, 64, rate, np.array([1.0, 5e4, 2e5])),
        "steps": plan_path(
            schedule("4"), 200_000, 64, lambda at: np.where(np.asarray(at) < 9e4, 1e-3, 5e-4)
        ),
    }
    assert_golden("functional-plans", numbers(results), rel=1e-6)
    for wrong in ([0.0, 5.0], [5.0, 200_001.0]):
        with pytest.raises(InputError, match="at: losses can be asked at more than 0 and at most"):
            plan_path(schedule("4"), 200_000, 64, 1e-3, np.array(wrong))
    with pytest.raises(InputError, match="run x: its rate is never above 0; correct lr, or leave"):
        run_path(rows([1, 2], 2, 0.0), 0, 0)


def several(**change):
    """Three constant runs and one that changes."""
    tables = [rows([20, 60, 100, 200], b, 1e-3).assign(run=f"b{b}") for b in (2, 4, 16)]
    tables.append(rows([20, 60, 100, 200], [2, 2, 8, 8], 1e-3).assign(run="ramp"))
    return pd.concat(tables, ignore_index=True).assign(**change)


def test_curves_keep_their_numbers():
    silent = several()
    silent.loc[silent["run"] == "b4", "loss"] = np.nan
    no_rate = several().drop(columns="lr")
    results = {
        "all": curves_of(several()),
        "silent": curves_of(silent),
        "ends": curves_of(silent, ends=True),
        "no rate": curves_of(no_rate),
        "peak": curves_of(no_rate.assign(peak_lr=2e-3)),
        "held out": curves_of(several(eval_loss=2.0), warmup=100, since=500),
    }
    assert_golden("functional-curves", numbers(results), rel=1e-6)
    many = pd.concat([several().assign(run=lambda t, i=i: t["run"] + str(i)) for i in range(5)])
    long = pd.concat([rows(np.arange(1, 61), 2, 1.0).assign(run=str(i)) for i in range(20)])
    assert len(curves_of(many.reset_index(drop=True)).runs) == 20
    assert curves_of(long.reset_index(drop=True)).weight.sum() == 20 * 25  # 512 in all
    # One more run has fewer of them: 512 over 21 are 24.
    more = pd.concat([long, rows(np.arange(1, 61), 2, 1.0).assign(run="more")])
    assert curves_of(more.reset_index(drop=True)).weight.sum() == 21 * 24
    longer = pd.concat([long, *(long.assign(run=long["run"] + c) for c in "abcd")])
    assert curves_of(longer.reset_index(drop=True)).weight.sum() == 100 * 8  # and 8 at least
    used = curves_of(several())
    table = used.table(used.weight > 0, loss=used.loss)
    assert table["run"].tolist() == [name for name in ("b2", "b4", "b16", "ramp") for _ in range(4)]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"seq_len": [10] * 15 + [5]}, "runs: seq_len 10, 5 are mixed; fit one at a time"),
        ({"model": [*"abcdefgh"] * 2}, "runs: model a, b, c, d are mixed; fit one at a time"),
        ({"lr": [1e-3] * 4 + [-1.0] * 12}, "runs: lr of run b4 at step 20 is -1.0; write a rate"),
        ({"lr": ["1e-3"] * 15 + ["x"]}, "runs: lr of run ramp at step 200 is x; write a rate of"),
    ],
)
def test_runs_that_no_law_is_of_are_refused(change, says):
    with pytest.raises(InputError) as error:
        curves_of(several(**change))
    assert says in str(error.value)


def test_losses_in_the_warm_up_alone_are_none():
    with pytest.raises(InputError, match="no losses after the warm-up and 100K tokens; lower them"):
        curves_of(several(), since=100_000)
    with pytest.raises(InputError, match="runs: no losses after the warm-up; lower them, or eval"):
        curves_of(several(), warmup=100_000)


def of_pieces(batch, lr: Any = 1e-3, steps: Any = 20.0, piece=0.0, losses=1):
    """Curves of given pieces [R, G], read so often from a piece on."""
    batch = np.array(batch, float)
    shape = batch.shape
    pieces = Pieces(np.broadcast_to(steps, shape), np.broadcast_to(lr, shape).astype(float), batch)
    one = np.ones((shape[0], losses))
    return Curves(("x",) * shape[0], 8, pieces, Readings(piece * one, one), one, one, one)


@pytest.mark.parametrize(
    ("curves", "names"),
    [
        (of_pieces([[2, 2], [2, 2.39]]), {"m", "p", "B_phi", "c_K", "q", "A_1"}),
        (of_pieces([[2, 2], [2, 2.41]]), {"p", "B_phi"}),
        (of_pieces([[2, 8.1], [2, 4]]), {"p"}),
        (of_pieces([[2, 7.9], [2, 4]]), {"p", "B_phi"}),
        (of_pieces([[2, 8.1], [2, 8.1]]), {"p", "B_phi"}),
        (of_pieces([[2, 2], [4, 8.1]]), {"p"}),
        (of_pieces([[2, 2], [4, 4]], [[1e-3, 1.21e-3]]), {"B_phi"}),
        (of_pieces([[2, 2], [4, 4]], [[1e-3, 1.19e-3]]), {"p", "B_phi", "c_K", "q", "A_1"}),
        (of_pieces([[2, 4], [8.1, 4.05]], [[1e-3, 2e-3], [4e-3, 2e-3]]), {"p", "c_K", "q", "A_1"}),
        (of_pieces([[2, 4], [8.1, 4.05]], [[1e-3, 3e-3], [4e-3, 1e-3]]), set()),
        (of_pieces([[2, 2], [4, 4]], [[1.0, 0.006]]), {"p", "B_phi"}),
        (of_pieces([[2, 2], [4, 4]], [[1.0, 0.007]]), {"B_phi"}),
        (of_pieces([[2, 4, 4], [8.1, 8.1, 8.1]], piece=1.0, losses=3), {"p", "c_K", "q", "A_1"}),
        (of_pieces([[2, 4, 4], [8.1, 8.1, 8.1]], piece=1.0), {"p"}),  # too few losses to see it
        (of_pieces([[2, 4, 4], [8.1, 8.1, 8.1]], piece=0.0), {"p"}),
        (of_pieces([[2, 9], [2, 4]], steps=np.array([[9.0, 0], [9, 9]])), {"p", "B_phi"}),
    ],
)
def test_what_runs_cannot_tell_by_design(curves, names):
    assert set(unidentified_by_design(curves)) == names


def test_problems_and_laws_in_units_keep_their_numbers():
    varied = curves_of(several(lr=[1e-3, 1e-3, 5e-4, 5e-4] * 2 + [2e-3] * 8))
    theta = np.array([1.0, -0.5, 0.3, -2.0, -1.0, 0.7, 1.5, 1.4, 0.9, 0.8, 2.0])
    problems = {clock: curve_problem(varied, clock) for clock in ("sgd", "adam")}
    law = law_of(theta)
    results = {
        "problems": problems,
        "law": law,
        "in units": in_units(law, (3.0, 2e-3, 16.0)),
        "kernel": [kernel_total(law._replace(q=q), np.array([0.0, 0.5, 9.0])) for q in (0.5, 1, 2)],
    }
    assert_golden("functional-problems", numbers(results), rel=1e-4)
    with pytest.raises(InputError, match="clock: muon given; write one of sgd, adam"):
        curve_problem(varied, "muon")
    with pytest.raises(InputError, match="runs: one constant batch and rate in all, from which"):
        curve_problem(curves_of(rows([9, 20, 30], 2, 1e-3)), "sgd")
    few = curves_of(several().iloc[4:].reset_index(drop=True))
    least = int((curve_problem(few, "sgd").lower < curve_problem(few, "sgd").upper).sum())
    assert curve_problem(few, "sgd").data["weight"].sum() == 12 > least
    short = few.weight.copy()
    short.ravel()[np.flatnonzero(short)[least:]] = 0
    fewer = dataclasses.replace(few, weight=short)
    with pytest.raises(InputError, match=f"runs: {least} losses for the {least} parameters of the"):
        curve_problem(fewer, "sgd")


def fit_of(planted_curves, **change):
    waves = np.cos(np.arange(7)[:, None] * (1 + np.arange(len(LAW))))
    draws = tuple(tuple(x) for x in np.array(LAW) * (1 + 0.02 * waves))
    known = {"law": LAW, "draws": draws, "rmse": 0.01, "runs": 5, "level": 0.8}
    return dataclasses.replace(planted_curves.fit, **known | change)


def curves_to_train(planted_curves, *texts, rate=4e-3):
    tokens = planted_curves.tokens
    at = np.array([9e5, tokens])
    every = [
        plan_path(BatchSchedule.parse(text, total=tokens), tokens, 64, rate, at) for text in texts
    ]
    return stack(every, 64)


def test_forecasts_keep_their_numbers(planted_curves):
    curves = curves_to_train(planted_curves, "1", "0:1 50%:8")
    results = {
        "draws": forecast(fit_of(planted_curves), curves),
        "left out": forecast(fit_of(planted_curves, left_out_rmse={"sgd": 0.03}), curves),
        "other clock": forecast(fit_of(planted_curves, left_out_rmse={"adam": 9.0}), curves),
        "one run": forecast(fit_of(planted_curves, runs=1), curves),
        "no draws": forecast(fit_of(planted_curves, draws=()), curves),
        "last": last_losses(fit_of(planted_curves), curves),
        "along": along(curves),
        "tested": what_was_tested(fit_of(planted_curves, since=5)),
        "losses": law_losses(LAW, curves),
    }
    assert_golden("functional-forecasts", numbers(results), rel=1e-6)
    with pytest.raises(InputError, match="runs: seq_len 32, but the fit has 64; batches of sequen"):
        check_sequences(planted_curves.fit, 32)


def test_predictions_along_a_schedule_and_of_runs(planted_curves):
    fit = fit_of(planted_curves, since=200_000)
    schedule, at = BatchSchedule.parse("0:1 50%:8", total=10**6), np.array([3e5, 8e5])
    results = [
        schedule_losses(fit, schedule, 10**6, 4e-3, at),
        schedule_losses(fit, schedule, 10**6, 4e-3),
    ]
    runs = predict_runs(fit, check_runs(planted_curves.table(("2",))), warmup=100_000)
    assert float(np.min(runs["tokens"])) > 200_000 and len(runs) > 5
    assert_golden("functional-predicted", numbers([results, runs.to_numpy()[:, 1:].astype(float)]))


@pytest.mark.parametrize(
    ("change", "batch", "lr", "why"),
    [
        ({}, [2, 8, 8], [1, 1, 1], ()),
        ({"status": "not converged"}, [2, 8, 8], [1, 1, 1], ("not converged",)),
        ({"status": "not converged"}, [2, 2, 2], [1, 1, 1], ()),
        ({"identified": False}, [2, 2, 2], [1, 1, 0.98], ("noise is unidentified",)),
        ({"identified": False}, [2, 2, 2], [1, 1, 0.991], ()),
        ({"identified": False}, [2, 2, 2], [0.1, 1, 1], ()),
        ({"status": "bad", "identified": False}, [2, 2, 4], [1, 1, 1], ("bad",)),
        ({"parameters": {"m": Estimate(None, note="one batch")}}, [2, 2, 4], [1, 1, 1],
         ("m is one batch",)),
        ({"parameters": {"m": Estimate(None, note="one batch")}}, [2, 2, 2], [1, 1, 0.5], ()),
    ],
)  # fmt: skip
def test_what_a_fit_cannot_speak_of(planted_curves, change, batch, lr, why):
    fit = dataclasses.replace(planted_curves.fit, **change)
    steps = np.array([10.0, 6.0, 14.0])
    assert undriven(fit, steps, np.array(lr, float), np.array(batch, float)) == why
    for changes in (True, False):
        known = not changes and "parameters" in change
        if why and not known:
            with pytest.raises(InputError, match=f"fit: {why[0]}; add runs that change"):
                check_drive(fit, batch_changes=changes)
        elif not change or known:
            check_drive(fit, batch_changes=changes)


def test_what_is_far_from_the_runs_is_told_at_a_quarter(planted_curves):
    def run(lr, batch=4.0, steps=(100, 100)):
        lr, steps = np.array([lr], float), np.array([steps], float)
        path = Path("x", steps[0], lr[0], np.full(2, batch), np.ones(1), np.ones(1), np.ones(1))
        return stack([path], 64)

    fit = dataclasses.replace(
        planted_curves.fit, tokens=200 * 4 * 64, batches=(4.0, 4.0), rates=(1.0, 1.0), lowest=0.5
    )
    assert untested(fit, run([1.0, 0.41])) == [()]
    assert untested(fit, run([1.0, 0.39])) == [
        ("the rate falls to 0.39 of its peak, measured to 0.5",)
    ]
    assert untested(fit, run([1.0, 1.0], steps=(150, 101)))[0] == (
        "tokens 1.25 times the longest run",
    )
    assert untested(fit, run([1.0, 1.0], steps=(150, 100))) == [()]
    both = untested(fit, run([1.3, 1.3], 5.2, steps=(90, 90)))[0]
    assert both == (
        "batch 5.2 is 1.3 times the largest measured", "lr 1.3 is 1.3 times the largest measured"
    )  # fmt: skip
    small = untested(dataclasses.replace(fit, since=10**6), run([0.7, 0.7], 3.0))[0]
    assert small == (
        "the fit is of losses after 1M tokens", "batch 3 is 0.75 times the smallest measured",
        "lr 0.7 is 0.7 times the smallest measured",
    )  # fmt: skip


def test_free_batches_are_sought_from_four_starts_by_value_and_slope(planted_curves, monkeypatch):
    def rate(at):
        return 4e-3 * (1 - 0.5 * np.asarray(at) / planted_curves.tokens)

    sought = []

    def minimize(objective, x, **how):
        value, slope = objective(x)
        sought.append((x, value, slope, how["bounds"], how["jac"], how["method"]))
        return SimpleNamespace(fun=value, x=x)

    monkeypatch.setattr("bss.laws.functional.free.minimize", minimize)
    fit, tokens, falling = planted_curves.fit, planted_curves.tokens, cast(Any, rate)
    results = [
        free_batches(fit, tokens, falling, (4, 1, 32)),
        free_batches(fit, tokens, falling, (1, 32), 2.2),
    ]
    least = min(range(4), key=lambda i: sought[i][1])
    np.testing.assert_allclose(results[0], np.exp(sought[least][0]))
    assert len(sought) == 8 and len(GRID) == 33
    assert_golden("functional-free", numbers([GRID, results, sought]), rel=1e-6)


def test_a_fit_makes_its_numbers_of_solutions(monkeypatch):
    monkeypatch.setattr("bss.laws.functional.judged.solve_in_rounds", unsolved.solve_in_rounds)
    rates = [1e-3, 1e-3, 5e-4, 2e-4] + [1e-3, 8e-4, 8e-4, 0.0] + [2e-3] * 8
    runs, reports = several(lr=rates), []
    options = Options(12, 0.8, 2)
    results = {
        "chosen": fit_curve(runs, since=0, options=options, report=reports.append),
        "adam": fit_curve(runs, clock="adam", since=200, options=options),
    }
    assert len(results["chosen"].left_out_rmse) == 4 and results["adam"].clock == "adam"
    assert len(results["adam"].left_out_rmse) == 1
    assert fit_curve(runs, clock="sgd").resamples == 100
    assert reports[0] == "sgd clock: fit to 4 runs" and reports[-1].endswith("clock: 12 refits")
    assert_golden("functional-fits", numbers(results), rel=1e-5)
