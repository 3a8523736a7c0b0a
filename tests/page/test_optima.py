"""The best batch of points, without a law."""

import math

import numpy as np
import pandas as pd
import pytest

from bss.errors import InputError
from tests.page.optima import optima

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
    best = found[-1]
    assert best.batch == 8


def test_a_target_that_a_seed_missed_is_left_out():
    points = planted(rising)
    points.loc[(points["seed"] == 2) & (points["target_loss"] == 1.8), "reached"] = False
    assert [entry.target_loss for entry in optima(points)] == [2.2, 2.0]
    points["reached"] = False
    with pytest.raises(InputError, match="no batch reached a target in every seed"):
        optima(points)


def missed(points, batch, target, seed=None, tokens=None):
    """The points with some runs that missed a target, after as many tokens as they had or these."""
    rows = (points["batch"] == batch) & (points["target_loss"] == target)
    rows &= True if seed is None else points["seed"] == seed
    found = points.assign(reached=points["reached"] & ~rows)
    if tokens is not None:
        found.loc[rows, "tokens_to_target"] = tokens
    return found


def test_a_batch_that_consumed_more_than_the_best_without_reaching_is_worse():
    points = missed(planted(rising), 16, 2.0, seed=1)
    found = optima(points)[1]
    assert 2**found.log2_batch.value == pytest.approx(3)
    both = missed(missed(planted(rising), 2, 2.0), 8, 2.0)
    both = both.loc[both["batch"].isin([2, 4, 8])]
    closed = optima(both)[1]
    assert (closed.batch, closed.interior, closed.bound) == (4, True, "")
    assert (closed.log2_batch.value, closed.log2_batch.error) == pytest.approx((2, 0.5))


def test_one_that_consumed_less_says_nothing_and_leaves_its_side_open():
    points = planted(rising, batches=(4, 8, 16))
    assert optima(points)[1].bound == "at most"
    wider = planted(rising, batches=(2, 4, 8, 16))
    assert optima(missed(wider, 2, 2.0, tokens=1e5))[1] == optima(points)[1]
    smallest = optima(missed(wider, 2, 2.0))[1]
    assert (smallest.batch, smallest.interior) == (4, True)
    # 2 needs yet more tokens than it consumed, which moves the minimum from 3 towards 4 and beyond
    log, error = smallest.log2_batch.value, smallest.log2_batch.error
    assert log - error <= math.log2(3) and log + error >= 2.5


def test_a_best_batch_at_an_edge_is_a_bound():
    at_most, at_least = optima(planted(lambda _: 0.5))[0], optima(planted(lambda _: 40.0))[0]
    assert (at_most.bound, at_most.batch) == ("at most", 1)
    assert (at_least.bound, at_least.batch) == ("at least", 16)
    assert at_most.log2_batch.error is None
    inside = optima(planted(rising, noise=0.002))[1]
    assert inside.bound == "" and inside.log2_batch.error > 0
    assert optima(planted(rising, batches=(4,)))[0].bound == "unknown"
