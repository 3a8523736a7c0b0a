"""Planted outliers of final losses: too low, too high, and all LRs of one batch."""

import numpy as np
import pytest

from bss.laws import check_losses, fit_loss
from bss.laws.base import Options
from tests.laws.final_loss.planted import World

WORLD = World(noise=0.003)
QUICK = Options(8)


def assert_named(fit, rows):
    """The outliers are these rows and no others; LRs that are nearly equal are one."""
    names = ("params", "tokens", "batch_tokens", "lr")
    found = sorted(tuple(one.at[name] for name in names) for one in fit.outliers)
    sizes = check_losses(rows)[[*names]]
    assert len(found) == len(rows)
    np.testing.assert_allclose(found, sorted(map(tuple, sizes.to_numpy())), rtol=0.02)


@pytest.mark.parametrize("by", [0.08, -0.08])
def test_single_rows_are_named_on_both_sides(by):
    table = WORLD.table(seed=1)
    least = table.groupby(["params", "tokens"])["loss"].transform("min")
    near = table.index[table["loss"] < least + 0.1]
    rows = np.random.default_rng(3).choice(near, 3, replace=False)
    table.loc[rows, "loss"] += by
    fit = fit_loss(check_losses(table), options=QUICK)
    assert_named(fit, table.loc[rows])
    assert all(np.sign(one.off) == np.sign(by) for one in fit.outliers)


def test_all_rates_of_one_batch_are_named():
    table = WORLD.table(seed=2)
    cell = table.loc[(table["params"] == 4e8) & (table["tokens"] == 2e10)]
    rows = cell.index[cell["batch"] == np.sort(cell["batch"].unique())[1]]
    table.loc[rows, "loss"] += 0.1
    fit = fit_loss(check_losses(table), options=QUICK)
    assert_named(fit, table.loc[rows])


def test_none_is_named_where_none_is():
    assert fit_loss(check_losses(WORLD.table(seed=4)), options=QUICK).outliers == ()
