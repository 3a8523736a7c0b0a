"""Loss curves that a reader can explore: hover and legend, by the plotting code of the calculator.

The section appears by its script, so that a page without JavaScript has the figures alone.
"""

import json
import re
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pandas as pd
from markupsafe import Markup

from bss.points.curve import loss_column

PLOTTING = Path(__file__).parent / "plotting"
SHARED = (PLOTTING / "units.js", PLOTTING / "plots.js")
MOST_POINTS = 500  # of a run, to keep the page small


def interactive(runs: pd.DataFrame) -> dict[str, Markup]:
    """Return what the page needs to draw the loss curves of runs: numbers, style and scripts.

    Args:
        runs: a run table as `bss.tables.check_runs` returns it.
    """
    parts = {
        "numbers": json.dumps(_curves(runs), separators=(",", ":")).replace("<", "\\u003c"),
        "style": library("uPlot.min.css"),
        "library": library("uPlot.iife.min.js"),
        "script": joined(SHARED),
    }
    return {name: Markup(part) for name, part in parts.items()}


def library(name: str) -> str:
    """Return a file of the plotting library."""
    return (PLOTTING / name).read_text(encoding="utf-8")


def joined(modules: Iterable[Path]) -> str:
    """Return JavaScript modules as one without imports, which a page read from a disk can run."""
    texts = (path.read_text(encoding="utf-8") for path in modules)
    whole = (re.sub(r'^import [^;]*? from "[^"]+";\n', "", text, flags=re.M) for text in texts)
    return "\n".join(re.sub(r"^export ", "", text, flags=re.M) for text in whole)


def _curves(runs: pd.DataFrame) -> list[dict[str, object]]:
    """Return name, batch, tokens and losses of each run, of at most `MOST_POINTS` rows."""
    losses = runs[loss_column(runs)].to_numpy(float)
    tokens = runs["tokens"].to_numpy()
    batches = runs["batch"].to_numpy()
    curves: list[dict[str, object]] = []
    for name, rows in runs.groupby("run", sort=False).indices.items():
        known = rows[np.isfinite(losses[rows])]
        if len(known):
            places = np.unique(np.linspace(0, len(known) - 1, MOST_POINTS).astype(int))
            shown = known[places]
            numbers = {"tokens": tokens[shown].tolist(), "losses": losses[shown].tolist()}
            curves.append({"name": str(name), "batch": int(batches[rows[0]]), **numbers})
    return curves
