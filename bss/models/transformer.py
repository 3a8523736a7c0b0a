"""The configs of transformers, dense and mixture of experts: facts, without JAX and flax.

Parameters and FLOPs are counted by closed formulas (derived here), which are tested against the
network's arrays and the compiler's own count. The attention products and the head, which Kaplan's
6N leaves out, are counted. The network is in `network`, the experts in `moe`.

Parametrizations multiply the network's initial standard deviations, LRs and logits by functions of
the width. "standard" changes nothing. "mup" is the maximal update parametrization (Yang et al.,
2203.03466, table 3, Adam's column). It gives activations and their updates the same size at every
width, so that the best LR hardly depends on the width. The multipliers are 1 at the base width.
Wider models need more heads, not wider heads, and `d_ff` in proportion. A tied matrix has the
learning rate of an embedding, and its logits are divided by the width (table 8).
"""

import importlib
import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

from bss.errors import InputError
from bss.models.base import (
    DEFAULT_COMPUTE,
    FAMILIES,
    Compute,
    Counts,
    Logits,
    LossSums,
    ModelFamily,
    Params,
    TargetLosses,
    map_names,
    unstacked_axes,
)
from bss.models.size_fields import size

if TYPE_CHECKING:
    import jax

Activation = Literal["relu2", "gelu", "swiglu"]
Norm = Literal["rms", "layer"]
Dtype = Literal["float32", "bfloat16"]


class Multipliers(NamedTuple):
    """Multipliers of one tensor: its initial standard deviation, its LR, and the logits that it
    makes.
    """

    init: float = 1.0
    rate: float = 1.0
    output: float = 1.0


Parametrization = Callable[[tuple[str, ...], float, bool], Multipliers]
"""A function of the names of a tensor's axes (without stacks), the width relative to the base's,
and whether one matrix is both embedding and head."""


def standard(axes: tuple[str, ...], width: float, tied: bool) -> Multipliers:
    """Return multipliers of 1."""
    return Multipliers()


def mup(axes: tuple[str, ...], width: float, tied: bool) -> Multipliers:
    """Return the multipliers for Adam; see the module.

    >>> mup(("embed", "mlp"), 4.0, False), mup(("norm",), 4.0, False)
    (Multipliers(init=1.0, rate=0.25, output=1.0), Multipliers(init=1.0, rate=1.0, output=1.0))
    """
    if len(axes) == 1:
        return Multipliers()
    if axes[0] == "vocab":
        return Multipliers(width, output=1 / width) if tied else Multipliers(width**0.5)
    is_router = axes[-1] == "experts"  # as many outputs at every width, as the head has
    return Multipliers(width**-0.5 if is_router else 1.0, 1 / width)


PARAMETRIZATIONS: Mapping[str, Parametrization] = {"standard": standard, "mup": mup}


