"""What determines a transformer: one frozen value, its checks, its parameters and its FLOPs.

Parameters and FLOPs are counted by closed formulas, derived here, tested against the network's
arrays and the compiler's own count; the attention products and the head, which Kaplan's 6N leaves
out, are counted.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, get_args

from bss.errors import InputError
from bss.models.family import Counts, ModelFamily
from bss.models.transformer.parametrization import PARAMETRIZATIONS, Multipliers

Activation = Literal["relu2", "gelu", "swiglu"]
Norm = Literal["rms", "layer"]
Dtype = Literal["float32", "bfloat16"]


@dataclass(frozen=True)
class Shape(ModelFamily):
    """A decoder-only pre-norm transformer without biases.

    Attributes:
      vocab_size: tokens in the vocabulary.
      num_layers: residual blocks, each attention then MLP.
      d_model: width of the residual stream.
      num_heads: query heads.
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
      remat: recompute each block's activations in the backward pass, but for what `Layers.keep` of
        the execution keeps.
      head_dim: dimensions of a head, an even number (RoPE); None is `d_model / num_heads`, and a
        number equal to that is stored as None.
      parametrization: "standard", or "mup", by which rates carry over widths where heads are as
        wide as the base's, and `d_ff` and their number in proportion; see the module.
      base_width: `d_model` at which "mup" changes nothing, and rates are what they are called.

    Raises:
      InputError: a size that is not a positive integer, heads that do not divide, an odd head
        dimension, or an unknown choice.

    >>> Shape(vocab_size=257, num_layers=2, d_model=64, num_heads=4, d_ff=256).head_width
    16
    """

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
    head_dim: int | None = None
    parametrization: str = "standard"
    base_width: int | None = None

    def __post_init__(self):
        for name in ("vocab_size", "num_layers", "d_model", "num_heads", "d_ff"):
            check_size(name, getattr(self, name))
        for name in ("num_kv_heads", "head_dim", "base_width"):
            check_size(name, getattr(self, name), optional=True)
        for name in ("qk_norm", "tied", "scan_layers", "remat"):
            _check_choice(name, getattr(self, name), (False, True))
        _check_choice("activation", self.activation, get_args(Activation))
        _check_choice("norm", self.norm, get_args(Norm))
        _check_choice("parametrization", self.parametrization, tuple(PARAMETRIZATIONS))
        if (self.base_width is None) != (self.parametrization == "standard"):
            raise InputError(
                f"base_width={self.base_width}: expected the d_model of the model whose rates are "
                "known with parametrization='mup', and none with 'standard'"
            )
        _check_choice("dtype", self.dtype, get_args(Dtype))
        if not isinstance(self.rope_theta, int | float) or not 1 < self.rope_theta < math.inf:
            raise InputError(
                f"rope_theta={self.rope_theta!r}: expected a finite number above 1, such as 10000"
            )
        if self.num_kv_heads == self.num_heads:
            object.__setattr__(self, "num_kv_heads", None)
        self._check_heads()
        if self.head_dim and self.head_dim * self.num_heads == self.d_model:
            object.__setattr__(self, "head_dim", None)

    def _check_heads(self) -> None:
        if self.head_dim is None and self.d_model % self.num_heads:
            raise InputError(
                f"num_heads={self.num_heads}: expected a divisor of d_model={self.d_model}, "
                "or a head_dim"
            )
        if self.head_dim is not None and self.head_dim % 2:
            raise InputError(f"head_dim={self.head_dim}: expected an even number, which RoPE needs")
        if self.head_width % 2:
            raise InputError(
                f"num_heads={self.num_heads}: d_model={self.d_model} leaves heads of "
                f"{self.head_width} dimensions, and RoPE needs an even number; change either"
            )
        if self.num_heads % self.kv_heads:
            raise InputError(
                f"num_kv_heads={self.num_kv_heads}: expected a divisor of "
                f"num_heads={self.num_heads}"
            )

    @property
    def head_width(self) -> int:
        """Dimensions of one head, resolved."""
        return self.head_dim or self.d_model // self.num_heads

    @property
    def query_width(self) -> int:
        """Dimensions of all query heads; those of all key heads are `kv_width`."""
        return self.num_heads * self.head_width

    @property
    def kv_width(self) -> int:
        """Dimensions of all key heads, or of all value heads."""
        return self.kv_heads * self.head_width

    @property
    def kv_heads(self) -> int:
        """Key and value heads, resolved."""
        return self.num_heads if self.num_kv_heads is None else self.num_kv_heads

    @property
    def mlp_width(self) -> int:
        """Hidden dimensions of the MLP that a token meets."""
        return self.d_ff

    @property
    def routed_width(self) -> int:
        """Residual dimensions of a token that experts are given, and give; none without them."""
        return 0

    def padding(self, tokens: int) -> float:
        """Rows that experts multiply, over those that so many tokens give them."""
        return 1.0

    @property
    def own_rates(self) -> bool:
        """See `ModelFamily`."""
        return self.parametrization != "standard"

    @property
    def label(self) -> str:
        """Layers and width, "2x64"."""
        return f"{self.num_layers}x{self.d_model}"

    def multipliers(self, axes: tuple[str, ...]) -> Multipliers:
        """Of a tensor by the names of its axes, stacks left out."""
        width = self.d_model / (self.base_width or self.d_model)
        return PARAMETRIZATIONS[self.parametrization](axes, width, self.tied)

    def counts(self) -> Counts:
        """Parameters, exactly.

        >>> nano = Shape(256, num_layers=2, d_model=64, num_heads=4, d_ff=256)
        >>> nano.counts()
        Counts(total=131456, embedding=32768, non_embedding=98688, active=98688)
        """
        embedding = self.vocab_size * self.d_model * (1 if self.tied else 2)
        norms = 2 * self.d_model + (2 * self.head_width if self.qk_norm else 0)
        non_embedding, active = (
            self.num_layers * (self._attention_count() + mlp + norms) + self.d_model
            for mlp in self.mlp_counts()
        )
        return Counts(embedding + non_embedding, embedding, non_embedding, active)

    def forward_flops_per_token(self, seq_len: int) -> int:
        """Matmul FLOPs of the forward pass per token, in sequences of `seq_len` inputs.

        Attention is counted in full: every query meets all `seq_len` keys, as the dense products
        are executed; the causal half is not subtracted (the convention of PaLM, 2204.02311,
        appendix B).
        """
        block = self._attention_count() + self.mlp_counts()[1]
        matrices = self.num_layers * block + self.d_model * self.vocab_size
        attention = 2 * self.num_layers * seq_len * self.query_width
        return 2 * (matrices + attention)

    def mlp(self, rngs: Any) -> Callable[..., Any]:
        """What stands behind the attention in a block, a flax module; `rngs` are flax'."""
        from bss.models.transformer.layers import MLP

        return MLP(self, rngs)

    def mlp_counts(self) -> tuple[int, int]:
        """Parameters of `mlp`, and those of them that a token passes."""
        mlp = (3 if self.activation == "swiglu" else 2) * self.d_model * self.d_ff
        return mlp, mlp

    def _attention_count(self) -> int:
        return 2 * self.d_model * (self.query_width + self.kv_width)


def check_size(name: str, value: object, *, optional: bool = False) -> None:
    """Refuses what is no positive integer, or none where it is `optional`."""
    if optional and value is None:
        return
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise InputError(f"{name}={value!r}: expected a positive integer")


def _check_choice(name: str, value: object, choices: tuple) -> None:
    if type(value) is not type(choices[0]) or value not in choices:
        known = ", ".join(repr(choice) for choice in choices)
        raise InputError(f"{name}={value!r}: expected one of {known}")
