from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest

from bss.errors import InputError
from bss.laws import fit_es
from bss.laws.base import Options
from bss.laws.es.law import Surface

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
    predicted = [surface_fit.losses(batch, horizon)[0] for batch in batches]
    assert np.argmin(predicted) == np.argmin(losses)
    assert surface_fit.losses(16, horizon)[0] == pytest.approx(losses[3], rel=1e-6)


def test_law_per_target_predicts_its_own_targets(planted):
    points = planted.points(planted.laws["hyperbola"], offset=0, noise=0)
    fit = fit_es(points, "hyperbola", options=QUICK)
    for target in planted.TARGETS:
        law = planted.hyperbola_at(target)
        tokens = (law.E_min + law.S_min * 16) * planted.SEQ_LEN
        assert fit.losses(16, round(tokens))[0] == pytest.approx(target, rel=1e-4)
    predicted = [fit.losses(batch, 2_000_000)[0] for batch in planted.BATCHES]
    assert predicted == sorted(predicted)


def test_what_cannot_be_predicted_is_refused(planted, surface_fit):
    few = fit_es(planted.points(planted.laws["piecewise"]), "piecewise", options=QUICK)
    with pytest.raises(InputError, match="unidentified at every target"):
        few.losses(16, 10**7)[0]
    with pytest.raises(InputError, match="tokens: 0 given"):
        surface_fit.losses(16, 0)[0]


class TracedSurface(Surface):
    """The surface with its loss as a JAX array."""

    def loss(self, p, steps, batch):
        return jnp.asarray(super().loss(p, steps, batch))


def test_losses_of_a_traced_law_are_in_float64(surface_fit):
    traced = replace(surface_fit, law=TracedSurface("traced"))
    assert traced.losses(16, 10**7).dtype == np.float64
    assert traced.losses(16, 10**7) == pytest.approx(surface_fit.losses(16, 10**7), rel=1e-12)
