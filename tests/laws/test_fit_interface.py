"""What every fit offers: the same calls, with intervals, in a notebook and in a file."""

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib import pyplot

import bss
from bss.errors import InputError
from bss.laws import fit_from_dict, read_fit
from tests.fits import fit_entry
from tests.laws.es.known import hyperbola_fit

KINDS = ("es", "critical", "loss", "curve")
RUN = {
    "es": {"loss": 1.8, "batch": [4, "8"]},
    "critical": {"params": ["8K", 1e4]},
    "loss": {"params": "350M", "tokens": [10**10, "20B"], "batch": 256},
    "curve": {"batch": "0:4 50%:8", "tokens": "1M", "lr": 2e-3},
}
PREDICTED = {
    "es": ("tokens", "steps"),
    "critical": ("critical_batch",),
    "loss": ("loss",),
    "curve": ("loss",),
}
SIZES = {"loss": {"params": "350M", "tokens": "20B"}, "curve": {"tokens": "1M"}}
ROWS = {
    "run": ("a", "b"), "batch": (8.0, 32.0), "target_loss": (1.8, 1.8), "relative_loss": (0.0, 0.0),
    "steps": (1e3, 5e2), "measured": (5e5, 1e6), "fitted": (5.1e5, 0.9e6),
}  # fmt: skip
BUDGETS = {"es": "1M", "loss": "20B", "curve": "1M"}


@pytest.fixture(scope="module", params=KINDS)
def fit(request):
    if request.param == "es":  # the committed ones keep no refits
        return hyperbola_fit(batches=(2.0, 8.0, 32.0, 128.0), rows=ROWS)
    return fit_from_dict(fit_entry(request.param))


def test_predictions_have_intervals_and_notes(fit):
    found = fit.predict(**RUN[fit.KIND])
    names = [f"{name}{end}" for name in PREDICTED[fit.KIND] for end in ("", "_low", "_high")]
    assert [*found] == [*names, "note"]
    assert len(found) == (1 if fit.KIND == "curve" else 2)
    for name in PREDICTED[fit.KIND]:
        low, value, high = (found[f"{name}{end}"].to_numpy() for end in ("_low", "", "_high"))
        assert np.all(low < value) and np.all(value < high)
    assert set(found["note"]) == {""}


def test_it_shows_its_answer_and_its_warnings(fit):
    lines = repr(fit).splitlines()
    assert lines[0] == fit.answer and lines[1:] == [f"warning: {x}" for x in fit.warnings]
    page = fit._repr_html_()
    assert page.startswith("<p><b>") and page.count("<li>") == len(fit.warnings)
    assert page.count("<table>") == 1 + len(fit.details()) and len(fit.summary())


def test_a_saved_fit_is_read_back(fit, tmp_path):
    fit.save(tmp_path / "fit.json")
    again = bss.read_fit(tmp_path / "fit.json")
    assert type(again) is type(fit) and again.answer == fit.answer
    assert again.to_dict().keys() == fit.to_dict().keys()
    with pytest.raises(InputError, match="directory that exists"):
        fit.save(tmp_path / "none" / "fit.json")


def test_it_is_plotted_on_axes_with_units(fit):
    ax = fit.plot()
    assert ax.get_xlabel() and ax.get_ylabel() and ax.get_legend().get_texts()
    drawn = [line for line in ax.lines if len(line.get_xdata())]
    assert any(line.get_marker() not in ("None", "") for line in drawn)
    pyplot.close(ax.figure)
    figure, own = pyplot.subplots()
    assert fit.plot(ax=own) is own and len(figure.axes) == 1
    pyplot.close(figure)


def test_the_best_batch_is_of_the_answer_or_of_a_size(fit):
    best = fit.best_batch()
    assert best.value is not None and best.low < best.value < best.high
    other = fit.best_batch(**SIZES.get(fit.KIND, {}))
    assert other.value is not None


def test_a_schedule_is_a_value_with_its_source(fit):
    if fit.KIND not in BUDGETS:
        with pytest.raises(InputError, match="has no schedule"):
            fit.schedule("1M")
        return
    settings = {"params": "350M"} if fit.KIND == "loss" else {}
    derived = fit.schedule(BUDGETS[fit.KIND], stages=3, multiple_of=2, **settings)
    assert isinstance(derived, bss.DerivedSchedule)
    assert all(batch % 2 == 0 for batch in derived.schedule.batches)
    assert str(derived) == str(derived.schedule) and str(derived) in repr(derived)


@pytest.mark.parametrize(
    ("kind", "run", "told"),
    [
        ("es", {}, "loss missing"),
        ("es", {"loss": -1, "batch": 4}, "target_loss: -1 given"),
        ("es", {"loss": 1.8, "batch": "many"}, "batch: 'many' is not a number"),
        ("es", {"loss": [1.8, 1.9, 2], "batch": [4, 8]}, "the same number of each"),
        ("critical", {}, "the laws of this fit"),
        ("loss", {"params": 1e9}, "tokens missing"),
        ("loss", {"params": 1e9, "tokens": np.nan}, "tokens: nan is not a number"),
        ("curve", {"batch": 8}, "tokens missing"),
    ],
)
def test_a_run_that_lacks_something_is_refused(kind, run, told):
    with pytest.raises(InputError, match=told) as refusal:
        fit_from_dict(fit_entry(kind)).predict(**run)
    assert "\n" not in str(refusal.value)


def test_the_style_of_the_figures_is_a_style_sheet():
    with mpl.style.context("bss.plots.bss"):
        assert not mpl.rcParams["axes.spines.top"] and mpl.rcParams["axes.grid"]


def test_a_fit_of_another_kind_is_refused(tmp_path):
    fit_from_dict(fit_entry("critical")).save(tmp_path / "fit.json")
    with pytest.raises(InputError, match="give a fit of kind es"):
        read_fit(tmp_path / "fit.json", ("es",))
