"""The law of final losses on a published table: what it predicts of runs that it has not seen."""

import json
from pathlib import Path

import numpy as np
import pytest

from bss.errors import InputError
from bss.laws import TableFit, fit_table
from bss.laws.final_loss.table import read_losses
from bss.laws.fitting.estimate import Options
from bss.policies import policy_named
from bss.policies.policy import Basis, Limits
from bss.tables.reading import Reading
from experiments.critical_batch.best_batch import pooled_scatter, vertex

PUBLISHED = Path(__file__).parents[3] / "results/published/steplaw_dense_best.csv"
COMMITTED = Path(__file__).parents[3] / "bss/laws/published/steplaw_dense.json"
RATES = PUBLISHED.with_name("steplaw_rates.csv")
RATED = COMMITTED.with_name("steplaw_rates.json")


@pytest.fixture(scope="module")
def fit():
    """Of all rows; the form is chosen again for whatever is left out."""
    table = read_losses(PUBLISHED)
    return fit_table(table, hold_out=("tokens>=80B",), options=Options(32))


def width(estimate):
    """Of an interval that holds its estimate."""
    assert estimate.low < estimate.value < estimate.high
    return estimate.high - estimate.low


def test_left_out_losses_are_predicted(fit):
    assert fit.left_out["cell"] <= 0.010 and fit.left_out_near["cell"] <= 0.008
    assert fit.left_out["params"] <= 0.010
    assert fit.left_out["tokens"] <= 0.010
    (held,) = fit.hold_out
    assert (held.rows, held.out) == (20, "tokens>=80B") and held.rmse <= 0.010
    # The additive form, which was the only one once, is judged with the others.
    assert fit.judged["additive"]["beyond"] > 1.5 * fit.judged["joint"]["beyond"]
    assert fit.weights["inside"].get("additive", 0) == 0


def test_best_batches_are_those_of_the_cells_own_parabolas(fit):
    cells = fit.points.cell
    own = [vertex(fit.points.batch[cells == c], fit.points.loss[cells == c]) for c in range(17)]
    scatter, ratios, distances = pooled_scatter(own), [], []
    for at, one in zip(fit.optima, own, strict=True):
        assert at.batch.status == "identified" and one.interior
        assert at.batch.low < at.batch.value < at.batch.high
        ratios.append(at.batch.value / one.batch)
        error = np.log(at.batch.high / at.batch.low) / 2 / 1.645
        distances.append(np.log(ratios[-1]) / np.hypot(error, scatter * one.leverage))
        low, high = at.indifference.low, at.indifference.high
        assert at.wider.low < low < at.batch.value < high < at.wider.high
        regret = fit.law().given_up(at.params, at.tokens, np.array([at.batch.value]))
        assert regret <= 0.005
    assert np.sum(np.abs(np.log(ratios)) < np.log(1.5)) >= 16
    assert np.sum(np.abs(distances) < 1.645) >= 14


def test_the_committed_fit_is_what_the_command_gives(fit):
    """That of `bss advise`; its draws are fewer, which no value hangs on."""
    found = TableFit.from_dict(json.loads(COMMITTED.read_text()))
    for use, weights in fit.weights.items():
        assert found.weights[use] == pytest.approx(weights, abs=1e-3)
    assert found.tested == fit.tested and found.best.source == fit.best.source
    points = fit.points
    for told, made in ((found.law(use), fit.law(use)) for use in fit.weights):
        losses = (law.losses(points.params, points.tokens, points.batch) for law in (told, made))
        assert np.ptp(np.stack([*losses]), axis=0).max() < 1e-4
    assert found.left_out == pytest.approx(fit.left_out, rel=0.01)
    for at, other in zip(found.optima, fit.optima, strict=True):
        assert at.batch.value == pytest.approx(other.batch.value, rel=1e-6)
        assert at.batch.high == pytest.approx(other.batch.high, rel=0.02)


def test_the_best_batch_follows_data_rather_than_model_size(fit):
    found = fit.B_opt_exponents
    assert 0.5 < found["D"].low < found["D"].value < found["D"].high < 0.8
    assert found["N"].high < 0 < found["D_less_N"].low
    assert found["D_less_N"].value == pytest.approx(found["D"].value - found["N"].value)


def test_it_is_read_back_and_asked_only_where_it_was_tested(fit):
    again = TableFit.from_dict(json.loads(json.dumps(fit.to_dict())))
    here = again.prediction(350e6, 30e9, 256 * 2048)
    assert here == fit.prediction(350e6, 30e9, 256 * 2048)
    assert here.form == fit.form and not here.beyond
    assert here.loss.value == pytest.approx(2.33, abs=0.02)
    assert 0 < width(here.loss) < 0.05
    tested = again.prediction(350e6, 150e9, 2e6)
    assert tested.form == fit.law("beyond").text and tested.beyond == {"tokens": 1.5}
    with pytest.raises(InputError, match=r"tokens: 1e[+]12 is 10 times outside"):
        again.prediction(350e6, 1e12, 2e6)
    far = again.prediction(350e6, 1e12, 2e6, extrapolate=True)
    assert far.beyond == {"tokens": 10}
    assert width(far.loss) > width(here.loss)
    both = again.predict(350e6, np.array([30e9, 1e12]), np.array([256 * 2048, 2e6]))
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
    made = fit_table(read_losses(RATES, reading), options=Options(100))
    kept = TableFit.from_dict(json.loads(RATED.read_text()))
    assert made.rates and kept.rates and made.best_rates and kept.best_rates
    assert made.rates.left_out == pytest.approx(kept.rates.left_out, rel=1e-2)
    assert made.rates.departures == kept.rates.departures
    for name, power in kept.best_rates.exponents.items():
        assert made.best_rates.exponents[name].value == pytest.approx(power.value, abs=0.01)
    for here, there in zip(made.best_rates.optima, kept.best_rates.optima, strict=True):
        assert here.batch == pytest.approx(there.batch, rel=0.02)
        assert here.lr.value == pytest.approx(there.lr.value, rel=0.02)
