import itertools
import math
from types import SimpleNamespace

import jax
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from bss.data import synthetic
from bss.data.synthetic import (
    HELD_OUT,
    SyntheticLanguage,
    at,
    generate,
    held_out,
    is_synthetic,
    language_of,
    sequences,
    tables,
)
from bss.errors import InputError
from tests.data.perfect import entropy, truth

TINY = SyntheticLanguage(vocab_size=4, seq_len=3, seed=5, memories=(0, 2), rank=3)
SMALL = SyntheticLanguage(vocab_size=32, seq_len=24, seed=1, memories=(0, 1, 3), rank=8)


def reference_weights(law, prefix):
    """The law in plain Python integers: the weight of each next token after a prefix."""
    memories = [[0] * law.read_DxV.shape[0] for _ in law.memories_R]
    for token in prefix:
        for r, k in enumerate(law.memories_R.tolist()):
            added = law.steer_RxVxD[r, token].tolist()
            memories[r] = [m - (m >> k) + u for m, u in zip(memories[r], added, strict=True)]
    h = [min(max(sum(column) >> 8, -2047), 2047) for column in zip(*memories, strict=True)]
    moved = [
        sum(int(w) * x for w, x in zip(column, h, strict=True))
        for column in law.read_DxV.T.tolist()
    ]
    logits = [b + m for b, m in zip(law.bias_V.tolist(), moved, strict=True)]
    return [
        int(law.weights[min((max(logits) - logit) >> 4, len(law.weights) - 1)]) for logit in logits
    ]


def host_tables(language):
    arrays = tables(language)._asdict()
    return SimpleNamespace(**{name: np.asarray(arrays[name]) for name in arrays if name != "key"})


def test_a_sequence_does_not_depend_on_its_batch():
    whole = np.asarray(sequences(SMALL, 100, 12))
    parts = [np.asarray(sequences(SMALL, start, n)) for start, n in ((100, 1), (101, 4), (105, 7))]
    assert whole.shape == (12, 25) and whole.dtype == np.int32
    np.testing.assert_array_equal(whole, np.concatenate(parts))
    assert len(np.unique(whole, axis=0)) == 12


@pytest.mark.parametrize("corner", [2**32, 2**40 + 2**32, 2**63])
def test_positions_count_on_beyond_32_bits(corner):
    over = np.asarray(sequences(SMALL, corner - 2, 4))
    np.testing.assert_array_equal(over[2:], np.asarray(sequences(SMALL, corner, 2)))
    assert not np.array_equal(over[2:], np.asarray(sequences(SMALL, 0, 2)))
    np.testing.assert_array_equal(over[3:], at(SMALL, np.array([corner + 1], np.uint64)))


def test_sharded_over_devices_it_is_the_same():
    mesh = jax.make_mesh((2,), ("data",), axis_types=(AxisType.Auto,))
    words = np.zeros(8, np.uint32), np.arange(7, 15, dtype=np.uint32)
    placed = jax.device_put(words, NamedSharding(mesh, PartitionSpec("data")))
    made = generate(tables(SMALL), *placed, SMALL.seq_len)
    np.testing.assert_array_equal(made, sequences(SMALL, 7, 8))


def test_seeds_and_splits_give_other_sequences():
    first = np.asarray(sequences(SMALL, 0, 4))
    other = SyntheticLanguage(vocab_size=32, seq_len=24, seed=2**70, memories=(0, 1, 3), rank=8)
    assert not np.array_equal(first, sequences(other, 0, 4))
    validation, test = (held_out(SMALL, split, 4 * 24 + 23) for split in HELD_OUT)
    assert validation.shape == test.shape == (4, 25)
    assert not np.array_equal(validation, first) and not np.array_equal(validation, test)


@pytest.mark.parametrize("prefix", [(), (0,), (3, 1), (1, 2, 0, 3, 3)])
def test_truth_is_the_law_in_plain_integers(prefix):
    language = SyntheticLanguage(4, len(prefix) + 1, seed=3, memories=(0, 1, 4), rank=5)
    weights = np.array(reference_weights(host_tables(language), (2, *prefix)), float)
    p = weights / weights.sum()
    ends = np.array([(2, *prefix, v) for v in range(4)], np.int32)
    log_probs, entropies = truth(tables(language), ends)
    np.testing.assert_allclose(log_probs[:, -1], np.log(p), atol=2e-6)
    np.testing.assert_allclose(entropies[:, -1], -np.sum(p * np.log(p)), atol=2e-6)


def every_sequence(language):
    """All sequences of a language, with their probabilities by the reference."""
    law = host_tables(language)
    every = list(itertools.product(range(language.vocab_size), repeat=language.seq_len + 1))
    chances = {}
    for sequence in every:
        chances[sequence] = 1.0
        for end in range(len(sequence)):
            weights = reference_weights(law, sequence[:end])
            chances[sequence] *= weights[sequence[end]] / sum(weights)
    return chances


def test_entropy_is_that_of_all_sequences():
    chances = every_sequence(TINY)
    assert math.isclose(sum(chances.values()), 1.0)
    firsts = np.zeros(4)
    for sequence, p in chances.items():
        firsts[sequence[0]] += p
    joint = -sum(p * math.log(p) for p in chances.values())
    exact = (joint + np.sum(firsts * np.log(firsts))) / TINY.seq_len
    nats, error = entropy(TINY, sequences=30_000)
    assert 0 < error < 0.002
    assert abs(nats - exact) < 4 * error


