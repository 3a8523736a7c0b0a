"""The processes that train a run together: who is the first, what all of them agree on.

Every process runs the same program on the same values, makes its own rows of each batch and takes
part in every save; the first alone writes the run's directory. What one finds out by itself, a
mistake or a wish to stop, is told to all before any acts on it: none waits for one that has left.
"""

import hashlib
import json
import sys
import time
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

_TEXT_BYTES = 16384
_SHOWN = 60
SEEN_SECONDS = 90
"""For how long a file system may keep from one process what another has written; NFS: 30 to 60."""


class AgreedError(InputError):
    """A mistake of one process that all know of, and leave for; the first tells it."""


class Wish(IntEnum):
    """What a process wants done after a step; what all do is the greatest wish of any."""

    NOTHING = 0
    SAVE = 1
    STOP = 2
    FAIL = 3


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
    """A text of each process, in their order; at most 16384 bytes of it."""
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
        mistake = mistake_of(error)
    mistakes = gather(mistake)
    for process, told in enumerate(mistakes):
        if told:
            raise AgreedError(told if len({*mistakes}) == 1 else f"process {process}: {told}")
    return result  # type: ignore[return-value]


def in_turn(function: Callable[[], T]) -> T:
    """As `together`, the first process before the others, which find on a disk what it wrote."""
    result = together(lambda: function() if first() else None)
    return together(lambda: function() if result is None else result)


def mistake_of(error: Exception) -> str:
    """A mistake, or what the system refused, in a line."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return str(error)


def check_same(facts: Mapping[str, Any]) -> None:
    """Refuses processes of which one differs from the first in a fact; they are plain values."""
    if difference := _difference(facts):
        hint = "start all processes of a run by the same command, at the same commit"
        raise AgreedError(f"{difference}; {hint}")


def check_seen(look: Callable[[], Mapping[str, Any]], seconds: float = SEEN_SECONDS) -> None:
    """As `check_same` of what each sees on a disk, once all have had time to see the same."""
    difference = ""
    for _ in range(round(seconds)):  # all look as often, whatever their clocks say
        if not (difference := _difference(look())):
            return
        time.sleep(1)
    hint = "give a runs directory on a file system that all processes share"
    raise AgreedError(f"{difference}; {hint}")


def _difference(facts: Mapping[str, Any]) -> str:
    """The first fact in which a process differs from the first; "" where none does."""
    everyones = [json.loads(told) for told in gather(json.dumps(_shown(facts)))]
    for name in {name: 0 for told in everyones for name in told}:
        for process, told in enumerate(everyones):
            if told.get(name) != everyones[0].get(name):
                own, firsts = (each.get(name, "missing") for each in (told, everyones[0]))
                return f"{name} is {own} in process {process} and {firsts} in process 0"
    return ""


def _shown(facts: Mapping[str, Any]) -> dict[str, str]:
    """Facts as short texts; long ones are cut, and end with their hash."""
    shown = {}
    for name, value in facts.items():
        text = value if isinstance(value, str) else json.dumps(value, sort_keys=True)
        if len(text) > _SHOWN:
            text = f"{text[: _SHOWN - 16]}... {hashlib.sha256(text.encode()).hexdigest()[:12]}"
        shown[name] = text
    return shown


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
