"""XLA's flags that the installed jaxlib knows: each release has others."""

import os
import subprocess
import sys

START_XLA = "from jaxlib import xla_client; xla_client.make_cpu_client()"


def flags_of_session(*flags: str) -> str:
    """Return the known ones as XLA_FLAGS; a worker inherits those of the first process."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        return os.environ["XLA_FLAGS"]
    return " ".join(known_flags(*flags))


def known_flags(*flags: str) -> tuple[str, ...]:
    """Return the flags that XLA knows; it ends a process that gives it another."""
    if _start_with(*flags):
        return flags
    return tuple(flag for flag in flags if _start_with(flag))


def _start_with(*flags: str) -> bool:
    environment = os.environ | {"XLA_FLAGS": " ".join(flags)}
    command = [sys.executable, "-c", START_XLA]
    return subprocess.run(command, env=environment, capture_output=True).returncode == 0
