"""Which tables have a law of the rate, and what is said of those that have not."""

from typing import Any

import numpy as np
import pandas as pd
import pytest

from bss.errors import InputError
from bss.laws.final_loss.rated.points import WIDE, rated_points
from bss.laws.final_loss.table import check_losses, runs_of
from tests.laws.final_loss.rated.planted import SEQ_LEN, World, points_of

ONE: dict[str, Any] = {"models": (4e8,), "budgets": (2e10,)}


def taken(table) -> Any:
    """Points or None, and warnings."""
    return rated_points(runs_of(check_losses(table)))


def test_every_row_counts_with_its_rate_and_repetitions_as_one():
    table = World().table(**ONE, seeds=3)
    points, warnings = taken(table)
    assert len(points.loss) == 16 and (points.count == 3).all() and not warnings
    assert points.cell.max() == 0 and points.design.varies == (False, False)
    means = table.groupby(["batch", "lr"])["loss"].mean()
    np.testing.assert_allclose(np.sort(points.loss), np.sort(np.asarray(means, float)))
    assert set(points.batch / SEQ_LEN) == set(table["batch"])


def test_diverged_rows_are_left_out_and_far_ones_hardly_weigh():
    table = World(cliff=1.5).table(**ONE)
    lost = table["loss"] == table["loss"].max()
    marked = table.assign(diverged=lost)
    infinite = table.assign(loss=np.where(lost, np.inf, table["loss"]))
    for one in (marked, infinite):
        assert len(taken(one)[0].loss) == len(table) - 1
    weight, least = points_of(table).weight, table["loss"].min()
    order = np.argsort(points_of(table).loss)
    assert weight.max() == 1 and (np.diff(weight[order]) <= 0).all()
    for nats in (3.0, 6.0):  # a row on the cliff is worth less the farther it is, in all
        far = pd.concat([table, table[-1:].assign(lr=1.0, loss=least + nats)])
        assert points_of(far).weight.min() * nats < 0.1 * WIDE * least


def test_a_rate_of_its_own_at_each_batch_is_confounded():
    table = World().table(rates=(0.0,))
    points, (warning,) = taken(table)
    assert points is None and "batch and rate are confounded" in warning
    # Batches of one rate at one (params, tokens) vary nothing, and nothing is said.
    assert taken(World().table(**ONE, rates=(0.0,), octaves=(0.0,))) == (None, [])


def test_rates_at_one_batch_only_are_told():
    coupled = World().table(**ONE, rates=(0.0,))
    tuned = World().table(**ONE, octaves=(0.0,), rates=np.linspace(-2, 2, 9))
    points, (warning,) = taken(pd.concat([coupled, tuned]))
    assert len(points.loss) == 13 and "at one batch of one (params, tokens) only" in warning


@pytest.mark.parametrize("rates", [(-1.0, 1.0), (-1.0, 0.0, 1.0)])
def test_few_rows_or_rates_are_not_enough(rates):
    assert taken(World().table(**ONE, octaves=(-1.0, 0.0, 1.0), rates=rates)) == (None, [])


def test_a_table_without_rates_has_none():
    assert taken(World().table().drop(columns="lr")) == (None, [])


@pytest.mark.parametrize("share", [2, 5])
def test_rates_per_step_and_per_token_are_refused(share):
    table = World().table()
    some = np.arange(len(table)) % share == 0
    mixed = table.assign(lr=np.where(some, table["lr"] / SEQ_LEN / table["batch"], table["lr"]))
    with pytest.raises(InputError, match=r"^lr: .* give all per step"):
        taken(mixed)


@pytest.mark.parametrize("seed", range(5))
def test_rates_of_a_random_search_are_those_of_one_unit(seed):
    table = World().table(octaves=(-2.25, 0.0, 2.25), rates=(0.0, 0.0))
    log = np.random.default_rng(seed).uniform(-6, -2, len(table))
    points, warnings = taken(table.assign(lr=10**log))
    assert len(points.loss) == len(table) and not warnings
