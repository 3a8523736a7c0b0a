"""The rule of Adam's beta2 under which batch sizes were compared.

B_opt belongs to this rule: at one value per step, a small batch averages second moments over fewer
tokens (docs/recipe.md).
"""

import math

import numpy as np
import pandas as pd

from bss.units import rounded_tokens

UNKNOWN = "unknown"
SEVERAL = "several rules"
ROUNDING = 0.02
"""Relative difference of half-lives that count as one: logs round beta2 (derived here)."""
COLUMNS = {
    "beta2": ("beta2", "optimizer.beta2", "optimizer.b2", "adam_beta2"),
    "beta2_half_life": ("beta2_half_life", "optimizer.beta2_half_life"),
}
"""Names of the two columns: as here, as a field of a run, and as other trainers have them."""


def with_second_moment(runs: pd.DataFrame) -> pd.DataFrame:
    """Return a run table with the columns beta2 and beta2_half_life if it has any of COLUMNS."""
    for name, known in COLUMNS.items():
        theirs = next((other for other in known if other in runs), None)
        if theirs is not None and name not in runs:
            runs = runs.assign(**{name: runs[theirs]})
    return runs


def beta2_rule(table: pd.DataFrame) -> str:
    """Return the rule for beta2 of runs or points in words.

    Args:
        table: batch (sequences) and seq_len, and beta2 (per step) or beta2_half_life (tokens). Text
            such as "unknown", and empty cells, are values that are not known.

    Returns:
        "0.95 per step", "half-life 20K tokens", "several rules" or "unknown". Values per step that
        differ between batch sizes are one half-life if they average over equal numbers of tokens.

    Examples:
        >>> table = pd.DataFrame({"batch": [1, 4], "seq_len": 64, "beta2": [0.99, 0.99]})
        >>> beta2_rule(table)
        '0.99 per step'
        >>> beta2_rule(table.assign(beta2=[0.99, 0.99**4]))
        'half-life 4410 tokens'
    """
    per_step = _numbers(table, "beta2")
    half_life = _numbers(table, "beta2_half_life")
    by_tokens = half_life > 0
    known = by_tokens | np.isfinite(per_step)
    if not known.all():
        return SEVERAL if known.any() else UNKNOWN
    if len(np.unique(per_step[~by_tokens])) == 1 and not by_tokens.any():
        return f"{per_step[0]:g} per step"
    tokens = (table["batch"] * table["seq_len"]).to_numpy(float)
    with np.errstate(divide="ignore"):
        implied = -math.log(2) * tokens / np.log(per_step)
    lives = np.where(by_tokens, half_life, implied)
    usual = float(np.median(lives))
    if not np.isfinite(usual) or (np.abs(lives / usual - 1) > ROUNDING).any():
        return SEVERAL
    return f"half-life {rounded_tokens(usual)} tokens"


def _numbers(table: pd.DataFrame, name: str) -> np.ndarray:
    """Return a column as numbers; NaN for cells that are not numbers, or without the column."""
    column = table[name] if name in table else pd.Series(np.nan, table.index)
    return pd.Series(pd.to_numeric(column, errors="coerce"), dtype=float).to_numpy()
