"""A small part of `python -m benchmarks.laws --planted`."""

from benchmarks.laws.curves import SMALLEST, found, summary


def test_best_batches_of_laws_that_are_not_ours():
    rows = [found("inner", 1), found("inner", 3), *(found(law, 1) for law in SMALLEST)]
    marks = summary(rows)
    assert marks["number"] == marks["within_1.5"] == 1
    assert marks["smallest_best_numbers"] == 0
