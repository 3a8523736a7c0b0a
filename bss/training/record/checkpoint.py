"""Checkpoints: atomic and asynchronous (orbax), the newest two kept, fork points kept for good.

A checkpoint is named by the tokens consumed. It holds the state and a small JSON record: the
position in the stream (the loader's whole state), the sums the next curve row continues, and the
curve to there. The hash of both stands in the record, and is checked when they are read.
"""

import errno
import json
import logging
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import jax
import orbax.checkpoint as ocp

from bss.errors import InputError
from bss.training.devices.processes import first, gather, several, together
from bss.training.record.seals import put_aside, state_hash, tell
from bss.training.step import State

# What fails in orbax's threads is raised where it is waited for; it need not be logged too.
for name in ("absl", "asyncio"):
    logging.getLogger(name).setLevel(logging.CRITICAL)


_UNREAD = "coroutine '_read_array_index_and_device_put' was never awaited"


def _without_late_reads(told: Callable[[Any], object]) -> Callable[[Any], None]:
    """What tells of exceptions that nobody can catch, but for those of a damaged checkpoint.

    Orbax closes its event loop where one read fails; each of the others says so, or fails too.
    """
    # Its own: what a module holds may be gone where an interpreter ends.
    late = "Event loop is closed", "Encountered error while reading array index", _UNREAD

    def hook(unraisable: Any) -> None:
        if not str(unraisable.exc_value).startswith(late):
            told(unraisable)

    return hook


sys.unraisablehook = _without_late_reads(sys.unraisablehook)
warnings.filterwarnings("ignore", _UNREAD, RuntimeWarning)

Restored = tuple[State, dict[str, Any]]
"""What a checkpoint gives back: the state, and the record saved with it."""


class Damaged(Exception):
    """A checkpoint cannot be read, or is not what was saved; in all processes alike."""


class Checkpoints:
    """The checkpoints of one run directory; use `open_checkpoints`."""

    def __init__(self, directory: Path):
        self._damaged = directory / "damaged"
        self._recent = _manager(directory / "checkpoints", max_to_keep=2)
        self._forks = _manager(directory / "forks")
        self._both = self._recent, self._forks

    def save(self, tokens: int, state: State, record: dict[str, Any], *, fork: bool) -> None:
        """Starts saving and returns; a fork point is kept for good."""
        manager, other = (self._forks, self._recent) if fork else (self._recent, self._forks)
        if tokens in manager.all_steps():
            return
        if several():  # orbax counts the saves of both together, and their threads read the count
            with _full_disk_told(other):
                other.wait_until_finished()
        books = {"record": record, "hash": state_hash(state, record)}
        parts = {"state": ocp.args.StandardSave(state), "record": ocp.args.JsonSave(books)}
        with _full_disk_told(manager):
            manager.save(tokens, args=ocp.args.Composite(**parts), force=True)

    def tokens(self) -> list[int]:
        """Token counts of all checkpoints, newest first."""
        return sorted({t for manager in self._both for t in manager.all_steps()}, reverse=True)

    def forks(self) -> list[int]:
        """Token counts of the fork points, in order."""
        return sorted(self._forks.all_steps())

    def restore(self, tokens: int, abstract_state: Any) -> Restored:
        """Reads one checkpoint onto the shardings of `abstract_state`; Damaged where it is."""
        return _restore(self._path(tokens), abstract_state)

    def take(self, tokens: int, abstract_state: Any) -> Restored | None:
        """The same; a damaged one is put aside with a warning, and None is returned."""
        try:
            return self.restore(tokens, abstract_state)
        except Damaged as damaged:
            self.put_aside(tokens, str(damaged))
            return None

    def put_aside(self, tokens: int, why: str) -> None:
        """Moves a checkpoint to where no run goes on from it, and says so."""
        path = self._path(tokens)
        tell(f"checkpoint {path} {why}; it is put aside, and the one before it is taken")
        together(lambda: put_aside(path, self._damaged) if first() else None)
        for manager in self._both:
            manager.reload()

    def drop_newer(self, tokens: int) -> None:
        """Deletes those that a run which goes on from here makes again; not the fork points."""
        for newer in self._recent.all_steps():
            if newer > tokens:
                self._recent.delete(newer)

    def _path(self, tokens: int) -> Path:
        manager = self._forks if tokens in self._forks.all_steps() else self._recent
        return Path(manager.directory) / str(tokens)

    def wait(self) -> None:
        """Returns when everything saved so far is on disk."""
        for manager in self._both:
            with _full_disk_told(manager):
                manager.wait_until_finished()

    def close(self) -> None:
        """Waits and releases the threads."""
        for manager in self._both:
            with _full_disk_told(manager):
                manager.close()


