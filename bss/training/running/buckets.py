"""One compiled program per bucket shape, compiled ahead on a background thread.

A batch change is then a change of the traced count or of the program called: nothing compiles.
"""

import threading
from collections import Counter
from collections.abc import Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import jax
import jax.monitoring
import jax.numpy as jnp
from jax.sharding import Mesh

from bss.errors import InputError
from bss.training.config import RunConfig
from bss.training.devices.mesh import replicated, sequence_sharding, shardings_of
from bss.training.devices.processes import agreeing, wish_shapes
from bss.training.optimizers.base import StepSettings
from bss.training.step import Metrics, State, Step, many_steps

_COMPILE_EVENT = "/jax/core/compile/backend_compile_duration"
_compilations: Counter[int] = Counter()


def _count(event: str, duration_secs: float, **_: Any) -> None:
    if event == _COMPILE_EVENT:
        _compilations[threading.get_ident()] += 1


jax.monitoring.register_event_duration_secs_listener(_count)


def compilations() -> int:
    """Programs that the calling thread has compiled (loads from a compilation cache included)."""
    return _compilations[threading.get_ident()]


def check_split(buckets: Iterable[int], mesh: Mesh) -> None:
    """Refuses buckets that cannot be split over the devices of the mesh."""
    for bucket in buckets:
        if bucket % mesh.size:
            raise InputError(
                f"bucket {bucket} cannot be split over {mesh.size} devices; "
                f"use buckets that are multiples of {mesh.size}"
            )


def _repeated(step: Step, most: int) -> Any:
    """Steps of one batch: (state, their buckets, buckets a step, settings [K], steps) -> as one."""

    def take(state: State, sequences_NxbxT1: Any, count: Any, settings_K: Any, steps: Any):
        capacity = len(sequences_NxbxT1) // most

        def one(k: jax.Array, state: State) -> tuple[State, Metrics]:
            own = jax.lax.dynamic_slice_in_dim(sequences_NxbxT1, k * count, capacity)
            return step(state, own, count, jax.tree.map(lambda x: x[k], settings_K))

        return many_steps(one, most, state, steps)

    return take


class Programs:
    """The programs of a run, by bucket.

    Compilation starts at once, in the order given, on a thread of its own; `get` waits for the
    one it needs. Shardings and the mesh are passed explicitly: a thread sees no ambient mesh.
    """

    def __init__(
        self,
        step: Step,
        abstract_state: Any,
        capacity: Mapping[int, int],
        run: RunConfig,
        mesh: Mesh,
        options: dict[str, Any] | None = None,
        most: int = 1,
    ):
        """Starts compiling a step, from `make_step`, for the shapes and dtypes of a state.

        The state's shapes come with shardings. `capacity` is by bucket the most of it that one step
        accumulates; `options` are the compiler's. Where a program takes several steps, `most` at
        once, their buckets lie behind one another, and how many steps it takes comes last.

        Raises:
            InputError: where a bucket cannot be split over the devices of the mesh.
        """
        check_split(capacity, mesh)
        whole, split = replicated(mesh), sequence_sharding(mesh)
        wishes = wish_shapes(mesh)
        step = agreeing(step) if wishes else step
        state = shardings_of(abstract_state)
        shardings = (state, split, whole, whole, *(x.sharding for x in wishes))
        outputs = (state, whole)
        if most > 1:
            step, shardings = _repeated(step, most), (*shardings, whole)
        jitted = jax.jit(step, in_shardings=shardings, out_shardings=outputs, donate_argnums=0)
        each = (most,) if most > 1 else ()
        scalar = jax.ShapeDtypeStruct(each, jnp.float32)
        shares = jax.ShapeDtypeStruct((*each, len(run.averages)), jnp.float32)

        def build(bucket: int, capacity: int):
            shape = most * capacity, bucket, run.data.seq_len + 1
            sequences = jax.ShapeDtypeStruct(shape, jnp.int32)
            count = jax.ShapeDtypeStruct((), jnp.int32)
            settings = StepSettings(scalar, scalar, scalar, scalar, shares)
            arguments = abstract_state, sequences, count, settings, *wishes
            return jitted.lower(*arguments, *[count][: most > 1]).compile(options)

        pool = ThreadPoolExecutor(1, "compile")
        self._futures: dict[int, Future] = {
            bucket: pool.submit(build, bucket, most) for bucket, most in capacity.items()
        }
        pool.shutdown(wait=False)

    def __len__(self) -> int:
        return len(self._futures)

    def wait(self) -> None:
        """Returns when all are compiled."""
        for bucket in self._futures:
            self.get(bucket)

    def get(self, bucket: int) -> Any:
        """The compiled program of a bucket."""
        return self._futures[bucket].result()
