"""How every command ends: an exit status, and one line on stderr where it is not 0."""

import contextlib
import errno
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

from bss import install
from bss.errors import InputError

INTERRUPTED = 130
"""As shells say SIGINT: 128 and its number."""
TRAIN = ("absl", "array_record", "flax", "grain", "importlib_resources", "ml_collections", "optax",
         "orbax", "submitit", "tensorflow_datasets", "tokenizers")  # fmt: skip
"""Modules of the extra train."""


def ended(name: str, run: Callable[[], int]) -> int:
    """The exit status of a command, whatever happens to it.

    Args:
        name: what its line begins with, as "bss plan".
        run: the command; its own status.

    Returns:
        Its status, 0 too where the reader of a pipe leaves; 2 for bad input, a file or a disk that
        cannot be read or written, and no output; 130 for Ctrl-C. What it raises besides is a
        mistake of ours, or of a user's code, and is raised.
    """
    if sys.stderr is None:  # closed: nobody is there to be told
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    if sys.stdout is None:
        return _line(name, "standard output is closed; send it to a file, a pipe or /dev/null", 2)
    try:
        return _flushed(run)
    except BrokenPipeError:  # the reader has seen enough, as in `bss models | head`
        _drop_output()
        return 0
    except InputError as error:
        return _line(name, str(error), 2)
    except KeyboardInterrupt:
        return _line(name, "interrupted; no file is half-written: run it again", INTERRUPTED)
    except ModuleNotFoundError as error:
        module = (error.name or "").partition(".")[0]
        if module not in TRAIN:
            raise
        return _line(name, f"{module} is not installed; {install('train')}", 2)
    except MemoryError:
        return _line(name, "this takes more memory than there is; ask for less", 2)
    except Exception as error:
        line = _of_system(error)
        if not line:
            raise
        _drop_output()
        return _line(name, line, 2)


def _flushed(run: Callable[[], int]) -> int:
    """Its status, once all it printed is written."""
    try:
        status = run()
    except SystemExit:
        sys.stdout.flush()
        raise
    sys.stdout.flush()
    return status


def _line(name: str, text: str, status: int) -> int:
    print(f"{name}: {text}", file=sys.stderr)
    return status


def _of_system(error: Any) -> str:
    """What the system refused, in a line; empty for another error.

    Libraries tell of a full disk in errors of their own, some over many lines.
    """
    full = os.strerror(errno.ENOSPC)
    where = f"{error.filename}: " if getattr(error, "filename", None) else ""
    if any(full in str(one) for one in _chain(error)):
        return f"{where}{full}; make room, and run it again"
    if not isinstance(error, OSError):
        return ""
    return where + (" ".join((error.strerror or str(error)).split())[:300] or type(error).__name__)


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """An error and those that it came of."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _drop_output() -> None:
    """What is not written yet is not tried again when the interpreter leaves."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
