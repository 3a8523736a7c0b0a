"""The directory of a run: its config, loss curve, status and executions, and its one writer.

    runs/<id>/config.json      the run's config
              execution.json   where and how it ran, one record per start
              curve.jsonl      one row per evaluation; cut on resume to the checkpoint's tokens
              steps.csv        every N-th step, with execution.log_every; cut on resume too
              status.json      running, interrupted, failed, diverged or finished; the final numbers
              ends.json        the ends of smaller token budgets, past which the run went on
              checkpoints/     the newest two;  forks/  fork points;  damaged/  what was moved aside

config.json and status.json have their own checksums, and the status of a run that has ended has the
checksum of its curve. A checkpoint has the curve up to its tokens, so that a changed one is written
again.
"""

import fcntl
import hashlib
import json
import os
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from bss.errors import InputError
from bss.files import is_locked, read_json, refuse_stream, write_json, write_text
from bss.registry import UntrustedError, reading_data
from bss.schedules.plan import Plan
from bss.training.distributed import is_primary
from bss.training.run_config import RunConfig
from bss.values import from_dict, to_dict

Rows = list[dict[str, Any]]

CURVE = "curve.jsonl"
ENDS = "ends.json"
STEP_COLUMNS = (
    *("step", "tokens", "batch", "lr", "loss", "grad_norm", "noise_scale", "skipped", "seconds"),
)
"""The columns of a curve that are not held-out numbers."""
_HASH_DIGITS = 16


@dataclass(frozen=True)
class Speed:
    """Throughput of a run at one batch size.

    Attributes:
        batch: batch size in sequences.
        tokens: tokens trained on at this batch size.
        tokens_per_second: throughput of training steps.
        mfu: model FLOP utilisation; None if the devices' peak FLOP/s are unknown.
    """

    batch: int
    tokens: int
    tokens_per_second: float
    mfu: float | None


@dataclass(frozen=True)
class RunStatus:
    """The status of a run, and its final numbers if it has finished.

    Attributes:
        status: "to do" if nothing was written yet; "skipped" if its parent did not finish;
            "damaged" if its curve has changed since it ended.
        tokens: tokens consumed; of a diverged run, at the end of the step that was not finite.
        step: optimizer steps, including those of parents.
        losses: final losses by name: loss, eval_loss, eval_loss_avg_HALFLIFE, test_loss, ...; in
            nats per token, None if missing.
        seconds: seconds in training steps.
        remainder_tokens: trailing tokens that do not fill a batch.
        programs: number of compiled programs.
        recompilations: compilations after the first use of a program.
        throughput: by batch size.
        skipped: steps that were skipped as spikes.
        last_checkpoint: tokens of a diverged run's newest checkpoint, None if there is none.
        message: why it failed or was skipped, or what is damaged.
    """

    status: Literal[
        "to do", "running", "interrupted", "failed", "skipped", "damaged", "diverged", "finished"
    ] = "to do"
    tokens: int = 0
    step: int = 0
    losses: Mapping[str, Any] = field(default_factory=dict)
    seconds: float = 0.0
    remainder_tokens: int = 0
    programs: int = 0
    recompilations: int = 0
    throughput: tuple[Speed, ...] = ()
    skipped: int = 0
    last_checkpoint: int | None = None
    message: str = ""

    @property
    def finished(self) -> bool:
        """True if the run has reached its token budget."""
        return self.status == "finished"


@dataclass(frozen=True)
class End:
    """The end of a token budget past which a run went on.

    Attributes:
        status: the final status at this end.
        row: its curve row, which is none of the longer run's.
    """

    status: RunStatus
    row: Mapping[str, Any]


