"""bss: batch-size scaling laws, from training sweeps to batch schedules."""

DISTRIBUTION = "batch-size-scaling"
"""What package indexes know it as; `bss` is somebody else's there."""


def version() -> str:
    """Of the installed package; what looks it up takes longer to load than most that asks."""
    from importlib.metadata import version as of

    return of(DISTRIBUTION)


def install(extra: str) -> str:
    """The command that adds an extra to the installation there is, a wheel's or a checkout's."""
    return f"pip install '{DISTRIBUTION}[{extra}]'"
