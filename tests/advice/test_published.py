"""Advice at the models and budgets of a published table, each left out of what was fitted."""

import functools
from pathlib import Path

import numpy as np
import pytest

from bss.advice import advise
from bss.advice.advice import WIDTH
from bss.advice.fit_advice import FitAdvice
from bss.advice.of_table import PUBLISHED, fit_advice, published
from bss.files import read_json
from bss.laws import TableFit, fit_table
from bss.laws.base import Estimate
from bss.laws.final_loss.table import read_losses
from bss.rules import RULES, Setting
from experiments.critical_batch.best_batch import vertex
from tests.advice.known import ends, numbers

COSTS = 0.006  # nats
TABLE = Path(__file__).parents[2] / "results/published/steplaw_dense_best.csv"
ENDING = "cosine"


@pytest.fixture(scope="module")
def fit():
    return TableFit.from_dict(read_json(PUBLISHED, "", "fit"))


@pytest.fixture(scope="module")
def cells(fit):
    """Per cell its rows, its setting and its measured best batch: that of a parabola."""
    points, found = fit.law.points, []
    for cell in range(points.cell.max() + 1):
        rows = np.flatnonzero(points.cell == cell)
        setting = Setting(float(points.params[rows[0]]), float(points.tokens[rows[0]]), 2048)
        at = vertex(points.batch[rows], points.loss[rows])
        assert at.interior
        found.append((rows, setting, at.batch))
    assert len(found) == 17
    return found


def lost(points, rows, batch):
    """Nats above the least loss measured in a cell, between measured batches on lines."""
    x, y = np.log(points.batch[rows]), points.loss[rows]
    assert x[0] <= np.log(batch) <= x[-1]
    return float(np.interp(np.log(batch), x, y) - y.min())


@functools.cache
def without(cell):
    """The fit of the table without one (N, D)."""
    table = read_losses(TABLE)
    sizes = sorted({*zip(table["params"], table["tokens"], strict=True)})
    out = (table["params"] == sizes[cell][0]) & (table["tokens"] == sizes[cell][1])
    return fit_table(table.loc[~out])


def assert_good(fit, cells, blind):
    """What the advice of fits blind to a cell gives up there, and what its interval holds."""
    given_up, holds, span = [], 0, []
    for rows, setting, best in cells:
        found = advise(setting, fit_advice(blind(rows), setting, ENDING, "without it"), [])
        low, value, high = ends(found.batch)
        given_up.append(lost(fit.law.points, rows, value))
        holds += low <= best <= high
        span.append(high / low)
    assert max(given_up) <= COSTS
    assert holds >= len(cells) - 1 and np.median(span) <= 4


@pytest.mark.slow
def test_a_model_and_budget_left_out_are_advised_well(fit, cells):
    """Every fourth of them, inside what is left."""
    cell = fit.law.points.cell
    assert_good(fit, cells[1::4], lambda rows: without(int(cell[rows[0]])))


def test_where_rules_alone_speak_the_interval_is_as_wide_as_that_of_batches_as_good(fit, cells):
    """By rules that have not seen the table: what they say by itself holds no measured best."""
    widths = [ends(advise(at, fit_advice(fit, at, ENDING, ""), []).batch) for _, at, _ in cells]
    assert 1.5 < np.median([high / low for low, _, high in widths]) <= WIDTH
    blind = [name for name in RULES if name != "step-law"]
    nothing = FitAdvice("no fit", Estimate(None, note="none"))
    found = [(advise(at, nothing, blind), best) for _, at, best in cells]
    spans = [(numbers(*at.spread), best) for at, best in found if at.spread]
    assert len(spans) == 17 and not any(low <= best <= high for (low, high), best in spans)
    held = [(ends(at.batch), best) for at, best in found]
    assert sum(low <= best <= high for (low, _, high), best in held) == 16


def test_outside_of_what_was_tested_the_rules_answer_and_losses_are_not_known():
    setting = Setting(85e6, 2.5e9, 1024)
    found = advise(setting, published(setting))
    best = [at for at in found.rules if at.batch == "best" and at.in_range]
    sizes = numbers(*(at.hyperparameters.batch_tokens for at in best))
    assert len(sizes) >= 2 and found.by == "rules" and found.spread == (min(sizes), max(sizes))
    low, value, high = ends(found.batch)
    assert low < min(sizes) <= value <= max(sizes) < high < 6 * low
    assert [cost.loss for cost in found.cost_of] == [None] * 4
    assert "params 85M is 2.53 times below those measured, 215M" in found.notes[0]
    assert found.fit.extrapolated == pytest.approx(203_000, rel=0.03)


def test_where_nobody_has_measured_there_is_no_batch():
    far = Setting(70e9, 15e12, 8192)
    found = advise(far, published(far))
    assert (found.by, found.batch.value, found.spread, found.cost_of) == ("nobody", None, None, ())
    assert found.first_line.startswith("nobody has measured this")
    near = Setting(3e9, 3e11, 4096)
    assert advise(near, published(near)).batch.value


@pytest.mark.parametrize(
    ("params", "tokens", "batch"), [(1.03e9, 3e12, 2**21), (1.06e8, 6e11, 2**20)]
)
def test_over_trained_models_are_unlike_all_sources(params, tokens, batch):
    """TinyLlama 1.1B and SmolLM 135M trained with less than the rules say."""
    setting = Setting(params, tokens, 2048)
    found = advise(setting, published(setting))
    low, value, _ = ends(found.batch)
    assert low < batch < value
    assert "unlike all sources" in found.notes[0] and "unlike all sources" in found.first_line


def test_the_interval_widens_with_the_distance_from_what_was_tested():
    """At 2.9B parameters and 128M tokens no rule is in range of N and D; the fit still answers."""
    widths = []
    for tokens in (3e9, 6e8, 1.28e8):
        setting = Setting(2.9e9, tokens, 2048)
        found = advise(setting, published(setting), ["deepseek"])
        assert not found.rules[0].in_range and found.by == "rules"
        low, value, high = ends(found.batch)
        assert low < value < high
        widths.append(high / low)
    assert widths[-1] > 3 * WIDTH and widths == sorted(widths)
    assert high < 60_000  # a rule that is in range by compute alone says 294K there
