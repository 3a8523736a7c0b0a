"""Several tables as one: rows one after another, and names of runs that stay distinct.

A run whose name is in two tables gets as much of its table's path as makes the names differ, e.g.
`70m/b8` and `160m/b8`.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from pathlib import Path

import pandas as pd

from bss.errors import InputError
from bss.tables.reading import Reading
from bss.tables.storage import read_table

SUFFIXES = (".csv", ".parquet")


def join_tables(tables: Sequence[tuple[Path, pd.DataFrame]]) -> pd.DataFrame:
    """Return tables of runs or points as one; a column that a table lacks is empty in its rows.

    Args:
        tables: The path of each table, and the table.

    Raises:
        InputError: If a path is there twice.
    """
    if len(tables) == 1:
        return tables[0][1]
    given: Counter[str] = Counter()
    for _, table in tables:
        given.update(set(table.get("run", [])))
    twice = {run for run, number in given.items() if number > 1}
    paths = distinct_paths([path for path, _ in tables])
    renamed: list[pd.DataFrame] = []
    for path, table in tables:
        own = {run: f"{paths[path]}/{run}" for run in twice}
        renamed.append(table.assign(run=table["run"].replace(own)) if "run" in table else table)
    return stacked(renamed)


def stacked(tables: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Return the rows of tables one after another, with a new index.

    A column has the type of the values that there are. Without this, the types of empty columns
    would depend on the version of pandas.

    Examples:
        >>> unknown = pd.DataFrame({"batch": [8], "lr": [None]})
        >>> stacked([unknown, pd.DataFrame({"batch": [16], "lr": [0.5]})])["lr"].tolist()
        [nan, 0.5]
    """
    columns = dict.fromkeys(name for table in tables for name in table)
    known = [table.dropna(axis="columns", how="all") for table in tables]
    return pd.concat(known, ignore_index=True).reindex(columns=[*columns])


def distinct_paths(paths: Sequence[Path]) -> dict[Path, str]:
    """Return the end of each path, without its extension, that no other path has.

    A table called runs has the name of its directory.

    Raises:
        InputError: If a path is there twice.

    Examples:
        >>> list(distinct_paths([Path("a/lr1.csv"), Path("b/lr1.csv")]).values())
        ['a/lr1', 'b/lr1']
        >>> list(distinct_paths([Path("a/runs.csv"), Path("b/runs.csv")]).values())
        ['a', 'b']
    """
    resolved = {path: path.resolve() for path in paths}
    for path, number in Counter(path.resolve() for path in paths).items():
        if number > 1:
            raise InputError(f"{path}: is given twice; name it once")
    parts = {path: _naming_parts(real) for path, real in resolved.items()}
    if len(set(parts.values())) < len(parts):
        parts = {path: real.parts for path, real in resolved.items()}
    deepest = max(map(len, parts.values()))
    for depth in range(1, deepest + 1):
        names = {path: "/".join(part[-depth:]) for path, part in parts.items()}
        if len(set(names.values())) == len(names):
            return names
    return {path: str(real) for path, real in resolved.items()}


def _naming_parts(path: Path) -> tuple[str, ...]:
    """Return the parts of a path that name its table."""
    if path.is_dir():
        return path.parts
    return path.parent.parts if path.stem == "runs" else path.with_suffix("").parts


def tables_in(
    folder: Path, reading: Reading, holds: Callable[[pd.DataFrame], bool] | None = None
) -> tuple[list[Path], list[Path]]:
    """Return the tables of one kind among the CSV and Parquet files of a directory, and the others.

    Args:
        folder: The directory; others in it are not looked into.
        reading: Names of the columns.
        holds: Whether a table is of the kind; by default `holds_runs`.

    Raises:
        InputError: If a file cannot be read.
    """
    files = sorted(path for path in folder.iterdir() if path.suffix in SUFFIXES and path.is_file())
    is_kind = holds or holds_runs
    found = [path for path in files if is_kind(read_table(path, reading)[0])]
    return found, [path for path in files if path not in found]


def holds_runs(table: pd.DataFrame) -> bool:
    """Return whether a table has loss curves.

    A table of last losses has one row per run, or per run and `token_budget`.
    """
    if not has_run_columns(table):
        return False
    key = [name for name in ("run", "token_budget", "stop") if name in table]
    return bool(table.duplicated(key).any())


def holds_losses(table: pd.DataFrame) -> bool:
    """Return whether a table has a row per run: its size, and its last loss unless it is unknown.

    Examples:
        >>> holds_losses(pd.DataFrame({"params": [1], "tokens": [1], "batch": [8], "loss": [3.0]}))
        True
    """
    columns = {*table}
    sized = {"params", "tokens"} <= columns and columns & {"batch", "batch_tokens"}
    return bool(sized) and not holds_runs(table) and not columns & {"target_loss", "target"}


def has_run_columns(names: Iterable[Hashable]) -> bool:
    """Return whether a table has the columns of a run table.

    Examples:
        >>> has_run_columns(["run", "batch", "seq_len", "step", "loss"])
        True
    """
    columns = {*names}
    counted = columns & {"step", "tokens"}
    sized = columns & {"seq_len", "batch_tokens"}
    lost = columns & {"loss", "eval_loss"}
    return bool({"run", "batch"} <= columns and counted and sized and lost)
