"""Exit status of a command, and one line on stderr for an error."""

import contextlib
import errno
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

from bss import install
from bss.errors import InputError

INTERRUPTED = 130
"""128 plus the number of SIGINT, as in shells."""
TRAIN = ("absl", "array_record", "flax", "grain", "importlib_resources", "ml_collections", "optax",
         "orbax", "submitit", "tensorflow_datasets", "tokenizers")  # fmt: skip
"""Modules of the extra train."""


def ended(name: str, run: Callable[[], int]) -> int:
    """Run a command and return its exit status; print one line on stderr for an expected error.

    Args:
        name: name of the command, e.g. "bss plan", printed before an error.
        run: the command, which returns its status.

    Returns:
        The status of the command; 0 if the reader closes a pipe early; 130 for Ctrl-C. It is 2 for
        bad input, for a file or disk that cannot be read or written, and if stdout is closed.
        Other exceptions are raised.
    """
    if sys.stderr is None:  # closed
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    if sys.stdout is None:
        return _line(name, "standard output is closed; send it to a file, a pipe or /dev/null", 2)
    try:
        status = run()
        sys.stdout.flush()
        return status
    except BrokenPipeError:  # as in `bss models | head`
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


def _line(name: str, text: str, status: int) -> int:
    print(f"{name}: {text}", file=sys.stderr)
    return status


def _of_system(error: Any) -> str:
    """Return an error of the operating system in one line; "" for another error.

    Libraries wrap the error of a full disk in other exceptions, some with many lines.
    """
    full = os.strerror(errno.ENOSPC)
    where = f"{error.filename}: " if getattr(error, "filename", None) else ""
    if any(full in str(one) for one in _chain(error)):
        return f"{where}{full}; free some space, and run it again"
    if not isinstance(error, OSError):
        return ""
    return where + (" ".join((error.strerror or str(error)).split())[:300] or type(error).__name__)


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an exception and its causes."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _drop_output() -> None:
    """Discard buffered output, so that the interpreter does not write it again at exit."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
