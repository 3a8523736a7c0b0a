"""Figures of what decides the best batch: crossing curves, half-lives, switches, tables."""

import numpy as np
import pandas as pd
import pytest
from matplotlib.text import Annotation

from bss.points.batches import batch_curves, meetings, seed_bands
from bss.points.curve import points
from experiments.second_moment.crossing_figure import crossing_figure
from experiments.second_moment.figures import (
    half_lives_figure,
    published_figure,
    switches_figure,
)

SLOPES = {1: (2.0, 0.1), 4: (2.2, 0.2)}
"""Losses a − b·log(tokens/1e5) by batch: they meet where 0.2 = 0.1·log(tokens/1e5)."""
MET = 1e5 * np.exp(2)


def values(line):
    """The data [2, points] of a line."""
    return np.asarray(line.get_data(), float)


@pytest.fixture(scope="module")
def runs():
    """Two batches, two seeds that are apart by .02 at both."""
    tokens = np.geomspace(1e5, 1e6 * 1.5, 60)
    tables = [
        pd.DataFrame({"tokens": tokens, "step": tokens / (10 * batch)}).assign(
            run=f"{batch}-{seed}", batch=batch, seed=seed, data_seed=seed, seq_len=10,
            params=1, model="m", lr=1e-3, peak_lr=1e-3,
            eval_loss=a + 0.02 * seed - b * np.log(tokens / 1e5),
        )
        for batch, (a, b) in SLOPES.items()
        for seed in (0, 1)
    ]  # fmt: skip
    return pd.concat(tables, ignore_index=True)


def test_bands_are_of_seeds_and_curves_meet_where_they_were_planted(runs):
    curves = batch_curves(runs, "eval_loss")
    met = meetings(curves, [(1, 4)])
    assert met["tokens"].item() == pytest.approx(MET, rel=0.02)
    assert met["loss"].item() == pytest.approx(2.01 - 0.2, abs=0.004)
    assert meetings(curves, [(4, 1)]).empty
    bands = seed_bands(curves)
    np.testing.assert_allclose(bands["high"] - bands["low"], 0.02, atol=1e-6)
    late = bands[bands["tokens"] > 1.1 * MET]
    assert (late.loc[late["batch"] == 4, "above"] == 0).all()
    assert (late.loc[late["batch"] == 1, "above"] > 0).all()
    np.testing.assert_allclose(late["error"], 0, atol=1e-6)


def test_curves_that_cross_are_marked_beside_their_points(runs):
    table = points(runs, [1.9, 1.8])
    figure = crossing_figure(runs, [(1, 4)], table, {}, [1.9, 1.8])
    top, first, bottom, second = figure.axes
    for ax in (top, bottom):
        (cross,) = [line for line in ax.lines if line.get_marker() == "x"]
        assert values(cross)[0, 0] == pytest.approx(MET, rel=0.02)
    for ax, target in ((first, 1.9), (second, 1.8)):
        drawn = np.concatenate([values(line)[1] for line in ax.lines])
        expected = table.loc[table["target_loss"] == target, "tokens_to_target"]
        np.testing.assert_allclose(np.sort(drawn), np.sort(expected))
        assert f"{target:g}" in ax.get_title(loc="left")


def test_half_lives_have_a_line_a_batch_with_losses_above_their_best():
    table = pd.DataFrame(
        {"batch": [1, 1, 4], "tokens": [1e3, 1e4, 1e4], "loss": [1.9, 1.8, 2.0]}
    ).assign(above=[0.1, 0.0, 0.0], half=[0.05, 0.0, 0.0])
    top, bottom = half_lives_figure({"decay": table}).axes
    assert [values(line)[1].tolist() for line in top.lines] == [[1.9, 1.8], [2.0]]
    marks = [line for line in bottom.lines if line.get_marker() == "o"]
    np.testing.assert_allclose(values(marks[0])[1], [100, 0])


def test_switches_are_told_apart_and_constants_named_without_overlap():
    table = pd.DataFrame({"tokens": [1e5, 1e6], "difference": [0.0, 0.01]})
    table = table.assign(low=table["difference"] - 0.001, high=table["difference"] + 0.001)
    (ax,) = switches_figure(
        {"constant rate": {"1": table, "8": table, "1 → 8": table}}, "2", {"1", "8"}
    ).axes
    names = {note.get_text(): note.xy[1] for note in ax.texts if isinstance(note, Annotation)}
    low, high = ax.get_ylim()
    assert abs(names["8"] - names["1"]) >= 0.049 * (high - low)
    assert [line.get_color() for line in ax.lines].count("#9a9a9a") == 2


def test_public_tables_mark_the_best_batch_hollow_at_an_end():
    dense = pd.DataFrame({"params": 1, "tokens": [1] * 3 + [2] * 3, "seq_len": 2})
    dense = dense.assign(batch=[1, 2, 4] * 2, loss=[2.0, 1.0, 3.0, 1.0, 2.0, 3.0])
    beta2 = pd.DataFrame({"d_model": 8, "batch": [1, 2], "beta2": 0.9, "c4_en_bpb": [1.0, 0.9]})
    left, right = published_figure(dense, beta2).axes
    marks = [line for line in left.lines if line.get_marker() == "o"]
    assert [values(line)[0, 0] for line in marks] == [4, 2]
    assert [line.get_markerfacecolor() for line in marks] == ["#10375c", "white"]
    assert [values(line)[1].tolist() for line in right.lines] == [[1.0, 0.9], [0.9]]
