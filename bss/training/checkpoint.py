"""Checkpoints: atomic and asynchronous (orbax); the newest two are kept, and all fork points.

A checkpoint is named by the tokens consumed. It holds the state and a small JSON record: the
position of the run, the sums that the next curve row continues, and the curve so far. A file
`checksums.json` has the SHA-256 of the files of both. They are compared before anything is read; a
damaged checkpoint is moved to the folder `damaged`.
"""

import errno
import hashlib
import json
import logging
import warnings
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import orbax.checkpoint as ocp

from bss.errors import InputError
from bss.training.distributed import gather_text, is_multihost, is_primary, on_all_hosts
from bss.training.run_directory import move_aside
from bss.training.step import State

CHECKSUMS = "checksums.json"

Restored = tuple[State, dict[str, Any]]
"""The state, and the record that was saved with it."""


class Damaged(Exception):
    """The files of a checkpoint are not those that were saved; raised in all processes."""


class Checkpoints:
    """The checkpoints of one run directory; use `open_checkpoints`."""

    def __init__(self, directory: Path) -> None:
        self._recent = _manager(directory / "checkpoints", max_to_keep=2)
        self._forks = _manager(directory / "forks")
        self._both = self._recent, self._forks

    def save(self, tokens: int, state: State, record: dict[str, Any], *, fork: bool) -> None:
        """Start saving and return; a fork point is never deleted."""
        manager, other = (self._forks, self._recent) if fork else (self._recent, self._forks)
        if tokens in manager.all_steps():
            return
        if is_multihost():  # orbax counts the saves of both managers together, in their threads
            with _disk_errors(other):
                other.wait_until_finished()
        record = {"record": record}
        parts = {"state": ocp.args.StandardSave(state), "record": ocp.args.JsonSave(record)}
        with _disk_errors(manager):
            manager.save(tokens, args=ocp.args.Composite(**parts), force=True)

    def reached_preemption(self, step: int) -> bool:
        """Return True at the step at which all processes save after one received a stop signal.

        Every process calls it at every step. SIGTERM is the signal of a preemption.
        """
        return self._recent.reached_preemption(step)

    def tokens(self) -> list[int]:
        """Return the token counts of all checkpoints, newest first."""
        return sorted({t for manager in self._both for t in manager.all_steps()}, reverse=True)

    def restore(self, tokens: int, abstract_state: Any) -> Restored | None:
        """Read a checkpoint onto the shardings of `abstract_state`.

        A damaged one is moved to the folder of damaged ones, with a warning; None is returned.
        """
        path = self.path(tokens)
        try:
            return restore_path(path, abstract_state)
        except Damaged as damaged:
            instead = "it is moved to `damaged`, and the one before it is used"
            warnings.warn(f"checkpoint {path} {damaged}; {instead}", RuntimeWarning, stacklevel=2)
        on_all_hosts(lambda: move_aside(path) if is_primary() else None)
        for manager in self._both:
            manager.reload()
        return None

    def drop_newer(self, tokens: int) -> None:
        """Delete later checkpoints, which the run will save again, but no fork points."""
        for newer in self._recent.all_steps():
            if newer > tokens:
                self._recent.delete(newer)

    def path(self, tokens: int) -> Path:
        """Return the directory of a checkpoint."""
        manager = self._forks if tokens in self._forks.all_steps() else self._recent
        return Path(manager.directory) / str(tokens)

    def wait(self) -> None:
        """Return when everything saved so far is on disk."""
        for manager in self._both:
            with _disk_errors(manager):
                manager.wait_until_finished()

    def close(self) -> None:
        """Wait, and release the threads."""
        for manager in self._both:
            with _disk_errors(manager):
                manager.close()


@contextmanager
def open_checkpoints(directory: Path) -> Iterator[Checkpoints]:
    """Open the checkpoints of a run directory; they are closed when the block ends.

    In the block orbax logs nothing; the errors of its threads are raised at the next wait.
    """
    log = logging.getLogger("absl")
    level = log.level
    log.setLevel(logging.CRITICAL)
    try:
        with closing(Checkpoints(directory)) as checkpoints:
            yield checkpoints
    finally:
        log.setLevel(level)