def throughput(
    rows: Rows, peak_tokens_per_second: float | None, start: int = 0
) -> tuple[Speed, ...]:
    """Return tokens per second and MFU by batch size.

    Args:
        rows: a curve, with cumulative `seconds`.
        peak_tokens_per_second: throughput at the devices' peak FLOP/s; None if unknown.
        start: tokens consumed before the first row's steps.
    """
    spans: dict[int, list[float]] = {}
    tokens = start
    seconds = 0.0
    for row in rows:
        span = spans.setdefault(row["batch"], [0, 0.0])
        span[0] += row["tokens"] - tokens
        span[1] += row["seconds"] - seconds
        tokens = row["tokens"]
        seconds = row["seconds"]
    peak = peak_tokens_per_second
    speeds = [(b, int(spent), spent / took) for b, (spent, took) in spans.items() if took > 0]
    return tuple(Speed(*one, peak and one[-1] / peak) for one in speeds)


class RunDirectory:
    """The directory of one run; use `open_run`.

    Attributes:
        path: the directory.
        writable: False in processes that leave writing to process 0.
    """

    def __init__(self, path: Path, *, writable: bool = True) -> None:
        self.path = path
        self.writable = writable
        self._curve_hash: Any = None  # once this process has written the curve

    def check_config(self, run: RunConfig) -> None:
        """Write the run's config, unless a larger token budget was trained.

        Raises:
            InputError: If the directory belongs to another run.
        """
        if not self.writable:
            return
        file = self.path / "config.json"
        try:
            found = self._resumable_config().id if file.exists() else run.id
        except UntrustedError:
            raise
        except InputError as damage:
            if self.path.name != run.id:
                raise
            _warn(f"{damage}; it is written again")
            move_aside(file)
            found = run.id
        if found != run.id:
            raise InputError(
                f"{file} holds run {found}, not {run.id}; choose another runs directory"
            )
        if read_status(self.path).tokens <= run.schedule.tokens or not file.exists():
            write_json(file, with_checksum({"id": run.id, **to_dict(run)}))

    def _resumable_config(self) -> RunConfig:
        """Return the run of the directory, whose config must have its checksum."""
        file = self.path / "config.json"
        if "hash" not in read_json(file, "train the run again"):
            raise UntrustedError(
                f"{file}: has no hash, so the run is not resumed; choose another runs directory"
            )
        return read_config(self.path)

    def truncate_curve(self, tokens: int, rows: Rows) -> None:
        """Truncate the curve to a checkpoint's.

        Args:
            tokens: Tokens at which the run continues.
            rows: the rows of the checkpoint.
        """
        if not self.writable:
            return
        found = read_curve(self.path)
        self.write_status(RunStatus("running", tokens))
        if lost := sum(row not in found for row in rows):
            file = self.path / CURVE
            change = f"{lost} of {len(rows)} rows to {tokens} tokens were lost or changed"
            _warn(f"{file}: {change}; they are written again from the checkpoint")
            if file.exists():
                move_aside(file)
        text = "".join(json.dumps(row) + "\n" for row in rows)
        write_text(self.path / CURVE, text)
        self._curve_hash = hashlib.sha256(text.encode())

    def add_row(self, row: Mapping[str, Any]) -> None:
        """Append a curve row; it is on disk when this returns."""
        if not self.writable:
            return
        line = json.dumps(dict(row)) + "\n"
        self._curve_hash = self._curve_hash or hashlib.sha256()
        self._curve_hash.update(line.encode())
        with open(self.path / CURVE, "a") as file:
            file.write(line)
            file.flush()
            os.fsync(file.fileno())

    def keep_end(self, row: Mapping[str, Any]) -> None:
        """Keep the end of a smaller token budget before the run goes on past it.

        Args:
            row: the curve row there.
        """
        ends = read_ends(self.path)
        tokens = row["tokens"]
        if not self.writable or tokens in ends:  # kept already, before the process was killed
            return
        status = read_status(self.path)
        if not status.finished or status.tokens != tokens:
            status = _measure_at(row, tokens, row["step"])
        ends[tokens] = End(status, row)
        write_json(self.path / ENDS, {str(at): to_dict(end) for at, end in ends.items()})

    def write_status(self, status: RunStatus) -> None:
        """Replace the status."""
        if not self.writable:
            return
        files = {}
        if self._curve_hash and status.status != "running":
            files = {CURVE: self._curve_hash.hexdigest()[:_HASH_DIGITS]}
        write_json(self.path / "status.json", with_checksum(to_dict(status) | {"files": files}))

    def add_execution(self, record: dict[str, Any]) -> dict[str, Any] | None:
        """Append an execution record; return the previous one, None at the first start."""
        records = read_executions(self.path)
        if self.writable:
            write_json(self.path / "execution.json", [*records, record])
        return records[-1] if records else None

    def last_execution(self) -> dict[str, Any]:
        """Return the record of the last start; empty before the first."""
        records = read_executions(self.path)
        return records[-1] if records else {}


