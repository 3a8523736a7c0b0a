"""Names of earlier development versions, with the names that replace them.

An old command, option, Python name or config key is refused in one line that gives its new name.
"""

COMMANDS = {"fit table": "fit loss"}
OPTIONS = {"--at-rate": "--peak-lr", "--rate": "--lr-schedule"}
PYTHON = {
    "TableFit": "LossFit",
    "fit_table": "fit_loss",
    "Rate": "LRSchedule",
    "price": "estimate_cost",
    "product": "sweep_product",
    "zipped": "sweep_zip",
}
FIELDS = {"fleet": "vmap_runs", "keep": "remat_policy", "steps": "steps_per_dispatch"}


def moved(given: list[str]) -> str:
    """Return the line that refuses arguments of `bss` with an old name; "" if they have none.

    Examples:
        >>> moved(["points", "runs", "--at-rate=2e-3"])
        '--at-rate: is --peak-lr now'
    """
    command = " ".join(given[:2])
    if command in COMMANDS:
        return f"{command}: is `bss {COMMANDS[command]}` now"
    for option in (text.partition("=")[0] for text in given):
        if option in OPTIONS:
            return f"{option}: is {OPTIONS[option]} now"
    return ""
