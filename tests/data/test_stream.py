"""The stream's order depends on (seed, position) and on nothing else."""

import itertools
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bss.data.shards import TokenArray
from bss.data.stream import Stream
from bss.errors import InputError

COUNTED = TokenArray((np.arange(10_003, dtype=np.uint16),))


def stream(**changes) -> Stream:
    settings: dict[str, Any] = {"tokens": COUNTED, "seq_len": 10, "seed": 3}
    return Stream(**settings | changes)


def test_inputs_and_targets_share_an_array_and_windows_overlap_by_one():
    rows = stream(tokens=TokenArray((np.arange(41, dtype=np.uint8),))).sequences(0, 4)
    assert rows.dtype == np.int32
    assert sorted(rows.tolist()) == [list(range(k, k + 11)) for k in (0, 10, 20, 30)]


@pytest.mark.parametrize(("length", "sequences"), [(51, 5), (60, 5), (61, 6)])
def test_the_last_target_must_exist(length, sequences):
    counted = stream(tokens=TokenArray((np.zeros(length, np.uint8),)))
    assert counted.num_sequences == sequences


@settings(max_examples=25, deadline=None)
@given(
    length=st.integers(41, 5000),
    seq_len=st.integers(1, 10),
    seed=st.integers(-(2**70), 2**70),
    epoch=st.integers(0, 2**40),
)
def test_every_pass_is_a_permutation(length, seq_len, seed, epoch):
    tokens = TokenArray((np.zeros(length, np.uint8),))
    s = Stream(tokens, seq_len, seed, repeat=True)
    start = epoch * s.num_sequences
    indices = [s.index(p) for p in range(start, start + s.num_sequences)]
    assert sorted(indices) == list(range(s.num_sequences))


@settings(max_examples=40, deadline=None)
@given(
    batches=st.lists(st.integers(0, 40), min_size=1, max_size=8),
    start=st.integers(0, 1500),
    seed=st.integers(0, 2**32),
)
def test_batch_sizes_do_not_change_the_order(batches, start, seed):
    s = stream(seed=seed, repeat=True)
    positions = list(itertools.accumulate(batches, initial=start))
    pieces = [s.sequences(p, b) for p, b in zip(positions, batches, strict=False)]
    whole = stream(seed=seed, repeat=True).sequences(start, sum(batches))
    np.testing.assert_array_equal(np.concatenate(pieces), whole)


def test_restored_at_every_position_the_rest_is_the_same():
    whole = stream().sequences(900, 100)
    for position in range(100):
        rest = stream().sequences(900 + position, 100 - position)
        np.testing.assert_array_equal(rest, whole[position:])


def test_shard_boundaries_are_invisible():
    values = np.asarray(COUNTED.parts[0])
    cut = TokenArray(tuple(np.split(values, [1, 2, 9, 500, 507, 9000])))
    np.testing.assert_array_equal(
        stream(tokens=cut).sequences(0, 1000), stream().sequences(0, 1000)
    )


def test_passes_and_seeds_have_orders_of_their_own():
    s = stream(repeat=True)
    first, second = s.sequences(0, 1000), s.sequences(1000, 1000)
    assert not np.array_equal(first, second)
    assert not np.array_equal(first, stream(seed=4).sequences(0, 1000))
    np.testing.assert_array_equal(np.sort(first[:, 0]), np.sort(second[:, 0]))


def test_the_order_is_the_one_of_earlier_versions():
    """Golden: a change here silently changes every run's data."""
    assert [stream(repeat=True).index(p) for p in (0, 1, 2, 3, 999, 1000, 1001, 10**15)] == [
        941,
        163,
        571,
        583,
        489,
        104,
        380,
        917,
    ]


def test_a_shuffle_leaves_no_trend():
    s = stream(tokens=TokenArray((np.zeros(10_001, np.uint8),)), seq_len=1)
    indices = np.array([s.index(p) for p in range(10_000)])
    assert abs(np.corrcoef(indices[:-1], indices[1:])[0, 1]) < 0.05
    assert abs(indices[:1000].mean() / 10_000 - 0.5) < 0.04


def test_one_pass_ends_with_an_error():
    s = stream()
    s.check(1000)
    assert s.sequences(990, 10).shape == (10, 11)
    with pytest.raises(InputError, match=r"tokens: 10010 .* has 10000 \(1000 sequences of 10\)"):
        s.sequences(991, 10)
    stream(repeat=True).check(10**12)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"seq_len": 0}, "seq_len: 0"),
        ({"seq_len": 3000}, "corpus: 10003 tokens are fewer than 4 sequences of 3000"),
        ({"tokens": TokenArray(())}, "corpus: 0 tokens"),
    ],
)
def test_bad_input(changes, message):
    with pytest.raises(InputError, match=message) as error:
        stream(**changes)
    assert "\n" not in str(error.value)


@pytest.mark.slow
def test_training_on_shards_imports_no_corpus_library():
    code = (
        "import sys, bss.data.shards, bss.data.stream\n"
        "print({'tensorflow_datasets', 'tensorflow', 'tokenizers', 'pandas'} & set(sys.modules))"
    )
    output = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert output.stdout.strip() == "set()"
