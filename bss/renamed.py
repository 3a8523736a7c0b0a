"""Names of earlier development versions, with the names that replace them.

An old command, option, Python name, config key or law is refused in one line that gives its new
name. Old columns of our own tables are read as the new ones, with a message
(`bss.tables.renaming`).
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
COLUMNS = {"resolution": "eval_spacing", "stop": "token_budget"}
PHASE_COLUMNS = ("kind", "ending", "phase")
"""Columns that became lr_phase (constant, decayed, cosine) and weights (last, averaged)."""
PHASES = {
    "stable": ("constant", "last"),
    "constant": ("constant", "last"),
    "averaged": ("constant", "averaged"),
    "annealed": ("decayed", "last"),
    "decay": ("decayed", "last"),
    "wsd": ("decayed", "last"),
    "cosine": ("cosine", "last"),
}
"""By the value of such a column, lr_phase and weights."""
LAWS = {"lopsided valley": "asymmetric"}
FIELDS = {"fleet": "vmap_runs", "keep": "remat_policy", "steps": "steps_per_dispatch"}


def new_columns(name: str) -> tuple[str, ...]:
    """Return the columns that replace a column; itself if it was not renamed.

    Examples:
        >>> new_columns("ending"), new_columns("stop"), new_columns("batch")
        (('lr_phase', 'weights'), ('token_budget',), ('batch',))
    """
    return ("lr_phase", "weights") if name in PHASE_COLUMNS else (COLUMNS.get(name, name),)


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
