"""The rival in PyTorch: the same model, well written, with its attention and its fused AdamW.

RoPE, QK-norm, no biases, an untied head, one matrix for queries, keys and values. In float32, or
under bfloat16 autocast, as the size says. Gradients are clipped, as ours are.
"""

import math
from collections.abc import Callable
from contextlib import nullcontext
from itertools import cycle

import numpy as np
import torch  # pyrefly: ignore[missing-import]
import torch.nn.functional as F  # pyrefly: ignore[missing-import]
from torch import nn  # pyrefly: ignore[missing-import]

from benchmarks.race import Turn
from benchmarks.step.shapes import BETAS, CLIP, DECAY, EPS, LR, Shape, batches
from bss.models.transformer import TransformerConfig

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def _norm(config: TransformerConfig, size: int) -> nn.Module:
    return nn.RMSNorm(size, 1e-6) if config.norm == "rms" else nn.LayerNorm(size, 1e-6, bias=False)


def _rope(x_BxHxTxD, cos_TxD, sin_TxD, dtype):
    low, high = x_BxHxTxD.float().chunk(2, -1)
    turned = torch.cat((low * cos_TxD - high * sin_TxD, high * cos_TxD + low * sin_TxD), -1)
    return turned.to(dtype)


class Block(nn.Module):
    """One residual block."""

    def __init__(self, config: TransformerConfig):
        super().__init__()
        width = config.d_model
        self.config = config
        self.norms = nn.ModuleList(_norm(config, width) for _ in range(2))
        self.head_norms = nn.ModuleList(_norm(config, config.head_width) for _ in range(2))
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.output = nn.Linear(width, width, bias=False)
        self.up = nn.Linear(width, config.d_ff, bias=False)
        self.down = nn.Linear(config.d_ff, width, bias=False)

    def forward(self, x_BxTxM, cos_TxD, sin_TxD):
        """Return the residual stream after this block."""
        B, T, M = x_BxTxM.shape
        heads = self.qkv(self.norms[0](x_BxTxM)).view(B, T, 3, -1, self.config.head_width)
        q, k, v = heads.permute(2, 0, 3, 1, 4)
        query_norm, key_norm = self.head_norms
        q = _rope(query_norm(q), cos_TxD, sin_TxD, x_BxTxM.dtype)
        k = _rope(key_norm(k), cos_TxD, sin_TxD, x_BxTxM.dtype)
        mixed = F.scaled_dot_product_attention(q, k, v.to(q.dtype), is_causal=True)
        x_BxTxM = x_BxTxM + self.output(mixed.transpose(1, 2).reshape(B, T, M))
        hidden = self.up(self.norms[1](x_BxTxM))
        hidden = F.gelu(hidden) if self.config.activation == "gelu" else F.relu(hidden).square()
        return x_BxTxM + self.down(hidden)


class Transformer(nn.Module):
    """Tokens to the mean loss; initialised as ours are."""

    def __init__(self, config: TransformerConfig, seq_len: int):
        super().__init__()
        width = config.d_model
        self.dtype = getattr(torch, config.dtype)
        self.embedding = nn.Embedding(config.vocab_size, width)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.num_layers))
        self.norm = _norm(config, width)
        self.head = nn.Linear(width, config.vocab_size, bias=False)
        half = torch.arange(0, config.head_width, 2) / config.head_width
        angles = torch.outer(torch.arange(seq_len), config.rope_theta**-half)
        self.register_buffer("cos_TxD", angles.cos(), persistent=False)
        self.register_buffer("sin_TxD", angles.sin(), persistent=False)
        deep = (2 * config.num_layers) ** -0.5
        for name, matrix in self.named_parameters():
            if matrix.ndim > 1:
                scale = deep if name.endswith(("output.weight", "down.weight")) else 1
                std = 1 / width if name == "head.weight" else scale * matrix.shape[1] ** -0.5
                nn.init.normal_(matrix, std=std)

    def forward(self, sequences_BxT1):
        """Mean cross-entropy of the next token, in nats."""
        x_BxTxM = self.embedding(sequences_BxT1[:, :-1]).to(self.dtype)
        for block in self.blocks:
            x_BxTxM = block(x_BxTxM, self.cos_TxD, self.sin_TxD)
        logits = self.head(self.norm(x_BxTxM))
        return F.cross_entropy(logits.flatten(0, 1).float(), sequences_BxT1[:, 1:].flatten())


def stepper(
    config: TransformerConfig, rows_PxBxT1: np.ndarray, mode: str
) -> tuple[Callable[[], torch.Tensor], Callable[[], None]]:
    """Return a training step that gives its loss, not waited for; and what waits for the device."""
    torch.manual_seed(0)
    wide = config.dtype == "bfloat16"
    # On a CPU "high" would multiply in bfloat16.
    torch.set_float32_matmul_precision("high" if wide else "highest")
    network = Transformer(config, rows_PxBxT1.shape[2] - 1).to(DEVICE)
    every = [*network.parameters()]
    groups = [
        {"params": [p for p in every if p.ndim > 1], "weight_decay": DECAY},
        {"params": [p for p in every if p.ndim == 1], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, LR, BETAS, EPS, fused=True)
    model = network if mode == "eager" else torch.compile(network, dynamic=False)
    sequences = cycle(torch.from_numpy(rows_PxBxT1).long().to(DEVICE))

    def step() -> torch.Tensor:
        with torch.autocast(DEVICE, torch.bfloat16) if wide else nullcontext():
            loss = model(next(sequences))
        loss.backward()
        nn.utils.clip_grad_norm_(every, CLIP)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    return step, torch.cuda.synchronize if DEVICE == "cuda" else lambda: None


def rival(mode: str, **fields) -> Turn:
    """Steps of one batch after the other."""
    shape = Shape(**fields)
    config = shape.config
    step, wait = stepper(config, batches(shape, config.vocab_size), mode)

    def turn(steps: int) -> float:
        loss = torch.tensor(math.nan)
        for _ in range(steps):
            loss = step()
        wait()
        return float(loss)

    return turn
