"""The array module of values: NumPy, or jax.numpy for arrays of JAX, without importing JAX."""

import sys
from typing import Any

import numpy as np


def array_module(*values: Any) -> Any:
    """Return jax.numpy if a value is an array of JAX, traced or not, else NumPy.

    NumPy compiles nothing. JAX stays unloaded in commands that need none.

    Examples:
        >>> array_module(1.0, np.ones(2)).__name__
        'numpy'
        >>> import jax.numpy as jnp
        >>> array_module(1.0, jnp.ones(2)).__name__
        'jax.numpy'
    """
    jax = sys.modules.get("jax")
    on_jax = jax is not None and any(isinstance(value, jax.Array) for value in values)
    return jax.numpy if on_jax else np
