from dataclasses import replace

import numpy as np
import pytest

from bss.errors import InputError
from bss.laws import fit_es
from bss.laws.base import Options
from bss.laws.es.values import predicted_loss, tokens_to_target

QUICK = Options(resamples=1)


@pytest.fixture(scope="module")
def surface_fit(planted):
    points = planted.points(planted.laws["surface"], offset=0, noise=0)
    return fit_es(points, "surface", options=QUICK)


@pytest.mark.parametrize("horizon", [10**6, 10**7, 10**8])
def test_the_surface_ranks_constants_as_planted(planted, surface_fit, horizon):
    L_0, a, alpha, b, _, _ = planted.SURFACE
    batches = np.array(planted.BATCHES, float)
    losses = L_0 + a * (horizon / (batches * planted.SEQ_LEN)) ** -alpha + b / batches
    predicted = [predicted_loss(surface_fit, horizon, batch) for batch in batches]
    assert np.argmin(predicted) == np.argmin(losses)
    assert predicted_loss(surface_fit, horizon, 16) == pytest.approx(losses[3], rel=1e-6)


def test_law_per_target_predicts_its_own_targets(planted):
    points = planted.points(planted.laws["hyperbola"], offset=0, noise=0)
    fit = fit_es(points, "hyperbola", options=QUICK)
    for target in planted.TARGETS:
        law = planted.hyperbola_at(target)
        tokens = (law.E_min + law.S_min * 16) * planted.SEQ_LEN
        assert predicted_loss(fit, round(tokens), 16) == pytest.approx(target, rel=1e-4)
    predicted = [predicted_loss(fit, 2_000_000, batch) for batch in planted.BATCHES]
    assert predicted == sorted(predicted)


def test_an_average_is_of_the_laws_that_were_fitted_at_the_target(planted, surface_fit):
    points = planted.points(planted.laws["hyperbola"], offset=0, noise=0)
    fit = fit_es(points, "hyperbola", options=QUICK)
    lost = replace(fit, fits=(replace(fit.fits[0], parameters={}), *fit.fits[1:]))
    at = [found.target_loss for found in fit.fits[:2]]
    averaged = replace(surface_fit, level_with=(lost,))
    alone, mean = ([tokens_to_target(f, [16], x)[0] for x in at] for f in (surface_fit, averaged))
    assert mean[0] == alone[0]
    assert mean[1] == pytest.approx((alone[1] * tokens_to_target(fit, [16], at[1])[0]) ** 0.5)
    with pytest.raises(InputError, match="unidentified at"):
        tokens_to_target(lost, [16], at[0])


def test_what_cannot_be_predicted_is_refused(planted, surface_fit):
    few = fit_es(planted.points(planted.laws["piecewise"]), "piecewise", options=QUICK)
    with pytest.raises(InputError, match="unidentified at every target"):
        predicted_loss(few, 10**7, 16)
    with pytest.raises(InputError, match="tokens: 0 given"):
        predicted_loss(surface_fit, 0, 16)
