"""Critical batch sizes of single curves by `fit_critical`, and what their points do not support."""

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pandas as pd

from bss.laws import CriticalFit, fit_critical
from bss.laws.base import Options
from bss.laws.critical.values import CriticalBatch
from bss.stats import LEVEL
from bss.tables import read_points
from experiments.critical_batch.measuring import BUDGETS, listed, minima
from experiments.shared import critical_table
from experiments.tables import show_warnings

PUBLISHED = Path("results/published/mlperf_rcp.csv")
LINEAR = 0.1


def designs(table: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Return the points that are fitted together, by name."""
    pairs = dict(zip(("7k", "12k", "27k"), BUDGETS, strict=False))
    together = table["size"].map(pairs.get) == table["budget_tokens"]
    return {"together": table.loc[together], "both": table}


def fitted(table: pd.DataFrame, unit: str = "sequences") -> CriticalFit:
    """Return the critical batch sizes and their law."""
    options = Options(2000, LEVEL)
    fit = fit_critical(table, reference="smallest", unit=unit, options=options)
    show_warnings("critical batch size", fit.warnings)
    return fit


def by_size(fit: CriticalFit) -> dict[str, CriticalFit]:
    """Return the curves of a fit by model size, named by their budgets."""
    parts: dict[str, list[CriticalBatch]] = {}
    for at in sorted(fit.fits, key=lambda one: (one.curve.params, one.curve.tokens)):
        named = replace(at.curve, model=f"D = {at.curve.tokens / 1e6:g}M")
        parts.setdefault(f"N = {at.curve.params // 1e3:.0f}k", []).append(replace(at, curve=named))
    return {name: replace(fit, fits=tuple(some)) for name, some in parts.items()}


def curve_table(table: pd.DataFrame, fits: Mapping[str, CriticalFit]) -> pd.DataFrame:
    """Return the critical batch size of every curve with what its points do not support."""
    best = minima(table)
    rows = critical_table(fits)
    return rows.assign(notes=[text for fit in fits.values() for text in notes(best, fit)])


def notes(best: pd.DataFrame, fit: CriticalFit) -> list[str]:
    """Return per curve of a fit what its points do not support; "" for nothing."""
    found = []
    for at in fit.fits:
        curve = at.curve
        here = best.loc[
            (best["params"] == curve.params)
            & (best["seq_len"] == curve.seq_len)
            & (best["budget_tokens"] == curve.tokens)
            & (best["model"] == curve.model)
        ]
        ends = here.loc[(here["seeds"] > 0) & (here["bracketed"] == False), "batch"]  # noqa: E712
        missed = here.loc[here["seeds"] == 0, "batch"]
        texts = []
        if len(ends):
            texts.append(f"the best LR is an end of those tried at batch {listed(ends)}")
        if len(missed):
            texts.append(f"the target was missed at batch {listed(missed)}")
        above = above_linear(at)
        if above > LINEAR or not at.is_linear:
            texts.append(f"the smallest batch {at.reference:g} is {above:.0%} above linear scaling")
        found.append("; ".join(texts))
    return found


def above_linear(at: CriticalBatch) -> float:
    """Return the share of tokens above E_min = b that the smallest batch size needs: B / (b/a).

    Above LINEAR the reference is itself not in the range of linear scaling.
    """
    bend = at.B_crit.value
    return math.nan if bend is None else float(at.curve.batch[0]) / bend


def published_table() -> pd.DataFrame:
    """Return b/a of six published models with 95% intervals, and what they do not support."""
    rows = []
    for name, some in read_points(str(PUBLISHED)).groupby("model", sort=False):
        row = {"model": name, "params": some["params"].iloc[0], "seq_len": some["seq_len"].iloc[0]}
        row |= {"smallest": some["batch"].min(), "largest": some["batch"].max()}
        median = some.groupby("batch")["steps"].transform("median")
        odd = some.loc[(some["steps"] / median > 5) | (some["steps"] / median < 0.2)]
        row["outliers"] = "; ".join(f"batch {r.batch}: {r.steps:g} steps" for r in odd.itertuples())
        fit = fitted(some.drop(odd.index))
        [at] = fit.fits
        row |= {"B_crit": at.B_crit.value, "low": at.B_crit.low, "high": at.B_crit.high}
        row |= {"above_linear": above_linear(at), "notes": "; ".join(fit.warnings)}
        rows.append(row)
    return pd.DataFrame(rows)
