"""Programs that need more memory than there is: one line that names the micro-batch size."""

import contextlib
from collections.abc import Iterator
from typing import Any

import jax
from jax.errors import JaxRuntimeError

from bss.errors import InputError
from bss.training.hardware import GB, machine_memory


def check_memory(program: Any, bucket: int) -> None:
    """Raise InputError if a program needs more memory than this machine has; on CPUs only.

    The system would end the process without a message.
    """
    if jax.default_backend() != "cpu":
        return
    uses = program.memory_analysis()
    held = uses.argument_size_in_bytes + uses.output_size_in_bytes - uses.alias_size_in_bytes
    needed = held + uses.temp_size_in_bytes
    if needed > (present := machine_memory()):
        raise InputError(
            f"execution.buckets: a micro-batch of {bucket} sequences needs {needed / GB:.3g} GB, "
            f"this machine has {present / GB:.3g}; name smaller sizes"
        )


@contextlib.contextmanager
def naming_size(field: str, bucket: int) -> Iterator[None]:
    """Name the micro-batch size if what the block compiles or executes gets no memory.

    Args:
        field: the field of `Execution` that sets the size.
        bucket: the size in sequences.

    Raises:
        InputError: Instead of JAX's error.
    """
    try:
        yield
    except JaxRuntimeError as error:
        if not lacks_memory(error):
            raise
        problem = str(error).partition("\n")[0]
        raise InputError(
            f"execution.{field}: the devices have too little memory for {bucket} sequences at "
            f"once; name a smaller size ({problem})"
        ) from None


def lacks_memory(error: JaxRuntimeError) -> bool:
    """Return True if a program did not get its memory, from the compiler or on the devices."""
    return "RESOURCE_EXHAUSTED" in str(error)
