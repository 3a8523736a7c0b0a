"""Predictions of a law E(S): how often their intervals hold a new run's tokens."""

import numpy as np
import pandas as pd
import pytest

from bss.laws import fit_es
from bss.laws.base import Options

OFFSET, NOISE, TARGETS = 0.003, 0.001, (2.4, 2.2, 2.0, 1.85, 1.7)


@pytest.mark.slow
def test_intervals_hold_new_runs_and_the_best_batch_at_their_level(planted):
    draw, sequences_at = np.random.default_rng(5), planted.laws["surface"]
    held, of_best, scatters = [], [], []
    for trial in range(40):
        scatter = {"offset": OFFSET, "noise": NOISE, "generator": draw}
        points = planted.points(sequences_at, targets=TARGETS, seeds=1, **scatter)
        fit = fit_es(points, "surface", options=Options(60, seed=trial, draws=60))
        scatters.append(fit.lack_of_fit[0])
        for loss, batch in ((1.95, 8.0), (2.1, 32.0)):
            found = fit.predict(pd.DataFrame({"batch": [batch], "target_loss": [loss]})).iloc[0]
            factor = 1 + OFFSET * draw.normal(size=20) + NOISE * draw.normal(size=20)
            tokens = [float(sequences_at(batch, loss / x)) * planted.SEQ_LEN for x in factor]
            held.append(
                np.mean([found["tokens_low"] <= value <= found["tokens_high"] for value in tokens])
            )
        at, truth = fit.best_batch(1.95), (1 + 1 / 0.35) * 2.6 / 0.75
        assert at.low and at.high
        of_best.append(at.low <= truth <= at.high)
    assert 0.84 < np.mean(held) < 0.97
    assert 0.78 < np.mean(of_best) < 1
    assert np.sqrt(np.mean(np.square(scatters))) == pytest.approx(np.hypot(OFFSET, NOISE), rel=0.2)
