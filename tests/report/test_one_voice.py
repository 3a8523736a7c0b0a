"""Random designs: value, table, page, JSON and advice say one thing, and nothing unidentified."""

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from bss.advice import advise
from bss.advice.of_table import PUBLISHED, fit_advice
from bss.cells import estimate, number
from bss.cli.of_es import es_table
from bss.cli.of_table import optima_table, prediction_table
from bss.files import read_json
from bss.laws import TableFit, check_losses, fit_table
from bss.laws.final_loss.best import best_batches
from bss.laws.final_loss.cells import cells_of
from bss.laws.final_loss.elsewhere import CellOptimum
from bss.laws.final_loss.table import loss_points
from bss.laws.fitting.estimate import Options
from bss.report.findings import short_answer
from bss.report.measured import How, measured_results
from bss.report.page import write_results
from bss.report.tables import optima_table as page_table
from bss.rules import Setting
from bss.tables import check_runs
from tests.advice.known import ends

SEQ_LEN = 2048
DASH = "–"


def table(seed, cells):
    """Cells of 1 to 6 batches with gaps, their best inside, at an end or beyond, or at one rate."""
    random, rows = np.random.default_rng(seed), []
    sizes = SEQ_LEN * 2.0 ** np.arange(0, 11)
    one_rate = random.random() < 0.15
    for _ in range(cells):
        params, tokens = np.exp(random.uniform(np.log([2.2e8, 4e9]), np.log([1e9, 9e10])))
        batches = np.sort(random.choice(sizes, random.integers(1, 7), replace=False))
        centre = random.uniform(np.log(batches[0]) - 2, np.log(batches[-1]) + 2)
        rise = 10 ** random.uniform(-4.0, -1.2)
        noise = 10 ** random.uniform(-4, -2) * random.standard_normal(len(batches))
        loss = 2.5 + rise * (np.log(batches) - centre) ** 2 + noise
        rates = 1e-3 if one_rate else 1e-3 * (batches / 1e5) ** 0.4
        rows += [(params, tokens, *row) for row in np.broadcast(batches / SEQ_LEN, loss, rates)]
    names = ["params", "tokens", "batch", "loss", "lr"]
    return pd.DataFrame(rows, columns=names).assign(seq_len=SEQ_LEN)


@pytest.fixture(scope="module")
def published():
    return TableFit.from_dict(read_json(PUBLISHED, "", "fit"))


def told_of(published, frame):
    """The published fit with the cells of another table in place of its own."""
    points, _ = loss_points(check_losses(frame))
    cells = cells_of(points, np.ones(len(points.loss), bool), 0.9)
    laws = [published.law_at(one.params, one.tokens) for one in cells]
    reach = float(points.batch.min()), float(points.batch.max())
    elsewhere, best = best_batches(cells, laws, [], reach, 0.9, SEQ_LEN)
    pairs = zip(cells, best, strict=True)
    optima = tuple(CellOptimum(one.params, one.tokens, at, {}) for one, at in pairs)
    return replace(published, optima=optima, points=points, best=elsewhere, seq_len=SEQ_LEN)


def assert_one_voice(fit, least=SEQ_LEN):
    """All that is said of the best batches of a fit; returns how many are told."""
    shown, page, entries = optima_table(fit), page_table(fit), fit.to_dict()["optima"]
    for i, at in enumerate(fit.optima):
        best, entry = at.batch, entries[i]["B_opt_tokens"]
        texts = [shown.rows[i][2], page.rows[i][2]]
        spans = [*shown.rows[i][3:5], page.rows[i][3]]
        assert all(text.startswith(estimate(best, least, 3)) for text in texts)
        assert entry["value"] == best.value and entry["status"] == best.status
        for one in best.alike:
            assert best.value and (one.low or 0) <= best.value <= (one.high or math.inf)
            assert (one.low or least) >= least and (one.high or least) >= least
        if best.value is None:
            assert best.note and best.status != "identified"
            assert spans == [DASH] * 3 and "(" not in texts[0] + texts[1]
            assert not entry["alike"] and not entries[i]["given_up"]
        else:
            assert best.low is not None and best.high is not None
            assert least <= best.low <= best.value <= best.high
    return sum(at.batch.value is not None for at in fit.optima)


