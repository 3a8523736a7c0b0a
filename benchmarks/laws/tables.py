"""Fits of planted tables: what their intervals hold, how wide they are, what is told and named."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from benchmarks.laws.planted_tables import A_KIND, KINDS, ONE_CELL, Planted, planted
from bss.laws import TableFit, check_losses, fit_table
from bss.laws.fitting.estimate import Options

RESAMPLES = 10  # of the losses' intervals, on which no best batch hangs
CLEAN = ("plain", "missing", "two by two", "one cell")
MARKS = {
    "numbers": {
        "plain": 0.95, "low": 0.90, "high": 0.90, "missing": 0.90, "one cell": 0.90,
        "flat": 0.03, "edge": 0.03,
    },
    "covered": 0.84, "all covered": (0.86, 0.96), "width": 1.6, "two by two": 5.0,
    "named": 0.95, "named in clean": 0.05,
}  # fmt: skip


def measured(
    seeds: Iterable[int], kinds: Sequence[str] = KINDS, tables: int | None = None
) -> dict[str, Any]:
    """Per kind of table and of all, over these seeds; `tables` of each, or as many as are usual.

    Returns:
        per kind `cells`, the share with a number ("numbers"), of these the share whose interval
        holds the planted best batch ("covered") and the median width high/low ("width"); the share
        of planted outliers that are named, and of clean tables in which a row is.
    """
    rows: dict[str, list[dict[str, Any]]] = {kind: [] for kind in kinds}
    for seed in seeds:
        for kind in kinds:
            count = tables or (ONE_CELL if kind == "one cell" else A_KIND)
            rows[kind] += [_of_table(planted(kind, seed, i)) for i in range(count)]
    told = {kind: _summed(found) for kind, found in rows.items()}
    every = [inside for found in rows.values() for one in found for inside in one["inside"]]
    off = [one["named"] for found in rows.values() for one in found if one["named"] is not None]
    clean = [one["others"] > 0 for kind in kinds if kind in CLEAN for one in rows[kind]]
    told["all"] = {
        "covered": _mean(every),
        "named": _mean(off),
        "named in clean": _mean(clean),
    }
    return told


def _of_table(table: Planted) -> dict[str, Any]:
    fit = fit_table(check_losses(table.table), options=Options(RESAMPLES))
    inside, widths, errors = [], [], []
    for at in fit.optima:
        if at.batch.value is not None:
            best, low, high = table.best[at.params, at.tokens], at.batch.low, at.batch.high
            assert low is not None and high is not None
            inside.append(low <= best <= high)
            widths.append(high / low)
            errors.append(float(np.log(at.batch.value / best)))
    named = _named(fit)
    return {
        "cells": len(fit.optima),
        "inside": inside,
        "widths": widths,
        "errors": errors,
        "named": all(one in named for one in table.outliers) if table.outliers else None,
        "others": len(named - set(table.outliers)),
    }


def _named(fit: TableFit) -> set[tuple[float, float, int]]:
    unit = fit.seq_len or 1.0
    return {(one.params, one.tokens, round(one.batch_tokens / unit)) for one in fit.outliers}


def _summed(found: list[dict[str, Any]]) -> dict[str, Any]:
    def flat(key: str) -> list[float]:
        return [value for one in found for value in one[key]]

    inside = flat("inside")
    cells = sum(one["cells"] for one in found)
    return {
        "tables": len(found),
        "cells": cells,
        "numbers": len(inside) / cells,
        "covered": _mean(inside),
        "width": float(np.median(flat("widths"))) if inside else None,
        "error": float(np.std(flat("errors"))) if inside else None,
        "named": _mean([one["named"] for one in found if one["named"] is not None]),
        "others named": _mean([one["others"] > 0 for one in found]),
    }


def _mean(values: Sequence[float]) -> float | None:
    return float(np.mean(values)) if len(values) else None


def lines(told: dict[str, Any]) -> list[str]:
    """For people: a line a kind."""
    names = ("tables", "cells", "numbers", "covered", "width", "error", "named", "others named")
    found = [f"{'':12}" + "".join(f"{name:>14}" for name in names)]
    for kind, row in told.items():
        cells = (row.get(name) for name in names)
        text = ["–" if x is None else f"{x:.3f}" if isinstance(x, float) else str(x) for x in cells]
        found.append(f"{kind:12}" + "".join(f"{cell:>14}" for cell in text))
    return found
