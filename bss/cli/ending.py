"""Exit status of a command, and one line on stderr for an error."""

import contextlib
import errno
import os
import sys
from collections.abc import Callable
from typing import Any

from bss.errors import InputError, printable
from bss.installation import install

INTERRUPTED = 130
"""128 plus the number of SIGINT, as in shells."""
TRAIN = ("absl", "array_record", "flax", "grain", "importlib_resources", "ml_collections", "optax",
         "orbax", "submitit", "tensorflow_datasets", "tokenizers")  # fmt: skip
"""Modules of the extra train."""
FIT = ("jax", "jinja2", "matplotlib", "pandas", "pyarrow", "scipy", "yaml")
"""Modules of the extra fit, which train includes."""
TRAINING = ("bss train", "bss sweep", "bss compile")
"""Commands that need train."""


def ended(name: str, run: Callable[[], int]) -> int:
    """Run a command and return its exit status; print one line on stderr for an expected error.

    Args:
        name: name of the command, e.g. "bss plan", printed before an error.
        run: the command, which returns its status.

    Returns:
        The status of the command; 0 if the reader closes a pipe early; 130 for Ctrl-C. It is 2 for
        bad input, and for a file or disk that cannot be read or written. Other exceptions are
        raised.
    """
    if sys.stderr is None:  # closed
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    if sys.stdout is None:
        line = "standard output is closed; send it to a file, a pipe or /dev/null"
        print(f"{name}: {line}", file=sys.stderr)
        return 2
    try:
        status = run()
        sys.stdout.flush()
        return status
    except BrokenPipeError:  # as in `bss models | head`
        _drop_output()
        return 0
    except KeyboardInterrupt:
        print(f"{name}: interrupted; no file is half-written: run it again", file=sys.stderr)
        return INTERRUPTED
    except Exception as error:
        line = _line(error, name)
        if not line:
            raise
        if not isinstance(error, InputError | ModuleNotFoundError):
            _drop_output()
        print(f"{name}: {printable(line)}", file=sys.stderr)
        return 2


def _line(error: Any, command: str = "") -> str:
    """Return an expected error of a command in one line; "" for another error."""
    if isinstance(error, InputError):
        return str(error)
    if isinstance(error, ModuleNotFoundError):
        module = (error.name or "").partition(".")[0]
        if module not in (*TRAIN, *FIT):
            return ""
        extra = "fit" if module in FIT and command not in TRAINING else "train"
        return f"{module} is not installed; {install(extra)}"
    if isinstance(error, RuntimeError) and str(error).startswith("Symlink loop"):
        return f"{str(error).partition('from ')[2]} is a link that leads to itself; correct it"
    where = f"{error.filename}: " if getattr(error, "filename", None) else ""
    full = os.strerror(errno.ENOSPC)  # libraries wrap it in other exceptions
    if full in f"{error} {error.__cause__ or error.__context__}":
        return f"{where}{full}; free some space, and run it again"
    if isinstance(error, OSError):
        text = " ".join((error.strerror or str(error)).split())[:300]
        return where + (text or type(error).__name__)
    return ""


def _drop_output() -> None:
    """Discard buffered output, so that the interpreter does not write it again at exit."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
