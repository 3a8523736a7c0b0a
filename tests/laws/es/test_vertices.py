"""What decides a best batch of E(S): the valley of each target, the laws and their choice."""

import json

import numpy as np
import pytest

from bss.laws import EsFit, fit_es
from bss.laws.es.design import USUAL_SLOPE
from bss.laws.es.values import ASKED, CHOSEN, NONE_CHOSEN
from bss.laws.es.vertices import TYPICAL, settled
from bss.laws.fitting.estimate import BestBatch, Estimate, Options

QUICK = Options(resamples=8)
VERTEX = BestBatch(10.0, 7.0, 14.0, source="vertex")


@pytest.fixture(scope="module")
def chosen(planted):
    points = planted.points(planted.laws["surface"], targets=(2.2, 1.85))
    return fit_es(points, options=QUICK)


def test_the_law_is_chosen_by_left_out_batches(chosen):
    assert chosen.choice.startswith(CHOSEN[:8]) or "averaged" in chosen.choice
    assert chosen.comparison is not None and chosen.error is not None
    assert 0 < chosen.error < 0.2
    assert chosen.law.joint  # the runs are of a surface
    assert all(at.best is not None and at.best.value is not None for at in chosen.fits)


def test_a_chosen_fit_survives_json(chosen):
    entry = json.loads(json.dumps(chosen.to_dict(), allow_nan=False))
    again = EsFit.from_dict(entry)
    assert again == chosen
    assert isinstance(again.fits[0].batches["B_opt"], BestBatch)


@pytest.mark.parametrize("law", [None, "surface"])
def test_where_the_smallest_batch_is_best_no_law_has_a_best_batch(planted, law):
    points = planted.points(planted.laws["hyperbola"], targets=(2.2, 1.85))
    fit = fit_es(points, law, options=QUICK)
    for at in fit.fits:
        assert at.best is not None and at.best.value is None and at.best.low is None
        assert at.best.status in ("end", "flat") and at.S_opt is None
        assert at.best.high is None or at.best.high < 64


def test_no_b_min_is_above_a_batch_that_reached_its_target(planted):
    points = planted.points(planted.laws["surface"], targets=(2.2, 1.85))
    for law in ("surface", "piecewise"):
        for at in fit_es(points, law, options=QUICK).fits:
            there = points.loc[points["reached"] & (points["target_loss"] == at.target_loss)]
            B_min, smallest = at.batches["B_min"], there["batch"].min()
            assert B_min.value is None or B_min.value <= smallest
            assert B_min.high is None or B_min.high <= smallest


def test_of_one_target_without_seeds_the_scatter_is_the_usual_one_of_losses(planted):
    points = planted.points(planted.laws["surface"], batches=(4, 8, 16, 32), targets=(2.2,))
    points = points.groupby("batch").head(1)
    evidence = fit_es(points, options=QUICK).fits[0].vertex.evidence
    assert evidence.source == "what is usual"
    assert evidence.scatter == pytest.approx(TYPICAL / USUAL_SLOPE, rel=0.5)


def test_with_fewer_than_six_batches_vertices_answer(planted):
    points = planted.points(planted.laws["surface"], batches=(4, 8, 16, 32, 64), targets=(2.2,))
    fit = fit_es(points, options=QUICK)
    assert fit.choice == NONE_CHOSEN and fit.name == "no" and fit.comparison is None
    (at,) = fit.fits
    assert at.best is not None and at.best == at.vertex and at.best.source == "vertex"
    assert at.E_min is not None and at.E_min > 0 and at.S_opt is not None


def test_a_law_that_is_asked_for_is_obeyed_with_its_error_beside_it(planted):
    points = planted.points(planted.laws["surface"], targets=(2.2, 1.85))
    fit = fit_es(points, "surface, m = 1/2", options=QUICK)
    assert fit.choice == ASKED
    assert fit.error is not None and fit.error > 0.05  # it is the wrong law
    for at in fit.fits:
        assert at.best is not None and at.best.source == "surface"
        assert at.best.value != at.vertex.value


def test_a_best_batch_of_a_law_is_given_where_it_agrees():
    found, said = settled(VERTEX, Estimate(12.0, 11.9, 12.1), "some")
    assert (found.value, found.low, found.high, found.source) == (12.0, 7.0, 14.0, "some")
    assert not said
    found, said = settled(VERTEX, Estimate(20.0), "some")
    assert found == VERTEX
    assert "some law has B_opt 20" in said and "10 (7 – 14)" in said
    unknown = VERTEX.unknown("end", "at an end")
    assert settled(unknown, Estimate(12.0), "some") == (unknown, "")


def test_a_run_that_does_not_fit_is_named(planted):
    points = planted.points(planted.laws["surface"], targets=(2.2,))
    off = points["run"] == "b32s1"
    points.loc[off, ["steps", "tokens_to_target"]] *= 1.6
    fit = fit_es(points, "hyperbola", options=QUICK)
    (one,) = fit.outliers
    assert (one.run, one.batch) == ("b32s1", 32)
    assert one.off == pytest.approx(np.log(1.6), abs=0.1) and one.times > 8
    assert "--drop 'run=b32s1'" in str(one)
    clean = fit_es(points.loc[~off], "hyperbola", options=QUICK)
    assert not clean.outliers


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
    assert one.run == "b32s1" and one.off == pytest.approx(np.log(1.6), abs=0.1)
