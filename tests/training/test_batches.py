"""The synthetic source: positions decide the sequences, and runs train on it."""

import dataclasses
from pathlib import Path

import jax
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bss.data import synthetic
from bss.data.synthetic import SyntheticLanguage
from bss.errors import InputError
from bss.sweeps.grid import overlay
from bss.training.batches import SYNTHETIC, SyntheticSource, open_source
from bss.training.loop import train
from bss.training.run_config import DataConfig
from bss.training.sharding import make_mesh
from bss.training.step import init_state

LANGUAGE = SyntheticLanguage(vocab_size=16, seq_len=8)


@pytest.mark.parametrize("devices", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_batches_are_the_sequences_at_their_positions(devices):
    source = SyntheticSource(LANGUAGE, DataConfig(seq_len=8, seed=0), make_mesh(devices))
    whole = np.asarray(synthetic.sequences(LANGUAGE, 0, 24))
    batch = source.batch(position=8, count=16, capacity=4, bucket=4)
    assert batch.shape == (4, 4, 9)
    np.testing.assert_array_equal(np.asarray(batch).reshape(16, 9), whole[8:])


def test_sequences_are_made_once_for_many_batches(monkeypatch):
    source, made = SyntheticSource(LANGUAGE, DataConfig(seq_len=8), make_mesh(1)), []
    at = synthetic.at
    monkeypatch.setattr(
        synthetic, "at", lambda language, places: made.append(places) or at(language, places)
    )
    parts = [np.asarray(source.batch(at, 64, 1, 64))[0] for at in range(960, 1280, 64)]
    np.testing.assert_array_equal(np.ravel(made), np.arange(2048))
    whole = synthetic.sequences(LANGUAGE, 960, 320)
    np.testing.assert_array_equal(np.concatenate(parts), whole)


def test_data_seeds_move_the_positions_and_keep_the_language():
    one, other = (
        SyntheticSource(LANGUAGE, DataConfig(seq_len=8, seed=seed), make_mesh(1)) for seed in (0, 1)
    )
    assert (np.asarray(one.batch(0, 4, 1, 4)) != np.asarray(other.batch(0, 4, 1, 4))).any()
    ours, theirs = (source.held_out("validation", 64, 8) for source in (one, other))
    np.testing.assert_array_equal(ours, theirs)
    with pytest.raises(InputError, match=r"evaluation\.seq_len is 16"):
        one.held_out("validation", 64, 16)
    with pytest.raises(InputError, match="sequences requested"):
        one.check(2**50)


@pytest.mark.slow
def test_a_run_trains_on_the_synthetic_language_without_compiling_on_the_way(
    tiny_run, tiny_execution
):
    run = overlay(
        tiny_run,
        {"data.corpus": "synthetic", "data.content": SYNTHETIC, "model.vocab_size": 64}
        | {"schedule.tokens": 4096},
    )
    status = train(run, tiny_execution)
    assert status.status == "finished"
    assert status.recompilations == 0
    assert status.losses["eval_loss"] < np.log(64)


def test_a_run_reads_the_language_that_its_content_names(tiny_run):
    changes = {"model.vocab_size": 32, "data.seq_len": 8}
    plain, steep = (
        overlay(tiny_run, changes | {"data.content": content})
        for content in (SYNTHETIC, f"{SYNTHETIC}:mode_decay=2")
    )
    assert plain.id != steep.id
    rows, others = (open_source(run, Path()).held_out("test", 800, 8) for run in (plain, steep))
    language = dataclasses.replace(SyntheticLanguage(32, 8), mode_decay=2.0)
    np.testing.assert_array_equal(others, synthetic.held_out(language, "test", 800))
    assert (rows != others).any()


def test_seeds_of_data_are_two_to_the_48_positions_apart():
    mesh = make_mesh(1)
    second = SyntheticSource(LANGUAGE, DataConfig(seq_len=8, seed=1), mesh)
    there = np.arange(4, dtype=np.uint64) + np.uint64(2**48)
    np.testing.assert_array_equal(
        np.asarray(second.batch(0, 4, 1, 4))[0], np.asarray(synthetic.at(LANGUAGE, there))
    )
    second.check(2**48)
    with pytest.raises(InputError, match=f"at most {2**48}"):
        second.check(2**48 + 1)


SEEDS = (20261128, 32767, 32768, 49152, 65536, -1, -49152, 2**63, 10**22)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers() | st.integers(-(2**17), 2**17))
@example(32767)
@example(32768)
@example(49152)
@example(65536)
@example(-1)
def test_no_position_of_any_seed_is_held_out(seed):
    source = SyntheticSource(LANGUAGE, DataConfig(seq_len=8, seed=seed), None)
    key, held_out_key = (
        jax.random.key_data(synthetic.tables(language).key).tolist()
        for language in (source._trained, LANGUAGE)
    )
    last = source._offset + 2**48 - 1  # `check` allows no more
    assert key != held_out_key or 0 <= source._offset <= last < min(synthetic.HELD_OUT.values())
    if 0 <= seed < 2**15:
        assert (key, source._offset) == (held_out_key, seed * 2**48)
    assert dataclasses.replace(source._trained, sequence_seed=None) == LANGUAGE


def test_every_seed_trains_on_sequences_of_its_own():
    language = SyntheticLanguage(vocab_size=16, seq_len=32)
    mesh = make_mesh(1)
    sources = [SyntheticSource(language, DataConfig(seq_len=32, seed=s), mesh) for s in SEEDS]
    trained = np.concatenate([np.asarray(source.batch(0, 8, 1, 8))[0] for source in sources])
    for source in sources:  # the same for all
        held_out = [source.held_out(split, 8 * 32, 32) for split in ("validation", "test")]
        assert len(np.unique(np.concatenate([trained, *held_out]), axis=0)) == len(trained) + 16


@pytest.mark.parametrize("seed", [1.5, "one", None, True])
def test_a_seed_that_is_no_integer_is_refused_in_one_line(tiny_run, seed):
    for make, field in (
        (lambda: DataConfig(seed=seed), "data.seed"),
        (lambda: dataclasses.replace(tiny_run, seed=seed), "run.seed"),
    ):
        with pytest.raises(
            InputError, match=rf"^{field}(:| is) {seed!r}( is not a count|; expected int)"
        ) as error:
            make()
        assert "\n" not in str(error.value)


def test_every_seed_initialises_parameters_of_its_own(tiny_run):
    seeds = (*SEEDS, 5, 2**32 + 5, -5)
    weights = [
        jax.tree.leaves(init_state(dataclasses.replace(tiny_run, seed=seed)).params)[0]
        for seed in seeds
    ]
    assert len(np.unique(np.stack([np.ravel(w) for w in weights]), axis=0)) == len(seeds)
    expected = jax.tree.leaves(tiny_run.model.init(5))[0]
    np.testing.assert_array_equal(weights[seeds.index(5)], expected)


def test_a_model_of_another_vocabulary_than_the_shards_is_refused(tiny_run, tiny_execution):
    run = overlay(tiny_run, {"model.vocab_size": 64})
    with pytest.raises(InputError, match=r"model\.vocab_size is 64, the tokenizer has 256 tokens"):
        train(run, tiny_execution)
