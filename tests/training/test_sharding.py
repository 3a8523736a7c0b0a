"""The devices that share a run: meshes, and which sequences lie where."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bss.errors import InputError
from bss.training.sharding import (
    by_position,
    make_mesh,
    mesh_of,
    own_columns,
    shards_weights,
    sum_over_devices,
)


def test_a_mesh_has_the_devices_asked_for():
    assert [make_mesh(devices).size for devices in (0, 1, 2)] == [2, 1, 2]
    with pytest.raises(InputError, match=r"execution\.devices is 3; this machine has 2"):
        make_mesh(3)
    split = make_mesh(2, fsdp=2)
    assert dict(split.shape) == {"data": 1, "fsdp": 2} and shards_weights(split)
    assert dict(make_mesh(2).shape) == {"data": 2} and not shards_weights(make_mesh(2))
    assert not shards_weights(None)
    with pytest.raises(InputError, match=r"fsdp is 3; 2 devices of cpu hold meshes of fsdp 1, 2:"):
        mesh_of(jax.local_devices(), 3)


@pytest.mark.parametrize("devices", [1, 2])
def test_sequences_lie_in_order_and_what_does_not_count_is_zero(devices):
    mesh = make_mesh(devices)
    asked = []

    def rows(numbers):
        asked.append(numbers.tolist())
        return np.stack([10 + numbers, 20 + numbers, 30 + numbers], axis=1).astype(np.int32)

    found = np.asarray(by_position(rows, 6, (2, 4, 3), mesh))
    assert asked == [[0, 1, 2, 3, 4, 5]]
    assert found.shape == (2, 4, 3)
    np.testing.assert_array_equal(found[..., 0].ravel(), [10, 11, 12, 13, 14, 15, 0, 0])
    np.testing.assert_array_equal(found[0, 1], [11, 21, 31])
    assert own_columns(mesh, 4).tolist() == [0, 1, 2, 3]
    assert not np.asarray(by_position(rows, 0, (2, 4, 3), mesh)).any()
    assert len(asked) == 1


@pytest.mark.parametrize("mesh", [None, make_mesh(1), make_mesh(2)])
def test_what_devices_make_of_their_shares_meets_in_a_sum(mesh):
    from jax.sharding import PartitionSpec

    def total(x):
        return jnp.sum(x) + 1.0

    summed = jax.jit(sum_over_devices(total, mesh, PartitionSpec("data")))
    assert float(summed(jnp.arange(4.0))) == 6 + (2 if mesh is not None and mesh.size == 2 else 1)
