"""Figures of measured runs around the critical batch: what is drawn."""

from importlib.resources import files

import numpy as np
import pandas as pd
import pytest
from matplotlib.text import Annotation

from bss.laws import fit_critical
from bss.laws.fitting.estimate import Options
from bss.plots.critical_runs import noise_figure, schedules_figure, steps_panels
from bss.tables import read_points


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
    assert labels == ["2 s.d. of seeds", "constant", "cosine", "open, with an arrow: a bound"]


def test_the_noise_scale_is_drawn_against_both_critical_batches():
    table = pd.DataFrame(
        {"batch": [16, 32], "noise_scale": [40.0, 50.0], "B_crit": [20.0, 25.0], "cbs": [6.0, 7.0]}
    )
    left, right = noise_figure(table).axes
    np.testing.assert_allclose(marks(left), [[20, 40], [25, 50]])
    np.testing.assert_allclose(marks(right), [[6, 40], [7, 50]])
