"""What fits of each kind say of constant batches, and where they cannot tell."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from bss.advice import FitAdvice, advise
from bss.advice.fit_advice import of_losses
from bss.advice.of_table import fit_advice as of_table
from bss.errors import InputError
from bss.laws import CriticalFit, CurveFit, EsFit, check_losses, fit_table
from bss.laws.base import Estimate, Options
from bss.rules import Setting
from tests.advice.known import ends, numbers

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
    """Table fits by how their rates and batches were chosen."""
    tables = {
        "tuned": cell(1e-3 * 1.3 ** np.arange(7)),
        "shared": cell(1e-3),
        "smallest": cell(1e-3 * 1.3 ** np.arange(7), best=-1.0),
    }
    return {name: fit_table(table, options=Options(8)) for name, table in tables.items()}


def test_a_users_own_table_is_asked_of_itself(fitted):
    found = advise(HERE, of_table(fitted["tuned"], HERE, "wsd", "mine"))
    assert found.by == "fit" and found.fit.measured and found.narrow == ()
    assert found.batch.value == pytest.approx(BATCHES[3], rel=0.01)
    half, one, two, four = (cost.loss for cost in found.cost_of)
    assert (half, one, two, four) == pytest.approx((0.01, 0, 0.01, 0.04), abs=1e-3)
    low, _, high = ends(found.batch)
    assert np.log2(high / low) == pytest.approx(2 * np.sqrt(0.3), rel=0.1)


@pytest.mark.parametrize(
    ("table", "says", "narrow"),
    [
        ("shared", "all batches share one rate", "other rates at batches 2,048 and 4,096 at 100M"),
        ("smallest", "not told from the smallest batch measured", "batches 128 and 256 at 100M"),
    ],
)
def test_what_a_table_cannot_tell_is_answered_by_the_rules(fitted, table, says, narrow):
    found = advise(HERE, of_table(fitted[table], HERE, "wsd", "mine"))
    assert found.by == {"shared": "rules", "smallest": "fit"}[table]
    assert found.fit.best.value is None
    assert any(says in note for note in found.notes)
    assert all(cost.loss is None for cost in found.cost_of)
    assert any(narrow in text for text in found.narrow)


def test_a_best_at_an_end_is_a_bound():
    batch, loss = [1e3, 2e3, 4e3], [2.0, 2.01, 2.1]
    found = of_losses("mine", batch, loss, 0.9, ["said"])
    assert (found.best.value, found.best.low, found.best.high) == (None, None, 1e3)
    assert found.lost(1e3) is None and found.lost(4e3) is None
    assert "smallest batch fitted is the best: a bound" in found.best.note
    assert found.runs == ("two smaller batches, as 500 and 250 tokens",)
    told = advise(Setting(1e8, 1e9, 512), found)
    assert told.batch == found.best and told.by == "fit" and not told.cost_of
    assert told.first_line.startswith("B_opt is ≤ 1000 tokens by your runs")
    above = of_losses("mine", batch, loss[::-1], 0.9, [])
    assert (above.best.low, above.best.high) == (4e3, None) and "larger" in above.runs[0]
    inside = of_losses("mine", batch, [2.1, 2.0, 2.1], 0.9, [])
    low, value, high = ends(advise(HERE, inside, []).batch)
    assert low < value == 2e3 < high and not inside.runs
    assert (low, high) == (inside.low, inside.high)


def test_a_law_of_tokens_to_a_loss_is_asked_at_its_own_budgets():
    from bss.advice.of_es import fit_advice

    fit = EsFit.from_dict(json.loads((RESULTS / "demo/fits.json").read_text())["surface"])
    near, far = (fit_advice(fit, Setting(99e3, tokens, 64), "wsd", "mine") for tokens in (1e6, 1e9))
    shown = json.loads((RESULTS / "es_wsd/fits.json").read_text())["stable, shared"]["fits"]
    hyperbola = EsFit.from_dict(shown["hyperbola"])
    below = fit_advice(hyperbola, Setting(99e3, 1e6, 64), "wsd", "mine")  # .04 nats
    assert (below.best.value, below.best.high) == (None, 64) and "a bound" in below.best.note
    (best,) = numbers(near.best.value)
    assert near.measured and near.lost(best) == 0
    assert numbers(near.lost(32 * 64))[0] > 0
    assert far.best.value is None and "not tested there: by the law 1B tokens end" in far.best.note
    assert far.extrapolated is None and "runs of 1B tokens" in far.runs[0]
    assert "is it that of --params" in far.notes[0] and far.notes[0] in near.notes


def test_a_law_of_loss_curves_is_asked_at_one_rate():
    from bss.advice.of_curve import fit_advice

    fit = CurveFit.from_dict(json.loads((RESULTS / "late_switch/fit.json").read_text()))
    with pytest.raises(InputError, match="--lr: missing; give the peak rate, of 5e-07"):
        fit_advice(fit, Setting(99e3, 1e6, 64), "wsd", "mine")
    setting = Setting(99e3, 1e6, 64, lr=2e-3)
    with pytest.raises(InputError, match="says nothing of averaged weights"):
        fit_advice(fit, setting, "average", "mine")
    found = fit_advice(fit, setting, "constant", "mine")
    assert found.best.value and 64 <= found.best.value <= 32 * 64
    assert "one rate for all batches, 0.002" in found.notes[0]
    assert "the runs do not identify T_0, A_0" in found.notes
    decayed = fit_advice(fit, setting, "wsd", "mine")
    assert decayed.best.value is None
    assert "the rate falls to 0.052 of its peak, measured to 1" in decayed.best.note
    far = fit_advice(fit, Setting(99e3, 30e9, 64, lr=2e-3), "constant", "mine")
    assert far.extrapolated is None and "times the largest measured" in far.best.note


def test_a_critical_fit_tells_the_critical_batch_alone():
    from bss.advice.of_critical import fit_advice

    entry = json.loads((RESULTS / "critical_batch/fits.json").read_text())["both"]
    fit = CriticalFit.from_dict(entry)
    setting = Setting(20e3, 2e5, 32)
    found = advise(setting, fit_advice(fit, setting, "wsd", "mine"))
    critical = found.fit.critical
    assert critical and critical.low < critical.value < critical.high
    assert found.by == "nobody" and "tells no best batch" in found.notes[0]
    assert 32 < numbers(critical.value)[0] < 32 * 64


def test_a_batch_is_a_sequence_or_more():
    setting = Setting(1e9, 2e9, 2**20)
    found = advise(setting, FitAdvice("mine", Estimate(None, note="none")), ["step-law"])
    assert ends(found.batch)[:2] == [2**20, 2**20]


def test_without_any_rule_or_fit_there_is_no_batch():
    found = advise(HERE, FitAdvice("mine", Estimate(None, note="unidentified")), ["kaplan"])
    assert found.batch.value is None and not found.cost_of and found.spread is None
    assert found.notes[0] == "unidentified"