def run_path(runs: str | Path, run: RunConfig) -> Path:
    """Return the directory of a run."""
    return Path(runs) / run.id


@contextmanager
def open_run(path: Path) -> Iterator[RunDirectory]:
    """Open a run directory for writing; of several processes, process 0 writes and has the lock.

    Raises:
        InputError: If another process writes it, or its file system has no locks.
    """
    if not is_primary():
        yield RunDirectory(path, writable=False)
        return
    path.mkdir(parents=True, exist_ok=True)
    refuse_stream(path / "lock")
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
    """Return True if a process has the lock of a run directory."""
    return is_locked(path / "lock")


def read_config(path: Path) -> RunConfig:
    """Return the run of a directory, which is data: it names no code (`bss.registry.trusting`).

    A config without its checksum is read with a warning.

    Raises:
        InputError: If its config cannot be read.
        UntrustedError: If it names a `module:ATTRIBUTE` that the user has not given.
    """
    file = path / "config.json"
    hint = "name a run directory, or train the run again"
    entry = read_json(file, hint)
    values = verify_checksum(entry, str(file), hint)
    values.pop("id", None)
    try:
        with reading_data():
            run = from_dict(RunConfig, values)
    except UntrustedError as error:
        raise UntrustedError(f"{file}: {error}") from None
    if "hash" not in entry:
        _warn(
            f"{file}: has no hash, so it may have changed; it is read, and the run is not resumed"
        )
    return run


def read_status(path: Path) -> RunStatus:
    """Return the status of a run directory.

    It is "to do" if there is none, or, with a warning, if it is damaged; "damaged" if the curve has
    changed since the run ended.
    """
    file = path / "status.json"
    if not file.exists():
        return RunStatus()
    hint = "the run counts as not begun, and goes on from its checkpoint when it is trained"
    try:
        entry = verify_checksum(read_json(file, hint), str(file), hint)
        expected = entry.pop("files", {}).get(CURVE)
        status = from_dict(RunStatus, entry, f"{path}: status.", strict=False)
    except InputError as damage:
        _warn(str(damage))
        return RunStatus()
    if expected is not None and _file_hash(path / CURVE) != expected:
        message = f"{CURVE} changed since the run was {status.status}; train it again"
        return RunStatus("damaged", status.tokens, message=message)
    return status


def read_ends(path: Path) -> dict[int, End]:
    """Return by tokens the ends past which a run went on; none, with a warning, if damaged."""
    file = path / ENDS
    if not file.exists():
        return {}
    hint = "the numbers at the ends of smaller token budgets are lost"
    try:
        return {
            int(tokens): from_dict(End, end, f"{file}: ", strict=False)
            for tokens, end in read_json(file, hint).items()
        }
    except (InputError, ValueError) as damage:
        _warn(f"{file}: {damage}; {hint}")
        return {}


