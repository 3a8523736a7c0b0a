"""The law of loss curves: its integral, planted recovery, the exact recursion, identification."""

import dataclasses
import itertools
import json

import numpy as np
import pandas as pd
import pytest
from scipy.integrate import quad

from bss.errors import InputError
from bss.laws import CurveFit, fit_curve
from bss.laws.base import Estimate, Options
from bss.laws.functional.data import curves_of, plan_path, stack, unidentified_by_design
from bss.laws.functional.fit import _ranges, _warnings
from bss.laws.functional.law import CurveLaw, law_losses
from bss.laws.functional.problem import NAMES, curve_problem
from bss.laws.functional.values import schedule_losses
from bss.schedules import rates
from bss.schedules.batch import BatchSchedule
from bss.theory.recursion import varying_risks
from bss.theory.regression import Stage, Task, risk_curve, stages

OPTIONS = Options(resamples=8)
DATA = 2**16
RATE = 0.1


def integrated(law: CurveLaw, steps, lr, batch) -> float:
    """The law at the end of stages of constant rate and batch, by adaptive quadrature."""
    added = np.array(steps) * lr / np.sqrt(1 + law.B_phi / np.array(batch))
    ends = np.cumsum(added)
    last = ends[-1]
    total = law.L_0 + law.c_1 * (1 + last / law.T_0) ** -law.s
    for begin, end, rate, size in zip(ends - added, ends, lr, batch, strict=True):

        def inside(u, nu=rate**law.p / size**law.m):
            noise = law.A_0 + law.A_1 * (1 + u / law.T_0) ** -law.s
            return noise * nu * (1 + law.c_K * (last - u)) ** -law.q

        cuts = np.unique([begin, *(last - np.geomspace(1e-4, last, 30)), end])
        cuts = cuts[(cuts >= begin) & (cuts <= end)]
        total += sum(quad(inside, a, b)[0] for a, b in itertools.pairwise(cuts))
    return total


@pytest.mark.parametrize(
    "changes", [{}, {"q": 1.0}, {"p": 0.5, "m": 0.4, "B_phi": 6.0}, {"s": 1.0, "q": 0.8}]
)
def test_the_law_equals_its_integral(planted_curves, changes):
    law = planted_curves.law._replace(**changes)
    schedule = BatchSchedule.parse("0:2 40%:8 70%:4", total=planted_curves.tokens)
    path = plan_path(schedule, planted_curves.tokens, planted_curves.seq_len, 4e-3)
    found = law_losses(law, stack([path], planted_curves.seq_len))[0, 0]
    counts = [round(float(path.steps[path.batch == b].sum())) for b in (2, 8, 4)]
    expected = integrated(law, counts, [4e-3] * 3, [2, 8, 4])
    assert found == pytest.approx(expected, rel=3e-4)


@pytest.mark.slow
def test_a_planted_law_of_sgd_is_recovered(planted_curves):
    runs = planted_curves.table(planted_curves.constants + planted_curves.two_stage, seed=1)
    fit = fit_curve(runs, clock="sgd", since=0, options=OPTIONS)
    assert (fit.status, fit.identified, fit.runs) == ("converged", True, 9)
    assert fit.rmse == pytest.approx(2.2e-3, rel=0.5)
    assert len(fit.draws) == OPTIONS.resamples
    for estimate in fit.parameters.values():
        if estimate.value is not None:
            assert (estimate.low or 0) <= estimate.value <= (estimate.high or np.inf)
    truth = planted_curves.law
    found = np.array([fit.law.L_0, fit.law.s, fit.law.q])
    np.testing.assert_allclose(found, [truth.L_0, truth.s, truth.q], rtol=0.1)
    for name in ("L_0", "s", "q"):
        estimate = fit.parameters[name]
        assert estimate.level == 0.9
        assert (estimate.low or 0) < (estimate.value or 0) < (estimate.high or 0)
    unseen = planted_curves.table(("0:1 40%:2 60%:4 80%:16", "0:1 95%:16"))
    found = fit.predict(unseen)
    np.testing.assert_allclose(found["loss"], unseen["loss"], rtol=0.01)


