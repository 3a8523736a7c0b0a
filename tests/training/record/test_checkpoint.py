"""Checkpoints: damaged ones, torn saves, retention."""

import gc
import random
import shutil
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from bss.errors import InputError
from bss.training.record.checkpoint import Damaged, abstract, open_checkpoints, restore_fork
from bss.training.record.seals import state_hash
from bss.training.step import State

DEVICE = jax.sharding.SingleDeviceSharding(jax.local_devices()[0])


def state(value: float) -> State:
    return State({"w": jnp.full((64, 8), value)}, (jnp.float32(value), {"mu": jnp.ones(3)}), None)


SHAPES = abstract(jax.eval_shape(lambda: state(0.0)), DEVICE)


def fill(directory: Path) -> None:
    """Checkpoints at 10, 20 (a fork), 30, 40 and 50 tokens."""
    with open_checkpoints(directory) as checkpoints:
        for tokens in (10, 20, 30, 40, 50):
            checkpoints.save(tokens, state(float(tokens)), {"tokens": tokens}, fork=tokens == 20)
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
        found = checkpoints.take(50, SHAPES)
    assert found is not None
    assert found[1] == {"tokens": 50}
    jax.tree.map(np.testing.assert_array_equal, found[0], state(50.0))


# Where orbax gives up reading, what it still awaits comes when its loop has ended.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_truncated_one_is_put_aside_for_the_one_before(tmp_path):
    fill(tmp_path)
    truncate(tmp_path / "checkpoints" / "50")
    with open_checkpoints(tmp_path) as checkpoints:
        with pytest.warns(RuntimeWarning, match="/50 cannot be read .* the one before"):
            assert checkpoints.take(50, SHAPES) is None
        assert checkpoints.tokens() == [40, 20]
        checkpoints.save(50, state(51.0), {"tokens": 50}, fork=False)
        checkpoints.wait()
        again, _ = checkpoints.restore(50, SHAPES)
    assert float(again.params["w"][0, 0]) == 51
    assert len(list((tmp_path / "damaged").iterdir())) == 1


def test_a_damaged_fork_point_is_put_aside_too(tmp_path):
    fill(tmp_path)
    (tmp_path / "forks" / "20" / "record" / "metadata").write_text("{")
    told = "/forks/20 cannot be read .*; delete it and train that run again"
    with pytest.raises(InputError, match=told):
        restore_fork(tmp_path, 20, SHAPES)
    with open_checkpoints(tmp_path) as checkpoints:
        with pytest.warns(RuntimeWarning, match="cannot be read"):
            assert checkpoints.take(20, SHAPES) is None
        assert (checkpoints.forks(), checkpoints.tokens()) == ([], [50, 40])


# Orbax leaves the other reads of a damaged checkpoint in flight.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("part", ["state", "record"])
def test_any_changed_byte_is_found_or_changes_nothing(tmp_path, part):
    fill(tmp_path)
    folder, draw = tmp_path / "checkpoints" / "50" / part, random.Random(0)
    files, found = [path for path in sorted(folder.rglob("*")) if path.is_file()], 0
    for path in files:
        whole = path.read_bytes()
        for place in draw.sample(range(len(whole)), min(len(whole), 8)):
            changed = bytes([whole[place] ^ 1 << draw.randrange(8)])
            path.write_bytes(whole[:place] + changed + whole[place + 1 :])
            with open_checkpoints(tmp_path) as checkpoints:
                try:
                    restored, record = checkpoints.restore(50, SHAPES)
                except Damaged:
                    found += 1
                else:
                    assert record == {"tokens": 50}
                    jax.tree.map(np.testing.assert_array_equal, restored, state(50.0))
            path.write_bytes(whole)
    assert found > len(files)
    gc.collect()


def test_values_that_are_whole_and_not_those_saved_are_found(tmp_path):
    fill(tmp_path)
    kept = tmp_path / "checkpoints" / "40" / "state"
    shutil.rmtree(tmp_path / "checkpoints" / "50" / "state")
    shutil.copytree(kept, tmp_path / "checkpoints" / "50" / "state")
    with open_checkpoints(tmp_path) as checkpoints:
        with pytest.warns(RuntimeWarning, match="/50 is not what was saved: its hash differs; it"):
            assert checkpoints.take(50, SHAPES) is None
        assert checkpoints.take(40, SHAPES) is not None


def test_the_hash_is_the_same_however_the_devices_split_the_state(tmp_path):
    fill(tmp_path)
    mesh = jax.make_mesh((2,), ("x",), axis_types=(jax.sharding.AxisType.Auto,))

    def split_rows(x):
        split = NamedSharding(mesh, P("x") if x.ndim > 1 else P())
        return jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=split)

    shapes = jax.tree.map(split_rows, SHAPES)
    with open_checkpoints(tmp_path) as checkpoints:
        split, record = checkpoints.restore(50, shapes)
    assert len(split.params["w"].sharding.device_set) == 2
    assert state_hash(split, record) == state_hash(state(50.0), record)
    assert state_hash(state(50.0), record) != state_hash(state(50.0), {"tokens": 51})


def test_newer_ones_that_come_again_are_dropped_but_no_fork_point(tmp_path):
    fill(tmp_path)
    with open_checkpoints(tmp_path) as checkpoints:
        checkpoints.drop_newer(40)
        assert checkpoints.tokens() == [40, 20]
        checkpoints.drop_newer(10)
        assert checkpoints.tokens() == [20]


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
    jax.tree.map(np.testing.assert_array_equal, found, state(20.0))
    assert torn.is_dir()
    with pytest.raises(InputError, match=r"is 30; .* kept fork points at 20$"):
        restore_fork(tmp_path, 30, SHAPES)


def test_nothing_there(tmp_path):
    with open_checkpoints(tmp_path) as checkpoints:
        assert checkpoints.tokens() == []
    with pytest.raises(InputError, match="kept fork points at none"):
        restore_fork(tmp_path, 30, SHAPES)


def test_a_full_disk_is_an_os_error(tmp_path, monkeypatch):
    def full(*_, **__):
        raise ValueError("RESOURCE_EXHAUSTED: Failed to write: No space left on device")

    with open_checkpoints(tmp_path) as checkpoints:
        monkeypatch.setattr(checkpoints._recent, "save", full)
        with pytest.raises(OSError, match="No space left on device"):
            checkpoints.save(10, state(1), {}, fork=False)
