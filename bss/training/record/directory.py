"""The directory of one run: its value, its curve, its status, and the lock of its one writer.

runs/<id>/config.json      the run, as a value
          execution.json   where and how it ran, one record per start
          curve.jsonl      one row per evaluation, appended; cut back on resume
          status.json      running, interrupted, failed, diverged or finished; the final numbers
          checkpoints/     the newest two;  forks/  fork points, kept;  damaged/  what was

The JSON files hold their own hashes, and the status of a run that has ended those of its curve and
executions. A checkpoint has both to where it stands, and gives back what they lost.
"""

import fcntl
import hashlib
import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bss.errors import InputError
from bss.files import is_locked, is_there, read_json, write_json, write_text
from bss.training.config import RunConfig
from bss.training.devices.processes import SEEN_SECONDS, first
from bss.training.record.seals import file_hash, put_aside, sealed, tell, unsealed
from bss.training.record.status import RunStatus
from bss.training.record.trackers.base import Tracker
from bss.values import from_dict, to_dict

Rows = list[dict[str, Any]]

CURVE, EXECUTIONS = "curve.jsonl", "execution.json"


class FollowedDirectory(Tracker):
    """One run's directory in a process that leaves the writing to the first of those that train.

    Attributes:
        executions: the records of the run's starts, where this is the process that writes.
    """

    def __init__(self, path: Path):
        self.path, self.executions = path, Rows()

    def check_config(self, run: RunConfig) -> None:
        """Writes nothing, but refuses a directory that is not the first process's.

        A file system may keep for a while that something is not there; what opens it asks again.
        """
        until = time.monotonic() + SEEN_SECONDS
        while not is_there(self.path / "config.json"):
            if time.monotonic() < until:
                time.sleep(0.5)
                continue
            raise InputError(
                f"{self.path} is not there, which process 0 writes; give a runs directory on a "
                "file system that all processes share"
            )

    def add_execution(self, record: dict[str, Any]) -> dict[str, Any] | None:
        """Nothing."""

    def put_back(self, tokens: int, curve: Rows | None = None, executions: Sequence = ()) -> Rows:
        """The curve to some tokens: a checkpoint's, or of one that has none the file's."""
        if curve is not None:
            return curve
        return [row for row in read_curve(self.path) if row["tokens"] <= tokens]


