"""Tokens that were consumed to the target are no budget of the size."""

import numpy as np
import pandas as pd
import pytest

from bss.laws import fit_critical
from bss.laws.base import Options
from bss.tables import read_points


@pytest.mark.parametrize("seq_len", [None, 128])
def test_tokens_consumed_are_no_budget(seq_len, tmp_path):
    draw = np.random.default_rng(0)
    rows = [
        {"model": "m", "batch": batch, "steps": 1000 * (1 + 500 / batch) * draw.normal(1, 0.01)}
        for batch in (64, 128, 256, 512, 1024)
        for _ in range(3)
    ]
    table = pd.DataFrame(rows).assign(target_loss=0.72, seed=np.arange(len(rows)))
    consumed = table["steps"] * table["batch"] * (seq_len or 1)
    lengths = {"seq_len": seq_len} if seq_len else {}
    fits = []
    for some in (table, table.assign(tokens=consumed.round())):
        some.assign(**lengths).to_csv(tmp_path / "points.csv", index=False)
        points = read_points(tmp_path / "points.csv")
        fits.append(fit_critical(points, reference="smallest", options=Options(100)).fits[0])
    assert fits[1].B_crit == fits[0].B_crit
    assert fits[1].B_crit.value == pytest.approx(500, rel=0.05)
