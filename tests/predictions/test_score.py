"""Scores of registered predictions, against numbers worked out by hand."""

import dataclasses

import numpy as np
import pandas as pd
import pytest

from bss.errors import InputError
from bss.laws.fitting.estimate import Estimate
from bss.predictions.registration import Prediction, Registration
from bss.predictions.score import score

LAW = np.array([2.00, 1.90, 1.85, 2.20, 2.05, 1.70])
MEASURED = np.array([2.02, 1.88, 1.85, 2.10, 2.01, 1.75])
BASELINE = np.array([2.0, 2.0, 1.9, 2.0, 2.1, 1.8])


@pytest.fixture
def registration():
    told = [
        Prediction(
            f"s{i}",
            (f"r{i}a", f"r{i}b"),
            1000,
            Estimate(float(law), float(law) - 0.045, float(law) + 0.045),
            {"flat": float(flat)},
            ("constant", "wsd")[i % 2],
        )
        for i, (law, flat) in enumerate(zip(LAW, BASELINE, strict=True))
    ]
    return Registration("r", "test_loss", tuple(told), {}, {"flat": "a pilot"})


@pytest.fixture
def outcomes():
    rows = [
        {"run": f"r{i}{seed}", "status": "finished", "tokens": 1000, "test_loss": loss + off}
        for i, loss in enumerate(MEASURED)
        for seed, off in (("a", -0.05), ("b", 0.05))
    ]
    return pd.DataFrame(rows)


def errors(predicted):
    return 100 * np.abs(predicted / MEASURED - 1)


def ends(told: Estimate | None) -> tuple[float, float, float]:
    """An estimate between the ends of its interval."""
    assert told is not None
    assert told.low is not None and told.value is not None and told.high is not None
    return told.low, told.value, told.high


def test_seeds_are_averaged_and_schedules_scored(registration, outcomes):
    found = score(registration, outcomes, resamples=200)
    assert [one.measured for one in found.schedules] == pytest.approx(MEASURED.tolist())
    assert not found.failures
    assert [*found.judged] == ["constant", "wsd", "all"]
    everywhere = found.judged["all"]
    assert [*everywhere] == ["law", "flat", "mean of law and flat"]
    predictors = zip(everywhere.values(), (LAW, BASELINE, (LAW + BASELINE) / 2), strict=True)
    for judged, predicted in predictors:
        assert judged.error.value == pytest.approx(np.median(errors(predicted)))
        spearman = pd.Series(predicted).corr(pd.Series(MEASURED), method="spearman")
        assert judged.rank.value == pytest.approx(spearman)
        ratio = np.std(predicted - MEASURED) / np.std(MEASURED)
        assert judged.differences.value == pytest.approx(ratio)
        assert np.all(np.diff(ends(judged.error)) >= 0)
        low, _, high = ends(judged.rank)
        assert low < high <= 1
    covered = np.abs(MEASURED - LAW) <= 0.045
    assert covered.sum() == 4
    assert ends(everywhere["law"].coverage)[1] == pytest.approx(4 / 6)
    assert everywhere["flat"].coverage is None
    assert found.judged["wsd"]["law"].error.value == pytest.approx(np.median(errors(LAW)[1::2]))


def test_law_and_baseline_are_compared_on_the_same_schedules(registration, outcomes):
    less = errors(LAW) - errors(BASELINE)
    compared = score(registration, outcomes).compared["all"]
    assert [*compared] == ["law - flat", "mean of law and flat - flat"]
    found = compared["law - flat"]
    assert found.value == pytest.approx(less.mean())
    spread = less.std() / np.sqrt(6)  # the bootstrap's, over schedules
    low, _, high = ends(found)
    assert high - low == pytest.approx(2 * 1.96 * spread, rel=0.15)
    assert found.level == 0.95


def test_a_failed_run_fails_its_schedule(registration, outcomes):
    outcomes.loc[2, ["status", "test_loss"]] = "diverged", np.nan
    outcomes.loc[5, "tokens"] = 900
    outcomes.loc[6, "test_loss"] = np.nan
    found = score(registration, outcomes[outcomes["run"] != "r0b"], resamples=200)
    assert [(one.run, one.schedule, one.why) for one in found.failures] == [
        ("r0b", "s0", "missing"),
        ("r1a", "s1", "diverged"),
        ("r2b", "s2", "ended at 900 tokens, not 1,000"),
        ("r3a", "s3", "no test_loss"),
    ]
    assert [one.measured is None for one in found.schedules] == [True] * 4 + [False] * 2
    law = found.judged["all"]["law"]
    assert ends(law.coverage)[1] == pytest.approx(1 / 6)
    assert (law.error.value, law.error.note) == (None, "half of the schedules failed")
    assert law.rank.note == "2 schedules, fewer than 3"


def test_one_failure_moves_the_median_up_and_the_coverage_down(registration, outcomes):
    law = score(registration, outcomes[1:], resamples=200).judged["all"]["law"]
    left = np.sort(np.append(errors(LAW)[1:], np.inf))
    assert law.error.value == pytest.approx((left[2] + left[3]) / 2)
    assert (left[2] + left[3]) / 2 > np.median(errors(LAW)) + 0.5
    assert law.error.high is None  # many resamples have the failed one three times
    assert ends(law.coverage)[1] == pytest.approx(3 / 6)


def test_a_prediction_that_never_varies_has_no_rank(registration, outcomes):
    flat = [dataclasses.replace(one, baselines={"flat": 2.0}) for one in registration.predictions]
    found = score(dataclasses.replace(registration, predictions=tuple(flat)), outcomes)
    assert found.judged["all"]["flat"].rank.note == "nothing varies"
    assert found.judged["all"]["flat"].differences.value == pytest.approx(1)


def test_bad_tables_are_refused(registration, outcomes):
    with pytest.raises(InputError, match="none has a test_loss"):
        score(registration, outcomes.drop(columns="test_loss"))
    with pytest.raises(InputError, match="run r0a has two rows"):
        score(registration, pd.concat([outcomes, outcomes[:1]]))