class RunDirectory(FollowedDirectory):
    """One run's directory, held by one writer: the first of its trackers; use `open_run`."""

    def __init__(self, path: Path):
        super().__init__(path)
        self._hashes = {}

    def check_config(self, run: RunConfig) -> None:
        """Writes the run's config, or refuses a directory that holds another run."""
        file = self.path / "config.json"
        try:
            held = read_config(self.path).id if file.exists() else run.id
        except InputError as damage:
            if self.path.name != run.id:
                raise
            self._put_aside("config.json", f"{damage}; it is written again")
            held = run.id
        if held != run.id:
            raise InputError(
                f"{file} holds run {held}, not {run.id}; choose another runs directory"
            )
        write_json(file, sealed({"id": run.id, **to_dict(run)}))

    def put_back(self, tokens: int, curve: Rows | None = None, executions: Sequence = ()) -> Rows:
        """Cuts the curve back to some tokens, and puts back what files lost that a checkpoint has.

        Args:
            tokens: where the run goes on.
            curve: its rows to there; None for those of the file.
            executions: the records of its starts to there.

        Returns:
            The curve.
        """
        self.end(RunStatus("running", tokens))
        rows, found = super().put_back(tokens, curve), read_curve(self.path)
        if lost := sum(row not in found for row in rows):
            told = f"{lost} of {len(rows)} rows to {tokens} tokens were lost or changed"
            self._put_aside(CURVE, f"{self.path / CURVE}: {told}; the checkpoint gives them back")
        text = "".join(json.dumps(row) + "\n" for row in rows)
        write_text(self.path / CURVE, text)
        self._hashes[CURVE] = hashlib.sha256(text.encode())
        records = read_executions(self.path)
        if lost := [record for record in executions if record not in records]:
            told = f"{len(lost)} of {len(executions)} records were lost or changed"
            told = f"{self.path / EXECUTIONS}: {told}; the checkpoint gives them back"
            self._put_aside(EXECUTIONS, told)
            records = [*executions, *records[len(executions) :]]
        elif not records:
            self._put_aside(EXECUTIONS)
        self._write_executions(records)
        return rows

    def _write_executions(self, records: Rows) -> None:
        self.executions = records
        write_json(self.path / EXECUTIONS, [sealed(record) for record in records])
        self._hashes[EXECUTIONS] = hashlib.sha256((self.path / EXECUTIONS).read_bytes())

    def _put_aside(self, name: str, told: str = "") -> None:
        if told:
            tell(told)
        if (self.path / name).exists():
            put_aside(self.path / name, self.path / "damaged")

    def end(self, status: RunStatus) -> None:
        """Replaces the status."""
        hashes = {} if status.status == "running" else self._hashes
        files = {name: made.hexdigest()[:16] for name, made in hashes.items()}
        write_json(self.path / "status.json", sealed(to_dict(status) | {"files": files}))

    def add_execution(self, record: dict[str, Any]) -> dict[str, Any] | None:
        """Appends an execution record; returns the one before, None at the first start."""
        records = self.executions or read_executions(self.path)
        self._write_executions([*records, record])
        return records[-1] if records else None

    def row(self, row: Mapping[str, Any]) -> None:
        """Adds a curve row; it is on disk when this returns."""
        line = json.dumps(dict(row)) + "\n"
        self._hashes.setdefault(CURVE, hashlib.sha256()).update(line.encode())
        with open(self.path / CURVE, "a") as file:
            file.write(line)
            file.flush()
            os.fsync(file.fileno())


def run_path(runs: str | Path, run: RunConfig) -> Path:
    """Return the directory of a run."""
    return Path(runs) / run.id


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
    file = path / "config.json"
    hint = "name a run directory, or train the run again"
    values = unsealed(read_json(file, hint), str(file), hint)
    values.pop("id", None)
    return from_dict(RunConfig, values)


def read_status(path: Path) -> RunStatus:
    """The status of a run directory; "to do" where none was written.

    It is "damaged" where the run had ended, and its curve or its executions have changed since. A
    status that is damaged itself is told, and "to do".
    """
    file = path / "status.json"
    if not file.exists():
        return RunStatus()
    hint = "the run counts as not begun, and goes on from its checkpoint when it is trained"
    try:
        entry = unsealed(read_json(file, hint), str(file), hint)
        files = entry.pop("files", {})
        status = from_dict(RunStatus, entry, f"{path}: status.", strict=False)
    except InputError as damage:
        tell(str(damage))
        return RunStatus()
    if changed := [name for name in files if file_hash(path / name) != files[name]]:
        told = f"{' and '.join(changed)} changed since the run was {status.status}; train it again"
        return RunStatus("damaged", status.tokens, message=told)
    return status


def read_executions(path: Path) -> list[dict[str, Any]]:
    """The records of a run's starts, none where it never started; damaged ones are told of."""
    file, records = path / EXECUTIONS, []
    hint = "the starts that it tells of are not known from there on"
    try:
        for record in json.loads(file.read_text()) if file.exists() else []:
            records.append(unsealed(record, str(file), hint))
    except InputError as damage:
        tell(str(damage))
    except (ValueError, TypeError, AttributeError) as damage:  # no JSON, no text, no objects
        tell(f"{file}: is not what was written ({type(damage).__name__}); {hint}")
    return records


def read_curve(path: Path) -> list[dict[str, Any]]:
    """The curve's rows; those behind a torn line are left out."""
    try:
        lines = (path / CURVE).read_text(errors="replace").splitlines()
    except FileNotFoundError:
        return []
    rows = []
    for line in lines:
        try:
            row = json.loads(line)
        except ValueError:
            break
        if not isinstance(row, dict):
            break
        rows.append(row)
    return rows
