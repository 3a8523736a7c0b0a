"""Schedules drawn from a seed: what they cover, and that the seed says them all."""

import dataclasses
import itertools

import numpy as np
import pytest

from bss.errors import InputError
from bss.predictions.draw import ENDINGS, KINDS, Ranges, draw

RANGES = Ranges(500_000, (1, 2, 4, 8, 16), (1e-3, 1.6e-2), (0.1, 0.9), warmup=5_000, decay=0.2)


@pytest.fixture(scope="module")
def drawn():
    return draw(RANGES, seed=11)


def test_a_seed_is_a_draw(drawn):
    assert drawn == draw(RANGES, seed=11)
    assert drawn[:5] == draw(RANGES, seed=11, count=5)
    assert not {*drawn} & {*draw(RANGES, seed=12)}


def test_every_kind_meets_every_ending(drawn):
    assert [one.ending for one in drawn].count("wsd") == len(drawn) / len(ENDINGS) == 8
    met = {(one.name[3:].split(",")[0], one.ending) for one in drawn}
    assert met == {*itertools.product(KINDS, ENDINGS)}


def test_schedules_are_what_their_names_say(drawn):
    for one in drawn:
        starts, batches = one.schedule.batch.starts, one.schedule.batch.batches
        shape, _, way = one.name[3:].partition(",")[0].partition(" ")
        assert len(batches) in {"constant": (1,), "switch": (2,), "stages": (3, 4)}[shape]
        assert list(batches) == sorted(set(batches), reverse=way == "down")
        assert all(50_000 <= start <= 450_000 for start in starts[1:])
        assert 1e-3 <= one.peak_lr <= 1.6e-2
        rate, end = one.schedule.learning_rate(one.peak_lr), {"constant": 1.0}.get(one.ending, 0)
        assert float(rate(500_000)) == pytest.approx(end * one.peak_lr)
        assert float(rate(390_000)) == pytest.approx(one.peak_lr) or one.ending == "cosine"
        assert float(rate(2_500)) == pytest.approx(one.peak_lr / 2)


def test_peaks_and_switches_are_log_uniform():
    many = draw(RANGES, seed=0, count=2000)
    late = [one.schedule.batch.starts for one in many if "switch" in one.name]
    drawn = (
        ([one.peak_lr for one in many], *RANGES.peaks),
        ([start / 500_000 for _, start in late], *RANGES.switches),
    )
    for values, low, high in drawn:
        places = np.sort(np.log(np.array(values) / low) / np.log(high / low))
        apart = np.abs(places - (np.arange(len(places)) + 0.5) / len(places)).max()
        assert apart < 1.63 / np.sqrt(len(places))  # Kolmogorov and Smirnov, 1%


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"batches": (1, 2)}, "batches"),
        ({"batches": (1, 2, 2)}, "batches"),
        ({"peaks": (2e-3, 1e-3)}, "peaks"),
        ({"switches": (0.1, 1.0)}, "switches"),
        ({"decay": 0.0}, "decay"),
        ({"tokens": 0}, "tokens"),
    ],
)
def test_impossible_ranges_are_refused(changes, told):
    with pytest.raises(InputError, match=f"{told}: .* given; write"):
        dataclasses.replace(RANGES, **changes)
