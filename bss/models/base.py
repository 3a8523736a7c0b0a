"""The interface between training and models: a model family is a config with these methods.

Parameters are nested dicts of float32 arrays. Parameters are counted as in the scaling laws: N is
`active` (Kaplan et al., 2001.08361, section 2.1). FLOPs count matrix products, two per
multiply-add; norms, softmax and look-ups are not counted.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from bss.errors import InputError
from bss.models.size_fields import SIZE_FIELDS
from bss.registry import Registered, Registry

if TYPE_CHECKING:
    import jax

Params = dict[str, Any]
LossSums = Callable[[Params, "jax.Array"], tuple["jax.Array", dict[str, "jax.Array"]]]
"""(params, sequences [B, T+1]) to the summed loss and the summed auxiliary terms by name."""
TargetLosses = Callable[[Params, "jax.Array"], tuple["jax.Array", "jax.Array"]]
"""(params, sequences [B, T+1]) to the summed loss and the loss of every target, [B, T]."""
Logits = Callable[[Params, "jax.Array"], "jax.Array"]
"""(params, sequences [B, T+1]) to float32 logits of the targets, [B, T, vocab_size]."""
AllGather = Callable[[Any], Any]
"""Gathers any part of the parameter tree, if each device holds a shard of it."""
LOGITS_AT_ONCE = 2**27
"""Maximum number of logits that a program holds at once, 512 MiB in float32."""
STACK = "stack"
"""The name of an axis that stacks parameters: layers, experts."""


def identity(params: Any) -> Any:
    """Return the parameters: the `AllGather` of unsharded parameters."""
    return params


LogitsDtype = Literal["float32", "bfloat16"]
RematPolicy = Literal["nothing", "attention", "products", "all"]
"""What layers keep for the backward pass; each choice keeps more than the one before it."""


@dataclass(frozen=True)
class Head:
    """Settings of the head and its loss. Results are equal up to rounding.

    Attributes:
        logits_dtype: type of the logits in memory. Their sums are float32 in both cases.
        chunk_logits: maximum number of logits of a chunk of tokens, where there are several chunks;
            0: LOGITS_AT_ONCE.
    """

    logits_dtype: LogitsDtype = "float32"
    chunk_logits: int = 0


DEFAULT_HEAD = Head()


@dataclass(frozen=True)
class Layers:
    """Settings of a stack of layers and of the head. Results are equal up to rounding.

    Attributes:
        unroll: layers per iteration of the loop over them; 0 for all.
        remat_policy: results that a layer with rematerialisation keeps in addition to its inputs:
            "nothing", the results of "attention", of all matrix "products", or "all" (no
            recomputation).
        remat_budget_bytes: approximate maximum of bytes that a program keeps on a device. If
            `remat_policy` needs more, the largest policy before it that fits is used. None: no
            limit.
        head: settings of the head.
    """

    unroll: int = 1
    remat_policy: RematPolicy = "nothing"
    remat_budget_bytes: int | None = None
    head: Head = DEFAULT_HEAD


DEFAULT_LAYERS = Layers()


@dataclass(frozen=True)
class Compute:
    """Settings of a model's functions. All settings give equal results up to rounding.

    Attributes:
        attention: name of the attention kernel.
        all_gather: function to call on parameters immediately before they are used. A model that
            calls it layer by layer has one layer's parameters complete at a time.
        layers: unrolling and rematerialisation, for a family with `takes_layers`.
    """

    attention: str = "reference"
    all_gather: AllGather = identity
    layers: Layers = DEFAULT_LAYERS


DEFAULT_COMPUTE = Compute()


@dataclass(frozen=True)
class Counts:
    """Numbers of parameters.

    Attributes:
      total: all parameters.
      embedding: the embedding and, if untied, the head.
      non_embedding: the other parameters, norm scales included.
      active: the non-embedding parameters that a token passes, N of a mixture of experts; by
        default all of them.
    """

    total: int
    embedding: int
    non_embedding: int
    active: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "active", self.active or self.non_embedding)


@dataclass(frozen=True)
class ModelFamily(Registered):
    """A model as a value. The key `family` of its dict names the class; default: a transformer.

    A custom family is a frozen dataclass that inherits from this class and defines every method
    that raises NotImplementedError here.

    Attributes:
      vocab_size: tokens in the vocabulary.
    """

    key: ClassVar[str] = "family"

    vocab_size: int

    @classmethod
    def choices(cls) -> Registry[Any]:
        """Return the registered families."""
        return FAMILIES

    @classmethod
    def variant(cls, entry: Mapping[str, Any]) -> type:
        """Return the family that a dict names, or the family of the named size in it."""
        return super().variant({**SIZE_FIELDS.get(str(entry.get("name")), {}), **entry})

    def encoded(self, fields: dict[str, Any]) -> dict[str, Any]:
        """Return the fields, preceded by the family unless it is the default."""
        return fields if self.is_default else super().encoded(fields)

    @property
    def label(self) -> str:
        """The model's name in run tables."""
        return type(self).__name__

    @property
    def compute_dtype(self) -> str:
        """The dtype of activations, "float32" or "bfloat16"."""
        return "float32"

    @property
    def takes_layers(self) -> bool:
        """True if the model's functions use `Compute.layers`."""
        return False

    def kept_by_layer(self, tokens: int) -> list[int]:
        """Return the bytes that each layer keeps of these tokens for its backward pass.

        By default they are not known, and the list is empty. They set the size of micro-batches on
        CPUs.
        """
        del tokens
        return []

    def init(self, seed: int) -> Params:
        """Return fresh parameters, a pure function of the model and the seed."""
        raise NotImplementedError(f"{type(self).__name__} has no init")

    def loss(
        self, params: Params, sequences_BxT1: "jax.Array"
    ) -> tuple["jax.Array", dict[str, "jax.Array"]]:
        """Return the loss and the auxiliary terms, summed over the B·T targets; float32 scalars.

        Args:
          params: parameters of the model.
          sequences_BxT1: integer tokens (B, T + 1): inputs are all but the last, targets all but
            the first.

        Returns:
          The cross-entropy of the next token in nats, which is reported, and by name the terms that
          are minimised in addition, each multiplied by its weight.
        """
        raise NotImplementedError(f"{type(self).__name__} has no loss")

    def choose_attention(self, name: str, device: Any, seq_lens: Collection[int]) -> str:
        """Return the name of the attention kernel; by default the family has only "reference".

        Args:
          name: "auto", or the name of a kernel.
          device: the device that computes it, present or described.
          seq_lens: lengths of all sequences.

        Raises:
          InputError: If the requested kernel cannot be used.
        """
        if name not in ("auto", "reference"):
            raise InputError(
                f"execution.attention: {type(self).__name__} has no {name}; ask for auto"
            )
        return "reference"

    def loss_fn(self, compute: Compute) -> LossSums:
        """Return `loss` as a function that is computed in the given way.

        By default all parameters are gathered at once.
        """
        return lambda params, sequences_BxT1: self.loss(compute.all_gather(params), sequences_BxT1)

    def target_losses_fn(self, compute: Compute) -> TargetLosses | None:
        """Return a function to the loss of `loss_fn`, bit by bit, and the loss of every target.

        None, the default, if the loss is known only as a sum. Evaluation then computes every
        sequence a second time, alone, for the standard error.
        """
        del compute
        return None

    def logits_fn(self, compute: Compute) -> Logits | None:
        """Return a function to the logits of the targets; None, the default, if there are none."""
        del compute
        return None

    def partition_names(self, params: Params) -> Params:
        """Return the names of every parameter's axes, a tuple per parameter, in a tree as `params`.

        "vocab" is an axis of tokens, `STACK` an axis that stacks parameters; other names are free.
        """
        raise NotImplementedError(f"{type(self).__name__} has no partition_names")

    def decay_mask(self, params: Params) -> Params:
        """Return True for matrices, embeddings included; False for norm scales."""
        return map_names(self.partition_names(params), _is_matrix)

    def matrices(self, params: Params) -> Params:
        """Return True for matrices between hidden axes and stacks of them: no embedding or head."""
        return map_names(
            self.partition_names(params),
            lambda names: _is_matrix(names) and "vocab" not in names,
        )

    def split_axes(self, params: Params) -> Params:
        """Return the axis, counted from the end, along which FSDP shards each parameter.

        It is the first axis that is neither a stack nor the vocabulary. 0: not sharded (norm
        scales).
        """
        return map_names(self.partition_names(params), _split_axis)

    @property
    def own_rates(self) -> bool:
        """True if `rates` returns multipliers, which not every optimizer applies."""
        return False

    def rates(self, params: Params) -> Params | None:
        """Return each parameter's multiplier of the learning rate; None if all are 1."""
        del params
        return None

    def counts(self) -> Counts:
        """Return the exact numbers of parameters."""
        raise NotImplementedError(f"{type(self).__name__} has no counts")

    def forward_flops_per_token(self, seq_len: int) -> int:
        """Return matmul FLOPs of the forward pass per token, in sequences of `seq_len` inputs."""
        raise NotImplementedError(f"{type(self).__name__} has no forward_flops_per_token")

    def training_flops_per_token(self, seq_len: int) -> int:
        """Return matmul FLOPs of forward and backward pass per token: three times the forward's.

        Recomputation by rematerialisation is not counted: MFU is defined on model FLOPs.
        """
        return 3 * self.forward_flops_per_token(seq_len)


FAMILIES: Registry[type[ModelFamily]] = Registry("model.family", {}, of=type[ModelFamily])
"""Families by name, the default first; each is registered beside its class."""


def unstacked_axes(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names of a parameter's axes without stacks."""
    return tuple(name for name in names if name != STACK)


def _is_matrix(names: tuple[str, ...]) -> bool:
    return len(unstacked_axes(names)) >= 2


def _split_axis(names: tuple[str, ...]) -> int:
    if not _is_matrix(names):
        return 0
    axes = (axis for axis, name in enumerate(names) if name not in (STACK, "vocab"))
    return next(axes, len(names) - 1) - len(names)


def map_names(names: Params, function: Callable[[tuple[str, ...]], Any]) -> Params:
    """Apply a function to the axis names of every parameter."""
    return {
        key: map_names(value, function) if isinstance(value, dict) else function(value)
        for key, value in names.items()
    }
