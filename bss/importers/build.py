"""Logs from columns, and from values that have names."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from bss.errors import InputError
from bss.importers.lines import Cells, epochs, misspelt
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
    columns = {name: rows[name] for name in COLUMNS if name in rows}
    if not {"batch", "batch_tokens"} & columns.keys():
        count = len(next(iter(columns.values())))
        for name in {"batch", "batch_tokens"} & settings.keys():
            columns[name] = np.full(count, float(settings[name]))
    length, vocabulary = settings.get("seq_len"), settings.get("vocabulary")
    source, place = str(file), f"{file}:{run}" if run else str(file)
    notes = (*notes, *_uncounted(columns), *epochs(rows.get("epoch", ())))
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
    rows = {column: cells.column(name, file) for column, name in chosen.items()}
    settings = trainer.settings(config or {})
    return log_of(file, trainer.corrected(rows), settings, (*more, *notes), cut)


def by_run(rows: Rows, runs: np.ndarray) -> Iterator[tuple[str, Rows]]:
    """Yield the runs of a table with their rows, by the run of each row."""
    for run in dict.fromkeys(runs):
        yield run, {column: values[runs == run] for column, values in rows.items()}


def _uncounted(rows: Rows) -> Iterator[str]:
    """Yield the number of losses in rows without any count."""
    counts = [rows[column] for column in COUNTS if column in rows]
    without = np.all([np.isnan(values) for values in counts], axis=0) if counts else np.False_
    for column in LOSSES:
        if column in rows and (lost := int((without & ~np.isnan(rows[column])).sum())):
            yield f"{lost} values of {column} have no step and are left out"
