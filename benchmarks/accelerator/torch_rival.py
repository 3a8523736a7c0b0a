"""The same model trained by PyTorch: compiled, fused AdamW, bfloat16 autocast, flash attention.

Shapes are those of the named size: RoPE, QK-norm, no biases, an untied head, all of a step in one
bucket. Gradients are clipped, as ours are.
"""

from collections.abc import Iterator
from typing import Any

import torch  # pyright: ignore[reportMissingImports]
import torch.nn.functional as F  # pyright: ignore[reportMissingImports]
from torch import nn  # pyright: ignore[reportMissingImports]

from benchmarks.accelerator.timing import seconds, timed
from bss.machines.targets import target_of
from bss.models.sizes import named
from bss.models.transformer.config import TransformerConfig

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def device_name() -> str:
    """What CUDA calls the device."""
    return torch.cuda.get_device_name() if DEVICE == "cuda" else "cpu"


def _norm(config: TransformerConfig, size: int) -> nn.Module:
    return nn.RMSNorm(size) if config.norm == "rms" else nn.LayerNorm(size, bias=False)


def _rope(x_BxHxTxD, cos_TxD, sin_TxD):
    low, high = x_BxHxTxD.float().chunk(2, -1)
    turned = torch.cat((low * cos_TxD - high * sin_TxD, high * cos_TxD + low * sin_TxD), -1)
    return turned.to(torch.bfloat16)


class Block(nn.Module):
    """One residual block."""

    def __init__(self, config: TransformerConfig):
        super().__init__()
        width, self.config = config.d_model, config
        self.norms = nn.ModuleList(_norm(config, width) for _ in range(2))
        self.head_norms = nn.ModuleList(_norm(config, config.head_dim) for _ in range(2))
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.output = nn.Linear(width, width, bias=False)
        self.up = nn.Linear(width, config.d_ff, bias=False)
        self.down = nn.Linear(config.d_ff, width, bias=False)

    def forward(self, x_BxTxM, cos_TxD, sin_TxD):
        """The residual stream after this block."""
        B, T, M = x_BxTxM.shape
        heads = self.qkv(self.norms[0](x_BxTxM)).view(B, T, 3, -1, self.config.head_dim)
        q, k, v = heads.permute(2, 0, 3, 1, 4)
        q, k = (n(x) for n, x in zip(self.head_norms, (q, k), strict=True))
        q, k = _rope(q, cos_TxD, sin_TxD), _rope(k, cos_TxD, sin_TxD)
        mixed = F.scaled_dot_product_attention(q, k, v.to(q.dtype), is_causal=True)
        x_BxTxM = x_BxTxM + self.output(mixed.transpose(1, 2).reshape(B, T, M))
        hidden = self.up(self.norms[1](x_BxTxM))
        hidden = F.gelu(hidden) if self.config.activation == "gelu" else F.relu(hidden).square()
        return x_BxTxM + self.down(hidden)


class Transformer(nn.Module):
    """Tokens to the mean loss."""

    def __init__(self, config: TransformerConfig, seq_len: int):
        super().__init__()
        width = config.d_model
        self.embedding = nn.Embedding(config.vocab_size, width)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.num_layers))
        self.norm, self.head = _norm(config, width), nn.Linear(width, config.vocab_size, bias=False)
        half = torch.arange(0, config.head_dim, 2) / config.head_dim
        angles = torch.outer(torch.arange(seq_len), config.rope_theta**-half)
        self.register_buffer("cos_TxD", angles.cos(), persistent=False)
        self.register_buffer("sin_TxD", angles.sin(), persistent=False)

    def forward(self, sequences_BxT1):
        """Mean cross-entropy of the next token, in nats."""
        x_BxTxM = self.embedding(sequences_BxT1[:, :-1]).to(torch.bfloat16)
        for block in self.blocks:
            x_BxTxM = block(x_BxTxM, self.cos_TxD, self.sin_TxD)
        logits = self.head(self.norm(x_BxTxM))
        return F.cross_entropy(logits.flatten(0, 1).float(), sequences_BxT1[:, 1:].flatten())


def rival(*, model: str, bucket: int, seq_len: int) -> Iterator[dict[str, Any]]:
    """Steps of one bucket, timed as ours are."""
    config = named(model)
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    network = Transformer(config, seq_len).to(DEVICE)
    optimizer = torch.optim.AdamW(network.parameters(), 1e-3, (0.9, 0.95), fused=True)
    compiled = torch.compile(network, dynamic=False)
    sequences = torch.randint(config.vocab_size, (bucket, seq_len + 1), device=DEVICE)
    last = []

    def step() -> None:
        with torch.autocast(DEVICE, torch.bfloat16):
            loss = compiled(sequences)
        loss.backward()
        nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        last[:] = [loss.detach()]

    wait = torch.cuda.synchronize if DEVICE == "cuda" else lambda: None
    compile_seconds = seconds(step, wait)
    took = timed(step, wait)
    target, count = target_of(device_name()), bucket * seq_len
    flops = count * config.training_flops_per_token(seq_len)
    yield {
        "tokens_per_second": count / took.seconds,
        "seconds_per_step": took.seconds,
        "spread": took.spread,
        "mfu": target and flops / target.peak_flops / took.seconds,
        "loss": float(last[0]),
        "compile_seconds": round(compile_seconds, 2),
        "device_peak_bytes": torch.cuda.max_memory_allocated() if DEVICE == "cuda" else None,
    }
