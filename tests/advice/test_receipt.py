"""The receipt of a batch size that is used: tokens, steps, days and cost of its multiples."""

import numpy as np
import pytest

import bss
from bss.advice import FitAdvice
from bss.advice.receipt import receipt
from bss.errors import InputError
from bss.laws.base import Estimate
from bss.laws.step_time import StepTime
from bss.rules import Setting

SETTING = Setting(1e9, 1e11, 1000)
BEST = Estimate(1e6, 5e5, 2e6, 0.9)
FACTORS = 2.0 ** np.linspace(-4, 4, 65)
PARABOLA = FitAdvice(BEST, FACTORS, 0.005 * np.log2(FACTORS) ** 2, slope=0.05)


def test_tokens_steps_days_and_cost_of_a_planted_parabola():
    found = receipt(SETTING, BEST, PARABOLA, 2e6, StepTime.parse("1 + 0.001*B", 8), price=3.0)
    assert [row["factor"] for row in found.rows] == [0.5, 1, 2, 4]
    for row, log2 in zip(found.rows, (0, 1, 2, 3), strict=True):
        loss = 0.005 * log2**2
        assert row["loss"] == pytest.approx(loss, abs=1e-6)
        assert row["tokens"] == pytest.approx(1e11 * np.exp(loss / 0.05), rel=1e-4)
        assert row["sequences"] == pytest.approx(1000 * 2**log2)
        assert row["steps"] == round(row["tokens"] / row["batch_tokens"])
        seconds = row["steps"] * (1 + 2.0**log2)
        assert row["days"] == pytest.approx(seconds / 86400)
        assert row["cost"] == pytest.approx(seconds / 3600 * 8 * 3)
    assert found.ratio == 2 and "inside the 90% interval" in found.lines[0]


def test_the_largest_batch_within_one_percent_of_the_tokens():
    found = receipt(SETTING, BEST, PARABOLA, 1e6)
    factor = 2 ** np.sqrt(0.05 * np.log(1.01) / 0.005)
    assert found.largest.value == pytest.approx(1e6 * factor, rel=0.01)
    assert found.largest.high == pytest.approx(2 * found.largest.value)
    assert "1.2M tokens" in found.lines[1] or "1.24M tokens" in found.lines[1]
    assert found.rows[0]["days"] is None and found.rows[0]["cost"] is None


def test_what_is_unknown_is_none():
    far = receipt(SETTING, BEST, PARABOLA, 3e8)
    assert far.rows[0]["loss"] is None and far.rows[0]["tokens"] is None
    assert "outside the 90% interval" in far.lines[0]
    bound = receipt(SETTING, Estimate(None, None, 2e6), FitAdvice(BEST), 1e6)
    assert bound.ratio is None and bound.largest.value is None and "unknown" in bound.lines[1]
    assert "(1,000 sequences)" in bound.lines[0]
    few = receipt(SETTING, BEST, PARABOLA, 2500)
    assert "2.5K tokens (2.5 sequences)" in few.lines[0]


def test_in_python_tokens_and_sequences_are_the_same_batch():
    planned = {"params": "7B", "tokens": "2T", "seq_len": 4096}
    one, other = bss.advise(**planned, batch_tokens=2**22), bss.advise(**planned, batch=1024)
    assert one.receipt == other.receipt and one.to_dict()["receipt"]["sequences"] == 1024
    assert one.receipt.losses_of == "1.07B parameters, 100B tokens"
    assert any(one.receipt.losses_of in text for text in one.warnings)
    near = bss.advise("350M", "30B", 2048, batch=512, step_time="0.4 + 0.004*B", devices=8)
    assert near.receipt.losses_of == "" and near.receipt.rows[1]["cost"] > 0
    assert repr(near).splitlines()[2] == near.receipt.lines[0]
    assert bss.advise(**planned).receipt is None


@pytest.mark.parametrize(
    ("given", "names"),
    [
        ({"batch_tokens": "4M", "batch": 1024}, "not both"),
        ({"batch_tokens": 100}, "one sequence"),
        ({"batch": "1T"}, "the budget"),
        ({"batch_tokens": "many"}, "batch_tokens"),
        ({"step_time": "1 + 2*B"}, "step_time"),
        ({"batch": 64, "step_time": "1 + 2*B", "devices": 0}, "devices"),
        ({"batch": 64, "price": -1}, "price"),
    ],
)
def test_bad_input_is_one_line(given, names):
    with pytest.raises(InputError, match=names) as refused:
        bss.advise("7B", "2T", 4096, **given)
    assert "\n" not in str(refused.value)
