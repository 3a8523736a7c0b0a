import numpy as np
import pytest

from bss.errors import InputError
from bss.laws.es import LAWS
from bss.laws.es.fit import fit_es
from bss.laws.fitting.estimate import Options
from bss.policies.recommend import (
    best_constant,
    follow_measured,
    law_optimum,
    optimal_batch,
    predicted_loss,
    recommend,
)

QUICK = Options(resamples=200)


@pytest.fixture
def surface_fit(planted):
    points = planted.points(planted.laws["surface"], offset=0, noise=0)
    return fit_es(points, "surface", options=QUICK)


def test_optimal_batch_is_b_opt_where_e_min_is_the_count(planted, surface_fit):
    optimum = LAWS["surface"].quantities(planted.SURFACE, np.array([2.3, 1.9, 1.6]))
    ideal = optimal_batch(surface_fit)
    found = [ideal(round(E * planted.SEQ_LEN)) for E in optimum["E_min"]]
    np.testing.assert_allclose(found, optimum["B_opt"], rtol=1e-3)


def test_surface_grows_the_batch_as_a_power_of_tokens(planted, surface_fit):
    ideal, alpha = optimal_batch(surface_fit), planted.SURFACE.alpha
    growth = np.log(ideal(10**8) / ideal(10**6)) / np.log(100)
    assert growth == pytest.approx(alpha / (1 + alpha), rel=1e-3)


def test_schedule_follows_it_in_stages_within_the_measured_batches(surface_fit):
    schedule = recommend(surface_fit, 50_000_000, 4, multiple_of=2)
    assert len(schedule.batches) == 4
    assert list(schedule.batches) == sorted(schedule.batches)
    assert all(batch % 2 == 0 for batch in schedule.batches)
    assert min(schedule.batches) >= 2
    ideal = optimal_batch(surface_fit)
    for count in (3_000_000, 20_000_000, 49_000_000):
        assert abs(np.log(schedule(count) / ideal(count))) < 0.5


def test_limits_and_allowed_batches_are_kept(surface_fit):
    schedule = recommend(surface_fit, 50_000_000, 6, allowed_batches=(4, 16, 64), max_batch=20)
    assert set(schedule.batches) <= {4, 16}
    limited = recommend(surface_fit, 50_000_000, 6, min_batch=8, max_batch=12)
    assert set(limited.batches) <= set(range(8, 13))


def test_three_stage_law_is_followed_between_its_targets(planted):
    points = planted.points(planted.laws["piecewise"], batches=planted.WIDE)
    fit = fit_es(points, "piecewise", options=QUICK)
    ideal = optimal_batch(fit)
    known = [(at.E_min, at.batches["B_opt"].value) for at in fit.fits]
    for E_min, B_opt in known:
        if E_min and B_opt:
            assert ideal(round(E_min)) == pytest.approx(B_opt, rel=1e-5)
    schedule = recommend(fit, 50_000_000, 3)
    assert schedule.batches[0] < schedule.batches[-1]


@pytest.mark.parametrize("horizon", [10**6, 10**7, 10**8])
def test_best_constant_minimises_the_planted_loss(planted, surface_fit, horizon):
    L_0, a, alpha, b, _, _ = planted.SURFACE
    batches = np.array(planted.BATCHES, float)
    losses = L_0 + a * (horizon / (batches * planted.SEQ_LEN)) ** -alpha + b / batches
    assert best_constant(surface_fit, horizon) == batches[np.argmin(losses)]
    assert predicted_loss(surface_fit, horizon, 16) == pytest.approx(losses[3], rel=1e-6)


def test_law_per_target_predicts_its_own_targets(planted):
    points = planted.points(planted.laws["hyperbola"], offset=0, noise=0)
    fit = fit_es(points, "hyperbola", options=QUICK)
    for target in planted.TARGETS:
        law = planted.hyperbola_at(target)
        tokens = (law.E_min + law.S_min * 16) * planted.SEQ_LEN
        assert predicted_loss(fit, round(tokens), 16) == pytest.approx(target, rel=1e-4)
    assert best_constant(fit, 2_000_000) == min(planted.BATCHES)


def test_fits_that_cannot_support_a_schedule_are_refused(planted, surface_fit):
    hyperbola = fit_es(planted.points(planted.laws["hyperbola"]), "hyperbola", options=QUICK)
    far = planted.points(planted.laws["surface"], batches=(64, 128, 256, 512))
    unbracketed = fit_es(far, "surface", options=QUICK)
    few = fit_es(planted.points(planted.laws["piecewise"]), "piecewise", options=QUICK)
    for fit, message in [
        (hyperbola, "hyperbola has no B_opt"),
        (unbracketed, "surface law identifies B_opt at no target"),
        (few, "piecewise law identifies B_opt at no target"),
    ]:
        with pytest.raises(InputError, match=message):
            recommend(fit, 10**7)
    with pytest.raises(InputError, match="min_batch: 64 must be positive"):
        recommend(surface_fit, 10**7, min_batch=64, max_batch=8)
    with pytest.raises(InputError, match="unidentified at every target"):
        best_constant(few, 10**7)
    with pytest.raises(InputError, match="tokens: 0 is not positive"):
        best_constant(surface_fit, 0)


def test_the_best_measured_batches_are_followed_where_no_law_is_assumed(planted):
    points = planted.points(planted.laws["surface"], offset=0, noise=0)
    schedule = follow_measured(points, 200_000_000, 4)
    least = points.loc[points.groupby("target_loss")["tokens_to_target"].idxmin()]
    for row in least.to_dict("records"):
        count = min(round(row["tokens_to_target"]), 199_999_999)
        assert abs(np.log(schedule(count) / row["batch"])) <= np.log(2)
    with pytest.raises(InputError, match="no target was reached"):
        follow_measured(points.assign(reached=False), 1_000_000)


def test_the_surfaces_own_optimum_is_one_late_switch_and_beats_every_constant(planted, surface_fit):
    tokens, law = 50_000_000, planted.SURFACE
    schedule = law_optimum(surface_fit, tokens, settle=0.1)
    assert schedule.starts == (0, 45_000_000)
    first, last = schedule.batches
    assert first < last

    def loss(first, last):
        steps = (0.9 / first + 0.1 / last) * tokens / planted.SEQ_LEN
        return law.L_0 + law.a * steps**-law.alpha + law.b / last

    pairs = [(a, b) for a in planted.BATCHES for b in planted.BATCHES]
    assert min(pairs, key=lambda pair: loss(*pair)) == (first, last)
    constant = best_constant(surface_fit, tokens)
    assert loss(first, last) < predicted_loss(surface_fit, tokens, constant)


def test_only_a_surface_has_an_optimum_of_its_own(planted, surface_fit):
    hyperbola = fit_es(planted.points(planted.laws["hyperbola"]), "hyperbola", options=QUICK)
    with pytest.raises(InputError, match="no loss at a changing batch"):
        law_optimum(hyperbola, 1_000_000)
    with pytest.raises(InputError, match="settle"):
        law_optimum(surface_fit, 1_000_000, settle=1.0)
