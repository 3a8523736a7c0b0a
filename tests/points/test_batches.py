"""Constant batches side by side: what planted curves of two seeds say, by hand."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from bss.errors import InputError
from bss.points.batches import (
    BatchCurve,
    alike,
    batch_curves,
    excess,
)
from bss.points.curve import Smooth


def curve(batch, seed, first, last):
    """A loss that is a line in log tokens, from 10 to 12."""
    x = np.array([10.0, 12.0])
    loss = np.array([first, last], float)
    fit = Smooth(x, loss, np.exp(x), np.exp(x) / batch, loss)
    return BatchCurve(batch, f"seed {seed}", fit)


def run_of(name, batch, loss, seq_len=16, rate=1e-3):
    """Rows of a run of these batches whose loss falls evenly in log tokens to so much."""
    step = np.arange(1, len(batch) + 1) * 4
    tokens = step * batch * seq_len
    return pd.DataFrame(
        {"run": name, "batch": batch, "seq_len": seq_len, "peak_lr": rate, "step": step}
    ).assign(tokens=tokens, eval_loss=loss + 0.1 * np.log(tokens[-1] / tokens))


def named(frames):
    return pd.concat(frames, ignore_index=True)


def single(name, batch, loss, **settings):
    return run_of(name, np.full(12, batch), loss, **settings)


def test_runs_are_alike_where_most_batches_share_a_setting():
    changing = run_of("ramp", np.repeat([1, 2], 6), 1.0)
    many = [single(f"many{b}", b, 3.0) for b in (1, 2, 4)]
    few = [single(f"few{b}", b, 1.0, rate=2e-3) for b in (1, 2)]
    assert set(alike(named([changing, *few, *many]))["run"]) == {"many1", "many2", "many4"}
    lower = [single(f"lower{b}", b, 2.5, seq_len=8) for b in (1, 2, 4)]
    found = alike(named([*few, *many, *lower]))
    assert set(found["run"]) == {"lower1", "lower2", "lower4"}
    assert alike(changing).empty


def test_a_curve_needs_one_batch_and_three_losses():
    short = single("short", 4, 3.0).iloc[:3]
    shorter = single("shorter", 8, 3.0).iloc[:2]
    changing = run_of("ramp", np.repeat([1, 2], 6), 1.0)
    found = batch_curves(named([short, single("b2", 2, 3.0), shorter, changing]), "eval_loss")
    assert [one.batch for one in found] == [2.0, 4.0]
    assert [one.run for one in found] == ["b2", "short"] and len(found[1].fit.loss) == 3
    with pytest.raises(InputError, match="at least 3 losses"):
        batch_curves(named([shorter, changing]), "eval_loss")


def test_the_excess_is_over_the_best_batch_as_long_as_a_curve_is_known():
    long, short = (
        BatchCurve(batch, f"batch {batch}", Smooth(x, y, np.exp(x), np.exp(x), y))
        for batch, x, y in [
            (2, np.array([9.0, 12.0]), np.array([3.0, 3.0])),
            (8, np.array([10.0, 11.0]), np.array([3.5, 2.5])),
        ]
    )
    again = replace(short, fit=replace(short.fit, loss=short.fit.loss + 0.2))
    tokens, above = excess([long, short, again])
    x = np.log(tokens)
    assert (len(x), x[0], x[-1]) == (200, pytest.approx(10), pytest.approx(12))
    known = x <= 11.03
    falls = 3.6 - (np.minimum(x, 11) - 10)
    best = np.where(known, np.minimum(falls, 3.0), 3.0)
    np.testing.assert_allclose(above[2], 3.0 - best)
    np.testing.assert_allclose(above[8][known], (falls - best)[known])
    assert np.isnan(above[8][~known]).all()
