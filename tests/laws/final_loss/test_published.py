"""The law of final losses on a published table: what it predicts of runs that it has not seen."""

import json
from pathlib import Path

import numpy as np
import pytest

from bss.errors import InputError
from bss.laws import LossFit, fit_loss
from bss.laws.base import Options
from bss.laws.final_loss.table import read_losses
from bss.policies import policy_named
from bss.policies.policy import Basis, Limits
from bss.tables.reading import Reading

PUBLISHED = Path(__file__).parents[3] / "results/published/steplaw_dense_best.csv"
COMMITTED = Path(__file__).parents[3] / "bss/laws/published/steplaw_dense.json"
RATES = PUBLISHED.with_name("steplaw_rates.csv")
RATED = COMMITTED.with_name("steplaw_rates.json")


@pytest.fixture(scope="module")
def fit():
    """Of all rows."""
    return fit_loss(read_losses(PUBLISHED), options=Options(resamples=300))


def width(estimate):
    """Of an interval that holds its estimate."""
    assert estimate.low < estimate.value < estimate.high
    return estimate.high - estimate.low


@pytest.mark.slow
def test_left_out_losses_are_predicted(fit):
    assert fit.left_out["cell"] <= 0.0087  # 1.15 times .0076, .0067 and .0065
    assert fit.left_out["params"] <= 0.0077
    assert fit.left_out["tokens"] <= 0.0075
    table = read_losses(PUBLISHED)
    large = table["tokens"] >= 80e9
    rest, unseen = fit_loss(table.loc[~large]), table.loc[large]
    off = rest.predict(unseen)["loss"] - unseen["loss"]
    assert len(off) == 20 and np.sqrt(np.mean(off**2)) <= 0.0075


@pytest.mark.slow
def test_best_batches_are_those_of_the_cells_own_parabolas(fit):
    points, ratios = fit.law.points, []
    for at, rows in zip(fit.optima, points.cells, strict=True):
        order = np.argsort(points.batch[rows])
        x, y = np.log(points.batch[rows])[order], points.loss[rows][order]
        least = int(np.argmin(y))
        near = slice(max(least - 2, 0), least + 3)
        bend, slope, _ = np.polyfit(x[near] - x[least], y[near], 2)
        assert at.batch.status == "ok" and bend > 0 and 0 < least < len(x) - 1
        assert at.batch.low < at.batch.value < at.batch.high
        assert at.measured.low <= at.batch.high and at.batch.low <= at.measured.high
        ratios.append(at.batch.value / np.exp(x[least] - slope / (2 * bend)))
        (small, wide) = at.batch.ranges
        assert wide.low < small.low < at.batch.value < small.high < wide.high
        regret = fit.law.excess_loss(at.params, at.tokens, np.array([at.batch.value]))
        assert regret <= 0.005
    assert np.sum(np.abs(np.log(ratios)) < np.log(1.5)) >= 16


def test_the_committed_fit_is_what_the_command_gives(fit):
    """That of `bss advise`."""
    found = LossFit.from_dict(json.loads(COMMITTED.read_text()))
    assert len(COMMITTED.read_text()) < 150_000
    assert found.law.theta == pytest.approx(fit.law.theta, abs=1e-3)
    assert found.tested == fit.tested
    sizes = fit.law.points.params, fit.law.points.tokens, fit.law.points.batch
    np.testing.assert_allclose(found.losses(*sizes), fit.losses(*sizes), atol=1e-4)
    assert found.left_out == pytest.approx(fit.left_out, rel=0.01)
    for at, other in zip(found.optima, fit.optima, strict=True):
        assert at.batch.value == pytest.approx(other.batch.value, rel=1e-3)
        assert at.batch.high == pytest.approx(other.batch.high, rel=0.02)


def test_the_best_batch_follows_data_rather_than_model_size(fit):
    found = fit.B_opt_exponents
    assert 0.4 < found["D"].low < found["D"].value < found["D"].high < 0.8
    assert found["N"].high < 0


def test_it_is_read_back_and_asked_only_where_it_was_tested(fit):
    again = LossFit.from_dict(json.loads(json.dumps(fit.to_dict())))
    here = again.prediction(350e6, 30e9, 256 * 2048)
    assert here == fit.prediction(350e6, 30e9, 256 * 2048)
    assert here.form == fit.law.form and not here.beyond
    assert here.loss.value == pytest.approx(2.33, abs=0.02)
    assert 0 < width(here.loss) < 0.05
    tested = again.prediction(350e6, 150e9, 2e6)
    assert tested.form == here.form and tested.beyond == {"tokens": 1.5}
    with pytest.raises(InputError, match=r"tokens: 1e[+]12 is 10 times outside"):
        again.prediction(350e6, 1e12, 2e6)
    far = again.prediction(350e6, 1e12, 2e6, extrapolate=True)
    assert far.beyond == {"tokens": 10}
    assert width(far.loss) > width(here.loss)
    both = again.losses(350e6, np.array([30e9, 1e12]), np.array([256 * 2048, 2e6]))
    assert both.tolist() == pytest.approx([here.loss.value, far.loss.value])


def test_a_schedule_grows_along_the_budget(fit):
    basis = Basis(2048, fit)
    grown = policy_named("best-batch", ["params=500M"])(basis, 40_000_000_000, Limits())
    assert list(grown.batches) == sorted(grown.batches) and len(grown.batches) > 1
    whole = policy_named("best-batch", ["params=500M", "constant=true"])
    (constant,) = whole(basis, 40_000_000_000, Limits()).batches
    assert constant == pytest.approx(fit.best_batch(500e6, 40e9).value / 2048, rel=0.01)
    with pytest.raises(InputError, match="params: missing"):
        policy_named("best-batch")(basis, 40_000_000_000, Limits())


@pytest.mark.slow
def test_the_published_fit_with_rates_comes_out_again():
    reading = Reading.parse("lr=peak_lr", 2048)
    made = fit_loss(read_losses(RATES, reading))
    kept = LossFit.from_dict(json.loads(RATED.read_text()))
    assert len(RATED.read_text()) < 150_000
    assert made.left_out == pytest.approx(kept.left_out, rel=1e-2)
    assert made.law.form == kept.law.form
    for name, power in kept.best_lrs.exponents.items():
        assert made.best_lrs.exponents[name].value == pytest.approx(power.value, abs=0.01)
    for here, there in zip(made.best_lrs.optima, kept.best_lrs.optima, strict=True):
        assert here.batch == pytest.approx(there.batch, rel=0.02)
        assert here.lr.value == pytest.approx(there.lr.value, rel=0.02)
