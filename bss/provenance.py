"""What made a result: the commit and the machine, for the record beside it."""

import os
import subprocess
from functools import cache
from pathlib import Path

import jax


@cache
def commit() -> str:
    """Return the repository's commit, "+" behind it where the tree differs; "" outside a checkout.

    A copy without its history, as in a container, is told by the variable BSS_COMMIT.
    """
    if named := os.environ.get("BSS_COMMIT"):
        return named
    try:
        done = subprocess.run(
            ["git", "describe", "--always", "--abbrev=12", "--dirty=+"],
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip()


def machine() -> str:
    """Return the device's kind and the host's processor, for the record beside a result."""
    return f"{jax.local_devices()[0].device_kind} ({_processor()})"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return "unknown processor"
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else "unknown processor"