@dataclass(frozen=True)
class TransformerConfig(ModelFamily):
    """A decoder-only pre-norm transformer without biases.

    Attributes:
        vocab_size: tokens in the vocabulary.
        num_layers: residual blocks, each attention then MLP.
        d_model: width of the residual stream.
        num_heads: query heads.
        d_ff: hidden width of the MLP.
        num_kv_heads: key and value heads, a divisor of `num_heads`; None: one per query head. A
            number equal to `num_heads` is stored as None.
        activation: "relu2" (squared ReLU), "gelu" (exact) or "swiglu" (three matrices).
        norm: "rms" or "layer"; a learned scale, no bias.
        qk_norm: normalise queries and keys over their head's dimensions, before RoPE.
        tied: one matrix is both the embedding and the head.
        rope_theta: base of RoPE's wavelengths, in positions.
        dtype: Data type of activations; parameters, norms, softmax and logits are always float32.
        scan_layers: `lax.scan` over stacked layers: compiles faster, runs slower on CPU.
        remat: recompute each block's activations in the backward pass, except the results kept by
            `Layers.remat_policy`.
        head_dim: dimensions of a head, an even number (RoPE); None: `d_model / num_heads`. A number
            equal to that is stored as None.
        parametrization: "standard", or "mup" for LRs that transfer across widths if head width is
            fixed and `d_ff` and the number of heads grow in proportion.
        base_width: `d_model` at which the multipliers of "mup" are 1.

    Raises:
        InputError: If a size is not a positive integer, heads do not divide, a head dimension is
            odd, or a choice is unknown.

    >>> TransformerConfig(257, num_layers=2, d_model=64, num_heads=4, d_ff=256).head_width
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

    def __post_init__(self) -> None:
        for name in ("vocab_size", "num_layers", "d_model", "num_heads", "d_ff"):
            check_size(name, getattr(self, name))
        for name in ("num_kv_heads", "head_dim", "base_width"):
            check_size(name, getattr(self, name), optional=True)
        choices = dict.fromkeys(("qk_norm", "tied", "scan_layers", "remat"), (False, True))
        choices |= {"activation": get_args(Activation), "norm": get_args(Norm)}
        choices |= {"parametrization": tuple(PARAMETRIZATIONS), "dtype": get_args(Dtype)}
        for name, known in choices.items():
            _check_choice(name, getattr(self, name), known)
        if (self.base_width is None) != (self.parametrization == "standard"):
            raise InputError(
                f"base_width={self.base_width}: expected the d_model of the model with known LRs "
                "for parametrization='mup', and none for 'standard'"
            )
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
        """Dimensions of all query heads."""
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
        """Hidden dimensions of the MLP that a token passes."""
        return self.d_ff

    @property
    def routed_width(self) -> int:
        """Residual dimensions per token that experts read and write; 0 without experts."""
        return 0

    def padding(self, tokens: int) -> float:
        """Return the rows that experts multiply, relative to the rows that these tokens need."""
        return 1.0

    @property
    def compute_dtype(self) -> str:
        """See `ModelFamily`."""
        return self.dtype

    @property
    def takes_layers(self) -> bool:
        """See `ModelFamily`."""
        return True

    def kept_by_layer(self, tokens: int) -> list[int]:
        """See `ModelFamily`."""
        kept = _functions("network").kept_bytes(self, tokens, "all")
        return [kept // self.num_layers] * self.num_layers

    @property
    def own_rates(self) -> bool:
        """See `ModelFamily`."""
        return self.parametrization != "standard"

    @property
    def label(self) -> str:
        """Layers and width, e.g. "2x64"."""
        return f"{self.num_layers}x{self.d_model}"

    def multipliers(self, axes: tuple[str, ...]) -> Multipliers:
        """Return the multipliers of a tensor, given the names of its axes without stacks."""
        width = self.d_model / (self.base_width or self.d_model)
        return PARAMETRIZATIONS[self.parametrization](axes, width, self.tied)

    def counts(self) -> Counts:
        """Return the exact numbers of parameters.

        >>> nano = TransformerConfig(256, num_layers=2, d_model=64, num_heads=4, d_ff=256)
        >>> nano.counts()
        Counts(total=131456, embedding=32768, non_embedding=98688, active=98688)
        """
        embedding = self.vocab_size * self.d_model * (1 if self.tied else 2)
        norms = 2 * self.d_model + (2 * self.head_width if self.qk_norm else 0)
        every_mlp, active_mlp = self.mlp_counts()
        rest = self.num_layers * (self._attention_count() + norms) + self.d_model
        non_embedding = rest + self.num_layers * every_mlp
        active = rest + self.num_layers * active_mlp
        return Counts(embedding + non_embedding, embedding, non_embedding, active)

    def forward_flops_per_token(self, seq_len: int) -> int:
        """Return matmul FLOPs of the forward pass per token, in sequences of `seq_len` inputs.

        Attention is counted in full: every query meets all `seq_len` keys, as in the executed dense
        products. The causal half is not subtracted (the convention of PaLM, 2204.02311, appendix
        B).
        """
        block = self._attention_count() + self.mlp_counts()[1]
        matrices = self.num_layers * block + self.d_model * self.vocab_size
        attention = 2 * self.num_layers * seq_len * self.query_width
        return 2 * (matrices + attention)

    def mlp_counts(self) -> tuple[int, int]:
        """Return the parameters of a block's MLP, and how many of them a token passes."""
        mlp = (3 if self.activation == "swiglu" else 2) * self.d_model * self.d_ff
        return mlp, mlp

    def _attention_count(self) -> int:
        return 2 * self.d_model * (self.query_width + self.kv_width)

    @classmethod
    def decoded(cls, entry: dict[str, Any]) -> dict[str, Any]:
        """Return the fields of a dict, completed by the fields of the size called `name`."""
        name = entry.pop("name", None)
        return super().decoded(entry if name is None else {**size(str(name)), **entry})

    def init(self, seed: int) -> Params:
        """See `network.init`."""
        return _functions("network").init(self, seed)

    def loss(
        self, params: Params, sequences_BxT1: "jax.Array"
    ) -> tuple["jax.Array", dict[str, "jax.Array"]]:
        """See `ModelFamily.loss`."""
        return self.loss_fn(DEFAULT_COMPUTE)(params, sequences_BxT1)

    def loss_fn(self, compute: Compute) -> LossSums:
        """See `network.loss_and_balance`; a dense transformer has no auxiliary terms."""
        return lambda params, tokens: (
            _functions("network").loss_and_balance(self, params, tokens, compute)[0],
            {},
        )

    def target_losses_fn(self, compute: Compute) -> TargetLosses:
        """See `network.target_losses`."""
        network = _functions("network")
        return lambda params, tokens: network.target_losses(self, params, tokens, compute)

    def logits_fn(self, compute: Compute) -> Logits:
        """See `network.logits`."""
        network = _functions("network")
        return lambda params, tokens: network.logits(self, params, tokens, compute)

    def choose_attention(self, name: str, device: Any, seq_lens: Collection[int]) -> str:
        """See `attention.choose`."""
        return _functions("attention").choose(name, self, device, seq_lens)

    def partition_names(self, params: Params) -> Params:
        """See `network.partition_names`."""
        return _functions("network").partition_names(params)

    def rates(self, params: Params) -> Params | None:
        """Return the LR multipliers of the parametrization."""
        rates = map_names(
            self.partition_names(params), lambda names: self.multipliers(unstacked_axes(names)).rate
        )
        return rates if self.own_rates else None


