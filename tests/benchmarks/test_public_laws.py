"""Splits of public tables, and the row of a law that a user names."""

import numpy as np
import pandas as pd
import pytest

from benchmarks.public_laws import __main__ as command
from benchmarks.public_laws.laws import Plain, hyperbola, step_law
from benchmarks.public_laws.splits import (
    FAR,
    Split,
    cell_of,
    losses_of,
    points_of_es,
    splits_of,
)
from bss.laws import check_losses
from bss.laws.es import LAWS

LAW = LAWS["hyperbola"]


def mean_loss(table):
    """A law that predicts the mean of what it was fitted to."""
    mean = float(table["loss"].mean())
    return Plain(lambda runs: np.full(len(runs), mean))


def planted():
    """Losses of a hyperbola of small batches, exact: two models, four budgets, eight batches."""
    rows = [
        (N, D, B, 1024, 1.5 + 0.4 * (N / 4e8) ** -0.35 + 0.5 * (D / (1 + B / 400) / 2e10) ** -0.4)
        for N in (1e8, 4e8)
        for D in (4e9, 8e9, 2e10, 4e10)
        for B in 2 ** np.arange(2, 10)
    ]
    names = ["params", "tokens", "batch", "seq_len", "loss"]
    return check_losses(pd.DataFrame(rows, columns=pd.Index(names)))


@pytest.mark.parametrize("name", ["steplaw", "steplaw tuned"])
def test_no_row_is_fitted_and_scored(name):
    table = losses_of(name, None)
    splits = list(splits_of(name, table))
    assert {one.kind for one in splits} >= {"next size", "next budget", "far batch"}
    assert ("unseen LR" in {one.kind for one in splits}) == (name == "steplaw")
    for one in splits:
        assert one.scored.any() and not (one.fitted & one.scored).any()
    size = next(one for one in splits if one.kind == "next size")
    assert table["params"][size.fitted].max() < table["params"][size.scored].min()


def test_far_batches_are_far_beyond_those_of_the_same_size_and_budget():
    table = losses_of("steplaw tuned", None)
    cell, batch = cell_of(table), table["batch_tokens"]
    held = [one for one in splits_of("steplaw tuned", table) if one.kind == "far batch"]
    assert len(held) == 2 and not (held[0].scored & held[1].scored).any()
    for one in held:
        for i in np.unique(cell[one.scored]):
            fitted = batch[(cell == i) & one.fitted]
            assert len(fitted) == 3 and batch[(cell == i) & one.scored].min() >= FAR * fitted.max()


def test_a_law_is_scored_by_what_it_has_not_seen():
    table = planted()
    out = (table["tokens"] == 4e10).to_numpy()
    split = Split("planted", "next budget", ~out, out)
    exact = command.scored(split, table, hyperbola)
    assert np.abs(exact.missed).max() < 1e-3 and exact.explained > 0.999
    assert max(exact.regrets) < 1e-6
    flat = command.scored(split, table, mean_loss)
    off = table["loss"][~out].mean() - table["loss"][out]
    assert flat.missed == pytest.approx(off.to_numpy())
    own = table["loss"][out].groupby(table["params"][out])
    assert flat.regrets == pytest.approx((own.mean() - own.min()).tolist())
    chosen = command.scored(split, table, step_law)
    nearest = np.abs(np.log(table["batch_tokens"] / (0.58 * 4e10**0.571)))
    batch = table["batch_tokens"][nearest[out].idxmin()]
    told = table["loss"][out & (table["batch_tokens"] == batch)].to_numpy()
    assert chosen.regrets == pytest.approx((told - own.min().to_numpy()).tolist())


def test_a_row_of_a_users_law_is_printed_beside_the_kept_ones(capsys):
    name = f"{__name__}:mean_loss"
    assert command.main(["--law", name, "--only", "steplaw tuned"]) == 0
    lines = capsys.readouterr().out.splitlines()
    laws = [[cell.strip() for cell in line.split("|")][3] for line in lines if "next size" in line]
    assert laws == ["bss", "hyperbola", "chinchilla", "step-law", "power-lines", name]


@pytest.mark.slow  # four laws at every target; the row is printed as above
def test_a_row_of_a_users_law_of_es_is_printed(capsys):
    assert command.main(["--law", f"{__name__}:LAW", "--only", "mlperf"]) == 0
    assert f"{__name__}:LAW" in capsys.readouterr().out


def test_points_of_es_have_batch_sizes_to_fit():
    points = points_of_es()
    assert (points.groupby("model")["batch"].nunique() > 3).all()
    assert points["steps"].max() < 10 * points.groupby("model")["steps"].median().max()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--only", "nothing"], "--only: no table nothing"),
        (["--again", "nothing"], "--again: no law nothing"),
        (["--law", "numpy:pi"], "expected a function, Form or Law"),
        (["--law", f"{__name__}:mean_loss", "--only", "nqs", "--tables", "."], "no nqs_lm1b.csv"),
    ],
)
def test_mistakes_are_one_line(words, said, capsys):
    assert command.main(words) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line
