"""Checkpoints: atomic and asynchronous (orbax), the newest two kept, fork points kept for good.

A checkpoint is named by the tokens consumed. It holds the state and a small JSON record: the
position in the stream (the loader's whole state) and the sums the next curve row continues.
"""

import errno
import logging
import time
import warnings
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import jax
import orbax.checkpoint as ocp

from bss.errors import InputError
from bss.training.devices.processes import first, together
from bss.training.step import State

# What fails in orbax's threads is raised where it is waited for; it need not be logged too.
logging.getLogger("absl").setLevel(logging.CRITICAL)


Restored = tuple[State, dict[str, Any]]
"""What a checkpoint gives back: the state, and the record saved with it."""


class Checkpoints:
    """The checkpoints of one run directory; use `open_checkpoints`."""

    def __init__(self, directory: Path):
        self._damaged = directory / "damaged"
        self._recent = _manager(directory / "checkpoints", max_to_keep=2)
        self._forks = _manager(directory / "forks")
        self._both = self._recent, self._forks

    def save(self, tokens: int, state: State, record: dict[str, Any], *, fork: bool) -> None:
        """Starts saving and returns; a fork point is kept for good."""
        manager = self._forks if fork else self._recent
        if tokens in manager.all_steps():
            return
        parts = {"state": ocp.args.StandardSave(state), "record": ocp.args.JsonSave(record)}
        with _full_disk_told(manager):
            manager.save(tokens, args=ocp.args.Composite(**parts), force=True)

    def tokens(self) -> list[int]:
        """Token counts of all checkpoints, newest first."""
        return sorted({t for manager in self._both for t in manager.all_steps()}, reverse=True)

    def forks(self) -> list[int]:
        """Token counts of the fork points, in order."""
        return sorted(self._forks.all_steps())

    def restore(self, tokens: int, abstract_state: Any) -> Restored:
        """Reads one checkpoint onto the shardings of `abstract_state`; orbax's errors pass."""
        manager = self._forks if tokens in self._forks.all_steps() else self._recent
        return _restore(manager, tokens, abstract_state)

    def restore_newest(self, abstract_state: Any, before: int | None = None) -> Restored | None:
        """The newest readable checkpoint (before some tokens), or None where there is none.

        A damaged one is put aside with a warning, and the one before it is read.
        """
        for tokens in (t for t in self.tokens() if before is None or t < before):
            try:
                return self.restore(tokens, abstract_state)
            except Exception as error:  # a torn file surfaces as one of many types
                warnings.warn(
                    f"checkpoint at {tokens} tokens cannot be read ({type(error).__name__}); "
                    "falling back to the one before it",
                    RuntimeWarning,
                    stacklevel=2,
                )
                self._put_aside(tokens)
        return None

    def _put_aside(self, tokens: int) -> None:
        def move(manager: ocp.CheckpointManager) -> None:
            self._damaged.mkdir(exist_ok=True)
            name = f"{tokens}-{time.time_ns()}"
            (Path(manager.directory) / str(tokens)).rename(self._damaged / name)

        for manager in self._both:
            if tokens in manager.all_steps():
                together(lambda manager=manager: move(manager) if first() else None)
                manager.reload()

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
        try:
            return _restore(manager, tokens, abstract_state)
        except Exception as error:  # a torn file surfaces as one of many types
            raise InputError(
                f"fork point {directory / 'forks' / str(tokens)} cannot be read "
                f"({type(error).__name__}); delete {directory} and train that run again"
            ) from None


def abstract(state_shapes: Any, sharding: jax.sharding.Sharding) -> Any:
    """Shapes with a sharding, as orbax wants them for restoring."""
    return jax.tree.map(
        lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding), state_shapes
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


def _restore(manager: ocp.CheckpointManager, tokens: int, abstract_state: Any) -> Restored:
    parts = {"state": ocp.args.StandardRestore(abstract_state), "record": ocp.args.JsonRestore()}
    items = manager.restore(tokens, args=ocp.args.Composite(**parts))
    return State(*items["state"]), items["record"]
