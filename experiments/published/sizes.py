"""Exponents of batch sizes over tokens and model size, ours of 7k parameters to public ones of 8B.

All come from committed tables: of critical_batch, ladder, es_wsd and of `python -m
experiments.published`. A source has its own quantity, loss and trainer, so the values are shown
beside each other and not pooled.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.optima import PUBLISHED
from bss.plots import style
from bss.stats import mean_interval
from experiments.published.analysis import DERIVED

RESULTS = PUBLISHED.parent
TOKENS = "tokens D"
PARAMS = "parameters N"
BOTH = "N and D together"
VARIABLES = (TOKENS, PARAMS, BOTH)
GRIDS = {"7k–49k": "exponents.csv", "7k–197k": "exponents_widths.csv"}
"""Tables of critical_batch by the sizes that they have; a table that is missing was not made."""


def critical_exponents() -> pd.DataFrame:
    """Return the exponents of the critical batch size b/a.

    Returns:
        Columns name, variable (one of VARIABLES), value, low, high (95%) and public.
    """
    rows = []
    names = {"D": TOKENS, "N": PARAMS, "N + D": BOTH}
    for sizes, file in GRIDS.items():
        path = RESULTS / "critical_batch" / file
        if path.exists():
            table = pd.read_csv(path)
            own = table.loc[(table["quantity"] == "b/a") & table["without"].isna()]
            rows += _rows(sizes, own.assign(variable=own["exponent"].map(names)), "value")
    ladder = pd.read_csv(RESULTS / "ladder/laws.csv").rename(columns={"variable": "of"})
    variable = ladder["of"].map({"tokens": TOKENS, "params": PARAMS})
    rows += _rows("99k–0.79M", ladder.assign(variable=variable), "exponent")
    found = pd.read_csv(PUBLISHED / "findings.csv").set_index("key")
    for key, name, of in (
        ("public_together", "85M–1.2B, Zhang et al.", BOTH),
        ("public_data", "8B, MLPerf", TOKENS),
    ):
        rows += _rows(name, found.loc[[key]].assign(variable=of), "effect", public=True)
    return pd.DataFrame(rows)


def optimum_exponents() -> pd.DataFrame:
    """Return the exponents of the best batch size: ours over falling losses, public over budgets.

    Ours are slopes of log B_opt in the log of the fewest tokens to the loss, per seed at one LR.

    Returns:
        As `critical_exponents`.
    """
    optima = pd.read_csv(RESULTS / "es_wsd/sizes/optima.csv")
    points = pd.read_csv(RESULTS / "es_wsd/sizes/points.csv")
    rows = []
    for size, own in optima.loc[optima["seed"] >= 0].groupby("size", sort=False):
        spent = points.loc[(points["size"] == size) & points["reached"]]
        mean, low, high = mean_interval(seed_slopes(own, spent))
        row = {"name": size, "variable": TOKENS, "value": mean, "low": low, "high": high}
        rows.append(row | {"public": False})
    public = pd.read_csv(DERIVED / "exponents.csv")
    names = {"step-law table": "60M–1.1B, Step Law", "openeurollm": "48M–1.7B, OpenEuroLLM"}
    variable = public["exponent"].map({"D": TOKENS, "N": PARAMS})
    for source, name in names.items():
        own = public.assign(variable=variable).loc[public["source"] == source]
        rows += _rows(name, own, "value", public=True)
    return pd.DataFrame(rows)


def seed_slopes(optima: pd.DataFrame, points: pd.DataFrame) -> np.ndarray:
    """Return the slope of log B_opt in the log of the fewest tokens to a loss, [seed].

    Args:
        optima: Columns seed, excess and B_opt; a B_opt that is only a bound is NaN and left out.
        points: Columns seed, excess and tokens_to_target, of runs that reach the loss.
    """
    fewest = points.groupby(["seed", "excess"])["tokens_to_target"].min().rename("fewest")
    known = optima.join(fewest, on=["seed", "excess"]).dropna(subset=["B_opt", "fewest"])
    slopes = [
        np.polyfit(np.log(own["fewest"]), np.log(own["B_opt"]), 1)[0]
        for _, own in known.groupby("seed")
        if len(own) > 2
    ]
    return np.array(slopes)


def _rows(name: str, table: pd.DataFrame, value: str, *, public: bool = False) -> list[dict]:
    rows = []
    for variable, own in table.dropna(subset="variable").groupby("variable"):
        one = own.iloc[0]
        row = {"name": name, "variable": variable, "value": one[value]}
        rows.append(row | {"low": one["low"], "high": one["high"], "public": public})
    return rows


def sizes_figure() -> Figure:
    """Draw the exponents of both batch sizes by source, smallest models first."""
    figure, [[left, right]] = style.new_figure(3.6, columns=2)
    looks = style.named_styles(VARIABLES)
    tables = (critical_exponents(), optimum_exponents())
    titles = ("critical batch size b/a", "best batch size B_opt")
    for ax, table, title in zip((left, right), tables, titles, strict=True):
        _exponents_of(ax, table, looks)
        ax.axvline(0, color=style.INK, lw=0.8, zorder=1)
        style.panel_title(ax, title, xlabel="exponent")
    entries = style.handles(looks, ls="none", ms=5.5)
    entries.append(style.handle("ours", ls="none", marker="o", color=style.INK))
    entries.append(style.hollow("public"))
    entries.append(style.handle("bars: 95% interval", ls="none", marker="_", color=style.INK))
    return style.side_legend(figure, entries, "exponent of")


def _exponents_of(ax: Axes, table: pd.DataFrame, looks: Mapping[str, style.Look]) -> None:
    """Draw one row per source; variables are a little apart."""
    names = [*dict.fromkeys(table["name"])]
    for shift, (variable, look) in zip((-0.2, 0.0, 0.2), looks.items(), strict=True):
        for _, row in table.loc[table["variable"] == variable].iterrows():
            face = {"mfc": "white"} if row["public"] else {}
            bar = [[row["value"] - row["low"]], [row["high"] - row["value"]]]
            place = names.index(row["name"]) + shift
            mark: dict[str, Any] = {**look, **face, "ls": "none"}
            ax.errorbar([row["value"]], [place], xerr=bar, ms=5.5, capsize=2.5, **mark)
    ax.set_yticks(range(len(names)), names)
    ax.set_ylim(len(names) - 0.5, -0.5)
