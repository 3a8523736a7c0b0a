"""The loss curve of one run of a log or a table, without batch sizes."""

from pathlib import Path

import pandas as pd

from bss.errors import InputError
from bss.importers import ANY, LogOptions
from bss.importers.files import read_logs
from bss.importers.log import LOSSES


def read_loss_curve(path: Path, run: str | None = None) -> pd.DataFrame:
    """Return the loss curve of a run.

    Args:
        path: A log or a table in any format that `bss import` reads.
        run: Name of the run, if the file has several.

    Returns:
        Columns `step` (steps completed), and `loss` and `eval_loss` (nats per token) as far as the
        file has them. If a restart repeats a step, the last row counts.

    Raises:
        InputError: If the file is not a log or has no steps, if the run is missing, or if none of
            several runs is named.
    """
    logs, _ = read_logs([path], ANY, LogOptions())
    names = [*dict.fromkeys(log.run for log in logs)]
    if run is None and len(names) > 1:
        raise InputError(f"{path}: has {len(names)} runs; name one of {', '.join(names[:5])}")
    if run is not None and run not in names:
        raise InputError(f"{path}: has no run {run!r}; it has {', '.join(names[:5])}")
    rows = pd.concat([log.rows for log in logs if run in (None, log.run)], ignore_index=True)
    if "step" not in rows or rows["step"].isna().all():
        raise InputError(f"{path}: has no steps; expected a column or a field step")
    found = [name for name in LOSSES if name in rows and rows[name].notna().any()]
    kept = rows.loc[rows["step"].notna(), ["step", *found]]
    return kept.groupby("step", as_index=False).last()
