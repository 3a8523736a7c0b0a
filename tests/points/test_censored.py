"""Log tokens by seed and batch where some runs missed the target, by hand."""

import math

import pandas as pd
import pytest

from bss.points.crossings import Logs, bound, by_target


def logs(tokens, met):
    batches = [1, 2, 4, 8][: len(tokens[0])]
    return Logs(*(pd.DataFrame(table, columns=batches) for table in (tokens, met)))


def test_what_missed_tells_only_where_it_consumed_more_than_the_best():
    tokens = [[3.0, 1.0, 2.0, 5.0], [3.0, 1.5, 1.0, 5.0]]
    whole = logs(tokens, [[True] * 4] * 2)
    assert whole.telling().tokens.columns.tolist() == [1, 2, 4, 8]
    assert whole.best == 2  # 2.5 in all, before 3
    partly = logs([[3.0, 1.0, 2.0, 5.0], [1.5, 1.5, 1.0, 5.0]], [[1 > 2, True, True, True]] * 2)
    assert partly.telling().tokens.columns.tolist() == [1, 2, 4, 8]
    equal = logs([[1.0, 1.0], [3.0, 1.0]], [[False, True], [False, True]])
    assert equal.telling().tokens.columns.tolist() == [2]
    absent = logs([[math.nan, 1.0], [3.0, 1.0]], [[True, True]] * 2)
    assert absent.telling().tokens.columns.tolist() == [2]


@pytest.mark.parametrize(
    ("below", "above", "what"),
    [
        *((False, False, ""), (True, False, "at most")),
        *((False, True, "at least"), (True, True, "unknown")),
    ],
)
def test_a_bound_is_named_after_its_open_side(below, above, what):
    assert bound(open_below=below, open_above=above) == what


def test_a_run_that_reached_a_target_counts_before_one_that_missed_it():
    rows = [(2.0, 0, 4, 100.0, True), (2.0, 0, 4, 900.0, False), (3.0, 0, 4, 10.0, True)]
    names = ["target_loss", "seed", "batch", "tokens_to_target", "reached"]
    found = by_target(pd.DataFrame(rows, columns=names))
    assert [*found] == [3.0, 2.0]
    assert found[2.0].tokens.loc[0, 4] == pytest.approx(math.log(100))
    assert found[2.0].met.loc[0, 4]
