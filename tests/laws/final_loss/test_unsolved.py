"""What a fit to a table makes of solutions, which here are none: arithmetic, by its numbers."""

import dataclasses

import numpy as np
import pytest

from bss.errors import InputError
from bss.laws.final_loss.fit import fit_table
from bss.laws.final_loss.table import check_losses
from bss.laws.fitting.estimate import Options
from tests.laws import unsolved
from tests.laws.final_loss.test_fit import planted
from tests.laws.golden import assert_golden, numbers

OPTIONS = Options(6, 0.8, 1)


def of(sizes, ratios, *, noise=0.002):
    """Four batches for each cell, which no row's own valley can doubt."""
    table = planted(sizes=sizes, ratios=ratios, noise=noise)
    return table.loc[np.arange(len(table)) % 9 % 2 == 1].reset_index(drop=True)


TABLES = {
    "one cell": lambda: of((4e8,), (20,)),
    "one model": lambda: of((4e8,), (20, 60, 200)).assign(loss_se=0.001),
    "several": lambda: of((2e8, 4e8), (20, 60)).assign(loss_se=0.5),
    "tied": lambda: of((2e8, 4e8, 8e8), (20,)),
}


@pytest.mark.parametrize("name", TABLES)
def test_fits_keep_their_numbers(name, monkeypatch):
    monkeypatch.setattr("bss.laws.final_loss.solved.solve_in_rounds", unsolved.solve_in_rounds)
    table, said = TABLES[name](), []
    table.loc[table.index[-1], "loss"] += 2.0  # as if it had diverged
    hold_out = ("tokens<=8B", "cell") if name == "one model" else ()
    forms = ("additive", "separate") if name == "several" else None
    fit = fit_table(
        check_losses(table), hold_out=hold_out, forms=forms, options=OPTIONS, progress=said.append
    )
    assert said[0] == f"the valley of each (params, tokens), {len(table)} points"
    assert (fit.level, fit.resamples) == (0.8, 6)
    if name == "one cell":
        assert fit_table(check_losses(table)).resamples == 300
    assert_golden(
        f"final_loss-unsolved-{name}", numbers(dataclasses.replace(fit, version="")), 1e-5
    )


@pytest.mark.parametrize(
    ("rows", "drop", "says"),
    [
        ([0, 1], (), "batch: 2 different ones; the law needs 3 or more"),
        ([0, 1, 2], (), "table: 3 points of (params, tokens, batch) for a valley; it needs 4"),
        ([0, 1, 2, 4, 5], (), "table: 5 points of (params, tokens, batch) for 5 parameters; add"),
        ([0, 1, 2, 3], ("batch={}",), "for a valley, with what --drop leaves; it needs 4"),
    ],
)
def test_too_few_points_are_refused(rows, drop, says):
    table = of((4e8,), (20, 60)).iloc[rows].reset_index(drop=True)
    drop = tuple(text.format(table["batch"].iloc[0]) for text in drop)
    with pytest.raises(InputError) as error:
        fit_table(check_losses(table), drop=drop, options=OPTIONS)
    assert says in str(error.value)
