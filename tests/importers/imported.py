"""What a format's files are imported as, and what they should be."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from bss.importers import ANY, IMPORTERS, LogOptions, Report, import_runs, read_logs
from bss.importers.batches import Batches
from tests.importers.writers import SEQ_LEN, Row, Written


def options_of(written: Written) -> LogOptions:
    batches = Batches.parse([written.schedule] if "batch" in written.needs else [])
    return LogOptions(batches, SEQ_LEN if "seq_len" in written.needs else None)


def imported(paths: Sequence[Path], written: Written, auto: bool = False) -> tuple:
    """The one run that is there, and its report."""
    return the_run(paths, options_of(written), "auto" if auto else written.format)


def the_run(paths: Sequence[Path], options: LogOptions, name: str) -> tuple[pd.DataFrame, Report]:
    importer = ANY if name == "auto" else IMPORTERS[name]
    [(table, report)] = import_runs(read_logs(paths, importer, options)[0], options)
    return table, report


def expected(rows: Sequence[Row], written: Written) -> pd.DataFrame:
    """What can be known of rows from a format, as a run table."""
    losses = [column for column in ("loss", "eval_loss") if column in written.says]
    frame = pd.DataFrame(rows).assign(run="run", seq_len=SEQ_LEN)
    frame = frame.loc[frame[losses].notna().any(axis=1)]
    lr = ["lr"] if "lr" in written.says else []
    columns = ["run", "seq_len", "step", "tokens", "batch", *lr, *losses]
    return frame[list(dict.fromkeys(columns))].reset_index(drop=True)


def assert_same(table: pd.DataFrame, wanted: pd.DataFrame) -> None:
    if "step_time" in table:
        assert (table.pop("step_time").dropna() > 0).all()
    assert list(table) == list(wanted) and list(table["run"]) == list(wanted["run"])
    ours, theirs = (frame.drop(columns="run").to_numpy(float) for frame in (table, wanted))
    np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=0)
