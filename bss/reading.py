"""Tables of runs, points and final losses from frames, files and directories, read as one."""

from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import pandas as pd

from bss.errors import InputError
from bss.points.measuring import measure_points, tuned_points
from bss.tables import Reading, check_runs, holds_points
from bss.tables.columns import Origin, refuse_odd
from bss.tables.joining import holds_losses, holds_runs, join_tables, stacked, tables_in
from bss.tables.likeness import held_out_name, unit_of_loss
from bss.tables.reading import only, without
from bss.tables.schema import check_points
from bss.tables.storage import read_header, read_table

Source = Path | pd.DataFrame
"""A table, a file, or a directory of tables or runs."""
Check = Callable[[pd.DataFrame, Origin], pd.DataFrame]
"""Checks a table; the origin names its rows in errors."""


def sources_of(data: Any, field: str = "runs") -> list[Source]:
    """Return what a user gives as tables and paths.

    Args:
        data: A DataFrame, a path, or a sequence of them.
        field: Its name in an error.

    Raises:
        InputError: If it is none of them.
    """
    single = isinstance(data, str | PathLike | pd.DataFrame)
    several = [data] if single else data
    expected = "expected a table (DataFrame), a path, or a list of them"
    if not isinstance(several, list | tuple) or not several:
        shown = type(data).__name__ if data is not None else "None"
        raise InputError(f"{field}: {shown} given; {expected}")
    for one in several:
        if not isinstance(one, str | PathLike | pd.DataFrame):
            raise InputError(f"{field}: {type(one).__name__} given; {expected}")
    return [one if isinstance(one, pd.DataFrame) else Path(one) for one in several]


def read_run_table(
    sources: Sequence[Source], how: Reading, *, need_loss: bool = True, only_finished: bool = False
) -> tuple[pd.DataFrame, list[str]]:
    """Read run tables as one; return it with warnings.

    Args:
        sources: Each a table, a CSV or Parquet file, or a directory. A directory has runs.parquet,
            tables, or run directories, whose runs are read as far as they got.
        how: names of the columns.
        need_loss: as in `bss.tables.check_runs`.
        only_finished: exclude unfinished runs of a directory.

    Raises:
        InputError: no such file, no trained run, or a refused line.
    """
    tables: list[tuple[Path, pd.DataFrame]] = []
    warnings: list[str] = []
    for i, source in enumerate(sources):
        for one in _tables_of(source, how, holds_runs, "run tables", warnings):
            read, more = _read_one(one, how, need_loss, only_finished)
            tables.append((_path_of(one, i), read))
            warnings += more
    return join_tables(tables), warnings


def read_loss_tables(
    sources: Sequence[Source],
    how: Reading,
    check: Check,
    last: Callable[[pd.DataFrame], pd.DataFrame] | None = None,
) -> tuple[pd.DataFrame, list[str]]:
    """Read the last losses of runs as one table; return it with warnings.

    Args:
        sources: Each a table with one row per run, or a file or directory of such tables. Loss
            curves, in a table or a directory of runs, are also read: their last losses are taken.
        how: names of the columns.
        check: checks a table with a row per run.
        last: returns the last losses of a run table, checked; `final_losses` by default.

    Raises:
        InputError: as `read_run_table`, or if a row is refused.
    """
    from bss.laws.final_loss.table import final_losses

    tables: list[tuple[Path, pd.DataFrame]] = []
    warnings: list[str] = []
    for i, source in enumerate(sources):
        found = _tables_of(source, how, holds_losses, "tables of last losses", warnings)
        if _holds_curves(source, how, found):
            runs, more = read_run_table([source], how, only_finished=True)
            tables.append((_path_of(source, i), (last or final_losses)(runs)))
            warnings += more
        else:
            tables += [(_path_of(one, i), check(*_table_of(one, how))) for one in found]
    return join_tables(tables), warnings


def read_point_tables(sources: Sequence[Source], how: Reading) -> tuple[pd.DataFrame, list[str]]:
    """Read points, from tables, files or directories of them, as one table, with warnings.

    Raises:
        InputError: if a file is not a table of points, or a row is refused.
    """
    warnings: list[str] = []
    tables: list[tuple[Path, pd.DataFrame]] = []
    for i, source in enumerate(sources):
        here = _tables_of(source, how, holds_points, "tables of points", warnings)
        if isinstance(source, Path) and source.is_dir() and here == [source]:
            raise InputError(f"{source}: holds no table of points; write one with `bss points`")
        tables += [(_path_of(one, i), check_points(*_table_of(one, how))) for one in here]
    return join_tables(tables), warnings


