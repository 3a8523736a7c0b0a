"""What the rates of a run table mean for a law of its points."""

import numpy as np
import pandas as pd
import pytest

from bss.points.curve import points
from bss.points.rates import one_rate, rate_warnings
from bss.tables import check_runs


def table(rates, shape=lambda part: np.ones_like(part)):
    """Runs at batches 2, 4, 8, ... of these peaks, whose rate follows a shape of the steps."""
    part = np.linspace(0.02, 1, 60)
    frames = [
        pd.DataFrame({"run": f"b{2**i}", "batch": 2**i, "seq_len": 8, "lr": rate * shape(part)})
        .assign(step=np.rint(1000 * part).astype(int), loss=3 - part)
        for i, rate in enumerate(rates, 1)
    ]  # fmt: skip
    return check_runs(pd.concat(frames, ignore_index=True))


def said(runs, targets=(2.7, 2.4)):
    measured = points(runs, targets)
    return rate_warnings(runs, measured), one_rate(measured)


def test_one_constant_rate_is_known_and_needs_no_word():
    assert said(table([4e-3] * 3)) == ([], 4e-3)
    assert said(table([4e-3, 4.001e-3])) == ([], 4e-3)
    assert said(table([4e-3] * 3).drop(columns="lr")) == ([], None)


def test_warm_up_and_what_follows_the_last_target_are_no_change():
    warmed = table([4e-3] * 3, lambda part: np.minimum(part / 0.1, 1))
    assert said(warmed) == ([], 4e-3)
    decayed = table([4e-3] * 3, lambda part: np.where(part > 0.7, 0.1, 1.0))
    assert said(decayed) == ([], 4e-3)


@pytest.mark.parametrize(
    "shape",
    [lambda part: 0.5 * (1 + np.cos(np.pi * part)), lambda part: np.where(part > 0.5, 0.1, 1.0)],
)
def test_a_rate_that_falls_before_a_target_is_said(shape):
    ((warning,), rate) = said(table([4e-3] * 3, shape))
    assert warning.startswith("lr changes within 3 of 3 runs") and "run b2, " in warning
    assert rate == pytest.approx(4e-3, rel=1e-2)


def test_rates_that_differ_between_batches_are_said():
    ((warning,), rate) = said(table([1e-3, 2e-3, 4e-3]))
    assert warning == (
        "lr differs between batches (1e-3 at batch 2 to 4e-3 at batch 8): B_opt is at these rates"
    )
    assert rate is None


def test_several_rates_at_every_batch_are_said():
    low, high = table([1e-3] * 3), table([4e-3] * 3)
    both = pd.concat([low, high.assign(run=high["run"] + "h")], ignore_index=True)
    assert said(both)[0] == [
        "every batch has several lr (1e-3 to 4e-3), fitted together: B_opt is at no one rate"
    ]