def assert_advice(fit, at, asked):
    """What is predicted and advised at a cell: no best batch and no cost against an unknown one."""
    prediction = fit.prediction(at.params, at.tokens, asked, extrapolate=True)
    rows = {name: text for name, text in prediction_table(prediction, SEQ_LEN).rows}
    told = fit_advice(fit, Setting(at.params, at.tokens, SEQ_LEN), "wsd", "mine")
    advice = advise(Setting(at.params, at.tokens, SEQ_LEN), told)
    assert prediction.best_batch == at.batch
    assert rows["best batch, sequences"] == estimate(at.batch, SEQ_LEN, 3)
    given_up = "given up against the best batch, nats" in rows
    assert given_up == (at.batch.value is not None) == (prediction.given_up is not None)
    assert told.best.value == at.batch.value
    if at.batch.value is None:
        assert advice.by != "fit" or advice.batch.value is None
        assert all(cost.loss is None for cost in advice.cost_of)
        assert "nats, twice" not in advice.first_line
    else:
        assert advice.batch.low is None or advice.batch.low <= at.batch.value
        assert f"take {number(at.batch.value)} tokens" in advice.first_line


@pytest.mark.parametrize(
    ("seeds", "cells", "asked"),
    [(range(3), 15, 1), pytest.param(range(3, 103), 20, 1, marks=pytest.mark.slow)],
)
def test_no_design_is_told_two_ways(published, seeds, cells, asked):
    count = told = 0
    for seed in seeds:
        fit = told_of(published, table(seed, cells))
        count, told = count + len(fit.optima), told + assert_one_voice(fit)
        for at in fit.optima[:asked]:
            assert_advice(fit, at, float(fit.points.batch[0]))
    assert count >= 0.99 * len(seeds) * cells and 0 < told < count


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(15))
def test_fits_of_final_losses_are_told_one_way(seed):
    cells = 4 + 3 * seed
    frame = table(1000 + seed, cells)
    fit = fit_table(check_losses(frame), options=Options(10))
    assert_one_voice(fit)
    assert_one_voice(TableFit.from_dict(fit.to_dict()))
    for at in fit.optima[:5]:
        assert_advice(fit, at, float(fit.points.batch[0]))


def curves(seed):
    """Loss curves of 3 to 6 batches of a lopsided valley that moves with the loss."""
    random, rows = np.random.default_rng(seed), []
    batches = np.sort(random.choice(2 ** np.arange(0, 9), random.integers(3, 7), replace=False))
    centre, noise = random.uniform(-1, 9) * np.log(2), 10 ** random.uniform(-4, -2)
    for batch in batches:
        tokens = np.unique((np.geomspace(2e4, 4e6, 50) // (batch * 64)).astype(int)) * batch * 64
        tokens = tokens[tokens > 0]
        offset = np.log(batch) - centre
        wasted = np.exp(0.03 * offset**2 * random.choice([0.0, 1.0, 3.0]))
        loss = 1.2 + 40 * (tokens / wasted) ** -0.27
        loss = loss * (1 + noise * random.standard_normal() + noise / 3)
        rows += [
            (f"b{batch}", batch, t // (batch * 64), t, x) for t, x in zip(tokens, loss, strict=True)
        ]
    names = ["run", "batch", "step", "tokens", "loss"]
    return check_runs(pd.DataFrame(rows, columns=names).assign(seq_len=64))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(15))
def test_reports_of_curves_are_told_one_way(seed, tmp_path):
    experiment = {"title": "Runs", "command": "bss report runs.csv", "versions": {"bss": "0"}}
    results = measured_results(curves(seed), experiment, How(resamples=10))
    write_results(results, tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    chosen = [fit for fit in results.fits.get("", {}).values() if fit.fits[0].best]
    answers = " ".join(short_answer(results))
    assert len(chosen) == 1
    (fit,) = chosen
    rows = es_table(fit).rows
    for i, target in enumerate(fit.fits):
        best, entry = target.best, fit.to_dict()["fits"][i]["B_opt"]
        assert best is not None and entry["value"] == best.value
        assert estimate(best) in rows[i]
        if best.value is None:
            assert not best.alike and target.S_opt is None
            assert best.note and best.why.replace("B_opt", "B<sub>opt</sub>") in page
        else:
            low, value, high = ends(best)
            assert 1 <= low <= value <= high
            assert f"{estimate(best, digits=3)} at {target.target_loss:g}" in answers
            assert f"<td>{estimate(best, digits=3)}</td>" in page
    assert "predicts left-out batches best" not in answers or fit.comparison is not None
