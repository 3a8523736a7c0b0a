import pytest

from bss.errors import InputError
from bss.laws import fit_es
from bss.laws.base import Options
from bss.policies.law_optimum import LawOptimum
from bss.policies.policy import Basis, Limits

QUICK = Options(resamples=1)


@pytest.fixture
def surface_fit(planted):
    points = planted.points(planted.laws["surface"], offset=0, noise=0)
    return fit_es(points, "surface", options=QUICK)


def test_the_surfaces_own_optimum_is_one_late_switch_and_beats_every_constant(planted, surface_fit):
    tokens, law = 50_000_000, planted.SURFACE
    schedule = LawOptimum(settle=0.1)(
        Basis(planted.SEQ_LEN, surface_fit), tokens, Limits(allowed=planted.BATCHES)
    )
    assert schedule.starts == (0, 45_000_000)
    first, last = schedule.batches
    assert first < last

    def loss(first, last):
        steps = (0.9 / first + 0.1 / last) * tokens / planted.SEQ_LEN
        return law.L_0 + law.a * steps**-law.alpha + law.b / last

    pairs = [(a, b) for a in planted.BATCHES for b in planted.BATCHES]
    assert min(pairs, key=lambda pair: loss(*pair)) == (first, last)
    constants = surface_fit.losses(planted.BATCHES, tokens).tolist()
    assert loss(first, last) < min(constants)


def test_only_a_surface_has_an_optimum_of_its_own(planted):
    hyperbola = fit_es(planted.points(planted.laws["hyperbola"]), "hyperbola", options=QUICK)
    with pytest.raises(InputError, match="no loss at a changing batch"):
        LawOptimum()(Basis(planted.SEQ_LEN, hyperbola), 1_000_000, Limits())
    with pytest.raises(InputError, match="settle"):
        LawOptimum(settle=1.0)
