"""Settings of optimizers: the ends of their ranges, and the defaults that ids leave out."""

import math
from dataclasses import asdict

import pytest

from bss.errors import InputError
from bss.training.optimizers import SGD, AdamW, Muon, ScheduleFree


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"beta1": 1.0}, "0 <= beta1 < 1"),
        ({"beta1": -0.1}, "0 <= beta1 < 1"),
        ({"beta2": 1.0}, "0 <= beta2 < 1"),
        ({"beta2": math.nan}, "0 <= beta2 < 1"),
        ({"clip": -1.0}, "0 <= clip < inf"),
        ({"clip": math.inf}, "0 <= clip < inf"),
        ({"lr": 0.0}, r"optimizer\.lr is 0.0; expected a positive"),
        ({"lr": math.inf}, "positive"),
        ({"eps": 0.0}, r"optimizer\.eps"),
        ({"eps": math.nan}, r"optimizer\.eps"),
    ],
)
def test_settings_out_of_range_are_refused(settings, says):
    with pytest.raises(InputError, match=says):
        AdamW(**settings)


def test_the_ends_of_ranges_are_taken():
    ends = AdamW(beta1=0.0, beta2=0.0, clip=0.0)
    assert (ends.beta1, ends.beta2, ends.clip) == (0, 0, 0)
    with pytest.raises(InputError, match="schedule_free divides by it"):
        ScheduleFree(beta1=0.0)
    with pytest.raises(InputError, match=r"beta1_half_life is 7; schedule_free .* leave it out"):
        ScheduleFree(beta1_half_life=7)
    for rate in (0.0, math.inf):
        with pytest.raises(InputError, match="adam_lr"):
            Muon(adam_lr=rate)


def test_the_defaults_are_those_that_committed_ids_leave_out():
    told = {"lr": 4e-3, "beta1": 0.9, "beta2": 0.95, "beta2_half_life": 0, "eps": 1e-8}
    told |= {"beta1_half_life": 0, "weight_decay": 0.0, "clip": 1.0}
    assert asdict(AdamW()) == told
    assert asdict(Muon()) == told | {"lr": 0.02, "beta1": 0.95, "adam_lr": 4e-3}


def test_beta2_does_nothing_beside_a_half_life_or_without_a_second_moment():
    assert AdamW().unused == ()
    assert AdamW(beta2_half_life=10).unused == ("beta2",)
    assert AdamW(beta1_half_life=10).unused == ("beta1",)
    assert SGD().unused == ("beta2", "eps")