@dataclass(frozen=True)
class MixtureConfig(TransformerConfig):
    """A transformer with experts; `d_ff` is the hidden width of each expert.

    Attributes:
        num_experts: experts per block.
        top_k: experts that a token passes.
        balance: weight of the load-balance loss in the minimised loss; the reported loss does not
            contain it.

    Raises:
        InputError: As `TransformerConfig`; or if a token passes more experts than there are, or the
            weight is negative.

    >>> sizes = {"num_layers": 2, "d_model": 64, "num_heads": 4, "d_ff": 128}
    >>> counts = MixtureConfig(256, **sizes, num_experts=8, top_k=2).counts()
    >>> counts.active, counts.non_embedding
    (99712, 296320)
    """

    num_experts: int = 8
    top_k: int = 2
    balance: float = 0.01

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("num_experts", "top_k"):
            check_size(name, getattr(self, name))
        if self.top_k > self.num_experts:
            raise InputError(
                f"top_k={self.top_k}: expected at most the num_experts={self.num_experts}"
            )
        if not isinstance(self.balance, int | float) or not 0 <= self.balance < math.inf:
            raise InputError(f"balance={self.balance!r}: expected 0, or a positive number")

    @property
    def label(self) -> str:
        """Layers, width, experts and experts per token, e.g. "2x64-8e2"."""
        return f"{super().label}-{self.num_experts}e{self.top_k}"

    @property
    def mlp_width(self) -> int:
        """Hidden dimensions that a token passes, over all its experts."""
        return self.top_k * self.d_ff

    @property
    def routed_width(self) -> int:
        """See `TransformerConfig`."""
        return self.top_k * self.d_model

    def padding(self, tokens: int) -> float:
        """See `TransformerConfig`."""
        blocks, size = block_shape(self.top_k * tokens, self.num_experts)
        return blocks * size / (self.top_k * tokens)

    def mlp_counts(self) -> tuple[int, int]:
        """Return the parameters of a block's experts and router, and how many of them a token
        passes.
        """
        expert, _ = super().mlp_counts()
        router = self.d_model * self.num_experts
        return router + self.num_experts * expert, router + self.top_k * expert

    def loss_fn(self, compute: Compute) -> LossSums:
        """See `network.loss_and_balance`; the load-balance loss is multiplied by its weight."""

        def loss(params: Params, tokens: Any) -> Any:
            network = _functions("network")
            total, balance = network.loss_and_balance(self, params, tokens, compute)
            return total, {"balance": self.balance * balance}

        return loss


FAMILIES |= {"transformer": TransformerConfig, "mixture": MixtureConfig}


def block_shape(rows: int, experts: int) -> tuple[int, int]:
    """Return (blocks, rows per block) that fit a number of rows under any load.

    Rows per block are a power of two, 8 or more. At most a third of all rows is padding if there
    are 16 rows per expert or more.

    >>> block_shape(512, 8)
    (23, 32)
    """
    size = max(8, 1 << (max(rows // (2 * experts), 1).bit_length() - 1))
    return min(rows, (rows + experts * (size - 1)) // size), size


def _functions(module: Literal["network", "attention"]) -> Any:
    """Return a module of functions of these configs.

    It is named and not imported, as a custom family is: functions import the facts of this module,
    and facts are used without JAX.
    """
    return importlib.import_module(f"bss.models.{module}")


def check_size(name: str, value: object, *, optional: bool = False) -> None:
    """Raise InputError if a value is not a positive integer; None is allowed if `optional`."""
    if optional and value is None:
        return
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise InputError(f"{name}={value!r}: expected a positive integer")


def _check_choice(name: str, value: object, choices: tuple) -> None:
    if type(value) is not type(choices[0]) or value not in choices:
        known = ", ".join(repr(choice) for choice in choices)
        raise InputError(f"{name}={value!r}: expected one of {known}")