def test_sequences_come_as_often_as_they_should():
    chances = every_sequence(TINY)
    count = 40_000
    made = np.asarray(sequences(TINY, 0, count)) @ 4 ** np.arange(3, -1, -1)
    expected = count * np.array(list(chances.values()))
    seen = np.bincount(made, minlength=256)
    common = expected >= 5
    chi2 = np.sum((seen - expected)[common] ** 2 / expected[common])
    assert abs(chi2 - common.sum()) < 5 * math.sqrt(2 * common.sum())
    rare = expected[~common].sum()
    assert abs(seen[~common].sum() - rare) < 5 * math.sqrt(rare) + 1


def test_multiply_high_is_the_upper_word():
    edges = [0, 1, 0xFFFF, 0x10000, 0xFFFFFFFF]
    drawn = np.random.default_rng(0).integers(0, 2**32, 200).tolist()
    a, b = np.array(list(itertools.product(edges + drawn, edges)), np.uint32).T
    high = (a.astype(np.uint64) * b.astype(np.uint64)) >> np.uint64(32)
    np.testing.assert_array_equal(synthetic.multiply_high(jax.numpy.array(a), b), high)


def test_log_probs_of_targets_average_to_minus_the_entropy():
    log_probs, entropies = truth(tables(SMALL), sequences(SMALL, 0, 2000))
    surprise = np.asarray(-log_probs - entropies, np.float64).mean(1)
    assert abs(surprise.mean()) < 4 * surprise.std() / math.sqrt(len(surprise))


@pytest.mark.slow
def test_tokens_are_zipfian():
    language = SyntheticLanguage(vocab_size=64, seq_len=64, seed=2)
    counts = np.bincount(np.asarray(sequences(language, 0, 1000)).ravel(), minlength=64)
    slope = np.polyfit(np.log(np.arange(1, 65)), np.log(counts), 1)[0]
    assert -1.3 < slope < -0.7


@pytest.mark.slow
def test_every_range_tells_something():
    language = SyntheticLanguage(vocab_size=64, seq_len=64, seed=2)
    law, made = tables(language), sequences(language, 0, 500)
    exact = np.asarray(truth(law, made)[0])
    for r in range(len(language.memories)):
        without = law._replace(steer_RxVxD=law.steer_RxVxD.at[r].set(0))
        lost = (exact - np.asarray(truth(without, made)[0])).mean(1)
        assert lost.mean() > 0.02
        assert lost.mean() > 5 * lost.std() / math.sqrt(len(lost))


def test_the_best_bigram_model_is_far_from_the_truth():
    language = SyntheticLanguage(vocab_size=8, seq_len=64, seed=4, rank=8)
    made = np.asarray(sequences(language, 0, 2000))
    counts = np.zeros((8, 8))
    np.add.at(counts, (made[:, :-1], made[:, 1:]), 1)
    after = np.maximum(counts, 1) / counts.sum(1, keepdims=True)
    bigrams = -np.sum(counts * np.log(after)) / counts.sum()
    tokens = counts.sum(0) / counts.sum()
    assert bigrams < -np.sum(tokens * np.log(tokens)) - 0.05
    assert entropy(language, sequences=1024).nats < bigrams - 0.05


GOOD = {"vocab_size": 8, "seq_len": 4}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"vocab_size": 1}, "vocab_size=1: expected an integer from 2 to 16384"),
        ({"vocab_size": 50_280}, "vocab_size=50280"),
        ({"seq_len": 0}, "seq_len=0: expected an integer from 1"),
        ({"seed": -1}, "seed=-1"),
        ({"rank": 129}, "rank=129"),
        ({"memories": ()}, "memories=\\(\\): expected increasing"),
        ({"memories": (2, 1)}, "memories=\\(2, 1\\): expected increasing"),
        ({"memories": (0, 13)}, "memories=13"),
        ({"contrast": 0.0}, "contrast=0.0: expected nats above 0"),
        ({"contrast": math.nan}, "contrast=nan"),
        ({"zipf": -1.0}, "zipf=-1.0: expected a number from 0 to 3"),
        ({"mode_decay": math.inf}, "mode_decay=inf"),
        ({"range_decay": 4.0}, "range_decay=4.0"),
    ],
)
def test_bad_laws_are_refused(change, message):
    with pytest.raises(InputError, match=message):
        SyntheticLanguage(**GOOD | change)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: sequences(TINY, -1, 2), "position=-1"),
        (lambda: sequences(TINY, 2**64 - 1, 2), "position=18446744073709551615"),
        (lambda: sequences(TINY, 0, 0), "count=0"),
        (lambda: held_out(TINY, "train", 12), "split='train'"),
        (lambda: held_out(TINY, "test", 2), "evaluation.tokens: 2"),
        (lambda: entropy(TINY, sequences=0), "sequences=0"),
    ],
)
def test_bad_calls_are_refused(call, message):
    with pytest.raises(InputError, match=message):
        call()


def test_a_corpus_names_its_language():
    assert language_of("synthetic", 32, 24) == SyntheticLanguage(32, 24)
    harder = SyntheticLanguage(32, 24, mode_decay=0.2, rank=16)
    assert language_of("synthetic:mode_decay=0.2,rank=16", 32, 24) == harder
    assert is_synthetic("synthetic:rank=16")
    assert not is_synthetic("synthetics")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ("decay=1", r"'decay=1'; expected each of \['contrast'"),
        ("rank=4,rank=5", "'rank=5'; expected each"),
        ("rank=4.5", "rank is '4.5'; write a number"),
        ("mode_decay=4", "mode_decay=4.0: expected a number from 0 to 3"),
    ],
)
def test_bad_settings_of_a_language_are_refused(settings, message):
    with pytest.raises(InputError, match=message):
        language_of(f"synthetic:{settings}", 32, 24)
