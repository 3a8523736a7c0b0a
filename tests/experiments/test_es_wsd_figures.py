"""Figures of E(S) under WSD: what is drawn where, and what is hollow."""

import numpy as np
import pandas as pd
import pytest
from matplotlib.text import Annotation

from bss.laws import EsFit
from bss.laws.es import LAWS
from bss.laws.es.values import TargetFit
from bss.points.crossings import crossings
from experiments.es_wsd import figures as plots


def lines(ax, marker):
    return [line for line in ax.lines if line.get_marker() == marker]


def drawn(ax, marker, face=None):
    """Data of the marks [N, 2], of one face colour where it is given."""
    found = [line for line in lines(ax, marker) if face in (None, line.get_markerfacecolor())]
    return np.concatenate([np.array(line.get_data(), float).T for line in found])


def bars(ax):
    """Vertical bars as (low, high)."""
    segments = [c.get_segments() for c in ax.collections]
    return [(s[0][1], s[1][1]) for group in segments for s in group]


@pytest.fixture
def points():
    """Batch 1 needs 0.9 of the tokens of batch 2 at loss 2, and 1.1 at loss 1.8, in two seeds."""
    rows = [
        (seed, batch, target, scale * (ratio if batch == 1 else 1))
        for seed, scale in ((0, 1e6), (1, 2e6))
        for target, ratio in ((2.0, 0.9), (1.8, 1.1))
        for batch in (1, 2)
    ]
    columns = ["seed", "batch", "target_loss", "tokens_to_target"]
    return pd.DataFrame(rows, columns=columns).assign(reached=True)


@pytest.fixture
def hyperbola():
    """E = 1000 + 200·B tokens at batches in tokens, of sequences of 10."""
    found = [
        TargetFit(t, 200.0, 1e3, None, {}, {}, {"E_min": 1e3, "S_min": 200.0}, "converged", 4, 4)
        for t in (2.0, 1.8)
    ]
    return EsFit(LAWS["hyperbola"], 10, tuple(found))


def test_pairs_show_ratios_of_tokens_and_those_of_the_hyperbola(points, hyperbola):
    table = crossings(points)
    figure = plots.pair_figure({"with": (table, hyperbola), "without": (table, None)})
    left, right = figure.axes
    np.testing.assert_allclose(drawn(left, "o"), [[2.0, 0.9], [1.8, 1.1]])
    ((x, y),) = (
        np.array(line.get_data(), float) for line in left.lines if line.get_linestyle() == "--"
    )
    np.testing.assert_allclose(x, [2.0, 1.8])
    np.testing.assert_allclose(y, (1e3 + 200 * 10) / (1e3 + 200 * 20))
    assert not [line for line in right.lines if line.get_linestyle() == "--"]
    assert left.get_xlim()[0] > left.get_xlim()[1]  # losses fall to the right


def test_a_bound_is_hollow_with_an_arrow_to_where_the_optimum_may_lie():
    table = pd.DataFrame(
        {
            "target_loss": [2.0, 1.9, 1.8],
            "batch": [1.0, 2.0, 3.0],
            "low": [np.nan, np.nan, 2.0],
            "high": [1.5, np.nan, 4.0],
            "bound": ["at most", "unknown", ""],
        }
    )
    inside = table.loc[table["bound"] == ""]
    figure = plots.optimum_figure({"stable loss": {"shared": table}, "again": {"shared": inside}})
    ax, other = figure.axes
    np.testing.assert_allclose(drawn(ax, "o", "white"), [[2.0, 1.0], [1.9, 2.0]])
    assert sorted(bars(ax)) == [(1.0, 1.5), (2.0, 2.0), (2.0, 4.0)]
    arrows = [(*t.xy, t.xyann[1]) for t in ax.texts if isinstance(t, Annotation)]
    assert arrows == [(2.0, 1.0, -16), (1.9, 2.0, -16), (1.9, 2.0, 16)]
    assert not other.texts
    told = [text.get_text() for text in figure.legends[0].get_texts()]
    assert told[0] == "shared" and told[1].startswith("a bound") and told[2].startswith("bars: ±")
    alone = plots.optimum_figure({"stable loss": {"shared": inside}}, "of the fit")
    assert [t.get_text() for t in alone.legends[0].get_texts()] == ["shared", "bars: of the fit"]


def test_horizons_show_the_excess_and_the_laws_choice():
    table = pd.DataFrame(
        {
            "rates": "shared",
            "horizon": 100_000,
            "batch": [1, 2, 4],
            "excess": [0.01, 0.0, 0.05],
            "excess_error": [0.002, 0.0, np.nan],
            "law_best": [True, False, False],
        }
    )
    ax = plots.horizons_figure(table).axes[0]
    np.testing.assert_allclose(drawn(ax, "o", "white"), [[1.0, 0.01]])
    (spread,) = ax.collections
    edges = {
        tuple(np.round(point, 3))
        for path in spread.get_paths()
        for point in np.asarray(path.vertices)
    }
    assert {(1, 0.008), (1, 0.012), (2, 0)} <= edges
    assert not [point for point in edges if point[0] == 4]  # no error is known there


def test_changes_are_rows_and_contenders_columns():
    table = pd.DataFrame(
        [
            ("as before", "late", "raw", -0.05, 0.01),
            ("as before", "late", "averaged", 0.02, 0.01),
            ("cosine", "late", "raw", 0.03, np.nan),
            ("cosine", "ramp", "raw", 0.04, 0.01),
        ],
        columns=["change", "contender", "weights", "difference", "error"],
    )
    late, ramp = plots.changes_figure(table).axes
    assert [text.get_text() for text in late.get_yticklabels()] == ["as before", "cosine"]
    assert "less that of constant 4 (nats" in plots.changes_figure(table).get_supxlabel()
    np.testing.assert_allclose(drawn(late, "o"), [[-0.05, -0.11], [0.03, 0.89]])
    np.testing.assert_allclose(drawn(late, "s"), [[0.02, 0.11]])
    np.testing.assert_allclose(drawn(ramp, "o"), [[0.04, 0.89]])


def test_fitted_losses_stand_beside_the_truth(tmp_path):
    table = pd.DataFrame(
        {
            "seed": [0, 1],
            "law": "surface",
            "L_0": [1.4, 1.3],
            "low": [1.3, -np.inf],
            "high": [1.5, 1.35],
            "truth": 1.48,
            "reached": 1.49,
        }
    )
    figure = plots.irreducible_figure(table)
    ax = figure.axes[0]
    np.testing.assert_allclose(drawn(ax, "o"), [[0, 1.4], [1, 1.3]])
    np.testing.assert_allclose(sorted(bars(ax)), [(1.3, 1.35), (1.3, 1.5)])
    heights = np.concatenate([np.asarray(line.get_ydata(), float) for line in ax.lines])
    assert {1.48, 1.49} <= set(heights)
    figure.savefig(tmp_path / "L_0.png")
