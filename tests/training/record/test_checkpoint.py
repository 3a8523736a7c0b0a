"""Checkpoints: damaged ones, torn saves, retention."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bss.errors import InputError
from bss.training.record.checkpoint import abstract, open_checkpoints, restore_fork
from bss.training.step import State

DEVICE = jax.sharding.SingleDeviceSharding(jax.local_devices()[0])


def state(value: float) -> State:
    return State({"w": jnp.full((64, 8), value)}, (jnp.float32(value), {"mu": jnp.ones(3)}), None)


SHAPES = abstract(jax.eval_shape(lambda: state(0.0)), DEVICE)


def fill(directory: Path) -> None:
    """Checkpoints at 10, 20 (a fork), 30, 40 and 50 tokens."""
    with open_checkpoints(directory) as checkpoints:
        for tokens in (10, 20, 30, 40, 50):
            checkpoints.save(tokens, state(tokens), {"tokens": tokens}, fork=tokens == 20)
        checkpoints.wait()


def truncate(checkpoint: Path) -> None:
    """Cuts every file that holds array data to its half."""
    data = [p for p in (checkpoint / "state").rglob("*") if p.is_file() and "/d/" in str(p)]
    assert data
    for path in data:
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def test_two_recent_ones_and_all_forks_are_kept(tmp_path):
    fill(tmp_path)
    with open_checkpoints(tmp_path) as checkpoints:
        assert checkpoints.tokens() == [50, 40, 20]
        assert checkpoints.forks() == [20]
        found = checkpoints.restore_newest(SHAPES)
    assert found is not None
    assert found[1] == {"tokens": 50}
    jax.tree.map(np.testing.assert_array_equal, found[0], state(50))


def test_a_truncated_one_is_put_aside_for_the_one_before(tmp_path):
    fill(tmp_path)
    truncate(tmp_path / "checkpoints" / "50")
    with open_checkpoints(tmp_path) as checkpoints:
        with pytest.warns(RuntimeWarning, match="at 50 tokens cannot be read .* the one before"):
            found = checkpoints.restore_newest(SHAPES)
        assert found is not None
        assert found[1]["tokens"] == 40
        assert checkpoints.tokens() == [40, 20]
        checkpoints.save(50, state(51), {"tokens": 50}, fork=False)
        checkpoints.wait()
        again, _ = checkpoints.restore(50, SHAPES)
    assert float(again.params["w"][0, 0]) == 51
    assert len(list((tmp_path / "damaged").iterdir())) == 1


def test_a_fork_point_is_what_is_left(tmp_path):
    fill(tmp_path)
    for tokens in (40, 50):
        (tmp_path / "checkpoints" / str(tokens) / "record" / "metadata").write_text("{")
    with open_checkpoints(tmp_path) as checkpoints:
        with pytest.warns(RuntimeWarning, match="cannot be read"):
            found = checkpoints.restore_newest(SHAPES)
        assert found is not None
        assert found[1]["tokens"] == 20


def test_a_torn_save_is_ignored(tmp_path):
    fill(tmp_path)
    (tmp_path / "checkpoints" / "60.orbax-checkpoint-tmp").mkdir()
    with open_checkpoints(tmp_path) as checkpoints:
        assert checkpoints.tokens() == [50, 40, 20]


def test_a_branch_leaves_the_saves_of_its_parent_alone(tmp_path):
    fill(tmp_path)
    torn = tmp_path / "forks" / "60.orbax-checkpoint-tmp"
    torn.mkdir()
    found, _ = restore_fork(tmp_path, 20, SHAPES)
    jax.tree.map(np.testing.assert_array_equal, found, state(20))
    assert torn.is_dir()
    with pytest.raises(InputError, match=r"is 30; .* kept fork points at 20$"):
        restore_fork(tmp_path, 30, SHAPES)


def test_nothing_there(tmp_path):
    with open_checkpoints(tmp_path) as checkpoints:
        assert checkpoints.restore_newest(SHAPES) is None
    with pytest.raises(InputError, match="kept fork points at none"):
        restore_fork(tmp_path, 30, SHAPES)


def test_a_full_disk_is_an_os_error(tmp_path, monkeypatch):
    def full(*_, **__):
        raise ValueError("RESOURCE_EXHAUSTED: Failed to write: No space left on device")

    with open_checkpoints(tmp_path) as checkpoints:
        monkeypatch.setattr(checkpoints._recent, "save", full)
        with pytest.raises(OSError, match="No space left on device"):
            checkpoints.save(10, state(1), {}, fork=False)
