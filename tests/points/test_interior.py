"""Where the best batch lies: planted inside, planted at the edge, and tied."""

import numpy as np
import pandas as pd
import pytest

from bss.errors import InputError
from bss.points.interior import positions

BATCHES = [1, 2, 4, 8, 16, 32]
INSIDE = [0.014, 0.0, 0.004, 0.03, 0.1, 0.2]
EDGE = [0.0, 0.003, 0.02, 0.05, 0.1, 0.2]


def table(means, seeds=10, scatter=0.004, draw=0):
    """Losses [batch, seed]: a mean for each batch, a seed's own level, and scatter."""
    rng = np.random.default_rng(draw)
    noise = scatter * rng.normal(size=(len(means), seeds)) + 0.02 * rng.normal(size=seeds)
    return pd.DataFrame(1.8 + np.array(means)[:, None] + noise, index=BATCHES[: len(means)])


def test_an_optimum_inside_and_one_at_the_edge_are_told_apart():
    found = positions({"inside": table(INSIDE), "edge": table(EDGE)}, {"inside": 2, "edge": 2})
    assert (found["inside"].found, found["inside"].best) == ("interior", 2)
    assert found["inside"].smallest_above == pytest.approx(0.014, abs=0.004)
    assert found["inside"].largest_above == pytest.approx(0.2, abs=0.004)
    assert (found["edge"].found, found["edge"].best) == ("edge", 1)
    assert found["edge"].p_adjusted > 0.5


def test_a_tie_at_the_smallest_batch_is_an_edge_and_is_rarely_called_interior():
    tie = [0.0, 0.0, 0.01, 0.05, 0.1, 0.2]
    found = [positions({0: table(tie, draw=draw)}, {0: 2})[0].found for draw in range(80)]
    assert found.count("interior") <= 0.1 * 80
    assert found.count("edge") >= 0.85 * 80


def test_both_ends_must_be_worse():
    falling = table([0.05, 0.03, 0.02, 0.01, 0.005, 0.0])
    assert positions({0: falling}, {0: 16})[0].found == "undecided"


def test_more_tables_make_it_harder():
    weak = table([0.006, 0.0, 0.01, 0.05, 0.1, 0.2], scatter=0.006, draw=3)
    alone = positions({0: weak}, {0: 2})[0]
    among = positions(dict.fromkeys(range(6), weak), dict.fromkeys(range(6), 2))[0]
    assert alone.p == among.p and among.p_adjusted == pytest.approx(min(1, 6 * alone.p))


def test_an_inner_batch_at_an_end_is_refused():
    with pytest.raises(InputError, match="batch 1 of 0 is not between 1 and 32"):
        positions({0: table(EDGE)}, {0: 1})
