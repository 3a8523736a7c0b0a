"""Provenance of a result: the commit and the machine."""

import os
import subprocess
from functools import cache
from pathlib import Path

import jax


@cache
def commit() -> str:
    """Return the repository's commit, followed by "+" if the tree differs; "" outside a checkout.

    For a copy without history, e.g. in a container, set the variable BSS_COMMIT.
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
    """Return the device's kind and the host's processor."""
    return f"{jax.local_devices()[0].device_kind} ({_processor()})"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return "unknown processor"
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else "unknown processor"
