"""What decides a best batch of E(S): the runs of each target, the laws and their choice."""

import json

import numpy as np
import pytest

from bss.laws import EsFit, fit_es
from bss.laws.base import BestBatch, Estimate, Options
from bss.laws.es.best import best_batch, target_minimum
from bss.laws.es.data import es_data
from bss.laws.es.values import CROSS_VALIDATED, REQUESTED, UNSELECTED

QUICK = Options(resamples=8)


@pytest.fixture(scope="module")
def chosen(planted):
    points = planted.points(planted.laws["surface"], targets=(2.2, 1.85))
    return fit_es(points, options=QUICK)


@pytest.mark.slow
def test_the_law_is_chosen_by_left_out_batches(chosen):
    assert chosen.choice == CROSS_VALIDATED
    assert chosen.comparison is not None and chosen.cv_error is not None
    assert 0 < chosen.cv_error < 0.2
    assert chosen.law.joint  # the runs are of a surface
    assert all(at.best.value is not None for at in chosen.fits)


@pytest.mark.slow
def test_a_chosen_fit_survives_json(chosen):
    entry = json.loads(json.dumps(chosen.to_dict(), allow_nan=False))
    again = EsFit.from_dict(entry)
    assert again == chosen
    assert isinstance(again.fits[0].batches["B_opt"], BestBatch)


@pytest.mark.slow
@pytest.mark.parametrize("law", [None, "surface"])
def test_where_the_smallest_batch_is_best_no_law_has_a_best_batch(planted, law):
    points = planted.points(planted.laws["hyperbola"], targets=(2.2, 1.85))
    fit = fit_es(points, law, options=QUICK)
    for at in fit.fits:
        assert at.best.value is None and at.best.low is None
        assert at.best.status in ("at_boundary", "within_noise") and at.S_opt is None
        assert at.best.high is None or at.best.high < 64


# The three-stage law takes longest to compile.
@pytest.mark.parametrize("law", ["surface", pytest.param("piecewise", marks=pytest.mark.slow)])
def test_no_b_min_is_above_a_batch_that_reached_its_target(planted, law):
    points = planted.points(planted.laws["surface"], targets=(2.2, 1.85))
    for at in fit_es(points, law, options=QUICK).fits:
        there = points.loc[points["reached"] & (points["target_loss"] == at.target_loss)]
        B_min, smallest = at.batches["B_min"], there["batch"].min()
        assert B_min.value is None or B_min.value <= smallest
        assert B_min.high is None or B_min.high <= smallest


def test_with_fewer_than_six_batches_the_runs_answer(planted):
    points = planted.points(planted.laws["surface"], batches=(4, 8, 16, 32, 64), targets=(2.2,))
    fit = fit_es(points, options=QUICK)
    assert fit.choice == UNSELECTED and fit.law_name == "measured" and fit.comparison is None
    (at,) = fit.fits
    assert at.best == at.measured and at.best.method == "measured"
    assert at.E_min is not None and at.E_min > 0 and at.S_opt is not None


def test_a_requested_law_has_its_cross_validated_error(planted):
    points = planted.points(planted.laws["surface"], targets=(2.2, 1.85))
    fit = fit_es(points, "surface, m = 1/2", options=QUICK)
    assert fit.choice == REQUESTED
    assert fit.cv_error is not None and fit.cv_error > 0.05  # it is the wrong law
    for at in fit.fits:
        assert at.best.method in ("surface", "measured")


def test_a_run_that_does_not_fit_is_named(planted):
    points = planted.points(planted.laws["surface"], targets=(2.2,))
    off = points["run"] == "b32s1"
    points.loc[off, ["steps", "tokens_to_target"]] *= 1.6
    fit = fit_es(points, "hyperbola", options=QUICK)
    (one,) = fit.outliers
    assert one.at == {"run": "b32s1", "batch": 32, "target_loss": 2.2}
    assert one.off == pytest.approx(np.log(1.6), abs=0.1) and one.times > 8
    assert "--drop 'run=b32s1'" in str(one)
    clean = fit_es(points.loc[~off], "hyperbola", options=QUICK)
    assert not clean.outliers


@pytest.mark.slow
def test_hundreds_of_runs_with_seeds_of_their_own_are_one_table_without_seeds(planted):
    points = planted.points(planted.laws["surface"], targets=(2.2,), seeds=60)
    off = points["run"] == "b32s1"
    points.loc[off, ["steps", "tokens_to_target"]] *= 1.6
    fits = [
        fit_es(table, "hyperbola", options=QUICK)
        for table in (points, points.assign(seed=np.arange(len(points))))
    ]
    assert fits[0] == fits[1]
    (one,) = fits[0].outliers
    assert one.at["run"] == "b32s1" and one.off == pytest.approx(np.log(1.6), abs=0.1)


def test_a_law_whose_interval_does_not_meet_the_measured_one_gives_way():
    measured = BestBatch(8.0, 6.0, 10.0, method="measured")
    near, far = Estimate(10.5, 9.0, 12.0), Estimate(14.0, 11.0, 16.0)
    best = best_batch(near, measured, "surface")
    assert (best.value, best.method) == (10.5, "surface")
    assert best.low < near.low and best.high > near.high  # for the form of the law
    assert best_batch(far, measured, "surface") == measured
    requested = best_batch(far, measured, "surface", requested=True)
    assert requested == BestBatch(14.0, pytest.approx(11.0), pytest.approx(16.0), method="surface")
    assert best_batch(Estimate(None), measured, "surface") == measured
    none = measured.unknown("within_noise", "no batch")
    assert best_batch(near, none, "surface") == none


@pytest.mark.parametrize(("level", "z"), [(0.5, 0.6745), (0.9, 1.6449), (0.99, 2.5758)])
def test_the_interval_of_measured_tokens_has_the_level_of_the_fit(planted, level, z):
    points = planted.points(planted.laws["surface"], batches=(4, 8, 16, 32, 64), targets=(2.2,))
    fit = fit_es(points, options=Options(8, level))
    minimum = target_minimum(es_data(points), 2.2, level)
    fewest = fit.fits[0].intervals["E_min"]
    assert fewest.level == level
    assert fewest.high / fewest.value == pytest.approx(np.exp(z * minimum.error), rel=1e-3)
    assert fewest.value / fewest.low == pytest.approx(np.exp(z * minimum.error), rel=1e-3)
