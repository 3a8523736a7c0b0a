"""The processes that train a run together: who is the first, what all of them agree on.

Every process runs the same program on the same values, makes its own rows of each batch and takes
part in every save; the first alone writes the run's directory. What one finds out by itself, a
mistake or a wish to stop, is told to all before any acts on it: none waits for one that has left.
"""

import hashlib
import json
import sys
from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from bss.errors import InputError
from bss.training.optimizers.base import StepSettings
from bss.training.step import Metrics, State, Step

T = TypeVar("T")

_TEXT_BYTES = 8192
_SHOWN = 60


class AgreedError(InputError):
    """A mistake of one process that all know of, and leave for; the first tells it."""


class Wish(IntEnum):
    """What a process wants done after a step; what all do is the greatest wish of any."""

    NOTHING = 0
    SAVE = 1
    STOP = 2


def several() -> bool:
    """Whether this process trains together with others. Alone, it does not start JAX's backend."""
    return jax.distributed.is_initialized() and jax.process_count() > 1


def first() -> bool:
    """Whether this process is the one that writes: the first of several, or alone."""
    return not several() or jax.process_index() == 0


def say(text: str) -> None:
    """Tells the person who waits; of several processes the first does."""
    if first():
        print(text, file=sys.stderr, flush=True)


def gather(text: str) -> list[str]:
    """A text of each process, in their order; at most 8192 bytes of it."""
    if not several():
        return [text]
    written = np.frombuffer(text.encode()[:_TEXT_BYTES], np.uint8)
    padded = np.pad(written, (0, _TEXT_BYTES - len(written)))
    rows = multihost_utils.process_allgather(padded)
    return [bytes(row).rstrip(b"\0").decode(errors="ignore") for row in rows]


def together(function: Callable[[], T]) -> T:
    """What a function returns, once it has returned in every process.

    Raises:
        AgreedError: in all of them, where it raised InputError or OSError in any.
    """
    if not several():
        return function()
    result, mistake = None, ""
    try:
        result = function()
    except (InputError, OSError) as error:
        mistake = str(error)
    mistakes = gather(mistake)
    for process, told in enumerate(mistakes):
        if told:
            raise AgreedError(told if len({*mistakes}) == 1 else f"process {process}: {told}")
    return result  # type: ignore[return-value]


def in_turn(function: Callable[[], T]) -> T:
    """As `together`, the first process before the others, which find on a disk what it wrote."""
    result = together(lambda: function() if first() else None)
    return together(lambda: function() if result is None else result)


def check_same(facts: Mapping[str, Any]) -> None:
    """Refuses processes of which one differs from the first in a fact; they are plain values."""
    everyones = [json.loads(told) for told in gather(json.dumps(_shown(facts)))]
    for name, value in everyones[0].items():
        for process, told in enumerate(everyones):
            if told.get(name) != value:
                raise AgreedError(
                    f"{name} is {told.get(name)} in process {process}, {value} in process 0; start "
                    "all processes of a run by the same command, at the same commit"
                )


def _shown(facts: Mapping[str, Any]) -> dict[str, str]:
    """Facts as short texts, of long ones their hash."""
    texts = {name: json.dumps(value, sort_keys=True) for name, value in facts.items()}
    return {
        name: text if len(text) <= _SHOWN else hashlib.sha256(text.encode()).hexdigest()[:12]
        for name, text in texts.items()
    }


def agreeing(step: Step) -> Callable[..., tuple[State, Metrics]]:
    """A step that is also given the wish of each device's process, [D], and tells the greatest."""

    def agreed(
        state: State,
        sequences_NxbxT1: jax.Array,
        count: jax.Array,
        settings: StepSettings,
        wishes_D: jax.Array,
    ) -> tuple[State, Metrics]:
        state, metrics = step(state, sequences_NxbxT1, count, settings)
        return state, metrics._replace(wish=jnp.max(wishes_D))

    return agreed


def wish_shapes(mesh: Mesh) -> tuple[jax.ShapeDtypeStruct, ...]:
    """What a step of several processes is given besides: the wishes, [D]; of one, nothing."""
    if not several():
        return ()
    sharding = NamedSharding(mesh, PartitionSpec(mesh.axis_names))
    return (jax.ShapeDtypeStruct((mesh.size,), jnp.int32, sharding=sharding),)


def wished(wish: Wish, mesh: Mesh) -> tuple[jax.Array, ...]:
    """The values of `wish_shapes`, of which a process knows its own part."""

    def own(index: Any) -> np.ndarray:
        return np.full(mesh.size, wish, np.int32)[index]

    shapes = wish_shapes(mesh)
    return tuple(jax.make_array_from_callback(x.shape, x.sharding, own) for x in shapes)
