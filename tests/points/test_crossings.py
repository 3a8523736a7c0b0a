"""Reading crossings and the best batch off points, without a law."""

import math

import numpy as np
import pandas as pd
import pytest

from bss.errors import InputError
from bss.points.crossings import Mean, crossing_pairs, crossings, growth, mean, optima

TARGETS = (2.2, 2.0, 1.8)


def planted(optimum, noise=0.0, seeds=(0, 1, 2), batches=(1, 2, 4, 8, 16)) -> pd.DataFrame:
    """log E is a parabola in log2 B about log2 of optimum(target), with noise for each run."""
    generator = np.random.default_rng(0)
    rows = []
    for seed in seeds:
        for batch in batches:
            offset = noise * generator.normal()
            for target in TARGETS:
                apart = math.log2(batch) - math.log2(optimum(target))
                rows.append(
                    {
                        "batch": batch,
                        "seed": seed,
                        "target_loss": target,
                        "tokens_to_target": 1e6 * math.exp(0.1 * apart**2 + 0.02 * seed + offset),
                        "reached": True,
                    }
                )
    return pd.DataFrame(rows)


def rising(target: float) -> float:
    return {2.2: 1.5, 2.0: 3.0, 1.8: 6.0}[target]


def test_the_minimum_of_a_parabola_is_found_between_batches():
    found = optima(planted(rising))
    assert [entry.target_loss for entry in found] == list(TARGETS)
    assert [2**entry.log2_batch.value for entry in found] == pytest.approx([1.5, 3.0, 6.0])
    assert [entry.interior for entry in found] == [True, True, True]
    assert growth(planted(rising)).mean.value == pytest.approx(2.0)
    best = found[-1]
    assert best.batch == 8
    expected = 0.1 * (math.log2(6) ** 2 - math.log2(8 / 6) ** 2)
    assert best.over_smallest.value == pytest.approx(expected)


def test_curves_cross_where_the_order_of_two_batches_turns_beyond_the_noise():
    table = crossings(planted(rising, noise=0.002))
    pairs = crossing_pairs(table)
    assert (1, 8) in pairs
    assert (1, 2) not in pairs  # 2 needs fewer from the start
    assert (8, 16) not in pairs  # 16 never needs fewer tokens
    assert crossing_pairs(crossings(planted(lambda _: 1.0, noise=0.002))) == []
    assert crossing_pairs(crossings(planted(rising, noise=2.0))) == []


def test_one_seed_is_no_evidence():
    table = crossings(planted(rising, seeds=(0,)))
    assert not np.isfinite(table["error"].to_numpy(float)).any()
    assert crossing_pairs(table) == []
    assert mean([1.0]).sign == 0
    assert Mean(1.0, float("nan"), 1).sign == 0


def test_a_target_that_a_seed_missed_is_left_out():
    points = planted(rising)
    points.loc[(points["seed"] == 2) & (points["target_loss"] == 1.8), "reached"] = False
    assert [entry.target_loss for entry in optima(points)] == [2.2, 2.0]
    assert growth(points).mean.value == pytest.approx(1.0)
    one = (points["seed"] == 1) & (points["batch"] == 16) & (points["target_loss"] == 2.0)
    points.loc[one, "reached"] = False
    assert optima(points)[-1].over_largest.value == pytest.approx(
        0.1 * (math.log2(8 / 3) ** 2 - math.log2(4 / 3) ** 2)
    )
    points["reached"] = False
    with pytest.raises(InputError, match="no batch reached a target in every seed"):
        optima(points)


def test_a_target_counts_only_where_it_was_reached():
    points = planted(lambda _: 1.0)
    points.loc[(points["batch"] == 16) & (points["target_loss"] == 1.8), "reached"] = False
    found = optima(points)
    assert found[-1].over_largest.value == pytest.approx(0.1 * 3**2)  # of batch 8
    assert not found[-1].interior  # the smallest batch is best
    assert len(crossings(points)) == 3 * 10 - 4


def test_errors_are_two_standard_errors_over_seeds():
    found = mean([1.0, 2.0, 3.0])
    assert (found.value, found.seeds) == (2.0, 3)
    assert found.error == pytest.approx(2 / math.sqrt(3))
    assert found.sign == 1


def test_a_best_batch_at_an_edge_is_a_bound():
    at_most, at_least = optima(planted(lambda _: 0.5))[0], optima(planted(lambda _: 40.0))[0]
    assert (at_most.bound, at_most.ends) == ("at most", (None, 1))
    assert (at_least.bound, at_least.ends) == ("at least", (16, None))
    assert at_most.log2_batch.error is None
    inside = optima(planted(rising, noise=0.002))[1]
    low, high = inside.ends
    assert inside.bound == ""
    assert low is not None
    assert high is not None
    assert low < 2**inside.log2_batch.value < high


def test_a_batch_that_is_the_only_one_bounds_nothing():
    alone = optima(planted(rising, batches=(4,)))[0]
    assert (alone.bound, alone.ends) == ("unknown", (None, None))


@pytest.mark.parametrize(
    ("optimum", "bound"),
    [
        ({2.2: 0.5, 2.0: 2.0, 1.8: 4.0}, "at least"),  # from at most 1
        ({2.2: 2.0, 2.0: 4.0, 1.8: 40.0}, "at least"),  # to at least 16
        ({2.2: 4.0, 2.0: 2.0, 1.8: 0.5}, "at most"),
        ({2.2: 0.5, 2.0: 0.5, 1.8: 0.5}, "unknown"),
        ({2.2: 0.5, 2.0: 4.0, 1.8: 40.0}, "at least"),
        ({2.2: 2.0, 2.0: 3.0, 1.8: 4.0}, ""),
    ],
)
def test_a_rise_from_a_bound_is_a_bound(optimum, bound):
    assert growth(planted(optimum.__getitem__)).bound == bound
