"""Prefetching: the order of the data, errors, and a thread that ends."""

import itertools
import threading

import numpy as np
import pytest

from bss.data.stream import Stream
from bss.schedules.buckets import BucketSizes
from bss.sweeps.grid import overlay
from bss.training.batches import TextSource, prefetch, step_batches, step_chunks
from bss.training.sharding import make_mesh


def consumed(run, shards, first=0) -> np.ndarray:
    plan = run.plan()
    source = TextSource(shards, run.data, make_mesh(1))
    buckets = BucketSizes((1, 2, 4))
    room = buckets.max_microbatches(plan)
    batches = step_batches(plan, step_chunks(plan, first), 1, source, buckets, room)
    prefetched, taken = prefetch(batches), []
    for item in prefetched:
        used = np.asarray(item.arguments[0])[: item.buckets]
        taken.append(used.reshape(-1, run.data.seq_len + 1))
        assert len(taken[-1]) == item.batch
    prefetched.close()
    return np.concatenate(taken)


@pytest.mark.parametrize("batch", ["1", "16", "0:2 1024:4 4096:8", "0:8 1040:1"])
def test_order_of_sequences_does_not_depend_on_the_batch(tiny_run, tiny_shards, batch):
    run = overlay(tiny_run, {"schedule.batch": batch, "schedule.tokens": 4096 + 512})
    stream = Stream(tiny_shards.tokens("train"), 16, run.data.seed)
    taken = consumed(run, tiny_shards)
    assert len(taken) > 270
    np.testing.assert_array_equal(taken, stream.sequences(0, len(taken)))
    np.testing.assert_array_equal(consumed(run, tiny_shards, first=3)[-50:], taken[-50:])


def test_errors_surface_after_the_items_before_them():
    def source():
        yield 1
        yield 2
        raise ValueError("torn")

    prefetched = prefetch(source())
    items = iter(prefetched)
    assert [next(items), next(items)] == [1, 2]
    with pytest.raises(ValueError, match="torn"):
        next(items)
    prefetched.close()


def test_close_stops_the_thread_of_an_endless_source():
    before = threading.active_count()
    prefetched = prefetch(itertools.count())
    assert next(iter(prefetched)) == 0
    assert threading.active_count() == before + 1
    prefetched.close()
    assert threading.active_count() == before


def test_nothing_is_made_while_the_devices_are_busy():
    busy, made = threading.Lock(), []
    items = (made.append(i) or i for i in itertools.count())
    prefetched = prefetch(items, busy)
    busy.acquire()
    taken = threading.Thread(target=lambda: next(prefetched))
    taken.start()
    taken.join(0.2)
    assert taken.is_alive() and not made
    busy.release()
    taken.join(10)
    assert not taken.is_alive() and made[0] == 0
    prefetched.close()