def read_branches(
    sources: Sequence[Source], how: Reading
) -> tuple[pd.DataFrame, Origin, list[str]]:
    """Read tables of branches from checkpoints as one; return it with its origin and warnings.

    Raises:
        InputError: if a file cannot be read.
    """
    from bss.laws.ramps.branches import holds_branches

    warnings: list[str] = []
    tables: list[tuple[pd.DataFrame, Origin]] = []
    for source in sources:
        for one in _tables_of(source, how, holds_branches, "tables of branches", warnings):
            tables.append(_table_of(one, how))
    if len(tables) == 1:
        return *tables[0], warnings
    joined = stacked([frame for frame, _ in tables])
    return joined, Origin("branches"), warnings


def read_own_tables(
    sources: Sequence[Source], columns: str | Mapping[str, str] | None
) -> pd.DataFrame:
    """Read tables with the columns of a user's law, whatever their names are, as one.

    Args:
        sources: tables or files.
        columns: the table's names of columns, by the names of the law.

    Raises:
        InputError: if a file cannot be read, `columns` is a text that names no columns, or a column
            is there twice.
    """
    theirs = {name: ours for ours, name in _own_names(columns).items()}
    frames: list[pd.DataFrame] = []
    for source in sources:
        given = isinstance(source, pd.DataFrame)
        frame = (source if given else read_table(source)[0]).rename(columns=theirs)
        refuse_odd(frame, Origin("table" if given else str(source)))
        frames.append(frame)
    return stacked(frames)


def _own_names(columns: str | Mapping[str, str] | None) -> dict[str, str]:
    """Return the table's names of columns by the names of a law."""
    if columns is None or isinstance(columns, Mapping):
        return dict(columns or {})
    pairs = [part.partition("=") for part in columns.replace(",", " ").split()]
    for ours, sign, theirs in pairs:
        if not (ours and sign and theirs):
            raise InputError(f"columns: {columns!r}; write OURS=THEIRS, joined by commas")
    return {ours: theirs for ours, _, theirs in pairs}


def read_curves(
    sources: Sequence[Source], how: Reading, *, training_loss: bool = False
) -> tuple[pd.DataFrame, list[str]]:
    """Read run tables, on request with the training losses alone; return them with warnings.

    Raises:
        InputError: as `read_run_table`; or if training losses are requested and there are none.
    """
    runs, warnings = read_run_table(sources, how)
    if training_loss and "eval_loss" in runs:
        if runs["loss"].equals(runs["eval_loss"]):
            raise InputError("--training-loss: the runs have only held-out losses; leave it out")
        runs = runs.drop(columns="eval_loss")
    return runs, warnings


def read_unchecked(sources: Sequence[Source], how: Reading) -> tuple[pd.DataFrame, list[str]]:
    """Read tables of runs or points as one; return it with warnings.

    The caller checks each group of its rows, because runs of two groups may have the same name.

    Raises:
        InputError: If a file cannot be read.
    """

    def holds(table: pd.DataFrame) -> bool:
        return holds_runs(table) or holds_points(table)

    warnings: list[str] = []
    tables: list[tuple[Path, pd.DataFrame]] = []
    for i, source in enumerate(sources):
        for one in _tables_of(source, how, holds, "tables of runs or points", warnings):
            if isinstance(one, Path) and one.is_dir():
                read, more = _read_one(one, how, need_loss=False, only_finished=False)
                warnings += more
            else:
                read, _ = _table_of(one, how)
            tables.append((_path_of(one, i), read))
    return join_tables(tables), warnings


def measured_points(
    sources: Sequence[Source],
    how: Reading,
    *,
    targets: Sequence[float] | None = None,
    warmup: int = 0,
    smooth: int | None = None,
    training_loss: bool = False,
    peak_lr: float | None = None,
    keep: Sequence[str] = (),
    drop: Sequence[str] = (),
) -> tuple[pd.DataFrame, list[str]]:
    """Measure steps and tokens to the targets of the rows that are kept; return them with warnings.

    Tables of points are read unchanged. Runs are left out before they are measured if their table
    has the columns of `keep` and `drop`, else their points are. If a batch size has several peak
    LRs, each target uses the best one, or the one that `peak_lr` selects.
    """
    points = [source for source in sources if _are_points(source, how)]
    if points:
        if len(points) < len(sources):
            other = next(i for i, one in enumerate(sources) if not _are_points(one, how))
            raise InputError(
                f"{_path_of(sources[other], other)}: has loss curves, and {_path_of(points[0], 0)} "
                "has points; measure the points of both first, with `bss points`"
            )
        read, warnings = read_point_tables(points, how)
        found, more = tuned_points(selected(read, keep, drop), targets, peak_lr)
        return found, [*warnings, *more]
    runs, warnings = read_curves(sources, how, training_loss=training_loss)
    kept = selected(runs, _of_columns(keep, runs, True), _of_columns(drop, runs, True))
    ways: dict[str, Any] = {"warmup": warmup, "smooth": smooth, "peak_lr": peak_lr}
    measured, more = measure_points(kept, targets, **ways)
    later = [_of_columns(rows, runs, False) for rows in (keep, drop)]
    return selected(measured, *later), [*warnings, *more]


