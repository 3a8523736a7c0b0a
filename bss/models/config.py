"""What determines a transformer: one frozen value, cheap to import, compare and hash."""

import math
from dataclasses import dataclass
from typing import Literal, get_args

from bss.errors import InputError

Activation = Literal["relu2", "gelu", "swiglu"]
Norm = Literal["rms", "layer"]
Dtype = Literal["float32", "bfloat16"]


@dataclass(frozen=True)
class ModelConfig:
    """A decoder-only pre-norm transformer without biases.

    Attributes:
      vocab_size: tokens in the vocabulary.
      num_layers: residual blocks, each attention then MLP.
      d_model: width of the residual stream.
      num_heads: query heads; each has `d_model / num_heads` dimensions, an even number (RoPE).
      d_ff: hidden width of the MLP.
      num_kv_heads: key and value heads, a divisor of `num_heads`; None is one per query head, and
        a number equal to `num_heads` is stored as None, so that equal models are equal values.
      activation: "relu2" (squared ReLU), "gelu" (exact) or "swiglu" (three matrices).
      norm: "rms" or "layer"; a learned scale, no bias.
      qk_norm: normalise queries and keys over their head's dimensions, before RoPE.
      tied: one matrix is both the embedding and the head.
      rope_theta: base of RoPE's wavelengths, in positions.
      dtype: of activations; parameters, norms, softmax and logits are float32 always.
      scan_layers: `lax.scan` over stacked layers: compiles faster, runs slower on CPU.
      remat: recompute each block's activations in the backward pass.

    Raises:
      InputError: a size that is not a positive integer, heads that do not divide, an odd head
        dimension, or an unknown choice.

    >>> ModelConfig(vocab_size=257, num_layers=2, d_model=64, num_heads=4, d_ff=256).head_dim
    16
    """

    vocab_size: int
    num_layers: int
    d_model: int
    num_heads: int
    d_ff: int
    num_kv_heads: int | None = None
    activation: Activation = "relu2"
    norm: Norm = "rms"
    qk_norm: bool = True
    tied: bool = False
    rope_theta: float = 10_000.0
    dtype: Dtype = "float32"
    scan_layers: bool = False
    remat: bool = False

    def __post_init__(self):
        for name in ("vocab_size", "num_layers", "d_model", "num_heads", "d_ff", "num_kv_heads"):
            _check_size(name, getattr(self, name), optional=name == "num_kv_heads")
        for name in ("qk_norm", "tied", "scan_layers", "remat"):
            _check_choice(name, getattr(self, name), (False, True))
        _check_choice("activation", self.activation, get_args(Activation))
        _check_choice("norm", self.norm, get_args(Norm))
        _check_choice("dtype", self.dtype, get_args(Dtype))
        if not isinstance(self.rope_theta, int | float) or not 1 < self.rope_theta < math.inf:
            raise InputError(
                f"rope_theta={self.rope_theta!r}: expected a finite number above 1, such as 10000"
            )
        if self.num_kv_heads == self.num_heads:
            object.__setattr__(self, "num_kv_heads", None)
        self._check_heads()

    def _check_heads(self) -> None:
        if self.d_model % self.num_heads:
            raise InputError(
                f"num_heads={self.num_heads}: expected a divisor of d_model={self.d_model}"
            )
        if self.head_dim % 2:
            raise InputError(
                f"num_heads={self.num_heads}: d_model={self.d_model} leaves heads of "
                f"{self.head_dim} dimensions, and RoPE needs an even number; change either"
            )
        if self.num_heads % self.kv_heads:
            raise InputError(
                f"num_kv_heads={self.num_kv_heads}: expected a divisor of "
                f"num_heads={self.num_heads}"
            )

    @property
    def head_dim(self) -> int:
        """Dimensions of one head."""
        return self.d_model // self.num_heads

    @property
    def kv_heads(self) -> int:
        """Key and value heads, resolved."""
        return self.num_heads if self.num_kv_heads is None else self.num_kv_heads


def _check_size(name: str, value: object, *, optional: bool) -> None:
    if optional and value is None:
        return
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise InputError(f"{name}={value!r}: expected a positive integer")


def _check_choice(name: str, value: object, choices: tuple) -> None:
    if type(value) is not type(choices[0]) or value not in choices:
        known = ", ".join(repr(choice) for choice in choices)
        raise InputError(f"{name}={value!r}: expected one of {known}")
