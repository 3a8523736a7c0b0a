"""How runs ended and where they were trained, a row a run, from their directories."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pandas as pd

from bss.training.record.directory import (
    named_path,
    parent_path,
    read_config,
    read_executions,
    read_status,
)

COLUMNS = ("run", "status", "tokens", "commit", "registration")


def outcomes(runs: Path, ids: Sequence[str]) -> pd.DataFrame:
    """What became of runs; one that has no directory is "missing".

    Args:
        runs: directory of run directories.
        ids: of the runs.

    Returns:
        COLUMNS, and the final losses by name. `commit` has those of every start of the run and of
        its parents, `registration` those of every start of the run, each once, with spaces between.
    """
    rows = []
    for run in ids:
        path = named_path(runs, run)
        if not (path / "config.json").exists():
            rows.append({"run": run, "status": "missing"})
            continue
        status = read_status(path)
        starts = [record for place in _lineage(runs, path) for record in read_executions(place)]
        commits = [record.get("commit") or "unknown" for record in starts]
        registered = [record.get("registration") or "none" for record in read_executions(path)]
        row = {"run": run, "status": status.status, "tokens": status.tokens}
        row |= {"commit": _once(commits), "registration": _once(registered)}
        rows.append(row | dict(status.losses))
    return pd.DataFrame(rows).reindex(columns=[*COLUMNS, *_losses(rows)])


def _losses(rows: list[dict]) -> list[str]:
    return list(dict.fromkeys(name for row in rows for name in row if name not in COLUMNS))


def _lineage(runs: Path, path: Path) -> Iterator[Path]:
    """The directories of a run and of its parents."""
    yield path
    while parent := read_config(path).parent:
        path = parent_path(runs, parent)
        yield path


def _once(names: list[str]) -> str:
    return " ".join(dict.fromkeys(names))
