"""Attempts at a run, told by steps alone."""

import numpy as np
import pandas as pd
import pytest

from bss.errors import InputError
from bss.importers.restarts import merge


def merged(steps, losses):
    told = merge(pd.DataFrame({"step": steps, "loss": losses}, dtype=float))
    return list(told.rows["step"]), list(told.rows["loss"]), told


@pytest.mark.parametrize(
    ("steps", "losses", "kept", "counts"),
    [
        ([1, 2, 3, 4, 3, 4, 5], [9, 8, 7, 6, 7.1, 6.1, 5.1], [9, 8, 7.1, 6.1, 5.1], (1, 2, 0)),
        # the second attempt's rows are the first's, by chance or because it repeats itself
        ([1, 2, 3, 4, 2, 3, 4, 5], [9, 8, 7, 6, 8, 7.1, 6, 5], [9, 8, 7.1, 6, 5], (1, 3, 0)),
        ([1, 2, 3, 4, 3, 4, 5], [9, 8, 7, 6, 7, 6, 5], [9, 8, 7, 6, 5], (0, 0, 2)),
        # what an abandoned attempt logged beyond the next one's end goes
        ([1, 2, 3, 4, 5, 2, 3], [9, 8, 7, 6, 5, 8.1, 7.1], [9, 8.1, 7.1], (1, 4, 0)),
        # a repeat that the log goes on after as if it were not there
        ([1, 2, 3, 4, 2, 5, 4, 5], [9, 8, 7, 6, 8, 5, 6.1, 5.1], [9, 8, 7, 6.1, 5.1], (1, 2, 1)),
        ([3, 1, 2], [7, 9, 8], [9, 8, 7], (0, 0, 0)),
    ],
)
def test_the_last_attempt_counts(steps, losses, kept, counts):
    found, values, told = merged(steps, losses)
    assert values == kept and found == list(range(1, len(kept) + 1))
    assert (told.restarts, told.superseded, told.duplicates) == counts


@pytest.mark.parametrize(
    ("steps", "losses", "says"),
    [
        ([1, 1, 2, 2, 3, 3], [9, 8, 8, 7, 7, 6], "goes back 3 times in 6 rows"),
        ([1, 3, 5, 3, 4, 5], [9, 7, 5, 7.1, 6, 5], None),
        ([1, 3, 5, 4, 5, 6], [9, 7, 5, 6, 5.1, 4], "step 4 follows 5 and was not logged before"),
        ([1, 2, 3], [9, np.inf, 7], "loss is NaN or infinite at step 2 and finite later"),
        ([1, 2], [np.inf, np.inf], "no loss is finite from step 1"),
        ([np.nan, np.nan], [9, 8], "no step and no count"),
        ([1, 2], [np.nan, np.nan], "no loss is logged"),
    ],
)
def test_what_is_no_restart_is_refused(steps, losses, says):
    if says is None:
        assert merged(steps, losses)[1] == [9, 7.1, 6, 5]
        return
    with pytest.raises(InputError, match=says):
        merged(steps, losses)


def test_a_divergence_ends_a_run():
    steps, losses, told = merged([1, 2, 3, 4], [9, 8, np.inf, np.inf])
    assert (steps, losses, told.diverged_at) == ([1, 2], [9, 8], 3)
