"""Attention kernels against the reference: values and gradients, and which of them is chosen.

On a machine with an NVIDIA GPU cuDNN's are compared too: pytest tests/models
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bss.errors import InputError
from bss.models.attention import KERNELS, Kernel, choose, cudnn, reference, splash
from bss.models.base import Compute
from bss.models.transformer import TransformerConfig
from tests.models.bigram import Bigram

TINY = TransformerConfig(vocab_size=29, num_layers=1, d_model=32, num_heads=2, d_ff=32)
HALF = dataclasses.replace(TINY, dtype="bfloat16")


@dataclasses.dataclass(frozen=True)
class Device:
    platform: str
    device_kind: str = "device"
    compute_capability: str = "9.0"


CPU, GPU, TPU = Device("cpu"), Device("gpu"), Device("tpu")


def drawn(length, heads, key_heads, dtype, head_dim=16):
    """Queries, keys, values, and weights of the result that make a number of it."""
    rng = np.random.default_rng(0)
    shapes = [(2, length, h, head_dim) for h in (heads, key_heads, key_heads, heads)]
    scales = (head_dim**-0.5, 1, 1, 1)
    return [
        jnp.asarray(c * rng.standard_normal(s, np.float32), dtype)
        for c, s in zip(scales, shapes, strict=True)
    ]


def with_gradients(attend, q, k, v, weights):
    """What is mixed, and the gradients of its weighted sum, as float32 arrays."""

    def weighted(q, k, v):
        mixed = attend(q, k, v)
        return jnp.sum(mixed.astype(jnp.float32) * weights.astype(jnp.float32)), mixed

    gradient = jax.value_and_grad(weighted, argnums=(0, 1, 2), has_aux=True)
    (_, mixed), gradients = jax.jit(gradient)(q, k, v)
    assert mixed.dtype == q.dtype
    return [np.asarray(x, np.float32) for x in (mixed, *gradients)]


def assert_equals_the_reference(attend, arrays, tolerance):
    """Relative to the norm of each array; the reference is computed in float32."""
    exact = with_gradients(reference, *(x.astype(jnp.float32) for x in arrays))
    for found, expected in zip(with_gradients(attend, *arrays), exact, strict=True):
        assert np.linalg.norm(found - expected) < tolerance * np.linalg.norm(expected)


TOLERANCES = {"float32": 1e-5, "bfloat16": 2e-2}


@pytest.mark.slow  # a kernel of TPUs takes seconds where it is interpreted
@pytest.mark.parametrize(
    ("length", "key_heads", "dtype"), [(256, 1, "float32"), (128, 2, "bfloat16")]
)
def test_splash_interpreted_equals_the_reference(length, key_heads, dtype):
    attend = functools.partial(splash, interpret=True)
    assert_equals_the_reference(attend, drawn(length, 2, key_heads, dtype), TOLERANCES[dtype])


@pytest.mark.parametrize(("length", "key_heads"), [(33, 4), (64, 2)])
def test_the_layout_is_that_of_jax(length, key_heads):
    """As which cuDNN is called."""
    attend = functools.partial(jax.nn.dot_product_attention, scale=1.0, is_causal=True)
    arrays = drawn(length, 4, key_heads, "float32")
    assert_equals_the_reference(attend, arrays, TOLERANCES["float32"])


@pytest.mark.skipif(jax.default_backend() != "gpu", reason="needs an NVIDIA GPU")
@pytest.mark.parametrize("head_dim", [64, 128])
@pytest.mark.parametrize(("length", "key_heads"), [(256, 4), (1024, 2), (200, 1)])
def test_cudnn_equals_the_reference(length, key_heads, head_dim):
    arrays = drawn(length, 4, key_heads, "bfloat16", head_dim)
    with jax.default_matmul_precision("highest"):
        assert_equals_the_reference(cudnn, arrays, TOLERANCES["bfloat16"])


@pytest.mark.parametrize(
    ("config", "device", "seq_lens", "chosen"),
    [
        (HALF, CPU, {256}, "reference"),
        (HALF, GPU, {256}, "cudnn"),
        (TINY, GPU, {256}, "reference"),
        (HALF, dataclasses.replace(GPU, compute_capability="7.5"), {256}, "reference"),
        (dataclasses.replace(HALF, num_heads=8, d_model=32), GPU, {256}, "reference"),
        (TINY, TPU, {256, 1024}, "splash"),
        (TINY, TPU, {256, 100}, "reference"),
    ],
)
def test_auto_is_the_first_that_can_be_used(config, device, seq_lens, chosen):
    assert choose("auto", config, device, seq_lens) == chosen
    assert choose(chosen, config, device, seq_lens) == chosen


@pytest.mark.parametrize(
    ("asked", "config", "device", "told"),
    [
        ("cudnn", HALF, CPU, "cudnn needs an NVIDIA GPU, of A100 or later, not device"),
        ("cudnn", TINY, GPU, "cudnn needs model.dtype bfloat16, not float32"),
        ("splash", TINY, GPU, "splash needs a TPU, not device"),
        ("splash", TINY, TPU, "splash needs sequences of a multiple of 128 tokens, not 100"),
        ("flash", TINY, TPU, "'flash' is unknown; did you mean 'splash'?"),
    ],
)
def test_a_kernel_that_cannot_be_used_is_told(asked, config, device, told):
    with pytest.raises(InputError, match=told):
        choose(asked, config, device, {100})


def test_a_model_computes_its_loss_by_the_kernel_that_is_named(monkeypatch):
    """Each position attends to itself alone, as no other kernel has it."""
    monkeypatch.setitem(KERNELS, "own", Kernel(lambda q, k, v: jnp.repeat(v, q.shape[2] // 2, 2)))
    params = TINY.init(0)
    sequences = np.random.default_rng(0).integers(0, 29, (2, 9), np.int32)
    losses = TINY.loss, TINY.loss_fn(Compute("own"))
    plain, own = jax.jit(lambda p, s: [loss(p, s)[0] for loss in losses])(params, sequences)
    assert abs(own - plain) > 1e-4


def test_a_family_without_attention_has_no_choice():
    model = Bigram(29)
    assert model.choose_attention("auto", GPU, {256}) == "reference"
    params, sequences = model.init(0), jnp.arange(10).reshape(2, 5)
    one, other = (loss(params, sequences)[0] for loss in (model.loss_fn(Compute()), model.loss))
    assert one == other
    with pytest.raises(InputError, match="Bigram has no cudnn; ask for auto"):
        model.choose_attention("cudnn", GPU, {256})
