"""Read JSON with clear errors, and write files atomically."""

import errno
import fcntl
import json
import math
import os
import shutil
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, BinaryIO

from bss.errors import InputError

PACKED = {
    b"\x1f\x8b": "gunzip",
    b"BZh": "bunzip2",
    b"\xfd7zXZ": "unxz",
    b"\x28\xb5\x2f\xfd": "unzstd",
    b"PK\x03\x04": "unzip",
    b"7z\xbc\xaf": "7z",
    b"\x04\x22\x4d\x18": "unlz4",
}
"""First bytes of compressed files, and the program that unpacks them."""


@contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """A temporary path whose file becomes that of `path` if the block ends without an error.

    A link is followed: its target is replaced. A device or a pipe is never replaced; what
    was written is copied to it.

    Raises:
        InputError: As `check_output`; or if no process reads the pipe.
    """
    check_output(path)
    if _is_stream(path):
        with _open_stream(path) as stream, TemporaryDirectory() as folder:
            temporary = Path(folder, Path(path).name)
            yield temporary
            with open(temporary, "rb") as file:
                shutil.copyfileobj(file, stream)
        return
    target = Path(os.path.realpath(path))
    temporary = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        yield temporary
        os.replace(temporary, target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def check_output(path: str | Path) -> None:
    """Refuse a path that cannot be written as a file.

    Raises:
        InputError: If the path or the target of its link is a socket or a disk. Also if a link
            leads to itself, or into a directory that does not exist.
    """
    if os.path.islink(path) and not os.path.exists(path):
        target = os.path.realpath(path)
        if os.path.islink(target):
            raise InputError(f"{path}: is a link that leads to itself; name a file")
        if not os.path.isdir(os.path.dirname(target)):
            raise InputError(f"{path}: is a link to {target}, whose directory is missing; make it")
    mode = _read_mode(path)
    for is_kind, kind in ((stat.S_ISSOCK, "a socket"), (stat.S_ISBLK, "a disk")):
        if is_kind(mode):
            raise InputError(f"{path}: is {kind}, which is not written; name a file")


def _read_mode(path: str | Path) -> int:
    """Return the type of what a path leads to; 0 if there is nothing, or it cannot be seen."""
    try:
        return os.stat(path).st_mode
    except (OSError, ValueError):
        return 0


def _is_stream(path: str | Path) -> bool:
    """Return True for what is written in place: a device, a pipe, or an open file of a process.

    /dev/stdout may be a regular file, which the shell goes on to write.
    """
    mode = _read_mode(path)
    open_file = os.path.abspath(path).startswith(("/dev/std", "/dev/fd/", "/proc/"))
    return open_file or stat.S_ISCHR(mode) or stat.S_ISFIFO(mode)


def _open_stream(path: str | Path) -> BinaryIO:
    """Open a device or a pipe for writing, without waiting for a process that reads it."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
    except OSError as error:
        if error.errno != errno.ENXIO:
            raise
        raise InputError(f"{path}: no process reads this pipe; start its reader first") from None
    os.set_blocking(descriptor, True)
    return os.fdopen(descriptor, "wb")


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock of a file in a directory, which is made.

    Raises:
        InputError: If the directory cannot be made, or another process holds the lock.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise InputError(f"{path.parent}: is a file; name a directory") from None
    refuse_stream(path)
    with open(path, "a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            reason = "another process writes there; wait for it or name another directory"
            raise InputError(f"{path.parent}: {reason}") from None
        yield


def is_locked(path: str | Path) -> bool:
    """Return whether a process, of any machine that shares the file, holds its lock.

    Raises:
        InputError: If the file is a pipe or a device.
    """
    refuse_stream(path)
    try:
        with open(path) as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def write_text(path: str | Path, text: str) -> None:
    """Replace a text file, whole or not at all."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: str | Path, value: Any) -> None:
    """Replace a JSON file, whole or not at all."""
    write_text(path, json.dumps(value, indent=1) + "\n")


def finite(value: Any) -> Any:
    """Return the value with infinities and NaNs as null, as JSON has no others."""
    if isinstance(value, Mapping):
        return {key: finite(v) for key, v in value.items()}
    if isinstance(value, list | tuple):
        return [finite(v) for v in value]
    if hasattr(value, "item"):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value


def as_path(path: Any, field: str = "path") -> Path:
    """Return a path; InputError for what is none."""
    if not isinstance(path, str | os.PathLike) or not str(path):
        raise InputError(f"{field}: {path!r} given; expected the path of a file")
    if "\0" in str(path):
        raise InputError(f"{field}: {str(path)!r} has a NUL byte, which no path has; correct it")
    return Path(path)


def refuse_stream(path: str | Path, field: str = "") -> None:
    """Raise InputError for a pipe, a socket or a device, which a reader might wait for endlessly.

    Args:
        path: Path of a file to read; a missing one passes.
        field: the option or field that named it, put before the path.
    """
    mode = _read_mode(path)
    if mode and not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        name = f"{field} {path}".strip()
        raise InputError(f"{name}: is a pipe or a device; save what it has in a file, and name it")


def read_text(path: str | Path, field: str = "", *, errors: str = "strict") -> str:
    """Return the text of a file in UTF-8.

    Args:
        path: Path of the file.
        field: the option or field that named it, put before the path.
        errors: as `open` takes it: what is done about bytes that are no UTF-8.

    Raises:
        InputError: If it is a pipe, a socket or a device.
        OSError: If it cannot be read.
    """
    refuse_stream(path, field)
    return Path(path).read_text(encoding="utf-8", errors=errors)


def read_json(path: str | Path, hint: str, field: str = "") -> dict[str, Any]:
    """Return the JSON object of a file.

    Args:
        path: Path of the file.
        hint: Advice for the error message, if the file is missing or damaged.
        field: the option or field that named it, put before the path.

    Raises:
        InputError: If the file does not exist, cannot be read, or is not a JSON object.
    """
    name = f"{field} {path}".strip()
    try:
        value = json.loads(read_text(path, field))
    except RecursionError:
        raise InputError(f"{name}: is nested too deeply for JSON of this kind; {hint}") from None
    except FileNotFoundError:
        raise InputError(f"{name}: no such file; {hint}") from None
    except json.JSONDecodeError as error:
        problem = f"line {error.lineno}, {error.msg}"
        raise InputError(f"{name}: is not JSON ({problem}); {hint}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{name}: cannot be read ({type(error).__name__}); {hint}") from None
    if not isinstance(value, dict):
        raise InputError(f"{name}: holds no JSON object; {hint}")
    return value


def is_there(file: Path) -> bool:
    """Return whether a file can be opened, its directory having been read anew."""
    with suppress(OSError), os.scandir(file.parent), open(file):
        return True
    return False
