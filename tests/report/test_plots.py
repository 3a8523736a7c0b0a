import dataclasses
import io
import re

import matplotlib
import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

from bss.advice.of_fit import PUBLISHED
from bss.files import read_json
from bss.laws import LossFit
from bss.plots.contenders import contenders_figure
from bss.plots.curves import loss_curves, varied_curves
from bss.plots.final_loss import loss_figure
from bss.plots.laws import batch_against_loss, es_panels, tokens_to_target
from bss.plots.rates_map import rates_figure
from bss.plots.schedules import schedule_figure
from bss.plots.style import law_styles, svg
from bss.schedules import rates
from bss.schedules.batch import BatchSchedule
from bss.schedules.plan import resolve
from tests.drawn import collisions, points, texts
from tests.fits import with_few_rows


@pytest.fixture(scope="module")
def figures(planted):
    plan = resolve(
        BatchSchedule.parse(planted.schedule), 1_600_000, 128, rate=rates.constant(4e-3, 50_000)
    )
    return {
        "plan": schedule_figure(plan),
        "losses": loss_curves(planted.runs, planted.targets),
        "tokens": tokens_to_target(planted.points, planted.fits),
        "es": es_panels(planted.points, planted.fits),
        "batches": batch_against_loss(planted.fits),
        "contenders": contenders_figure(planted.contenders()),
        "rates": rates_figure(
            LossFit.from_dict(
                with_few_rows(read_json(PUBLISHED.with_name("steplaw_rates.json"), ""))
            )
        ),
    }


LABELS = {
    "plan": ("tokens consumed", "batch size (sequences)", "learning rate"),
    "losses": ("tokens consumed", "held-out loss (nats per token)"),
    "tokens": ("batch B (sequences)", "tokens to the target E"),
    "es": ("optimizer steps to the target S", "tokens to the target E"),
    "batches": ("target loss (nats per token), falling →", "$B_{opt}$ (sequences)"),
    "contenders": ("final test loss (nats per token)",),
    "rates": ("batch (tokens)", "peak learning rate"),
}


@pytest.mark.parametrize("name", LABELS)
def test_labels_carry_units_and_a_legend_stands_beside_the_axes(figures, name):
    figure = figures[name]
    labels = {figure.get_supxlabel(), figure.get_supylabel()}
    for ax in figure.axes:
        labels |= {ax.get_xlabel(), ax.get_ylabel()}
    assert labels >= set(LABELS[name])
    (legend,) = figure.legends
    assert legend.get_texts()
    assert not collisions(figure)


@pytest.mark.parametrize("draw", [tokens_to_target, es_panels])
def test_large_batches_and_many_laws_without_a_fit_leave_every_text_readable(planted, draw):
    large = planted.points.assign(
        batch=128 * planted.points["batch"],
        steps=8 * planted.points["steps"],
        tokens_to_target=1024 * planted.points["tokens_to_target"],
    )
    failed = {
        law: dataclasses.replace(
            fit, fits=tuple(dataclasses.replace(at, status="not converged") for at in fit.fits)
        )
        for law, fit in planted.fits.items()
    }
    figure = draw(large, failed)
    assert not collisions(figure)
    laws = ("surface", "piecewise", "hyperbola")
    assert {f"no fit of {law} at\n6 of 6 targets" for law in laws} <= texts(figure)


def test_of_many_runs_those_that_can_be_told_apart_are_drawn_and_counted(planted):
    runs = planted.runs.assign(lr=planted.runs["lr"].where(planted.runs["tokens"] < 1e6, 1e-3))
    models = [
        runs.assign(run=runs["run"] + model, model=model, eval_loss=runs["eval_loss"] + shift)
        for model, shift in (("60M", 0.1), ("120M", 0.0))
    ]
    ended = models[1]["eval_loss"].where(models[1]["tokens"] < 1.59e6, 90)
    figure = varied_curves(pd.concat([models[0], models[1].assign(eval_loss=ended)]))
    top, bottom = figure.axes
    assert top.get_title("right") == "10 of 16 kinds, 10 of 16 runs"
    assert (len(top.lines), len(bottom.lines)) == (10, 10)
    assert top.get_ylim()[1] < 10
    assert top.get_ylabel() == "held-out loss (nats per token)"
    (legend,) = figure.legends
    names = [text.get_text() for text in legend.get_texts()]
    assert len(names) == 10 and {"120M: 1", "60M: 32"} <= set(names)
    assert not collisions(figure)
    unknown = runs.assign(lr=runs["lr"].where(runs["batch"] > 2).where(runs["batch"] < 32, 2e-3))
    (legend,) = varied_curves(unknown).legends
    names = [text.get_text() for text in legend.get_texts()]
    assert names[0] == "1" and names[-1] == "32 (0.002)"
    assert not varied_curves(runs).axes[0].get_title("right")


