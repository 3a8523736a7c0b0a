"""Figures of critical batches: what is drawn, and what is not."""

from importlib.resources import files

import numpy as np
import pytest

from bss.errors import InputError
from bss.laws import fit_critical
from bss.laws.base import Options
from bss.plots import critical as plots
from bss.tables import read_points
from bss.theory.critical import CriticalPoint, CriticalTable
from tests.drawn import points as shown_points
from tests.drawn import texts


@pytest.fixture(scope="module")
def points():
    return read_points(str(files("bss.laws") / "published" / "cbs_steps.csv"))


@pytest.fixture(scope="module")
def fit(points):
    return fit_critical(points, options=Options(resamples=50))


def drawn(ax, marker):
    lines = [line for line in ax.lines if line.get_marker() == marker]
    return np.concatenate([np.array(line.get_data(), float).T for line in lines])


def test_laws_are_drawn_in_each_variable_with_their_forecasts(fit):
    figure = plots.laws_figure({"published": fit}, {"params": [7e9]})
    by_size, by_data = figure.axes
    legend = " ".join(text.get_text() for text in figure.legends[0].get_texts())
    assert legend.count(f"{fit.level:.0%}") == 2 and "95%" not in legend
    cbs = [at.cbs.value for at in fit.fits]
    np.testing.assert_allclose(drawn(by_size, "o")[:, 1], cbs)
    np.testing.assert_allclose(drawn(by_data, "o")[:, 0], [at.curve.tokens for at in fit.fits])
    assert drawn(by_size, "D")[0] == pytest.approx([7e9, 93.2 * 7000**0.4683], rel=1e-3)


def test_another_law_is_drawn_beside_ours(fit):
    figure = plots.laws_figure({"published": fit}, published={"params": (93.2, 0.47)})
    by_size, by_data = (
        [line for line in ax.lines if line.get_linestyle() == "--"] for ax in figure.axes
    )
    ((x, y),) = (np.array(line.get_data(), float) for line in by_size)
    np.testing.assert_allclose(y, 93.2 * (x / 1e6) ** 0.47)
    assert not by_data
    assert "published law" in {text.get_text() for text in figure.legends[0].get_texts()}


def test_the_definition_is_drawn_where_the_steps_reach_the_overhead(fit):
    figure = plots.definition_figure(fit, "302M")
    at = fit.fits[2]
    (batch, steps) = drawn(figure.axes[0], "D")[0]
    assert batch == pytest.approx(at.cbs.value)
    reference = at.S_min.value + at.E_min.value / 256
    assert steps == pytest.approx(1.2 * reference * 256 / batch)
    with pytest.raises(InputError, match="choose one of 85M"):
        plots.definition_figure(fit, "7B")


def test_every_figure_shows_its_data_and_says_what_it_is(fit):
    table = CriticalTable(tuple(CriticalPoint(2**k, 0.1, 2.0**k) for k in (8, 9)), 1, 0, 2, 1)
    figures = {
        "both": plots.critical_figure(fit),
        "steps": plots.relative_steps(fit),
        "theory": plots.least_squares_figure({"a task": table}),
    }
    curves = len(fit.fits)
    assert len(figures["both"].axes) == 2 and min(shown_points(figures["both"])) > 4 * curves
    assert shown_points(figures["steps"])[0] > 4 * curves
    assert shown_points(figures["theory"]) == [4] and "a task: 1.000, theory 1.000" in texts(
        figures["theory"]
    )
    assert {"critical batch", "linear scaling"} <= texts(figures["steps"])


def test_without_a_law_there_is_none_to_draw(points):
    below = points.loc[points["batch"] <= 256]
    fit = fit_critical(below, options=Options(resamples=50))
    assert not fit.laws
    plots.critical_figure(fit)
    with pytest.raises(InputError, match="no law"):
        plots.laws_figure({"published": fit})
