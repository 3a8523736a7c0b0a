"""Exact parameter counts and matmul FLOPs of a model, by closed formulas.

N of the scaling laws is `non_embedding`: all but the embedding and the untied head (Kaplan et al.,
2001.08361, section 2.1). FLOPs are those of matrix products, two per multiply-add, with the
attention products and the head, which Kaplan's 6N leaves out; norms, softmax, RoPE and the
embedding's look-up are not counted. Formulas derived here, tested against the model's arrays and
the compiler's own count.
"""

from dataclasses import dataclass

from bss.models.config import ModelConfig


@dataclass(frozen=True)
class Counts:
    """Numbers of parameters.

    Attributes:
      total: all of them.
      embedding: the embedding and, when untied, the head.
      non_embedding: the others, norm scales included.
    """

    total: int
    embedding: int
    non_embedding: int


def count_params(config: ModelConfig) -> Counts:
    """Parameters of a model, exactly.

    >>> count_params(ModelConfig(vocab_size=257, num_layers=2, d_model=64, num_heads=4, d_ff=256))
    Counts(total=131584, embedding=32896, non_embedding=98688)
    """
    embedding = config.vocab_size * config.d_model * (1 if config.tied else 2)
    norms = 2 * config.d_model + (2 * config.head_dim if config.qk_norm else 0)
    blocks = config.num_layers * (_block_matrices(config) + norms)
    non_embedding = blocks + config.d_model
    return Counts(embedding + non_embedding, embedding, non_embedding)


def forward_flops_per_token(config: ModelConfig, seq_len: int) -> int:
    """Matmul FLOPs of the forward pass per token, in sequences of `seq_len` inputs.

    Attention is counted in full: every query meets all `seq_len` keys, as the dense products are
    executed; the causal half is not subtracted (the convention of PaLM, 2204.02311, appendix B).
    """
    matrices = config.num_layers * _block_matrices(config) + config.d_model * config.vocab_size
    attention = 2 * config.num_layers * seq_len * config.d_model
    return 2 * (matrices + attention)


def training_flops_per_token(config: ModelConfig, seq_len: int) -> int:
    """Matmul FLOPs of forward and backward per token: three times the forward's.

    What `remat` computes again is not counted: it is model FLOPs, as MFU is defined on.

    >>> nano = ModelConfig(vocab_size=257, num_layers=2, d_model=64, num_heads=4, d_ff=256)
    >>> training_flops_per_token(nano, seq_len=128)
    885120
    """
    return 3 * forward_flops_per_token(config, seq_len)


def _block_matrices(config: ModelConfig) -> int:
    kv_width = config.kv_heads * config.head_dim
    attention = 2 * config.d_model * (config.d_model + kv_width)
    mlp = (3 if config.activation == "swiglu" else 2) * config.d_model * config.d_ff
    return attention + mlp