def saved(directory: Path) -> list[str]:
    """Return the paths of checkpoints and fork points in a run directory."""
    paths = (path for folder in ("checkpoints", "forks") for path in (directory / folder).glob("*"))
    return sorted(str(path.relative_to(directory)) for path in paths)


def missing_forks(directory: Path, wanted: set[int]) -> set[int]:
    """Return the fork points, in tokens, that a run directory does not have."""
    return {tokens for tokens in wanted if not (directory / "forks" / str(tokens)).is_dir()}


def restore_fork(directory: Path, tokens: int, abstract_state: Any) -> Restored:
    """Read a fork point of another run, which may be training at the same time.

    Raises:
        InputError: If that run has no such fork point, or it is damaged.
    """
    kept = sorted(int(p.name) for p in (directory / "forks").glob("*") if p.name.isdigit())
    if tokens not in kept:
        steps = ", ".join(map(str, kept)) or "none"
        raise InputError(
            f"parent.tokens is {tokens}; {directory} has fork points at {steps}; train it with more"
        )
    path = directory / "forks" / str(tokens)
    try:
        return restore_path(path, abstract_state)
    except Damaged as damaged:
        raise InputError(
            f"fork point {path} {damaged}; delete it and train that run again"
        ) from None


def _manager(directory: Path, **options: Any) -> ocp.CheckpointManager:
    directory = directory.absolute()
    checked = ocp.AsyncOptions(post_finalization_callback=partial(_write_checksums, directory))
    options |= {"cleanup_tmp_directories": True, "async_options": checked}
    return ocp.CheckpointManager(directory, options=ocp.CheckpointManagerOptions(**options))


def _write_checksums(directory: Path) -> None:
    """Write the checksums of a checkpoint that is complete but not yet renamed to its name.

    Orbax calls it in its own thread, and saves one checkpoint of a directory at a time.
    """
    for path in directory.glob("*.orbax-checkpoint-tmp*"):
        (path / CHECKSUMS).write_text(json.dumps(_checksums(path)))


def _checksums(path: Path) -> dict[str, str]:
    """Return the checksums of state and record; orbax writes other files afterwards."""
    sums = {}
    for file in sorted(path.glob("*/**/*")):
        if file.is_file():
            with open(file, "rb") as opened:
                digest = hashlib.file_digest(opened, "sha256").hexdigest()
            sums[str(file.relative_to(path))] = digest
    return sums


@contextmanager
def _disk_errors(manager: ocp.CheckpointManager) -> Iterator[None]:
    """Raise a full disk as OSError; tensorstore raises a ValueError of many lines."""
    try:
        yield
    except ValueError as error:
        if "No space left" not in str(error):
            raise
        raise OSError(errno.ENOSPC, "No space left on device", str(manager.directory)) from None


def restore_path(path: Path, abstract_state: Any) -> Restored:
    """Read a checkpoint without a manager, whose barriers would wait for a damaged one's process.

    Raises:
        Damaged: In all processes, if its files are not those that were saved.
    """
    problems = gather_text(_problem(path) if is_primary() else "")
    if problems[0]:
        raise Damaged(problems[0])
    record = json.loads((path / "record" / "metadata").read_text())
    args = ocp.args.StandardRestore(abstract_state)
    place: Any = (path / "state").absolute()
    state = ocp.StandardCheckpointHandler().restore(place, args=args)
    return type(abstract_state)(*state), record["record"]


def _problem(path: Path) -> str:
    """Return why a checkpoint is damaged; "" if its files are those that were saved."""
    try:
        expected = json.loads((path / CHECKSUMS).read_text())
        found = _checksums(path)
    except (OSError, ValueError) as error:
        return f"cannot be read ({type(error).__name__})"
    if expected == found:
        return ""
    changed = next((name for name in expected if found.get(name) != expected[name]), "a new file")
    return f"is not what was saved: the checksum of {changed} differs"