@pytest.mark.slow
def test_early_losses_that_are_no_law_are_left_out(planted_curves):
    runs = planted_curves.table(planted_curves.constants + planted_curves.two_stage)
    early = 1 + 0.3 * np.exp(-runs["tokens"] / 100_000)
    runs["loss"] = runs["loss"] * early
    fit = fit_curve(runs, clock="sgd", since=500_000, options=OPTIONS)
    assert fit.since == 500_000
    assert fit.rmse < 2e-3
    unseen = planted_curves.table(("0:1 40%:2 60%:4 80%:16",)).query("tokens > 500_000")
    found = fit.predict(unseen)
    np.testing.assert_allclose(found["loss"], unseen["loss"], rtol=0.01)
    whole = fit_curve(runs, clock="sgd", since=0, options=OPTIONS)
    assert whole.rmse > 5 * fit.rmse
    assert fit.cv_error < whole.cv_error
    assert fit.predict(runs)["loss"].isna().tolist() == (runs["tokens"] <= 500_000).tolist()


@pytest.mark.slow
def test_an_adam_clock_is_told_from_sgd(planted_curves):
    law = planted_curves.law._replace(A_0=40.0, A_1=0.0, m=0.5, B_phi=6.0)
    runs = planted_curves.table(planted_curves.constants + planted_curves.two_stage, law)
    fit = fit_curve(runs, since=0, options=Options(resamples=2))
    assert fit.clock == "adam"
    assert fit.cv_errors["adam"] < 0.5 * fit.cv_errors["sgd"]
    assert fit.law.m == pytest.approx(0.5, abs=0.1)
    assert fit.law.B_phi == pytest.approx(6.0, rel=0.3)
    assert fit.unidentified["p"] == "unidentified: one learning rate"


@pytest.fixture(scope="module")
def task():
    return Task(0.5, 2.0, 128, 1.0)


def regression_run(task, text) -> pd.DataFrame:
    """Losses of the exact recursion at steps even in their logarithm, and after each switch."""
    run = stages(BatchSchedule.parse(text, total=DATA), DATA, RATE)
    ends = np.cumsum([round(stage.steps) for stage in run])
    after = [end + np.geomspace(3, ends[-1] - end, 12) for end in ends[:-1]]
    at = np.unique(np.concatenate([np.geomspace(30, ends[-1], 40), *after]).astype(int))
    which = np.searchsorted(ends, at)
    return pd.DataFrame(
        {
            "run": text,
            "step": at,
            "batch": [int(run[i].batch) for i in which],
            "tokens": [_samples(run, int(step)) for step in at],
            "lr": RATE,
            "seq_len": 1,
            "loss": risk_curve(task, run, at) + task.noise / 2,
        }
    )


def _samples(run: tuple[Stage, ...], step: int) -> int:
    total = 0
    for stage in run:
        taken = min(step, round(stage.steps))
        total, step = total + taken * round(stage.batch), step - taken
    return total


@pytest.fixture(scope="module")
def regression_fit(task):
    """A fit of nine runs, for slow tests alone; tests/cli/test_fit_curve.py has quicker ones."""
    pilots = ("1", "2", "4", "8", "16", "0:1 50%:8", "0:1 80%:16", "0:2 30%:8", "0:16 50%:2")
    runs = pd.concat([regression_run(task, text) for text in pilots], ignore_index=True)
    return fit_curve(runs, clock="sgd", since=0, options=OPTIONS)


