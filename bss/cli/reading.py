"""The options that say how a user's table is read, shared by every command that reads one."""

import argparse
from pathlib import Path

import pandas as pd

from bss.tables import Reading, check_runs, read_runs


def add_reading_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds --columns and --seq-len."""
    add_columns_argument(parser)
    parser.add_argument("--seq-len", type=int, help="tokens per sequence, where no column says it")


def add_columns_argument(parser: argparse.ArgumentParser) -> None:
    """Adds --columns alone, to a command whose sequence length comes from elsewhere."""
    text = "what the table calls its columns, OURS=THEIRS: params=N,tokens=D,batch=gbsz"
    parser.add_argument("--columns", metavar="NAMES", help=text)


def reading(options: argparse.Namespace) -> Reading:
    """How the options say that a table is read."""
    return Reading.parse(options.columns, options.seq_len)


def read_run_table(
    path: Path,
    how: Reading,
    *,
    need_loss: bool = True,
    need_finished: bool = True,
    only_finished: bool = False,
) -> tuple[pd.DataFrame, list[str]]:
    """A run table, and what is said of it: a file, or a directory of runs.

    Args:
        path: CSV or Parquet; a directory that holds runs.parquet; or one of run directories, whose
            runs are read as far as they went.
        how: what it calls its columns.
        need_loss: as in `bss.tables.check_runs`.
        need_finished: refuse a directory in which no run finished.
        only_finished: leave the runs of a directory out that did not.

    Raises:
        InputError: there is no such file, no run that was trained, or a line is refused.
    """
    file = path / "runs.parquet" if path.is_dir() else path
    if not path.is_dir() or file.is_file():
        return read_runs(file, how, need_loss=need_loss), []
    from bss.sweeps.table import trained_table
    from bss.tables.columns import Origin

    finished = {"need_finished": need_finished, "only_finished": only_finished}
    frame, remarks = trained_table(path, **finished)
    frame = how.read(frame, Origin(str(path)))
    return check_runs(frame, str(path), need_loss=need_loss), remarks