def selected(table: pd.DataFrame, keep: Sequence[str], drop: Sequence[str]) -> pd.DataFrame:
    """Return the rows of `keep` without those of `drop`, each COLUMN=VALUE joined by commas.

    Raises:
        InputError: If a column or value is not there, or no row is left.
    """
    return without(only(table, keep), drop)


def _of_columns(rows: Sequence[str], table: pd.DataFrame, there: bool) -> list[str]:
    """Return the conditions whose columns a table has, or those with another column."""

    def known(text: str) -> bool:
        return all(part.partition("=")[0].strip() in table for part in text.split(","))

    return [text for text in rows if known(text) == there]


def _path_of(source: Source, number: int) -> Path:
    """Return the path of a source, for the names of its runs; frames have numbers."""
    return source if isinstance(source, Path) else Path(f"table {number + 1}")


def _table_of(source: Source, how: Reading) -> tuple[pd.DataFrame, Origin]:
    """Return a table with the names of this package, and its origin."""
    if isinstance(source, Path):
        return read_table(source, how)
    origin = Origin("table")
    refuse_odd(source, origin)
    return how.read(source.reset_index(drop=True), origin), origin


def _holds_curves(source: Source, how: Reading, found: Sequence[Source]) -> bool:
    """Return whether a source of last losses has loss curves instead."""
    if isinstance(source, Path):
        return source.is_dir() and found == [source]
    return holds_runs(_table_of(source, how)[0])


def _tables_of(
    source: Source,
    how: Reading,
    holds: Callable[[pd.DataFrame], bool],
    kind: str,
    warnings: list[str],
) -> list[Source]:
    """Return the tables of one kind in a directory; another source is returned as it is.

    A directory of runs is not looked into, and for another kind than run tables no directory of
    those.
    """
    if not isinstance(source, Path) or not source.is_dir():
        return [source]
    if (source / "runs.parquet").is_file() or any(source.glob("*/config.json")):
        return [source]
    found, others = tables_in(source, how, holds)
    if not found:
        return [source]
    if others:
        names = ", ".join(other.name for other in others)
        warnings.append(f"{source}: read are its {len(found)} {kind}, not {names}")
    return [*found]


def _read_one(
    source: Source, how: Reading, need_loss: bool, only_finished: bool
) -> tuple[pd.DataFrame, list[str]]:
    """Read a run table, or a directory that has one or its runs; return it with warnings."""
    if isinstance(source, Path) and source.is_dir() and not (source / "runs.parquet").is_file():
        from bss.sweeps.table import trained_table

        frame, warnings = trained_table(source, only_finished=only_finished)
        frame = how.read(frame, Origin(str(source)))
        return check_runs(frame, str(source), need_loss=need_loss), warnings
    is_folder = isinstance(source, Path) and source.is_dir()
    file = source / "runs.parquet" if is_folder else source
    frame, origin = _table_of(file, how)
    runs = check_runs(frame, origin, need_loss=need_loss)
    return runs, _unread_losses(origin.source, runs)


def _unread_losses(source: str, runs: pd.DataFrame) -> list[str]:
    """Return a warning if a table has held-out losses under other names, and none as eval_loss."""
    others = [str(column) for column in runs if held_out_name(str(column))]
    if not others or "eval_loss" in others:
        return []
    listed = f"{source}: {', '.join(others)} look like held-out losses and are not read"
    in_nats = [name for name in others if not unit_of_loss(name)]
    if not in_nats:
        return [f"{listed}; they are named as {unit_of_loss(others[0])}, so convert them to nats"]
    return [f"{listed}; --columns eval_loss={in_nats[0]} reads {in_nats[0]}"]


def _are_points(source: Source, how: Reading) -> bool:
    """Return whether a source has points, or a directory tables of them and none of runs."""
    if not isinstance(source, Path):
        return holds_points(_table_of(source, how)[0])
    if source.is_file():
        return holds_points(read_header(source, how))
    runs = _tables_of(source, how, holds_runs, "run tables", [])
    points = _tables_of(source, how, holds_points, "tables of points", [])
    return source.is_dir() and runs == [source] and points != [source]
