"""The directory of one run: its value, its curve, its status, and the lock of its one writer.

runs/<id>/config.json      the run, as a value
          execution.json   where and how it ran, one record per start
          curve.jsonl      one row per evaluation, appended; cut back on resume
          status.json      running, interrupted, failed, diverged or finished; the final numbers
          checkpoints/     the newest two;  forks/  fork points, kept
"""

import fcntl
import functools
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from bss.errors import InputError
from bss.files import is_locked, read_json, write_json, write_text
from bss.training.config import Parent, RunConfig
from bss.training.devices.processes import first
from bss.training.record.status import RunStatus
from bss.training.record.trackers.base import Tracker
from bss.values import from_dict, to_dict


class FollowedDirectory(Tracker):
    """One run's directory in a process that leaves the writing to the first of those that train."""

    def __init__(self, path: Path):
        self.path = path

    def check_config(self, run: RunConfig) -> None:
        """Writes nothing, but refuses a directory that is not the first process's."""
        if not (self.path / "config.json").exists():
            raise InputError(
                f"{self.path} is not there, which process 0 writes; give a runs directory on a "
                "file system that all processes share"
            )

    def add_execution(self, record: dict[str, Any]) -> dict[str, Any] | None:
        """Nothing."""


class RunDirectory(FollowedDirectory):
    """One run's directory, held by one writer: the first of its trackers; use `open_run`."""

    def check_config(self, run: RunConfig) -> None:
        """Writes the run's config, or refuses a directory that holds another run."""
        file = self.path / "config.json"
        if file.exists() and (held := held_id(self.path)) != run.id:
            raise InputError(
                f"{file} holds run {held}, not {run.id}; choose another runs directory"
            )
        write_json(file, {"id": run.id, **to_dict(run)})

    def begin(self, run: RunConfig, directory: Path, tokens: int) -> None:
        """Drops rows past `tokens`, and a torn last line."""
        del run, directory
        rows = [row for row in read_curve(self.path) if row["tokens"] <= tokens]
        text = "".join(json.dumps(row) + "\n" for row in rows)
        write_text(self.path / "curve.jsonl", text)
        self.end(RunStatus("running", tokens))

    def end(self, status: RunStatus) -> None:
        """Replaces the status."""
        write_json(self.path / "status.json", to_dict(status))

    def add_execution(self, record: dict[str, Any]) -> dict[str, Any] | None:
        """Appends an execution record; returns the one before, None at the first start."""
        records = read_executions(self.path)
        write_json(self.path / "execution.json", [*records, record])
        return records[-1] if records else None

    def row(self, row: Mapping[str, Any]) -> None:
        """Adds a curve row; it is on disk when this returns."""
        with open(self.path / "curve.jsonl", "a") as file:
            file.write(json.dumps(dict(row)) + "\n")
            file.flush()
            os.fsync(file.fileno())


def run_path(runs: str | Path, run: RunConfig) -> Path:
    """The directory of a run: of its id, or of one that it had before if only that exists."""
    for name in (run.id, *run.earlier_ids):
        if (path := Path(runs) / name).is_dir():
            return path
    # A branch was renamed where its parent was.
    return named_path(runs, run.id) if run.parent else Path(runs) / run.id


def parent_path(runs: str | Path, parent: Parent) -> Path:
    """The directory of a branch's parent; see `named_path`."""
    return named_path(runs, parent.run)


def named_path(runs: str | Path, name: str) -> Path:
    """The directory of a run's id: that of this name, or the one that holds the run."""
    path = Path(runs) / name
    others = [] if path.is_dir() else [file.parent for file in Path(runs).glob("*/config.json")]
    return next((other for other in others if _holds(other, name)), path)


def _holds(path: Path, name: str) -> bool:
    try:
        return name in _names(path)
    except InputError:  # another's, of a module that is not here
        return False


def held_id(path: Path) -> str:
    """The id of the run that a directory holds, whatever its parent was called when it was made."""
    return _names(path)[0]


def _names(path: Path) -> tuple[str, ...]:
    """The id of the run that a directory holds, and those that it had before."""
    return _names_of(path, (path / "config.json").stat().st_mtime_ns)


@functools.lru_cache(4096)  # every branch of a sweep that is not there yet looks through all
def _names_of(path: Path, _: int) -> tuple[str, ...]:
    run = read_config(path)
    given = (run.id, *run.earlier_ids)
    if run.parent and (path.parent / run.parent.run).is_dir():
        parent = replace(run.parent, run=held_id(path.parent / run.parent.run))
        run = replace(run, parent=parent)
    return (run.id, *given)


@contextmanager
def open_run(path: Path) -> Iterator[FollowedDirectory]:
    """Opens a run directory for writing, for this block; refused where another process writes.

    Of several processes that train the run together, the first writes, and holds the lock.
    """
    if not first():
        yield FollowedDirectory(path)
        return
    path.mkdir(parents=True, exist_ok=True)
    with open(path / "lock", "a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InputError(f"run directory {path} is being written by another process") from None
        except OSError as error:
            raise InputError(
                f"run directory {path}: its file system keeps no locks ({error.strerror}), and two "
                "could write one run; keep runs on one that does"
            ) from None
        yield RunDirectory(path)


def is_being_written(path: Path) -> bool:
    """Whether a process holds the lock of a run directory."""
    return is_locked(path / "lock")


def read_config(path: Path) -> RunConfig:
    """The run that a directory holds; InputError where its config cannot be read."""
    values = read_json(path / "config.json", "name a run directory")
    values.pop("id", None)
    return from_dict(RunConfig, values)


def read_status(path: Path) -> RunStatus:
    """The status of a run directory; "to do" where none was written."""
    try:
        entry = read_json(path / "status.json", "train the run")
    except InputError:
        return RunStatus()
    return from_dict(RunStatus, entry, f"{path}: status.", strict=False)


def read_executions(path: Path) -> list[dict[str, Any]]:
    """The records of a run's starts; none where it never started."""
    file = path / "execution.json"
    return json.loads(file.read_text()) if file.exists() else []


def read_curve(path: Path) -> list[dict[str, Any]]:
    """The curve's rows; a torn last line is left out."""
    try:
        lines = (path / "curve.jsonl").read_text().splitlines()
    except FileNotFoundError:
        return []
    rows = []
    for line in lines:
        try:
            rows.append(json.loads(line))
        except json.JSONDecodeError:
            break
    return rows