def status_at(path: Path, plan: Plan) -> RunStatus:
    """Return the status of a run directory as of a plan, past which the run may have gone on.

    Then the run counts as finished at the plan's end. Losses that were not measured there are None;
    `seconds` are 0 without a row there.
    """
    status = read_status(path)
    if status.status in ("to do", "skipped", "damaged") or status.tokens <= plan.tokens:
        return status
    end = read_ends(path).get(plan.tokens)
    if end is not None:
        return end.status
    rows = [row for row in read_curve(path) if row["tokens"] <= plan.tokens]
    row = rows[-1] if rows else {"tokens": plan.start, "step": 0}
    steps = row["step"] + plan.steps - plan.step_at(row["tokens"])
    return _measure_at(row, plan.tokens, steps)


def curve_at(path: Path, plan: Plan) -> Rows:
    """Return the rows of a curve up to a plan's end, past which the run may have gone on."""
    rows = [row for row in read_curve(path) if row["tokens"] <= plan.tokens]
    end = read_ends(path).get(plan.tokens)
    if end is not None and (not rows or rows[-1]["tokens"] < plan.tokens):
        rows.append(dict(end.row))
    return rows


def _measure_at(row: Mapping[str, Any], tokens: int, step: int) -> RunStatus:
    """Return the final status of a run at `tokens`, given its last row up to there."""
    measured = row if row["tokens"] == tokens else {}
    names = [name for name in row if name not in STEP_COLUMNS]
    losses = {name: measured.get(name) for name in ("loss", *names, "test_loss")}
    seconds = measured.get("seconds", 0.0)
    return RunStatus("finished", tokens, step, losses, seconds)


def read_executions(path: Path) -> Rows:
    """Return the records of a run's starts; none, with a warning, if they cannot be read."""
    file = path / "execution.json"
    refuse_stream(file)
    try:
        records = json.loads(file.read_text()) if file.exists() else []
    except (ValueError, RecursionError) as error:
        records = str(error)
    if isinstance(records, list) and all(isinstance(record, dict) for record in records):
        return records
    _warn(f"{file}: cannot be read; earlier starts of the run are unknown")
    return []


def read_curve(path: Path) -> Rows:
    """Return the rows of a curve, up to an incomplete line.

    Raises:
        InputError: If the curve is a pipe or a device.
    """
    rows: Rows = []
    refuse_stream(path / CURVE)
    unreadable = (FileNotFoundError, ValueError, TypeError, RecursionError)
    with suppress(*unreadable):  # not there; no JSON; no object
        for line in (path / CURVE).read_text(errors="replace").splitlines():
            rows.append({**json.loads(line)})
    return rows


def with_checksum(entry: dict[str, Any]) -> dict[str, Any]:
    """Return a JSON object with its checksum, as `hash`."""
    return entry | {"hash": _text_hash(json.dumps(entry, sort_keys=True).encode())}


def verify_checksum(entry: dict[str, Any], name: str, hint: str) -> dict[str, Any]:
    """Return the object without its checksum.

    Args:
        entry: the object; it may have no checksum.
        name: Name of the file, for the error message.
        hint: Advice for the error message.

    Raises:
        InputError: If it has changed.
    """
    rest = {key: value for key, value in entry.items() if key != "hash"}
    if entry.get("hash") not in (None, with_checksum(rest)["hash"]):
        raise InputError(f"{name}: is not what was written, its hash differs; {hint}")
    return rest


def move_aside(path: Path) -> None:
    """Move a file of a run directory, or a checkpoint, to `damaged`, under a unique name."""
    folder = path.parent if path.is_file() else path.parent.parent
    (folder / "damaged").mkdir(exist_ok=True)
    path.rename(folder / "damaged" / f"{path.name}-{time.time_ns()}")


def _text_hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:_HASH_DIGITS]


def _file_hash(file: Path) -> str:
    refuse_stream(file)
    return _text_hash(file.read_bytes() if file.exists() else b"")


def _warn(message: str) -> None:
    warnings.warn(message, RuntimeWarning, stacklevel=3)
