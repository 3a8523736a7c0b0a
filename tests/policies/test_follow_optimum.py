import numpy as np
import pytest

from bss.errors import InputError
from bss.laws import fit_es
from bss.laws.base import Options
from bss.laws.es import LAWS
from bss.policies.follow_optimum import FollowOptimum, optimal_batch
from bss.policies.policy import Basis, Limits

QUICK = Options(resamples=8)


def followed(fit, tokens, limits):
    return FollowOptimum()(Basis(fit.seq_len, fit), tokens, limits)


@pytest.fixture(scope="module")
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
    schedule = followed(surface_fit, 50_000_000, Limits(4, multiple_of=2))
    assert len(schedule.batches) == 4
    assert list(schedule.batches) == sorted(schedule.batches)
    assert all(batch % 2 == 0 for batch in schedule.batches)
    assert min(schedule.batches) >= 2
    ideal = optimal_batch(surface_fit)
    for count in (3_000_000, 20_000_000, 49_000_000):
        assert abs(np.log(schedule(count) / ideal(count))) < 0.5


def test_limits_and_allowed_batches_are_kept(surface_fit):
    schedule = followed(surface_fit, 50_000_000, Limits(6, allowed=(4, 16, 64), max_batch=20))
    assert set(schedule.batches) <= {4, 16}
    limited = followed(surface_fit, 50_000_000, Limits(6, min_batch=8, max_batch=12))
    assert set(limited.batches) <= set(range(8, 13))


def test_fits_that_cannot_support_a_schedule_are_refused(planted, surface_fit):
    hyperbola = fit_es(planted.points(planted.laws["hyperbola"]), "hyperbola", options=QUICK)
    far = planted.points(planted.laws["surface"], batches=(64, 128, 256, 512))
    unbracketed = fit_es(far, "surface", options=QUICK)
    for fit, message in [
        (hyperbola, "hyperbola has no B_opt"),
        (unbracketed, "identified at no target .*smallest batch"),
    ]:
        with pytest.raises(InputError, match=message):
            followed(fit, 10**7, Limits())
