"""Checkpoints: damaged ones, torn saves, retention."""

import gc
import json
import logging
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
from bss.training.checkpoint import (
    CHECKSUMS,
    Damaged,
    open_checkpoints,
    restore_fork,
    restore_path,
)
from bss.training.sharding import abstract
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
        assert sorted(checkpoints._forks.all_steps()) == [20]
        found = checkpoints.restore(50, SHAPES)
    assert found is not None
    assert found[1] == {"tokens": 50}
    jax.tree.map(np.testing.assert_array_equal, found[0], state(50.0))


def test_a_truncated_one_is_put_aside_for_the_one_before(tmp_path):
    fill(tmp_path)
    truncate(tmp_path / "checkpoints" / "50")
    with open_checkpoints(tmp_path) as checkpoints:
        with pytest.warns(
            RuntimeWarning, match="/50 is not what was saved: the checksum of .* the one before"
        ):
            assert checkpoints.restore(50, SHAPES) is None
        assert checkpoints.tokens() == [40, 20]
        checkpoints.save(50, state(51.0), {"tokens": 50}, fork=False)
        checkpoints.wait()
        again, _ = restore_path(tmp_path / "checkpoints" / "50", SHAPES)
    assert float(again.params["w"][0, 0]) == 51
    assert len(list((tmp_path / "damaged").iterdir())) == 1


def test_a_damaged_fork_point_is_put_aside_too(tmp_path):
    fill(tmp_path)
    (tmp_path / "forks" / "20" / "record" / "metadata").write_text("{")
    told = "/forks/20 is not what was saved: .*; delete it and train that run again"
    with pytest.raises(InputError, match=told):
        restore_fork(tmp_path, 20, SHAPES)
    with open_checkpoints(tmp_path) as checkpoints:
        with pytest.warns(RuntimeWarning, match="is not what was saved"):
            assert checkpoints.restore(20, SHAPES) is None
        assert (sorted(checkpoints._forks.all_steps()), checkpoints.tokens()) == ([], [50, 40])


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
            try:
                restored, record = restore_path(folder.parent, SHAPES)
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
        with pytest.warns(RuntimeWarning, match="/50 is not what was saved"):
            assert checkpoints.restore(50, SHAPES) is None
        assert checkpoints.restore(40, SHAPES) is not None


def test_every_file_has_a_checksum_and_the_list_of_them_is_checked(tmp_path):
    fill(tmp_path)
    folder = tmp_path / "checkpoints" / "50"
    parts = [p for part in ("state", "record") for p in (folder / part).rglob("*")]
    files = {str(p.relative_to(folder)) for p in parts if p.is_file()}
    assert {*json.loads((folder / CHECKSUMS).read_text())} == files
    (folder / CHECKSUMS).write_text("{")
    with pytest.raises(Damaged, match="cannot be read"):
        restore_path(folder, SHAPES)
    (folder / CHECKSUMS).unlink()
    with pytest.raises(Damaged, match="cannot be read"):
        restore_path(folder, SHAPES)


def test_a_state_is_restored_onto_other_devices(tmp_path):
    fill(tmp_path)
    mesh = jax.make_mesh((2,), ("x",), axis_types=(jax.sharding.AxisType.Auto,))

    def split_rows(x):
        split = NamedSharding(mesh, P("x") if x.ndim > 1 else P())
        return jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=split)

    with open_checkpoints(tmp_path) as checkpoints:
        restored = checkpoints.restore(50, jax.tree.map(split_rows, SHAPES))
    assert restored is not None
    split = restored[0]
    assert len(split.params["w"].sharding.device_set) == 2
    jax.tree.map(np.testing.assert_array_equal, split, state(50.0))


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
    with pytest.raises(InputError, match=r"is 30; .* has fork points at 20;"):
        restore_fork(tmp_path, 30, SHAPES)


def test_nothing_there(tmp_path):
    with open_checkpoints(tmp_path) as checkpoints:
        assert checkpoints.tokens() == []
    with pytest.raises(InputError, match="has fork points at none"):
        restore_fork(tmp_path, 30, SHAPES)


def test_a_full_disk_is_an_os_error(tmp_path, monkeypatch):
    def full(*_, **__):
        raise ValueError("RESOURCE_EXHAUSTED: Failed to write: No space left on device")

    with open_checkpoints(tmp_path) as checkpoints:
        monkeypatch.setattr(checkpoints._recent, "save", full)
        with pytest.raises(OSError, match="No space left on device"):
            checkpoints.save(10, state(1), {}, fork=False)


def test_orbax_is_silent_only_while_checkpoints_are_open(tmp_path):
    log = logging.getLogger("absl")
    before = log.level
    with open_checkpoints(tmp_path / "one"), open_checkpoints(tmp_path / "two"):
        assert not log.isEnabledFor(logging.WARNING)
    assert log.level == before
