"""Logs from columns, and from values that have names."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from bss.errors import InputError
from bss.importers.lines import Cells, misspelt
from bss.importers.log import COLUMNS, COUNTS, LOSSES, Log, Rows, run_name
from bss.importers.names import MetricNames, choose


def log_of(
    file: Path,
    rows: Rows,
    settings: Mapping[str, int],
    notes: Iterable[str] = (),
    cut: str = "",
    run: str = "",
) -> Log:
    """Return the run of a file.

    Args:
        file: Path of the log.
        rows: Columns, some of COLUMNS, and `epoch` for a note; others are left out.
        settings: Its seq_len, vocabulary, and a batch or batch_tokens if no row has one.
        notes: Remarks for the report.
        cut: Why the end of the log is missing.
        run: Name of the run in a file of several. Default: the file's name, or its directory's.

    Raises:
        InputError: If no row has a loss.
    """
    if not set(LOSSES) & set(rows):
        raise InputError(f"{file}: no line has a loss; give the log of the rank that prints it")
    columns = rows.filter(COLUMNS)
    if not {"batch", "batch_tokens"} & {*columns}:
        sizes = {"batch", "batch_tokens"} & settings.keys()
        columns = columns.assign(**{name: float(settings[name]) for name in sizes})
    length, vocabulary = settings.get("seq_len"), settings.get("vocabulary")
    source, place = str(file), f"{file}:{run}" if run else str(file)
    notes = (*notes, *_counted(rows))
    return Log(run or run_name(file), columns, source, place, length, notes, cut, vocabulary)


def named_log(
    file: Path,
    cells: Cells,
    trainers: tuple[MetricNames, ...],
    columns: Mapping[str, str],
    notes: Iterable[str] = (),
    cut: str = "",
    config: Mapping[str, Any] | None = None,
) -> Log:
    """Return the run of a file whose values have names.

    Args:
        file: Path of the log.
        cells: Its values by name.
        trainers: Trainers whose names they may be, the likelier first.
        columns: Names given by --columns.
        notes: Remarks for the report.
        cut: Why the end of the log is missing.
        config: Its settings.

    Raises:
        InputError: If it has no loss of a known name, or a value is not a number.
    """
    sizes = cells.sizes
    trainer, chosen, more = choose(trainers, sizes, columns, str(file))
    more += misspelt(sizes, chosen.values())
    rows = trainer.corrected(cells.rows(chosen, file))
    return log_of(file, rows, trainer.settings(config or {}), (*more, *notes), cut)


def _counted(rows: Rows) -> Iterator[str]:
    """Yield the number of losses in rows without any count, and of epochs if there are several.

    Epochs that are whole numbers count from 0 or 1.
    """
    uncounted = rows[rows.filter(COUNTS).isna().all(axis=1)].filter(LOSSES)
    for column, lost in uncounted.notna().sum().items():
        if lost:
            yield f"{lost} values of {column} have no step and are left out"
    epochs = rows.filter(["epoch"]).to_numpy()
    epochs = epochs[np.isfinite(epochs) & (epochs >= 0)]
    if len(epochs):
        passes = epochs.max() - (0 if (epochs % 1).any() else epochs.min() - 1)
        if passes > 1.005:
            yield f"{passes:.3g} epochs over its data; repeated tokens are counted each time"
