"""Choose the runs that repeat one condition: no copies, forks or ramps, and no other condition.

Runs of one batch size and LR that differ only in their seeds are repetitions. A law is fitted to
the runs of one condition. Conditions are known from columns, or, if no column has them, from losses
that differ between groups of runs by far more than their noise (`bss.points.groups`).
"""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from bss.errors import InputError
from bss.points.curve import loss_column, peak_rates
from bss.points.divergence import without_diverged
from bss.points.groups import Groups, find_groups, may_separate, row_levels, run_groups
from bss.tables import SETTINGS

FEWEST = 3
"""Equal losses of a short curve that make it a copy: two floats agree by chance, three do not."""
SAME = 10
"""Equal losses at the start of a longer curve that make it a copy or a fork (derived here)."""
_IDENTITY = ("run", "model", "params", "seq_len", "batch", "seed", "data_seed", "peak_lr", "parent")
_SEED_SETTINGS = ("optimizer.lr", "schedule.batch", "data.seed", "parent.tokens")
HORIZON = "schedule.tokens"
NEAR = 0.01
"""Relative difference of LRs that count as one: a log may miss the step of the peak."""


def independent_runs(runs: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """Return the runs of one batch size each that share no losses, and what was left out.

    A forked run repeats the losses of its parent up to the fork. A run whose batch size changes
    has no points of one batch size. It is kept only if the batch size changes in every run.

    Args:
        runs: A run table as `bss.tables.check_runs` returns it.
    """
    changes = runs.groupby("run")["batch"].transform("nunique").to_numpy() > 1
    changing = len({*runs.loc[changes, "run"]})
    total = len({*runs["run"]})
    messages = []
    if 0 < changing < total:
        messages.append(f"{changing} of {total} runs change their batch size: left out")
        runs = runs.loc[~changes]
    copies = _copies(runs)
    if copies:
        messages.append(
            f"{len(copies)} runs repeat losses of others, as forks and copies do: left out "
            f"(the first: {copies[0]})"
        )
    return runs.loc[~runs["run"].isin(copies)], messages


def _copies(runs: pd.DataFrame) -> list[str]:
    """Return the runs whose first losses equal the first losses of a run that is kept.

    Runs without a parent are kept first, then longer runs, then earlier rows of the table.
    """
    column = loss_column(runs)
    found: list[str] = []
    kept: dict[tuple[Any, ...], list[np.ndarray]] = {}
    fixed = [name for name in ("model", "params", "seq_len", "batch") if name in runs]
    first = runs.drop_duplicates("run").set_index("run", drop=False)
    known = (
        first["parent"].astype(str).isin(first["run"])
        if "parent" in first
        else [False] * len(first)
    )
    forked = dict(zip(first["run"], known, strict=True))
    places = first[fixed].astype(str).assign(peak=peak_rates(runs).astype(str))
    place = dict(zip(first["run"], places.itertuples(index=False, name=None), strict=True))
    numbers = runs[["tokens", column]].to_numpy(float)
    rows = runs.groupby("run", sort=False).indices
    for name in sorted(first["run"], key=lambda name: (forked[name], -len(rows[name]))):
        curve = numbers[rows[name]]
        curve = curve[~np.isnan(curve[:, 1])]
        # Only a curve with an equal first row can have an equal start.
        others = kept.setdefault((place[name], *curve[:1].ravel().tolist()), [])
        if forked[name] or any(_same_start(curve, other) for other in others):
            found.append(name)
        else:
            others.append(curve)
    return found


def _same_start(one: np.ndarray, other: np.ndarray) -> bool:
    length = min(len(one), len(other))
    needed = min(length, SAME)
    return needed >= FEWEST and bool((one[:needed] == other[:needed]).all())


def conditions(runs: pd.DataFrame) -> list[str]:
    """Return the columns other than seeds and LR in which runs of one batch size differ.

    Columns with a dot, and those of SETTINGS, are settings of a run. Settings of the model are
    compared between runs of one model name. Horizons are a condition only if some LR decays.
    """
    first = runs.drop_duplicates("run")
    others = ("eval",) if "model" in runs else ("eval", "model.")
    names = [str(c) for c in runs if "." in str(c) and not str(c).startswith(others)]
    names = [name for name in names if name not in (*_IDENTITY, *_SEED_SETTINGS)]
    names += [name for name in SETTINGS if name in runs and f"optimizer.{name}" not in names]
    if HORIZON in names and not _decays(runs):
        names.remove(HORIZON)
    by_batch = first.groupby(["batch", *(c for c in ("model", "seq_len") if c in first)])
    return [name for name in names if by_batch[name].nunique(dropna=False).to_numpy().max() > 1]


def by_condition(runs: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Return the runs of each condition, by what differs as text; "" if there is one condition.

    Conditions are those of `find_conditions`.
    """
    independent = independent_runs(runs)[0]
    names, groups = find_conditions(independent)
    if groups is not None:
        named = {run for some in groups.runs.values() for run in some}
        others = [run for run in independent["run"].unique() if run not in named]
        kinds = groups.runs | ({"other runs": others} if others else {})
        return {n.replace("=", " "): runs.loc[runs["run"].isin(kind)] for n, kind in kinds.items()}
    if not names:
        return {"": runs}
    by_columns = runs.groupby(names, dropna=False)
    parts = {", ".join(map(_text, names, values)): some for values, some in by_columns}
    found: dict[str, pd.DataFrame] = {}
    for label, part in parts.items():
        for kind, some in by_condition(part).items():
            found[", ".join(filter(None, (label, kind)))] = some
    return found


def find_conditions(
    runs: pd.DataFrame, *, schedules: bool = False
) -> tuple[list[str], Groups | None]:
    """Return the columns that separate the conditions of runs, and groups if no column does.

    The columns are model, sequence length, params of one batch size, and `conditions`. Groups of
    runs differ in none of them, but by far more than their noise.

    Args:
        runs: As `independent_runs` returns them.
        schedules: Whether runs of a condition may have several schedules.
    """
    names = [name for name in ("model", "seq_len") if name in runs and runs[name].nunique() > 1]
    if "params" in runs and runs.groupby([*names, "batch"])["params"].nunique().gt(1).any():
        names.append("params")
    names += conditions(runs)
    if schedules:
        names = [name for name in names if not name.startswith("schedule.")]
    if names:
        return names, None
    return [], run_groups(without_diverged(runs, loss_column(runs))[0])


def _text(name: str, value: Any) -> str:
    return f"{name} {value:,.0f}" if name == "params" else f"{name} {value}"


def refuse_conditions(runs: pd.DataFrame, *, schedules: bool = False) -> None:
    """Refuse runs of several conditions, as `by_condition` separates them.

    Args:
        runs: A run table without copies, ramps and runs that have too few losses.
        schedules: Whether runs of a condition may have several schedules.

    Raises:
        InputError: If there are several. The message names the columns or the runs, and the option
            that selects one.
    """
    names, groups = find_conditions(runs, schedules=schedules)
    refuse_columns(runs, names)
    if groups is not None:
        raise InputError(f"runs: {groups}")


def refuse_mixed_rows(
    rows: pd.DataFrame, cell: Sequence[str], column: str, slope: float, settings: Sequence[str] = ()
) -> None:
    """Refuse points or final losses of several conditions.

    Args:
        rows: With a column `run` if their names are known. Otherwise each row is a run.
        cell: Columns that repetitions share.
        column: Log tokens or losses [n], which repetitions have nearly equal.
        slope: Nats per unit of the column.
        settings: Columns that repetitions must share, in addition to settings with a dot.

    Raises:
        InputError: If rows of one cell differ in a setting, or by far more than their noise.
    """
    shared = [name for name in cell if name in rows]
    dotted = [str(name) for name in rows if "." in str(name)]
    names = [n for n in (*settings, *dotted) if n in rows and n not in (*shared, *_SEED_SETTINGS)]
    cells = rows.groupby(shared, dropna=False)
    refuse_columns(rows, [n for n in names if cells[n].nunique(dropna=False).gt(1).any()], "points")
    if "run" in rows:
        groups = find_groups(row_levels(rows, shared, column, slope), rows)
        if groups is not None:
            raise InputError(f"points: {groups}")
        return
    varied = [n for n in rows if n not in shared and may_separate(str(n))]
    if cells[varied].nunique(dropna=False).gt(1).any(axis=None):
        return  # a setting, over which the lowest loss is used
    numbered = rows.assign(run=[str(i) for i in range(len(rows))])
    groups = find_groups(row_levels(numbered, shared, column, slope), numbered[["run"]])
    if groups is not None:
        raise InputError(
            f"points: rows of one batch differ by x {groups.factor:.2g}, others by x "
            f"{groups.others:.3g}: {len(groups.runs)} conditions? name each in a column, e.g. "
            "model, and keep one with --keep model=NAME"
        )


def refuse_columns(table: pd.DataFrame, names: Sequence[str], source: str = "runs") -> None:
    """Refuse a table that has several values of a column of which a fit needs one.

    Raises:
        InputError: If `names` is not empty; with the values and the option that selects one.
    """
    if names:
        values = [sorted({str(x) for x in table[name]}) for name in names]
        shown = "; ".join(f"{n}: {', '.join(v)}" for n, v in zip(names, values, strict=True))
        raise InputError(
            f"{source}: they differ in {shown}, but a fit needs one value; "
            f"keep one, e.g. --keep {names[0]}={values[0][0]}"
        )


def _decays(runs: pd.DataFrame) -> bool:
    if "lr" not in runs:
        return True
    rates = (run["lr"].dropna().to_numpy(float) for _, run in runs.groupby("run"))
    return any(len(rate) and rate[-1] < (1 - NEAR) * rate.max() for rate in rates)


def near_as_one(peaks: Iterable[float]) -> dict[float, float]:
    """Map each known LR to the highest LR within 1%, as logs may miss the step of the peak.

    Examples:
        >>> near_as_one([1e-3, 9.99e-4, 5e-4])
        {0.001: 0.001, 0.000999: 0.001, 0.0005: 0.0005}
    """
    one: dict[float, float] = {}
    highest = np.inf
    for peak in sorted({peak for peak in peaks if np.isfinite(peak)}, reverse=True):
        if peak < (1 - NEAR) * highest:
            highest = peak
        one[peak] = highest
    return one
