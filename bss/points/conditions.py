"""Which runs of a table are repetitions of one another: those that differ by their seeds alone."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from bss.errors import InputError
from bss.points.rates import peak_rate
from bss.tables import loss_column

FEWEST, SAME = 3, 10  # equal losses of a whole curve, and at the start of one, that make a copy
IDENTITY = ("run", "model", "params", "seq_len", "batch", "seed", "data_seed", "peak_lr", "parent")
SEEDS = ("optimizer.lr", "schedule.batch", "data.seed", "parent.tokens")
HORIZON = "schedule.tokens"


def independent_runs(runs: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """Return the runs of one batch size each that share no losses, and what was left out.

    A run that was forked from another repeats its losses to the fork, and a run whose batch size
    changes has no point of one batch size; if all change it, they stay.

    Args:
        runs: A run table as `bss.tables.check_runs` returns it.
    """
    changes = runs.groupby("run")["batch"].transform("nunique").to_numpy() > 1
    changing, total = len({*runs.loc[changes, "run"]}), len({*runs["run"]})
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
    """Return the runs whose losses begin as those of a run that is kept: the longest comes first.

    Of equally long ones a run without a parent, then the first in the table.
    """
    column, found, kept = loss_column(runs), [], {}
    tables = {str(name): run for name, run in runs.groupby("run", sort=False)}
    forked = {
        name: "parent" in run and str(run["parent"].iloc[0]) in tables
        for name, run in tables.items()
    }
    for name in sorted(tables, key=lambda name: (forked[name], -len(tables[name]))):
        run = tables[name]
        curve = run.loc[run[column].notna(), ["tokens", column]].to_numpy(float)
        others = kept.setdefault((run["batch"].iloc[0], str(peak_rate(run))), [])
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

    Columns with a dot are settings of a run. A column that differs from run to run is a name.
    Horizons are a condition only if some LR decays.
    """
    first = runs.drop_duplicates("run")
    names = [str(c) for c in runs if "." in str(c) and not str(c).startswith(("model.", "eval"))]
    names = [name for name in names if name not in (*IDENTITY, *SEEDS)]
    if HORIZON in names and not _decays(runs):
        names.remove(HORIZON)
    by_batch = first.groupby(["batch", *(c for c in ("model", "seq_len") if c in first)])
    return [name for name in names if by_batch[name].nunique(dropna=False).to_numpy().max() > 1]


def by_condition(runs: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Return the runs of each condition, by its settings as text; of one condition by ""."""
    if not (names := conditions(independent_runs(runs)[0])):
        return {"": runs}
    found = {}
    for values, some in runs.groupby(names, dropna=False):
        pairs = zip(names, values, strict=True)  # type: ignore[arg-type]
        found[", ".join(f"{name} {value}" for name, value in pairs)] = some
    return found


def refuse_conditions(runs: pd.DataFrame, names: Sequence[str]) -> None:
    """Refuse runs that differ in more than batch size, LR and seeds.

    Raises:
        InputError: If there are such columns; it names them, their values and how to choose one.
    """
    if names:
        values = [sorted({str(x) for x in runs[name]}) for name in names]
        shown = "; ".join(f"{n}: {', '.join(v)}" for n, v in zip(names, values, strict=True))
        raise InputError(
            f"runs differ in {shown}; a fit needs runs of one value, "
            f"leave the others out by --drop {names[0]}={values[0][-1]}"
        )


def _decays(runs: pd.DataFrame) -> bool:
    if "lr" not in runs:
        return True
    rates = (run["lr"].dropna().to_numpy(float) for _, run in runs.groupby("run"))
    return any(len(rate) and rate[-1] < 0.99 * rate.max() for rate in rates)
