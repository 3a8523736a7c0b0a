"""`jax.jit` for laws and theory, with an optimization of XLA turned off that gives wrong numbers.

jaxlib 0.10.2 computes some vmapped sums of squares of products wrongly on CPUs (jax issue 39103).
With rows [n, 3] and f(row) = Σ (eye(3) @ row)², the last row is wrong from 32,769 rows in float32
and from 16,385 in float64. jaxlib 0.12.0.1 is right. `tests/test_jitting.py` fails when no locked
jaxlib has the fault: then this file goes.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax

RIGHT = {"xla_cpu_experimental_ynn_fusion_type": ""}


def jit(function: Callable[..., Any], **how: Any) -> Callable[..., Any]:
    """Return a function compiled without the faulty optimization, if the compiler has it.

    The function that is returned cannot be called inside of another that is traced, because JAX
    takes options of the compiler for whole programs only.

    Args:
        function: To compile.
        **how: As `jax.jit` takes it.
    """

    plain = jax.jit(function, **how)
    right = jax.jit(function, compiler_options=RIGHT, **how)

    @functools.wraps(function)
    def call(*arguments: Any, **named: Any) -> Any:
        program = right if knows_option(jax.default_backend()) else plain
        return program(*arguments, **named)

    return call


@functools.cache
def knows_option(backend: str) -> bool:
    """Whether the compiler of the default backend has the optimization; compiles a constant."""
    try:
        jax.jit(lambda: 0.0, compiler_options=RIGHT).lower().compile()
    except jax.errors.JaxRuntimeError:
        return False
    return True