@pytest.mark.slow
def test_pilots_of_the_exact_recursion_predict_unseen_ramps(task, regression_fit):
    assert regression_fit.status == "converged"
    assert regression_fit.identified
    ramps = ("0:1 20%:2 40%:4 60%:8 80%:16", "0:1 50%:2 75%:4 90%:8", "0:1 95%:16")
    unseen = pd.concat([regression_run(task, text) for text in ramps], ignore_index=True)
    table = unseen.assign(predicted=regression_fit.predict(unseen)["loss"])
    np.testing.assert_allclose(table["predicted"], table["loss"], rtol=0.01)
    last = table.groupby("run", sort=False).last()
    best = min(last.index, key=lambda run: last.loc[run, "loss"])
    assert best == min(last.index, key=lambda run: last.loc[run, "predicted"])
    # The kernel's exponent is the theory's, 2 − 1/β; the signal's is s.
    assert regression_fit.law.q == pytest.approx(1.5, abs=0.15)
    assert regression_fit.law.s == pytest.approx(0.5, abs=0.05)


@pytest.mark.slow
@pytest.mark.parametrize("shape", ["cosine", "wsd"])
def test_they_predict_cosine_and_wsd_too(task, regression_fit, shape):
    steps, batch = DATA // 4, 4
    rate = rates.cosine(RATE, DATA) if shape == "cosine" else rates.wsd(RATE, DATA, 0, DATA // 5)
    middle = (np.arange(steps) + 0.5) * batch
    risks = varying_risks(task, rate(middle), np.full(steps, float(batch)))
    at = np.geomspace(100, steps, 20).astype(int)
    found = schedule_losses(regression_fit, BatchSchedule.constant(batch), DATA, rate, at * batch)
    np.testing.assert_allclose(found, risks[at] + task.noise / 2, rtol=0.01)


@pytest.fixture(scope="module")
def constants_fit(planted_curves):
    return fit_curve(planted_curves.table(planted_curves.constants), since=0, options=OPTIONS)


@pytest.mark.slow
def test_constants_alone_are_reported_as_unidentified(planted_curves, constants_fit):
    fit = constants_fit
    assert not fit.identified
    assert fit.status.startswith("unidentified")
    for name in ("c_K", "q", "A_1", "p"):
        assert fit.parameters[name].value is None or fit.clock == "sgd"
    assert {"c_K", "q", "A_1"} <= set(fit.unidentified)
    tokens = planted_curves.tokens
    with pytest.raises(InputError, match="no run changes its batch") as told:
        schedule_losses(fit, BatchSchedule.parse("0:1 1M:8"), tokens, 4e-3)
    assert "\n" not in str(told.value)
    (constant,) = schedule_losses(fit, BatchSchedule.constant(3), tokens, 4e-3)
    expected = planted_curves.table(("3",))["loss"].iloc[-1]
    assert constant == pytest.approx(expected, rel=0.02)


def test_what_varies_is_identified(planted_curves):
    def missing(*tables):
        named = [table.assign(run=f"{i} " + table["run"]) for i, table in enumerate(tables)]
        return set(unidentified_by_design(curves_of(pd.concat(named, ignore_index=True))))

    table, kernel = planted_curves.table, {"c_K", "q", "A_1"}
    three, tokens = table(("1", "4", "16")), planted_curves.tokens
    assert missing(three) == {"p"} | kernel
    assert missing(three, table(("1",), rate=1e-3)) == kernel
    assert missing(table(("1",)), table(("1",), rate=1e-3)) == {"m", "B_phi"} | kernel
    assert missing(table(("1",)), table(("4",), rate=8e-3)) == {"p", "B_phi"} | kernel
    assert missing(three, table(("0:1 50%:8",))) == {"p"}
    assert missing(three, table(("1",), rate=rates.wsd(4e-3, tokens, 0, tokens // 5))) == set()


def test_an_lr_of_0_or_far_above_the_others_gives_no_warning(planted_curves):
    runs = planted_curves.table(("1", "4", "16"))
    peak = runs["lr"].max()
    one_batch = runs.assign(lr=runs["lr"].mask(runs.index == 3, 1e3 * peak))
    assert "p" not in unidentified_by_design(curves_of(one_batch))  # one run, at two LRs
    late = runs.assign(lr=runs["lr"].mask(runs["step"] == runs["step"].min(), 0.0))
    ranges = _ranges(curves_of(late))
    assert 0 < ranges["min_lr_over_peak"] <= 1
    assert ranges["rates"][-1] == pytest.approx(peak)


@pytest.mark.parametrize(
    "name",
    ["planted_curves", *(pytest.param(f"{x}_fit", marks=pytest.mark.slow)
                         for x in ("regression", "constants"))],
)  # fmt: skip
def test_a_fit_survives_json(name, request):
    fit = request.getfixturevalue(name)
    fit = fit.fit if name == "planted_curves" else fit
    assert CurveFit.from_dict(json.loads(json.dumps(fit.to_dict()))) == fit
    with pytest.raises(InputError, match=r"damaged, .*KeyError"):
        CurveFit.from_dict({"kind": "curve"})
    with pytest.raises(InputError, match="kind 'es'"):
        CurveFit.from_dict({"kind": "es"})


def at_three_rates(planted_curves, law) -> pd.DataFrame:
    frames = [
        planted_curves.table(("0:4 50%:16",), law, rate).assign(run=f"{rate:g}")
        for rate in (1e-3, 4e-3, 8e-3)
    ]
    return pd.concat(frames, ignore_index=True)


def test_no_clock_holds_the_exponent_of_a_rate_that_varies(planted_curves):
    curves = curves_of(at_three_rates(planted_curves, planted_curves.law))
    for clock, free in (("sgd", {"p"}), ("adam", {"p", "m"})):
        problem = curve_problem(curves, clock)
        fitted = {
            n
            for n, few, most in zip(NAMES, problem.lower[0], problem.upper[0], strict=True)
            if few < most
        }
        assert fitted & {"p", "m", "B_phi"} == free


def test_one_more_run_is_named_where_all_have_one_peak_lr(planted_curves):
    runs = planted_curves.table(("1", "4", "16"))
    named = _warnings(curves_of(runs), {"p": Estimate(1.0)}, True, planted_curves.law)
    assert len(named) == 1 and "one more run, 1 at half its peak LR (0.002), would" in named[0]


def test_one_more_run_is_named_where_several_peak_lrs_do_not_identify_p(planted_curves):
    curves = curves_of(at_three_rates(planted_curves, planted_curves.law))
    unknown = {"p": Estimate(None, note="unidentified: ended at a bound of the fit")}
    *_, named = _warnings(curves, unknown, True, planted_curves.law)
    assert named.startswith("p is unidentified: predictions at another peak LR")
    assert "at half its peak LR" in named
    assert not _warnings(curves, {"p": Estimate(1.0)}, True, planted_curves.law)


@pytest.mark.slow
def test_it_is_recovered_from_three_runs(planted_curves):
    law = planted_curves.law._replace(p=1.6, A_0=400.0, A_1=160.0)
    fit = fit_curve(at_three_rates(planted_curves, law), options=Options(resamples=8))
    assert fit.clock == "sgd"
    assert fit.law.p == pytest.approx(1.6, abs=0.05)
    assert (fit.law.m, fit.law.B_phi, fit.cv_errors) == (1.0, 0.0, {})


def row(**changes) -> dict:
    return {"run": "x", "step": 10, "batch": 2, "seq_len": 8, "lr": 1e-3, "loss": 3.0} | changes


@pytest.mark.parametrize(
    ("rows", "options", "told"),
    [
        ([row(step=10 * k, loss=3 / k) for k in range(1, 9)], {}, "one batch and one LR"),
        ([row(), row(step=20), row(run="y", seq_len=16)], {}, "seq_len 8, 16 are mixed"),
        ([row(run=b, batch=b) for b in (1, 2, 4, 8)], {}, "4 losses for the 5 parameters"),
        ([row(lr=0.0), row(run="y")], {}, "run x: its rate is never above 0"),
        ([row(), row(step=20, lr=-1.0)], {}, "row 2: lr is -1.0"),
        ([row(), row(step=20, lr=np.nan)], {}, "row 2: lr is nan"),
        ([row(step=k, run=b, batch=b) for b in (1, 2) for k in (1, 2, 3)], {"clock": "x"}, "sgd"),
        ([row(step=10 * k) for k in range(1, 9)], {"warmup": 10**6}, "no losses after the warm-up"),
        ([row(loss=np.nan), row(step=20, loss=np.nan)], {}, "no losses after the warm-up"),
    ],
)
def test_runs_that_cannot_be_fitted_are_refused_in_one_line(rows, options, told):
    with pytest.raises(InputError, match=told) as error:
        fit_curve(pd.DataFrame(rows), **options)
    assert "\n" not in str(error.value)


def test_batches_of_other_sequence_lengths_are_not_predicted(planted_curves):
    other = dataclasses.replace(planted_curves.fit, seq_len=128)
    with pytest.raises(InputError, match="seq_len 64, but the fit has 128"):
        other.predict(planted_curves.table(("1",)))


def test_ends_alone_identify_by_their_whole_paths(planted_curves):
    """Runs of one loss each, of many batches, rates and switches: none changes after its loss."""
    table, tokens = planted_curves.table, planted_curves.tokens
    texts = ("1", "2", "4", "8", "16", "0:1 50%:8", "0:16 50%:2", "0:1 80%:16", "0:2 30%:8")
    falling = rates.wsd(4e-3, tokens, 0, tokens // 5)
    frames = [table(texts), table(("2", "8"), rate=falling), table(("1", "4"), rate=2e-3)]
    named = [frame.assign(run=f"{i} " + frame["run"]) for i, frame in enumerate(frames)]
    runs = pd.concat(named, ignore_index=True)
    last = runs["tokens"] == runs.groupby("run")["tokens"].transform("max")
    runs["loss"] = runs["loss"].where(last)
    assert not {"c_K", "q", "A_1"} & set(unidentified_by_design(curves_of(runs)))
    constants = runs.loc[runs["run"].isin(["0 1", "0 4", "0 16", "2 1"])]
    reasons = unidentified_by_design(curves_of(constants))
    assert {"c_K", "q", "A_1"} <= set(reasons)


def test_an_unknown_clock_is_refused(planted_curves):
    with pytest.raises(InputError, match="clock"):
        curve_problem(curves_of(planted_curves.table(("1", "4"))), "adam^0.5")


@pytest.mark.slow
def test_a_fit_holds_what_it_fitted(regression_fit):
    table = regression_fit.residuals()
    assert len(table) == regression_fit.losses and table["run"].nunique() == regression_fit.runs
    assert set(regression_fit.RESIDUAL_AXES) < {*table.columns}
    rms = np.sqrt(np.mean(table["residual"] ** 2))
    assert rms == pytest.approx(regression_fit.rmse, rel=1e-2)
    own = np.log(table["measured"] / table["fitted"])
    np.testing.assert_allclose(table["residual"], own)
    assert table.groupby("run")["share"].max().tolist() == [1.0] * regression_fit.runs
    switched = table.loc[table["run"] == "0:16 50%:2"]
    assert switched["batch"].iloc[[0, -1]].tolist() == [16, 2]
    assert len(json.dumps(regression_fit.to_dict(), indent=1)) < 150_000
    summary = regression_fit.summary().set_index("parameter")
    assert summary.loc["q", "value"] == regression_fit.law.q
    assert summary.loc["q", "low"] < summary.loc["q", "value"] < summary.loc["q", "high"]


@pytest.mark.slow
def test_the_best_constant_batch_is_the_lowest_of_its_predictions(regression_fit):
    best = regression_fit.best_batch(DATA, RATE / 2)
    losses = {
        b: schedule_losses(regression_fit, BatchSchedule.constant(b), DATA, RATE / 2)[0]
        for b in (1, 2, 4, 8, 16)
    }
    at = int(best.value or best.high or 0)
    found = schedule_losses(regression_fit, BatchSchedule.constant(at), DATA, RATE / 2)[0]
    assert found <= min(losses.values()) + 1e-4
    assert best.method == "law" and (best.value is None) == (best.status != "ok")
