"""bss: batch-size scaling laws, from training sweeps to batch schedules."""


def version() -> str:
    """Of the installed package; what looks it up takes longer to load than most that asks."""
    from importlib.metadata import version as of

    return of("bss")
