"""Read JSON with clear errors, and write files atomically."""

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

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
    """A temporary path next to `path` that replaces it if the block ends without an error."""
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        yield temporary
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


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
    with open(path, "a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            reason = "another process writes there; wait for it or name another directory"
            raise InputError(f"{path.parent}: {reason}") from None
        yield


def is_locked(path: str | Path) -> bool:
    """Return whether a process, of any machine that shares the file, holds its lock."""
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
        value = json.loads(Path(path).read_text(encoding="utf-8"))
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