@contextmanager
def open_checkpoints(directory: Path) -> Iterator[Checkpoints]:
    """The checkpoints of a run directory, closed on leaving."""
    with closing(Checkpoints(directory)) as checkpoints:
        yield checkpoints


def saved(directory: Path) -> list[str]:
    """The checkpoints and the fork points of a run directory, as paths in it."""
    paths = (path for folder in ("checkpoints", "forks") for path in (directory / folder).glob("*"))
    return sorted(str(path.relative_to(directory)) for path in paths)


def missing_forks(directory: Path, wanted: set[int]) -> set[int]:
    """Those of the wanted fork points, in tokens, that a run directory does not hold."""
    return {tokens for tokens in wanted if not (directory / "forks" / str(tokens)).is_dir()}


def restore_fork(directory: Path, tokens: int, abstract_state: Any) -> Restored:
    """A fork point of another run, which may be writing at the same time.

    Raises:
        InputError: where that run kept no such point, or it cannot be read.
    """
    if not (directory / "forks").is_dir():
        raise InputError(f"parent run {directory} has no fork points; train it with forks first")
    with closing(_manager(directory / "forks", read_only=True)) as manager:
        if tokens not in manager.all_steps():
            steps = ", ".join(map(str, sorted(manager.all_steps()))) or "none"
            raise InputError(f"parent.tokens is {tokens}; {directory} kept fork points at {steps}")
    path = directory / "forks" / str(tokens)
    try:
        return _restore(path, abstract_state)
    except Damaged as damaged:
        raise InputError(
            f"fork point {path} {damaged}; delete it and train that run again"
        ) from None


def abstract(state: Any, sharding: jax.sharding.Sharding | None = None) -> Any:
    """Shapes with a sharding, or with their own, as orbax and compilers want them."""
    return jax.tree.map(
        lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding or x.sharding), state
    )


def _manager(directory: Path, *, read_only: bool = False, **options: Any) -> ocp.CheckpointManager:
    options |= {"read_only": read_only, "cleanup_tmp_directories": not read_only}
    chosen = ocp.CheckpointManagerOptions(**options)
    return ocp.CheckpointManager(directory.absolute(), options=chosen)


@contextmanager
def _full_disk_told(manager: ocp.CheckpointManager) -> Iterator[None]:
    """A full disk as the OSError it is; tensorstore makes it a ValueError of many lines."""
    try:
        yield
    except ValueError as error:
        if "No space left" not in str(error):
            raise
        raise OSError(errno.ENOSPC, "No space left on device", str(manager.directory)) from None


def _restore(path: Path, abstract_state: Any) -> Restored:
    found, problem = None, ""
    try:
        found = _read(path, abstract_state)
    except jax.errors.JaxRuntimeError:  # no memory on a device: no damage
        raise
    except Exception as error:  # a torn file surfaces as one of many types
        problem = f"cannot be read ({type(error).__name__})"
    problem = next(filter(None, gather(problem)), "")
    if problem or found is None:
        raise Damaged(problem)
    state, record, kept = found
    if kept != state_hash(state, record):
        raise Damaged("is not what was saved: its hash differs")
    return state, record


def _read(path: Path, abstract_state: Any) -> tuple[State, dict[str, Any], str | None]:
    """State, record and hash; by no manager, which would wait for a process that cannot read."""
    books = json.loads((path / "record" / "metadata").read_text())
    args = ocp.args.StandardRestore(abstract_state)
    place: Any = (path / "state").absolute()
    state = ocp.StandardCheckpointHandler().restore(place, args=args)
    return State(*state), books["record"], books["hash"]
