import itertools
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from bss.models.transformer import Activation, MixtureConfig, Norm, TransformerConfig

BLOCKS: list[tuple[Activation, Norm, bool, bool]] = [
    ("relu2", "rms", True, False),
    ("swiglu", "layer", False, True),
    ("gelu", "layer", True, True),
]
VARIANTS = [
    TransformerConfig(31, 3, 24, 6, 40, kv_heads, activation, norm, qk_norm, tied, scan_layers=scan)
    for (kv_heads, tied), (activation, norm, qk_norm, scan) in itertools.product(
        ((None, False), (2, True), (1, False)), BLOCKS
    )
] + [
    TransformerConfig(31, 2, 24, 6, 40, 2, "swiglu", tied=True, head_dim=10),
    MixtureConfig(31, 2, 24, 6, 40, num_experts=5, top_k=3),
    MixtureConfig(31, 2, 24, 6, 40, activation="swiglu", scan_layers=True),
]


@pytest.mark.parametrize("config", VARIANTS)
def test_counts_equal_the_sizes_of_the_arrays(config):
    params = jax.eval_shape(lambda: config.init(0))
    sizes = {
        jax.tree_util.keystr(path, simple=True, separator="/"): leaf.size
        for path, leaf in jax.tree.leaves_with_path(params)
    }
    embedding = sum(sizes[name] for name in sizes if name in ("embedding", "head/kernel"))
    counts = config.counts()
    assert counts.total == sum(sizes.values())
    assert counts.embedding == embedding
    assert counts.non_embedding == sum(sizes.values()) - embedding


def test_flops_by_hand():
    config = TransformerConfig(
        vocab_size=7, num_layers=3, d_model=8, num_heads=4, d_ff=5, num_kv_heads=2
    )
    block = 8 * 8 + 2 * 8 * 4 + 8 * 8 + 2 * 8 * 5
    attention = 2 * 4 * 11 * 2  # scores and values, 4 heads, 11 keys, 2 dimensions
    assert config.forward_flops_per_token(11) == 2 * (3 * (block + attention) + 8 * 7)


def test_of_experts_those_that_a_token_passes_count_in_flops():
    sizes: Any = {"vocab_size": 7, "num_layers": 3, "d_model": 8, "num_heads": 2}
    dense = TransformerConfig(**sizes, d_ff=10)
    mixture = MixtureConfig(**sizes, d_ff=5, num_experts=6, top_k=2)
    router = 3 * 8 * 6
    assert mixture.forward_flops_per_token(11) == dense.forward_flops_per_token(11) + 2 * router
    counts = mixture.counts()
    assert counts.active == dense.counts().non_embedding + router
    assert counts.non_embedding - counts.active == 3 * 4 * 2 * 8 * 5


@pytest.mark.parametrize(
    "choices",
    [
        {},
        {"activation": "swiglu", "num_kv_heads": 2},
        pytest.param({"activation": "gelu", "norm": "layer", "tied": True}, marks=pytest.mark.slow),
        pytest.param(
            {"activation": "swiglu", "num_kv_heads": 2, "head_dim": 128}, marks=pytest.mark.slow
        ),
    ],
)
def test_flops_agree_with_the_compiler(choices):
    config = TransformerConfig(
        vocab_size=512, num_layers=2, d_model=256, num_heads=4, d_ff=1024, **choices
    )
    batch, seq_len = 2, 64
    params = jax.eval_shape(lambda: config.init(0))
    sequences = jax.ShapeDtypeStruct((batch, seq_len + 1), jnp.int32)
    gradient = jax.jit(jax.value_and_grad(lambda p, s: config.loss(p, s)[0]))
    cost = gradient.lower(params, sequences).compile().cost_analysis()
    assert cost is not None
    counted = cost["flops"] / (batch * seq_len)
    assert counted == pytest.approx(config.training_flops_per_token(seq_len), rel=0.05)
