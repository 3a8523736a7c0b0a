"""Figures of the law of loss curves: what is drawn, and what is not."""

import dataclasses

import numpy as np
import pytest

from bss.laws.functional.data import curves_of
from bss.laws.functional.fit import fitted_runs
from bss.plots.curves import fitted_curves


@pytest.fixture(scope="module")
def runs(planted_curves):
    return planted_curves.table(("1", "4", "16", "0:1 50%:8"))


@pytest.fixture(scope="module")
def fit(planted_curves, runs):
    fitted = fitted_runs(curves_of(runs), planted_curves.law)
    return dataclasses.replace(planted_curves.fit, curves=fitted)


def values(line):
    """The data [2, points] of a line."""
    return np.asarray(line.get_data(), float)


def test_measurements_are_marks_and_the_law_is_lines(fit, runs):
    figure = fitted_curves(fit, runs)
    top, bottom = figure.axes
    marks = [line for line in top.lines if line.get_linestyle() == "None"]
    lines = [line for line in top.lines if line.get_linestyle() == "-"]
    assert (len(marks), len(lines)) == (4, 4)
    for mark, line in zip(marks, lines, strict=True):
        np.testing.assert_allclose(values(mark)[1], values(line)[1], rtol=2e-3)
    errors = [line for line in bottom.lines if values(line).shape[1] > 2]
    assert all(np.abs(values(line)[1]).max() < 0.2 for line in errors)
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert labels == ["1", "4", "16", "1→8"]
    assert bottom.get_xlabel() == "tokens consumed"
    assert top.get_ylabel() == "loss (nats per token)"


def test_a_fit_that_did_not_converge_is_named_and_not_drawn(fit, runs):
    failed = dataclasses.replace(fit, status="not converged")
    figure = fitted_curves(failed, runs)
    assert all(line.get_linestyle() == "None" for line in figure.axes[0].lines)
    assert figure.axes[0].get_title(loc="right") == "no fit: not converged"
