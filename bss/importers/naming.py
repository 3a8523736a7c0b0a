"""Names of runs: files of one name in several directories are named by their path.

The names of all runs begin with the same number of directories, the smallest that makes them
unique, e.g. `lr1e-3/seed1`.
"""

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from bss.importers.log import LOSSES, Log, named_by_directory, run_folder


def distinguished(logs: Sequence[Log]) -> list[Log]:
    """Return the logs, named by as much of their paths as makes two of them one run no more.

    Logs of one name are one run if they are of one place or have different losses. Names that no
    path distinguishes are unchanged, and so are those that files give to the same losses twice.
    """
    clash = _clash(logs, [log.run for log in logs])
    if clash is None or _exported_twice(*clash):
        return list(logs)
    folders = [_folders(log) for log in logs]
    shared = len(Path(os.path.commonpath([Path(*folder) for folder in folders])).parts)
    below = [folder[shared:] for folder in folders]
    for depth in range(1, max(map(len, below), default=0) + 1):
        names = [
            "/".join([*folder[-depth:], log.run]) for folder, log in zip(below, logs, strict=True)
        ]
        if _clash(logs, names) is None:
            return [replace(log, run=name) for log, name in zip(logs, names, strict=True)]
    return list(logs)


def _folders(log: Log) -> tuple[str, ...]:
    """Return the parts of the path before a run's name; a file's name, if it names several runs."""
    file = Path(log.source).resolve()
    if log.labelled:
        return (run_folder(file) if named_by_directory(file) else file.with_suffix("")).parts
    return (run_folder(file) if named_by_directory(file) else file).parent.parts


def _clash(logs: Sequence[Log], names: Sequence[str]) -> tuple[Log, Log] | None:
    """Return the first two logs of several places that would be one run and have the same loss."""
    places: dict[tuple[str, str], Log] = {}
    for log, name in zip(logs, names, strict=True):
        for loss in LOSSES:
            other = places.setdefault((name, loss), log) if loss in log.rows else log
            if other.place != log.place:
                return other, log
    return None


def _exported_twice(log: Log, other: Log) -> bool:
    """Return whether two files give one name to the same losses."""
    losses = [one.rows.filter(LOSSES).reset_index(drop=True) for one in (log, other)]
    return log.labelled and other.labelled and losses[0].equals(losses[1])
