"""Compiled programs, which the runs that a process trains one after another share on a CPU.

To trace and compile the programs of a small model takes seconds, often longer than its training. A
program is kept for later runs with the same compiled-in values and the same shapes. Runs that
differ only in seeds, schedules and dynamic settings compile nothing again. On accelerators, whose
memory programs take, none is kept.
"""

import json
from collections.abc import Hashable
from typing import Any

import jax

from bss.training.optimizers import OPTIMIZERS
from bss.training.run_config import RunConfig
from bss.values import to_dict

PROGRAMS: dict[Hashable, Any] = {}
"""The programs that were used last, the newest at the end."""
_KEPT = 32


def static_key(*values: Any) -> Hashable:
    """Return a key of dataclasses whose fields are compiled into a program."""
    return tuple((type(value), json.dumps(to_dict(value))) for value in values)


def step_key(run: RunConfig) -> Hashable:
    """Return a key of what is compiled into a run's step, in addition to shapes and kernels."""
    optimizer = run.optimizer
    if type(optimizer) in OPTIMIZERS.values():  # others might read a dynamic field from themselves
        optimizer = optimizer.without(optimizer.dynamic_fields)
    own = static_key(run.model, optimizer, run.noise_scale)
    return own, run.spike_policy, run.spike_scatters


def compile_cached(
    key: Hashable, jitted: Any, *shapes: Any, options: dict[str, Any] | None = None
) -> Any:
    """Compile a function for shapes, or return the program that was compiled for them before.

    Args:
        key: everything that the function depends on, except its arguments.
        jitted: the function, from `jax.jit`.
        shapes: shapes and shardings of its arguments.
        options: compiler options.
    """
    leaves, tree = jax.tree.flatten(shapes)
    key = key, tree, *leaves, *(options or {}).items()
    program = PROGRAMS.pop(key, None) or jitted.lower(*shapes).compile(options)
    if jax.default_backend() == "cpu":
        PROGRAMS[key] = program
    for old in [*PROGRAMS][:-_KEPT]:
        PROGRAMS.pop(old, None)
    return program
