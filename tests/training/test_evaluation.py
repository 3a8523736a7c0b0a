"""The held-out loss: a direct computation, whatever the buckets and devices."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bss.data.stream import held_out
from bss.models.transformer import network
from bss.training.evaluation import Evaluation
from bss.training.mesh import make_mesh, replicated
from bss.training.step import init_state


@pytest.fixture(scope="module")
def held_out_loss(tiny_run, tiny_shards):
    """Held-out sequences, a state, and its loss on them, computed directly."""
    sequences = held_out(tiny_shards, "validation", tiny_run.data.seq_len, 17 * 16)
    assert sequences.shape == (17, 17)
    state = jax.jit(lambda: init_state(tiny_run))()
    logits = jax.jit(partial(network.apply, tiny_run.model))(state.params, sequences[:, :-1])
    picked = jnp.take_along_axis(jax.nn.log_softmax(logits), sequences[:, 1:, None], axis=-1)
    return sequences, state, -np.asarray(picked, np.float64).mean()


@pytest.mark.parametrize(
    ("devices", "bucket", "at_once"), [(1, 64, 2**27), (1, 4, 2**27), (2, 3, 2**27), (2, 64, 1)]
)
def test_all_held_out_sequences_count_once(
    tiny_run, held_out_loss, devices, bucket, at_once, monkeypatch
):
    """Also where the last bucket's logits are too many to be held at once."""
    monkeypatch.setattr("bss.training.evaluation.LOGITS_AT_ONCE", at_once)
    sequences, state, expected = held_out_loss
    mesh = make_mesh(devices)
    state = jax.device_put(state, replicated(mesh))
    evaluation = Evaluation(tiny_run, sequences, mesh, bucket, state)
    assert evaluation.losses(state, "eval_loss") == {"eval_loss": pytest.approx(expected, rel=1e-5)}


def test_held_out_sequences_follow_neither_batch_nor_seeds(tiny_run, tiny_shards):
    one = held_out(tiny_shards, "validation", 16, 320)
    np.testing.assert_array_equal(one, held_out(tiny_shards, "validation", 16, 335))
    assert len(np.unique(one, axis=0)) == 20
