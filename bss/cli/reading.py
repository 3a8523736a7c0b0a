"""Options for tables of runs and points, and for fits of them; and how they are read."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
from cyclopts import Group, Parameter

from bss.cli.options import Count, Losses, Number, Repeated, Resamples
from bss.errors import InputError
from bss.laws.base import Options, parse_ranges
from bss.points.measuring import measure_points, tuned_points
from bss.tables import Reading, check_runs, holds_points, read_points, read_runs
from bss.tables.columns import Origin
from bss.tables.joining import holds_losses, holds_runs, join_tables, tables_in
from bss.tables.likeness import held_out_name, unit_of_loss
from bss.tables.reading import only, without
from bss.tables.storage import read_table
from bss.units import parse_tokens

Tables = Annotated[list[Path], Parameter(name="RUNS")]
"""Run tables, which are read as one."""


PointTables = Annotated[list[Path], Parameter(name="POINTS")]
"""Tables of points, which are read as one."""


@Parameter(name="*", group=Group("Reading the table", sort_key=2))
@dataclass(frozen=True)
class TableOptions:
    """Options for reading a table.

    Attributes:
        columns: names of its columns, OURS=THEIRS: params=N,tokens=D,batch=gbsz
        seq_len: tokens per sequence, where no column has it
    """

    columns: str | None = None
    seq_len: Count | None = None

    def reading(self) -> Reading:
        """Return how the table is read."""
        return Reading.parse(self.columns, self.seq_len)


@Parameter(name="*", group=Group("Targets", sort_key=3))
@dataclass(frozen=True)
class TargetOptions:
    """Options for measuring steps and tokens to a target loss.

    Attributes:
        targets: losses in nats, e.g. 1.8,1.7; five are chosen by default
        training_loss: use the training loss of all runs, where only some have a held-out loss
        smooth: window over a noisy training loss, in tokens
        warmup: tokens of warm-up, excluded from default targets
    """

    targets: Losses = ()
    training_loss: bool = False
    smooth: Count | None = None
    warmup: str = "0"

    def measuring(self) -> dict[str, Any]:
        """Return keyword arguments of `bss.points.measuring.measure_points`."""
        return {
            "targets": self.targets or None,
            "warmup": parse_tokens(self.warmup, field="--warmup"),
            "smooth": self.smooth,
        }


def read_run_table(
    paths: Sequence[Path], how: Reading, *, need_loss: bool = True, only_finished: bool = False
) -> tuple[pd.DataFrame, list[str]]:
    """Read run tables as one; return it with warnings.

    Args:
        paths: Each a CSV or Parquet file; a directory with runs.parquet; a directory of run
            directories, whose runs are read as far as they got; or a directory of tables.
        how: names of the columns.
        need_loss: as in `bss.tables.check_runs`.
        only_finished: exclude unfinished runs of a directory.

    Raises:
        InputError: no such file, no trained run, or a refused line.
    """
    tables: list[tuple[Path, pd.DataFrame]] = []
    warnings: list[str] = []
    for path in paths:
        for file in _files_of(path, how, warnings):
            read, more = _read_one(file, how, need_loss, only_finished)
            tables.append((file, read))
            warnings += more
    return join_tables(tables), warnings


def read_loss_tables(
    paths: Sequence[Path], how: Reading, read: Callable[[Path, Reading], pd.DataFrame]
) -> tuple[pd.DataFrame, list[str]]:
    """Read the last losses of runs as one table; return it with warnings.

    Args:
        paths: Each a table with a row per run, a directory of such tables, or a directory of runs
            or their loss curves, of which the last losses are taken.
        how: names of the columns.
        read: reads a table with a row per run.

    Raises:
        InputError: as `read_run_table`, or if a row is refused.
    """
    from bss.laws.final_loss.table import final_losses

    tables: list[tuple[Path, pd.DataFrame]] = []
    warnings: list[str] = []
    for path in paths:
        files = _tables_of(path, how, holds_losses, "tables of last losses", warnings)
        if path.is_dir() and files == [path]:
            runs, more = read_run_table([path], how, only_finished=True)
            tables.append((path, final_losses(runs)))
            warnings += more
        else:
            tables += [(file, read(file, how)) for file in files]
    return join_tables(tables), warnings


def read_point_tables(paths: Sequence[Path], how: Reading) -> tuple[pd.DataFrame, list[str]]:
    """Read points, from tables or directories of them, as one table; return it with warnings.

    Raises:
        InputError: if a file is no table of points, or a row is refused.
    """
    warnings: list[str] = []
    files: list[Path] = []
    for path in paths:
        here = _tables_of(path, how, holds_points, "tables of points", warnings)
        if path.is_dir() and here == [path]:
            raise InputError(f"{path}: holds no table of points; write one with `bss points`")
        files += here
    return join_tables([(file, read_points(file, how)) for file in files]), warnings


def _files_of(path: Path, how: Reading, warnings: list[str]) -> list[Path]:
    """Return the files of a directory of run tables; a path that is none is returned as it is."""
    return _tables_of(path, how, holds_runs, "run tables", warnings)


def _tables_of(
    path: Path,
    how: Reading,
    holds: Callable[[pd.DataFrame], bool],
    kind: str,
    warnings: list[str],
) -> list[Path]:
    """Return the tables of one kind in a directory; a path that has none is returned as it is.

    A directory of runs is not looked into, and for another kind than run tables no directory of
    those.
    """
    if not path.is_dir() or (path / "runs.parquet").is_file() or any(path.glob("*/config.json")):
        return [path]
    found, others = tables_in(path, how, holds)
    if not found:
        return [path]
    if others:
        names = ", ".join(other.name for other in others)
        warnings.append(f"{path}: read are its {len(found)} {kind}, not {names}")
    return found


def _read_one(
    path: Path, how: Reading, need_loss: bool, only_finished: bool
) -> tuple[pd.DataFrame, list[str]]:
    """Read a run table, or a directory that has one or its runs; return it with warnings."""
    file = path / "runs.parquet" if path.is_dir() else path
    if not path.is_dir() or file.is_file():
        runs = read_runs(file, how, need_loss=need_loss)
        return runs, _unread_losses(file, runs)
    from bss.sweeps.table import trained_table

    frame, warnings = trained_table(path, only_finished=only_finished)
    frame = how.read(frame, Origin(str(path)))
    return check_runs(frame, str(path), need_loss=need_loss), warnings


def _unread_losses(file: Path, runs: pd.DataFrame) -> list[str]:
    """Return a warning if a table has held-out losses under other names, and none as eval_loss."""
    others = [str(column) for column in runs if held_out_name(str(column))]
    if not others or "eval_loss" in others:
        return []
    listed = f"{file}: {', '.join(others)} look like held-out losses and are not read"
    in_nats = [name for name in others if not unit_of_loss(name)]
    if not in_nats:
        return [f"{listed}; they are named as {unit_of_loss(others[0])}, so convert them to nats"]
    return [f"{listed}; --columns eval_loss={in_nats[0]} reads {in_nats[0]}"]


def read_curves(
    paths: Sequence[Path], table: TableOptions, targets: TargetOptions
) -> tuple[pd.DataFrame, list[str]]:
    """Read run tables with the losses that the options ask for; return it with warnings."""
    runs, warnings = read_run_table(paths, table.reading())
    if targets.training_loss and "eval_loss" in runs:
        if runs["loss"].equals(runs["eval_loss"]):
            raise InputError("--training-loss: the runs have only held-out losses; leave it out")
        runs = runs.drop(columns="eval_loss")
    return runs, warnings


def measured_points(
    paths: Sequence[Path],
    table: TableOptions,
    targets: TargetOptions,
    peak_lr: float | None,
    rows: "RowOptions",
) -> tuple[pd.DataFrame, list[str]]:
    """Measure steps and tokens to the targets of the rows that are kept; return them with warnings.

    Tables of points are read unchanged. Runs are left out before they are measured if their table
    has the columns of --keep and --drop, else their points are. If a batch size has several peak
    LRs, each target uses the best one, or the one that `peak_lr` selects.
    """
    measured = [path for path in paths if _are_points(path, table.reading())]
    if measured:
        others = [path for path in paths if path not in measured]
        if others:
            raise InputError(
                f"{others[0]}: has loss curves, and {measured[0]} has points; measure the points "
                "of both first, with `bss points`"
            )
        points, warnings = read_point_tables(measured, table.reading())
        found, more = tuned_points(rows.selected(points), targets.measuring()["targets"], peak_lr)
        return found, [*warnings, *more]
    runs, warnings = read_curves(paths, table, targets)
    of_runs, of_points = rows.by_columns(runs)
    runs = of_runs.selected(runs)
    points, more = measure_points(runs, **targets.measuring(), peak_lr=peak_lr)
    return of_points.selected(points), [*warnings, *more]


def _are_points(path: Path, how: Reading) -> bool:
    """Return whether a file has points, or a directory tables of them and none of runs."""
    if path.is_file():
        return holds_points(read_table(path, how)[0])
    runs = _tables_of(path, how, holds_runs, "run tables", [])
    points = _tables_of(path, how, holds_points, "tables of points", [])
    return path.is_dir() and runs == [path] and points != [path]


@Parameter(name="*", group=Group("Rows", sort_key=4))
@dataclass(frozen=True)
class RowOptions:
    """Options for leaving rows of a table out.

    Attributes:
        drop: leave rows out, by COLUMN=VALUE joined by commas, as an outlier is named
        keep: leave out all rows but these, in the same form, e.g. model=8B or run=web-*
    """

    drop: Repeated = ()
    keep: Repeated = ()

    def selected(self, table: pd.DataFrame) -> pd.DataFrame:
        """Return the rows of --keep without those of --drop."""
        return without(only(table, self.keep), self.drop)

    def by_columns(self, table: pd.DataFrame) -> tuple["RowOptions", "RowOptions"]:
        """Return what the columns of a table select, and the rest."""

        def here(text: str) -> bool:
            return all(part.partition("=")[0].strip() in table for part in text.split(","))

        split = [
            RowOptions(
                tuple(text for text in self.drop if here(text) == wanted),
                tuple(text for text in self.keep if here(text) == wanted),
            )
            for wanted in (True, False)
        ]
        return split[0], split[1]


@Parameter(name="*", group=Group("Fit", sort_key=4))
@dataclass(frozen=True)
class FitOptions(RowOptions):
    """Options for fitting a law.

    Attributes:
        resamples: refits to resampled runs, for intervals; 10 or more
        level: coverage of the intervals
        seed: of the resampling
        drop: leave rows out, by COLUMN=VALUE joined by commas, as an outlier is named
        keep: leave out all rows but these, in the same form, e.g. model=8B or run=web-*
        fix: fix a parameter, e.g. L_0=1.69
        bound: bound a parameter, e.g. L_0=1.5:1.8
    """

    resamples: Resamples | None = None
    level: Number = 0.90
    seed: int = 0
    fix: Repeated = ()
    bound: Repeated = ()

    def options(self, resamples: int, draws: int = 0) -> Options:
        """Return how intervals are made; `resamples` is the default of the kind of fit."""
        return Options(self.resamples or resamples, self.level, self.seed, draws)

    @property
    def constraints(self) -> str:
        """The parameters that are fixed or bounded; InputError for a text that is no constraint."""
        constraints = ", ".join([*self.fix, *self.bound])
        try:
            parse_ranges(constraints)
        except InputError as error:
            raise InputError(f"--fix, --bound: {error}") from None
        return constraints
