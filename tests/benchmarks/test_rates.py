"""What `python -m benchmarks.laws` tells of the law with a rate; the table that is committed."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from benchmarks.laws import rates
from bss.laws.final_loss.table import check_losses, runs_of
from tests.laws.final_loss.rated.planted import World, fitted

WORLD = World()
COMMITTED = Path(rates.RESULT).with_name("laws.json")


def test_cost_is_above_the_least_of_the_quadratic_through_the_best_rows():
    b, e = (x.ravel() for x in np.meshgrid(np.linspace(10, 13, 7), np.linspace(-8, -5, 9)))
    loss = 2 + 0.03 * (b - 11.2) ** 2 + 0.04 * (e + 6.3 - 0.5 * (b - 11.2)) ** 2
    loss += np.where(loss > 2.06, 1.0, 0.0)  # rows above are not its own
    assert rates.cost(b, e, loss, 11.2, -6.3) == pytest.approx(0, abs=1e-9)
    assert rates.cost(b, e, loss, 11.7, -6.05) == pytest.approx(0.03 / 4, rel=1e-6)
    assert rates.cost(b, e, 3 - loss, 11.2, -6.3) == np.inf  # a ridge has no least


def test_inside_means_rates_on_both_sides_at_the_best_batch():
    batch = np.repeat([1.0, 2.0, 3.0], 3)
    lr, loss = np.tile([1.0, 2.0, 3.0], 3), np.ones(9)
    for best, expected in ((4, 1), (3, 0), (5, 0), (1, 0), (7, 0)):
        assert rates.inside(batch, lr, np.where(np.arange(9) == best, 0, loss)) == expected
    wider = np.where(batch == 1.0, lr / 2, lr)  # at another batch only
    assert rates.inside(batch, wider, np.where(np.arange(9) == 3, 0, loss)) == 0


def test_rows_of_a_cell():
    told = rates.of_cell(fitted(WORLD), runs_of(check_losses(WORLD.table())).iloc[:16])
    assert told["params"] == 120_000_000 and told["tokens"] == 5_000_000_000
    assert told["rows"] == 16 and told["near"] < 16 and told["covered"] == 16
    assert told["rmse"] < 0.004 and told["r2"] > 0.98 and told["cost"] < 3e-3
    B, lr = WORLD.best(1.2e8, 5e9)
    assert told["batch"] * rates.SEQ_LEN == pytest.approx(B, rel=0.15)
    assert told["lr"] == pytest.approx(lr, rel=0.15)


def test_the_committed_table_has_every_cell_and_keeps_the_marks():
    table = pd.read_csv(rates.RESULT)
    groups = {rates.NOTHING: 41, rates.MODEL: 5, rates.BUDGETS: 4}
    assert table["out"].value_counts().to_dict() == groups | {str(i): 1 for i in range(41)}
    alone = ~table["out"].isin([*groups]).to_numpy()
    assert table["rows"].to_numpy()[alone].sum() == 2702
    told, committed = rates.summary(table), json.loads(COMMITTED.read_text())["rates"]
    for name in told:
        number = isinstance(told[name], float)
        assert committed[name] == (pytest.approx(told[name]) if number else told[name])
    for name, mark in rates.MARKS.items():
        if name == "covered":
            assert mark[0] <= told[name] <= mark[1]
        elif name == "cells of cheap optima":
            assert told[name] >= mark
        else:
            assert told[name] <= mark
    assert told["cells whose best is inside"] == 38
    text = "\n".join(rates.lines(told))
    assert text.count("not held here") == 3 and "-.45, .00, .22" in text
