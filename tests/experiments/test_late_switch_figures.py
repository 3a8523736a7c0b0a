"""Figures of late switching: what is drawn where, what is hollow, what is told."""

import numpy as np
import pandas as pd
import pytest

from experiments.late_switch import figures as plots


def data(line):
    """What a line draws, [2, N]."""
    return np.array(line.get_data(), float)


def marks(ax, face=None):
    """Data of the marks [N, 2] that no line joins, of one face colour where it is given."""
    found = [
        line
        for line in ax.lines
        if line.get_linestyle() == "None"
        and line.get_marker() not in ("", "_")
        and face in (None, line.get_markerfacecolor())
    ]
    return np.concatenate([data(line).T for line in found])


def legend(figure):
    return [text.get_text() for text in figure.legends[0].get_texts()]


def test_curves_are_drawn_by_tokens_and_by_steps():
    table = pd.DataFrame({"tokens": [100, 200], "steps": [10, 15], "loss": [3.0, 2.5]})
    table = table.assign(low=table["loss"] - 0.1, high=table["loss"] + 0.2)
    figure = plots.clocks_figure({"small": table, "large": table.assign(steps=[2, 4])})
    by_tokens, by_steps = figure.axes
    for i, (tokens, steps) in enumerate([([100, 200], [10, 15]), ([100, 200], [2, 4])]):
        np.testing.assert_allclose(data(by_tokens.lines[i]), [tokens, [3.0, 2.5]])
        np.testing.assert_allclose(data(by_steps.lines[i]), [steps, [3.0, 2.5]])
        (band,) = by_steps.collections[i].get_paths()
        heights = np.asarray(band.vertices, float)[:, 1]
        assert (heights.min(), heights.max()) == (2.4, 3.2)
    assert legend(figure) == ["small", "large", "lowest to\nhighest seed"]


def test_gaps_are_counted_from_the_switch_and_the_earliest_has_none_to_itself():
    rows = [
        (at, tokens, steps, tokens - at, gap, 0.01, gap / 2, 0.01)
        for at, tokens, steps, gap in (
            (100, 90, 9, 0.4),
            (100, 150, 12, 0.3),
            (100, 250, 17, 0.2),
            (300, 290, 30, 0.4),
            (300, 350, 32, 0.1),
            (300, 400, 33, 0.05),
        )
    ]
    columns = ["switch", "tokens", "steps", "after_tokens", "to_large_at_steps"]
    columns += ["to_large_at_steps_error", "to_earliest", "to_earliest_error"]
    figure = plots.catch_up_figure(pd.DataFrame(rows, columns=columns))
    by_steps, by_tokens = figure.axes
    first, second = (data(line) for line in by_steps.lines[1:])
    np.testing.assert_allclose(first, [[2.5, 7.5], [0.3, 0.2]])
    np.testing.assert_allclose(second, [[1, 2], [0.1, 0.05]])
    (line,) = by_tokens.lines[1:]
    np.testing.assert_allclose(data(line), [[50, 100], [0.05, 0.025]])
    assert legend(figure) == ["100", "300", plots.ERRORS]
    assert [text.get_text() for text in by_steps.texts] == ["0: they meet"]


@pytest.fixture
def switches():
    """After ∝ budget^0.7 by the law; measured at two budgets, and a bound at a third."""
    budgets = np.array([1e5, 2e5, 4e5])
    law = pd.DataFrame({"budget": budgets, "after": 0.2 * budgets**0.7, "interior": True})
    measured = law.assign(after_error=0.1, interior=[False, True, True])
    return pd.concat([measured.assign(source="measured"), law.assign(source="law")])


def test_bounds_are_hollow_and_exponents_are_told(switches):
    found = pd.DataFrame(
        {
            "source": ["measured", "law"],
            "exponent": [0.7, 0.9],
        }
    )
    figure = plots.switch_points_figure(switches, found)
    (ax,) = figure.axes
    np.testing.assert_allclose(marks(ax, "white"), [[1e5, 0.2 * 1e5**0.7]])
    assert len(marks(ax)) == 6
    told = legend(figure)
    assert told[0] == "measured\nslope 0.70 from origin 0"
    assert "slope" not in told[1]  # the law's points reach beyond the measured ones
    assert told[2:] == ["slope 1", f"bars: {plots.ERRORS}", "a bound"]
    dashed = [line for line in ax.lines if line.get_linestyle() == "--"]
    np.testing.assert_allclose(data(dashed[0])[1], 0.2 * np.array([2e5, 4e5]) ** 0.7)


def test_predictions_are_told_with_their_scores():
    table = pd.DataFrame(
        {
            "ending": ["constant", "decay", "cosine"],
            "measured": [1.6, 1.5, 1.7],
            "error": [0.01, np.nan, 0.01],
            "predicted": [1.61, 1.52, 1.69],
            "mean_batch_constant": [1.7, np.nan, 1.8],
            "best_training": 1.55,
        }
    )
    scores = pd.DataFrame(
        {
            "group": ["all", "WSD"],
            "predictor": "predicted",
            "schedules": [3, 9],
            "ratio": [0.25, 9.0],
            "rank_correlation": [1.0, 0.0],
        }
    )
    figure = plots.predictions_figure(table, scores)
    law = figure.axes[0]
    np.testing.assert_allclose(marks(law), [[1.61, 1.6], [1.52, 1.5], [1.69, 1.7]])
    (text,) = law.texts
    assert text.get_text() == (
        "3 runs\nerror of differences: 0.25\nof their spread\nrank correlation 1.00"
    )
    assert len(figure.axes) == 2 and not figure.axes[1].texts
    assert legend(figure) == [
        "constant learning rate", "decayed to zero", "cosine to zero", "equal",
        f"bars: {plots.ERRORS}",
    ]  # fmt: skip
