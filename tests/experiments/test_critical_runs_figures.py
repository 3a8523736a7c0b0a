"""Figures of measured runs around the critical batch: what is drawn."""

from importlib.resources import files

import numpy as np
import pandas as pd
import pytest
from matplotlib.text import Annotation

from bss.laws import fit_critical
from bss.laws.fitting.estimate import Options
from bss.plots.critical import laws_figure
from bss.tables import read_points
from experiments.critical_batch.figures import (
    noise_figure,
    residuals_figure,
    schedules_figure,
    steps_panels,
)


def marks(ax):
    lines = [line for line in ax.lines if line.get_marker() not in ("None", None, "")]
    return np.concatenate([np.array(line.get_data(), float).T for line in lines])


@pytest.fixture(scope="module")
def fit():
    points = read_points(str(files("bss.laws") / "published" / "cbs_steps.csv"))
    return fit_critical(points, options=Options(resamples=50))


def test_every_design_has_a_panel_with_its_curves(fit):
    figure = steps_panels({"one": fit, "other": fit})
    assert [ax.get_title(loc="left") for ax in figure.axes] == ["one", "other"]
    legend = figure.axes[1].get_legend()
    assert legend is not None
    shown = [text.get_text() for text in legend.get_texts()]
    assert shown[:5] == [at.curve.model for at in fit.fits]


def test_schedules_are_drawn_and_bounds_are_marked():
    table = pd.DataFrame(
        [
            {"schedule": "constant", "batch": 8, "relative": 1.0, "bound": ""},
            {"schedule": "cosine", "batch": 8, "relative": 1.4, "bound": "above"},
            {"schedule": "cosine", "batch": 16, "relative": 0.9, "bound": ""},
        ]
    )
    figure = schedules_figure(table, 0.05)
    (ax,) = figure.axes
    np.testing.assert_allclose(sorted(marks(ax)[:, 1]), [0.9, 1.0, 1.4])
    (arrow,) = ax.texts
    assert isinstance(arrow, Annotation)
    assert arrow.xy[1] > arrow.xyann[1] == 1.4
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert labels == ["± 2 s.d. of seeds", "constant", "cosine", "open, with an arrow: a bound"]


def test_the_noise_scale_is_drawn_against_both_critical_batches():
    table = pd.DataFrame(
        {"batch": [16, 32], "noise_scale": [40.0, 50.0], "B_crit": [20.0, 25.0], "cbs": [6.0, 7.0]}
    )
    left, right = noise_figure(table).axes
    np.testing.assert_allclose(marks(left), [[20, 40], [25, 50]])
    np.testing.assert_allclose(marks(right), [[6, 40], [7, 50]])


def test_residuals_are_drawn_in_percent_over_the_bend(fit):
    figure = residuals_figure({"published steps": fit.fits})
    (ax,) = figure.axes
    x, y = marks(ax).T
    at = fit.fits[0]
    np.testing.assert_allclose(x[:9], at.curve.batch / at.B_crit.value)
    np.testing.assert_allclose(y[:9], 100 * np.expm1(at.residuals))
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert labels[0] == "S = a + b/B"
    assert [label.split(",")[0] for label in labels[1:]] == [at.curve.model for at in fit.fits]


def test_panels_that_are_compared_share_their_ranges(fit):
    for axes in (steps_panels({"one": fit, "other": fit}).axes, laws_figure({"one": fit}).axes):
        (left, right) = axes
        assert left.get_ylim() == right.get_ylim()
        spans = [np.ptp(np.log(ax.get_xlim())) for ax in (left, right)]
        assert spans[0] == pytest.approx(spans[1])
