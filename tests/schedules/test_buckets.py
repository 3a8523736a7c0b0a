"""Buckets: the largest that divides a batch, and what the programs of a plan must hold."""

import pytest

from bss.errors import InputError
from bss.schedules.batch import BatchSchedule
from bss.schedules.buckets import BucketSizes
from bss.schedules.plan import resolve

PLAN = resolve(BatchSchedule.parse("0:24 1K:40 2K:96 3K:7"), 6000, 1)


def chosen(ladder):
    return [(b, s.batch // b) for s in PLAN.segments for b in [ladder.bucket(s.batch)]]


def test_each_batch_takes_the_largest_bucket_that_divides_it():
    assert chosen(BucketSizes((32, 1, 8))) == [(8, 3), (8, 5), (32, 3), (1, 7)]
    assert [bucket for bucket, _ in chosen(BucketSizes())] == [24, 20, 32, 7]


def test_max_microbatches_is_the_most_that_a_step_accumulates():
    capacity = BucketSizes((1, 8, 32)).max_microbatches(PLAN)
    assert list(capacity.items()) == [(1, 7), (8, 5), (32, 3)]


def test_split_steps_have_two_buckets_or_more():
    assert [BucketSizes((1, 2, 4), split=True).bucket(batch) for batch in (1, 2, 4, 8)] == [
        1,
        1,
        2,
        4,
    ]


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: BucketSizes((8, 32)).bucket(12), "12 .* 8, 32; nearest .*: 8 and 16"),
        (lambda: BucketSizes((32,)).bucket(12), "nearest that work: 32"),
        (lambda: BucketSizes((8,)).max_microbatches(PLAN), "7 is a multiple of no bucket"),
        (
            lambda: BucketSizes((4, 8), split=True).bucket(4),
            "4 is not two or more buckets of 4, 8",
        ),
        (lambda: BucketSizes((0, 8)), "buckets"),
    ],
)
def test_what_fits_no_bucket_is_refused(make, says):
    with pytest.raises(InputError, match=says) as error:
        make()
    assert "\n" not in str(error.value)
