"""Whether what is read is what was written: hashes in JSON files and of states, and damaged files.

A state's hash (derived here) is made by its devices: each 32-bit word is mixed with its place by
the finalizer of MurmurHash3, which is one to one, and the words of an array are added up modulo
2^32, twice. Sums of integers do not depend on how the arrays are split, so that it is the same
under any number of devices and processes; one changed word always changes it, several all but once
in 2^64.
"""

import hashlib
import json
import math
import time
import warnings
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from bss.errors import InputError

_LENGTH = 16


def text_hash(text: str | bytes) -> str:
    """16 hexadecimal digits of a text's SHA-256."""
    data = text.encode() if isinstance(text, str) else text
    return hashlib.sha256(data).hexdigest()[:_LENGTH]


def file_hash(file: Path) -> str:
    """The same of a file's content; empty where there is none."""
    return text_hash(file.read_bytes()) if file.exists() else ""


def sealed(entry: dict[str, Any]) -> dict[str, Any]:
    """A JSON object with its hash, as `hash`."""
    return entry | {"hash": text_hash(json.dumps(entry, sort_keys=True))}


def unsealed(entry: dict[str, Any], name: str, hint: str) -> dict[str, Any]:
    """The same without its hash; one from before there were hashes, as it is.

    Raises:
        InputError: where it is not what was written; by its name, and what to do then.
    """
    rest = {key: value for key, value in entry.items() if key != "hash"}
    if entry.get("hash") not in (None, sealed(rest)["hash"]):
        raise InputError(f"{name}: is not what was written, its hash differs; {hint}")
    return rest


def put_aside(path: Path, damaged: Path) -> None:
    """Moves a file or folder to a folder of damaged ones, under a name of its own."""
    damaged.mkdir(exist_ok=True)
    path.rename(damaged / f"{path.name}-{time.time_ns()}")


def tell(damage: str) -> None:
    """Warns of damage that was found, in one line."""
    warnings.warn(damage, RuntimeWarning, stacklevel=3)


def state_hash(state: Any, record: Any) -> str:
    """The hash of a tree of arrays, wherever they lie, and of the plain values beside it.

    All processes that hold a part of the arrays call it together.
    """
    named = jax.tree.leaves_with_path(state)
    # One after the other: a CPU's devices may wait for each other in different programs.
    sums = [jax.device_get(_sums(leaf)) for _, leaf in named]
    told = [
        [jax.tree_util.keystr(path), str(leaf.dtype), leaf.shape, *map(int, pair)]
        for (path, leaf), pair in zip(named, sums, strict=True)
    ]
    return text_hash(json.dumps([told, record], sort_keys=True))


@jax.jit
def _sums(leaf: jax.Array) -> tuple[jax.Array, jax.Array]:
    wide = jnp.dtype(f"uint{8 * min(leaf.dtype.itemsize, 4)}")
    leaf = leaf.astype(wide) if leaf.dtype == bool else leaf
    words = jax.lax.bitcast_convert_type(leaf, wide).astype(jnp.uint32)
    place, shape = jnp.zeros(words.shape, jnp.uint32), words.shape
    for axis in range(len(shape)):
        stride = jnp.uint32(math.prod(shape[axis + 1 :]) % 2**32)
        place += jax.lax.broadcasted_iota(jnp.uint32, shape, axis) * stride
    mixed = _mix(words ^ _mix(place))
    pair, zero = (mixed, _mix(mixed + jnp.uint32(0x9E3779B9))), jnp.uint32(0)
    # In one reduction: two, or jnp.sum, make XLA's CPU programs twelve times as slow.
    return jax.lax.reduce(pair, (zero, zero), _add, tuple(range(len(shape))))


def _add(x: tuple[jax.Array, ...], y: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
    return tuple(map(jnp.add, x, y))


def _mix(x: jax.Array) -> jax.Array:
    x = (x ^ (x >> 16)) * jnp.uint32(0x85EBCA6B)
    x = (x ^ (x >> 13)) * jnp.uint32(0xC2B2AE35)
    return x ^ (x >> 16)