def drawn(line):
    """The data [2, points] of a line."""
    return np.asarray(line.get_data(), float)


def lines(figure, colour):
    return [line for ax in figure.axes for line in ax.lines if line.get_color() == colour]


def test_a_fit_that_did_not_converge_is_named_and_not_drawn(planted):
    fit = planted.fits["surface"]
    failed = tuple(dataclasses.replace(f, status="not converged") for f in fit.fits)
    fits = {"surface": dataclasses.replace(fit, fits=failed)}
    colour = law_styles(fits)["surface"]["color"]
    for draw in (tokens_to_target, es_panels):
        assert lines(draw(planted.points, planted.fits), colour)
        figure = draw(planted.points, fits)
        assert not lines(figure, colour)
        assert "no fit of surface at\n6 of 6 targets" in texts(figure)
    figure = batch_against_loss(fits)
    assert not any(points(figure))
    assert figure.axes[0].get_title(loc="right") == "surface: none at 6 of 6"


def test_a_law_of_final_losses_is_drawn_only_where_it_converged():
    fit = LossFit.from_dict(read_json(PUBLISHED, ""))
    failed = dataclasses.replace(fit, law=dataclasses.replace(fit.law, converged=False))
    count = []
    for law in (fit, failed):
        figure = loss_figure(law)
        assert not collisions(figure)
        assert {"batch (tokens)", "loss above the best batch (nats)"} <= texts(figure)
        count.append(sum(line.get_linestyle() == "-" for ax in figure.axes for line in ax.lines))
    # A line and a bar for each of 17 (N, D).
    assert count == [34, 0]


def test_crossings_are_where_the_points_are(planted):
    top = loss_curves(planted.runs, planted.targets).axes[0]
    marks = [line for line in top.lines if line.get_linestyle() == "None"]
    marked = np.sort(np.concatenate([np.asarray(line.get_xdata(), float) for line in marks]))
    reached = planted.points.loc[planted.points["reached"], "tokens_to_target"]
    np.testing.assert_allclose(marked, np.sort(reached), rtol=1e-9)


def test_excess_is_zero_for_the_best_batch_and_the_best_batch_grows(planted):
    bottom = loss_curves(planted.runs, planted.targets).axes[1]
    excess = np.array([line.get_ydata() for line in bottom.lines])
    np.testing.assert_allclose(np.nanmin(excess, axis=0), 0)
    best = np.nanargmin(excess, axis=0)
    assert best[0] == 1 and best[-1] == 3


def test_a_plan_of_ten_trillion_tokens_is_sampled():
    total = 10**13
    schedule = BatchSchedule.parse("0:1024 1T:2048 5T:4096")
    wsd = rates.wsd(3e-4, total, 10**9, total // 5)
    plan = resolve(schedule, total, 4096, rate=wsd)
    batch, rate = schedule_figure(plan).axes
    assert drawn(batch.lines[0])[1].tolist() == [1024, 2048, 4096, 4096]
    tokens, values = drawn(rate.lines[0])
    assert len(tokens) < 1000
    wanted = [float(wsd(t)) for t in tokens]
    np.testing.assert_allclose(values, wanted, rtol=1e-5)
    assert values[-1] < 1e-3 * values.max()


def test_a_figure_of_a_page_is_drawn_once(planted, monkeypatch):
    figure = contenders_figure(planted.contenders())
    drawn = []
    draw = Figure.draw
    monkeypatch.setattr(Figure, "draw", lambda *given: (drawn.append(given[0]), draw(*given)))
    text = svg(figure)
    assert drawn == [figure]
    # `savefig` draws first for the layout and then for the file
    whole = io.StringIO()
    with matplotlib.rc_context({"svg.fonttype": "path", "svg.hashsalt": "bss"}):
        contenders_figure(planted.contenders()).savefig(whole, format="svg")
    shapes = r' d="(.*?)"'
    assert re.findall(shapes, text, re.DOTALL) == re.findall(shapes, whole.getvalue(), re.DOTALL)


def test_the_svg_is_reproducible_and_fetches_nothing(planted):
    first, second = (svg(contenders_figure(planted.contenders())) for _ in range(2))
    assert first == second
    assert first.startswith("<svg") and "<metadata" not in first and "<text" not in first
    named = svg(contenders_figure(planted.contenders()), "one of two")
    first_ids, ids = (re.findall(r' id="(.*?)"', text) for text in (first, named))
    assert set(ids) == set(re.findall(r'(?:href="|url\()#(.*?)[")]', named))
    assert len(ids) == len(set(ids)) and not set(ids) & set(first_ids)
