"""The seam between training and models: a family of models is a config with these methods.

Parameters are nested dicts of float32 arrays. Counts are those of the scaling laws: N is
`active` (Kaplan et al., 2001.08361, section 2.1). FLOPs are those of matrix products, two
per multiply-add; norms, softmax and look-ups are not counted.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from bss.errors import InputError
from bss.registry import Chosen, Registry

if TYPE_CHECKING:
    import jax

Params = dict[str, Any]
LossSums = Callable[[Params, "jax.Array"], tuple["jax.Array", dict[str, "jax.Array"]]]
TargetLosses = Callable[[Params, "jax.Array"], tuple["jax.Array", "jax.Array"]]
Logits = Callable[[Params, "jax.Array"], "jax.Array"]
Gather = Callable[[Any], Any]
"""What makes whole any part of the tree of parameters, where each device holds a piece of each."""
LOGITS_AT_ONCE = 2**27
"""Logits that a program may hold at once, half a gigabyte in float32."""
STACK = "stack"
"""The name of an axis along which a parameter is many: layers, experts."""


def as_it_is(params: Any) -> Any:
    """The `Gather` where every device holds all parameters."""
    return params


Keep = Literal["nothing", "attention", "products", "all"]
"""What layers keep for the backward pass, each more than the one before."""


@dataclass(frozen=True)
class Layers:
    """How a stack of layers is computed: the same up to rounding.

    Attributes:
      unroll: layers in one turn of the loop over them; 0 for all.
      keep: of layers that are to be computed again in the backward pass, what is kept besides their
        inputs: "nothing", what "attention" or all "products" gave, or "all", so that nothing is
        computed again.
      room: bytes that a program may keep on a device, about; where that would be more, it keeps
        the most before it that is not. None for any.
    """

    unroll: int = 1
    keep: Keep = "nothing"
    room: int | None = None


ONE_BY_ONE = Layers()


@dataclass(frozen=True)
class Counts:
    """Numbers of parameters.

    Attributes:
      total: all of them.
      embedding: the embedding and, when untied, the head.
      non_embedding: the others, norm scales included.
      active: those of the others that a token passes, N of a mixture of experts; all if not given.
    """

    total: int
    embedding: int
    non_embedding: int
    active: int = 0

    def __post_init__(self):
        object.__setattr__(self, "active", self.active or self.non_embedding)


@dataclass(frozen=True)
class ModelFamily(Chosen):
    """A model as a value; `family` tells in a dict which family it is of, a transformer if absent.

    One of a user's own is a frozen dataclass made of this, with all methods that raise here.

    Attributes:
      vocab_size: tokens in the vocabulary.
    """

    key: ClassVar[str] = "family"

    vocab_size: int

    @classmethod
    def choices(cls) -> Registry[Any]:
        """The registered families, which are made of this class."""
        from bss.models import FAMILIES

        return FAMILIES

    @classmethod
    def variant(cls, entry: Mapping[str, Any]) -> type:
        """The family that a dict names, or that of the size it names."""
        from bss.models.transformer.sizes import SIZES

        return super().variant({**SIZES.get(str(entry.get("name")), {}), **entry})

    def encoded(self, fields: dict[str, Any]) -> dict[str, Any]:
        """Its fields, behind the family where it is not the one meant without."""
        return fields if self.is_default else super().encoded(fields)

    @property
    def label(self) -> str:
        """What run tables call it."""
        return type(self).__name__

    def init(self, seed: int) -> Params:
        """Fresh parameters, a pure function of the model and the seed."""
        raise NotImplementedError(f"{type(self).__name__} has no init")

    def loss(
        self, params: Params, sequences_BxT1: "jax.Array"
    ) -> tuple["jax.Array", dict[str, "jax.Array"]]:
        """Loss and auxiliary terms, summed over the B·T targets; float32 scalars.

        Args:
          params: of the model.
          sequences_BxT1: integer tokens (B, T + 1): inputs are all but the last, targets all but
            the first.

        Returns:
          The cross-entropy of the next token in nats, which is what is reported, and by name what
          is minimised besides, each with its weight in it.
        """
        raise NotImplementedError(f"{type(self).__name__} has no loss")

    def choose_attention(self, name: str, device: Any, seq_lens: Collection[int]) -> str:
        """The name of the attention kernel that its loss is computed by; here its own, "reference".

        Args:
          name: "auto", or a name.
          device: that computes it, present or described.
          seq_lens: lengths of all sequences.

        Raises:
          InputError: where the one asked for cannot be used.
        """
        if name not in ("auto", "reference"):
            raise InputError(
                f"execution.attention: {type(self).__name__} has no {name}; ask for auto"
            )
        return "reference"

    def loss_by(
        self, attention: str, gather: Gather = as_it_is, layers: Layers = ONE_BY_ONE
    ) -> LossSums:
        """Its `loss`, computed by an attention kernel: the same up to rounding.

        Args:
          attention: the kernel's name.
          gather: to be called on parameters where they are used, before anything else is done with
            them: a layer's in the layer, so that no more are whole at a time. Here on all at once.
          layers: how they are computed; given where that is not as if it were not.
        """
        return lambda params, sequences_BxT1: self.loss(gather(params), sequences_BxT1)

    def target_losses_by(self, attention: str, gather: Gather = as_it_is) -> TargetLosses | None:
        """Of parameters and sequences: the loss as `loss_by` sums it, to the bit, and [B, T] of it.

        None, as here, where the loss is known as a sum alone: evaluation then takes each sequence
        once more by itself, to tell the standard error.
        """
        del attention, gather
        return None

    def logits_by(self, attention: str, gather: Gather = as_it_is) -> Logits | None:
        """Of parameters and sequences, as `loss_by`: float32 [B, T, vocab_size], for metrics.

        None, as here, where there are none.
        """
        del attention, gather
        return None

    def partition_names(self, params: Params) -> Params:
        """Names of the axes of every parameter, a tuple of its rank, in a tree as `params`.

        "vocab" is an axis of tokens, `STACK` one along which the parameter is many; other names
        are the family's own.
        """
        raise NotImplementedError(f"{type(self).__name__} has no partition_names")

    def decay_mask(self, params: Params) -> Params:
        """True where weight decay applies: every matrix, embeddings too; False for norm scales."""
        return each_of(self.partition_names(params), _is_matrix)

    def matrices(self, params: Params) -> Params:
        """True for matrices between hidden axes, or stacks of them: no embedding, no head."""
        return each_of(
            self.partition_names(params),
            lambda names: _is_matrix(names) and "vocab" not in names,
        )

    def split_axes(self, params: Params) -> Params:
        """The axis of each matrix that devices split where they share the weights, from the end.

        It is the first that is no stack and no vocabulary. 0 where every device holds the whole:
        norm scales.
        """
        return each_of(self.partition_names(params), _split_axis)

    @property
    def own_rates(self) -> bool:
        """Whether `rates` gives any, which not every optimizer has; here it does not."""
        return False

    def rates(self, params: Params) -> Params | None:
        """By what each parameter's learning rate is multiplied; None, as here, by nothing."""
        del params
        return None

    def counts(self) -> Counts:
        """Parameters, exactly."""
        raise NotImplementedError(f"{type(self).__name__} has no counts")

    def forward_flops_per_token(self, seq_len: int) -> int:
        """Matmul FLOPs of the forward pass per token, in sequences of `seq_len` inputs."""
        raise NotImplementedError(f"{type(self).__name__} has no forward_flops_per_token")

    def training_flops_per_token(self, seq_len: int) -> int:
        """Matmul FLOPs of forward and backward per token: three times the forward's.

        What rematerialisation computes again is not counted: it is model FLOPs, as MFU is
        defined on.
        """
        return 3 * self.forward_flops_per_token(seq_len)


def own_axes(names: tuple[str, ...]) -> tuple[str, ...]:
    """The names of a parameter's axes, but for those along which it is many."""
    return tuple(name for name in names if name != STACK)


def _is_matrix(names: tuple[str, ...]) -> bool:
    return len(own_axes(names)) >= 2


def _split_axis(names: tuple[str, ...]) -> int:
    if not _is_matrix(names):
        return 0
    axes = (axis for axis, name in enumerate(names) if name not in (STACK, "vocab"))
    return next(axes, len(names) - 1) - len(names)


def each_of(names: Params, function: Callable[[tuple[str, ...]], Any]) -> Params:
    """A function of the names of every parameter's axes, in their tree."""
    return {
        key: each_of(value, function) if isinstance(value, dict) else function(value)
        for key, value in names.items()
    }
