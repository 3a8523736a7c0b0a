"""A table to the rows that a user's law is fitted to."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from bss.errors import InputError
from bss.laws.own.law import OwnLaw
from bss.laws.problem import Data
from bss.points.conditions import refuse_mixed_rows
from bss.points.copies import copied_rows
from bss.points.divergence import marked_diverged
from bss.points.groups import SEED_NOISE


@dataclass(frozen=True)
class OwnData(Data):
    """Rows of a table; every array is [N].

    Attributes:
        columns: x by name.
        measured: y.
        fold: integer label of what is left out with the row.
    """

    columns: Mapping[str, np.ndarray]
    measured: np.ndarray
    fold: np.ndarray


def own_data(table: pd.DataFrame, law: OwnLaw) -> OwnData:
    """Return the rows of a table that a law is fitted to.

    Rows without a finite measured value, and copies of other rows, are left out.

    Args:
        table: has the law's columns, with positive numbers. Without the column of replication each
            row is a run.
        law: of a user.

    Raises:
        InputError: If a column is missing, a value is not positive, or all rows are left out.
    """
    law.check()
    numeric = (*law.columns, law.measured)
    needed = [*numeric, *([law.left_out] if law.left_out else [])]
    if missing := [name for name in dict.fromkeys(needed) if name not in table]:
        there = ", ".join(map(str, table.columns)) or "nothing"
        raise InputError(f"table: the law {law.name} needs {', '.join(missing)}; found {there}")
    rows = table.reset_index(drop=True)
    if law.replication not in rows:
        rows = rows.assign(**{law.replication: np.arange(len(rows)).astype(str)})
    numbers = {name: pd.to_numeric(rows[name], errors="coerce") for name in numeric}
    rows = rows.assign(**numbers)
    diverged = marked_diverged(rows) | ~np.isfinite(rows[law.measured].to_numpy(float))
    warnings = [f"{diverged.sum()} rows diverged and are left out"] if diverged.any() else []
    rows = rows.loc[~diverged].reset_index(drop=True)
    for name in numeric:
        bad = np.flatnonzero(~(rows[name].to_numpy(float) > 0))
        if len(bad):
            raise InputError(
                f"table: {name} is {rows[name].iloc[bad[0]]} in row {bad[0] + 1}; the law "
                f"{law.name} takes positive numbers"
            )
    named = rows.assign(run=rows[law.replication].astype(str))
    copied, told = copied_rows(named, law.columns, law.measured, SEED_NOISE)
    named = named.loc[~copied].reset_index(drop=True)
    levels = named.assign(log=np.log(named[law.measured]))
    refuse_mixed_rows(levels, law.columns, "log", 1.0)
    if not len(named):
        raise InputError(f"table: no row has a finite {law.measured}; add runs")
    return OwnData(
        run=named.groupby("run", sort=False).ngroup().to_numpy(),
        name=named["run"].to_numpy(),
        columns={name: named[name].to_numpy(float) for name in law.columns},
        measured=named[law.measured].to_numpy(float),
        fold=named.groupby(law.folds_by, sort=True).ngroup().to_numpy(),
        warnings=(*warnings, *told),
    )
