"""The answers of fits of each kind for constant batch sizes, and where they have none."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from bss.advice import FitAdvice, recommend
from bss.advice.fit_advice import TOLERANCE, of_losses
from bss.advice.of_fit import fit_advice, published
from bss.laws import EsFit, check_losses, fit_loss
from bss.laws.base import Estimate, Options
from bss.rules import Setting

RESULTS = Path(__file__).parents[2] / "results"
HERE = Setting(1e8, 1.001e9, 512)
BATCHES = 512 * 2 ** np.arange(7)


def cell(lr, best=3.0):
    """One model and budget, a parabola in log batch."""
    loss = 3.0 + 0.01 * (np.arange(7) - best) ** 2
    tokens = np.floor(1e9 / BATCHES) * BATCHES  # whole steps, so that budgets differ a little
    columns = {
        "params": 1e8,
        "tokens": tokens,
        "batch": BATCHES // 512,
        "seq_len": 512,
        "loss": loss,
    }
    return check_losses(pd.DataFrame({**columns, "lr": lr}))


@pytest.fixture(scope="module")
def fitted():
    """Table fits by how their learning rates and batch sizes were chosen."""
    tables = {
        "tuned": cell(1e-3 * 1.3 ** np.arange(7)),
        "shared": cell(1e-3),
        "smallest": cell(1e-3 * 1.3 ** np.arange(7), best=-1.0),
    }
    return {name: fit_loss(table, options=Options(8)) for name, table in tables.items()}


def saved(path, *keys):
    entry = json.loads((RESULTS / path).read_text())
    for key in keys:
        entry = entry[key]
    return entry


@pytest.mark.slow
def test_a_table_of_a_user_answers_where_it_was_tested(fitted):
    own = fit_advice(fitted["tuned"], HERE)
    found = recommend(HERE, own)
    assert found.in_range and found.pooled is None and found.losses is own
    assert found.batch.value == pytest.approx(BATCHES[3], rel=0.01)
    assert found.sequences == 8
    assert [own.loss_at(x) for x in (0.5, 1, 2)] == pytest.approx([0.01, 0, 0.01], abs=1e-3)
    low, high = own.tolerance()
    assert low and high and np.log2(high / low) == pytest.approx(2 * np.sqrt(0.3), rel=0.1)
    far = fit_advice(fitted["tuned"], Setting(1e8, 1e10, 512))
    assert far.best.value is None and "not tested there: tokens" in far.best.note
    elsewhere = recommend(Setting(1e8, 1e10, 512), far)
    assert elsewhere.pooled and far.best.note in elsewhere.warnings


def test_a_table_with_one_rate_has_no_best_batch(fitted):
    found = recommend(HERE, fit_advice(fitted["shared"], HERE))
    assert found.pooled and found.batch.value
    assert any("rate" in text for text in found.warnings)


def test_a_table_whose_smallest_batch_is_best_gives_a_bound(fitted):
    found = recommend(HERE, fit_advice(fitted["smallest"], HERE))
    assert found.pooled is None and found.sequences is None
    assert found.batch.value is None and found.batch.high and found.batch.high >= BATCHES[0]


def test_a_best_at_an_end_is_a_bound():
    batch, loss = [1e3, 2e3, 4e3], [2.0, 2.01, 2.1]
    found = of_losses(batch, loss, 0.9, ["as fitted"])
    assert (found.best.value, found.best.low, found.best.high) == (None, None, 1e3)
    assert found.loss_at(1.0) is None and found.warnings == ("as fitted",)
    above = of_losses(batch, loss[::-1], 0.9, [])
    assert (above.best.low, above.best.high) == (4e3, None)
    inside = of_losses(batch, [2.1, 2.0, 2.1], 0.9, [])
    assert inside.best.value == 2e3
    assert [inside.loss_at(x) for x in (0.5, 1, 2)] == pytest.approx([0.1, 0, 0.1])


def test_the_tolerance_is_where_losses_pass_it_and_open_where_they_do_not():
    factors = 2.0 ** np.arange(-3, 4)
    steep = FitAdvice(Estimate(1.0), factors, 0.01 * np.abs(np.log2(factors)))
    low, high = steep.tolerance()
    share = TOLERANCE / 0.01
    assert low == pytest.approx(2**-share) and high == pytest.approx(2**share)
    lopsided = FitAdvice(Estimate(1.0), factors, np.where(factors > 1, 0.1, 0.0))
    low, high = lopsided.tolerance()
    assert low is None and high == pytest.approx(2 ** (TOLERANCE / 0.1))
    assert FitAdvice(Estimate(1.0)).tolerance() == (None, None)


def test_the_published_losses_are_known_inside_their_table_only():
    inside = published(Setting(350e6, 30e9, 2048))
    half, whole, twice = (inside.loss_at(x) for x in (0.5, 1.0, 2.0))
    assert whole == pytest.approx(0, abs=1e-4)
    assert half and twice and 0.001 < half < 0.02 and 0.001 < twice < 0.02
    low, high = inside.tolerance()
    assert low and high and 0.5 < low < 1 < high < 2
    outside = published(Setting(85e6, 2.5e9, 1024))
    assert outside.loss_at(0.5) is None and outside.tolerance() == (None, None)


def test_a_law_of_tokens_to_a_loss_answers_at_its_own_budgets():
    fit = EsFit.from_dict(saved("demo/fits.json", "surface"))
    near, far = (fit_advice(fit, Setting(99e3, tokens, 64)) for tokens in (1e6, 1e9))
    hyperbola = EsFit.from_dict(saved("es_wsd/fits.json", "constant, shared", "fits", "hyperbola"))
    below = fit_advice(hyperbola, Setting(99e3, 1e6, 64))
    assert (below.best.value, below.best.high) == (None, 64)
    assert near.best.value and near.loss_at(1.0) == pytest.approx(0, abs=1e-6)
    assert near.loss_at(4.0)
    assert far.best.value is None and "not tested there" in far.best.note
    assert set(far.warnings) <= set(near.warnings)


def test_a_batch_is_a_sequence_or_more():
    found = recommend(Setting(1e9, 2e9, 2**20))
    assert found.in_range and found.batch.value and found.batch.value < 2**20
    assert found.sequences == 1
