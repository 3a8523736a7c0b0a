"""Which files are logs, and what becomes of the others: read, passed by and told, or refused.

Below a directory a file that cannot be read is passed by, and so is one that is foreign: of no
known format, a program or a text. A file that is named is read or refused. What is no file, as a
pipe or a socket, is never opened.
"""

import os
import re
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from bss.errors import InputError
from bss.importers.batches import LogOptions
from bss.importers.damage import read_damaged
from bss.importers.log import Importer, Log, Pickle, head_of

OURS = {"run", "seq_len"}
FOREIGN = re.compile(
    r"\.(bat|bib|cc?|cfg|cpp|css|cu|gif|go|hp?p?|html|ini|ipynb|jpe?g|js|md|mp4|np[yz]|pdf|png|"
    r"py[ci]?|rst?|safetensors|sbatch|sh|slurm|svg|tex|toml|ts|ya?ml)",
    re.IGNORECASE,
)
"""Endings of files that are no logs, whatever lines of logs are pasted into them."""

KINDS = {stat.S_IFIFO: "a pipe (FIFO)", stat.S_IFSOCK: "a socket"}
"""What is no file; the others are devices."""


@dataclass(frozen=True)
class PassedBy:
    """A file that was not read, and why; a foreign one is no log of a known format."""

    file: str
    why: str
    foreign: bool = False


class _Foreign(InputError):
    """A file of no known format."""


class _NoRun(InputError):
    """A file of a known format without a run, named or not."""


def read_logs(
    paths: Sequence[Path], importer: Importer, options: LogOptions, *, strict: bool = False
) -> tuple[list[Log], list[PassedBy]]:
    """The logs of files, and of the files below directories that the importer recognises.

    Args:
        paths: files and directories.
        importer: of their format.
        options: what the user says of them.
        strict: refuse what is damaged, and what cannot be read below a directory.

    Returns:
        The logs, and the files below directories that were passed by.

    Raises:
        InputError: a file is given twice, or not recognised; nothing was found; a file is refused.
            All of it at once.
    """
    importer = importer.with_columns(options.columns)
    logs: list[Log] = []
    passed_by: list[PassedBy] = []
    refused: list[InputError] = []
    seen: set[str] = set()
    for path in paths:
        before = len(logs)
        here, below = [], path.is_dir()
        for file in _below(path, here) if below else [path]:
            try:
                if (real := os.path.realpath(file)) in seen:
                    raise InputError(f"{file}: is given twice; name it once")
                seen.add(real)
                logs += _read(file, importer, options, below=below, strict=strict)
            except InputError as error:
                if below or isinstance(error, _NoRun):
                    here.append(_passed_by(file, error))
                else:
                    refused.append(error)
        if below and (strict or before == len(logs)):
            refused += [InputError(f"{one.file}: {one.why}") for one in here if not one.foreign]
        if below and before == len(logs) and not refused:
            refused.append(_foreign(path, importer))
        passed_by += here
    if refused:
        raise at_once(refused)
    return logs, passed_by


def at_once(errors: Sequence[Exception]) -> InputError:
    """Several mistakes in a line."""
    lines = dict.fromkeys(map(str, errors))
    several = f"{len(lines)} are refused: " if len(lines) > 1 else ""
    return InputError(several + "; ".join(lines))


def _read(
    file: Path, importer: Importer, options: LogOptions, *, below: bool, strict: bool
) -> list[Log]:
    """The logs of a file."""
    try:
        mode = file.stat().st_mode
        if not stat.S_ISREG(mode):
            kind = KINDS.get(stat.S_IFMT(mode), "a device")
            raise InputError(f"{file}: is {kind} and not read; save it to a file")
        head = "" if below and FOREIGN.fullmatch(file.suffix) else head_of(file)
        # A run table of ours may be what an import has written there.
        passed_by = below and (not head or {*head.partition("\n")[0].strip().split(",")} >= OURS)
        reader = None if passed_by else importer.reader(file, head)
    except FileNotFoundError:
        why = "is a link to nothing; mend it" if file.is_symlink() else "there is no such file"
        raise InputError(f"{file}: {why}") from None
    except OSError as error:
        raise InputError(f"{file}: cannot be read: {error.strerror}; mend it") from None
    if reader is None:
        raise _foreign(file, importer)
    logs = read_damaged(file, lambda: list(reader.read(file, options.columns)), strict=strict)
    if not logs:
        raise _NoRun(f"{file}: no run is logged in it, as writers open event files and leave them")
    return [replace(log, named=not below) for log in logs]


def _below(folder: Path, passed_by: list[PassedBy]) -> Iterator[Path]:
    """The files of a directory in natural order, checkpoint-1000 after checkpoint-200.

    Hidden ones and links to directories, which may lead back, are passed by; links to files come
    last, being names of others as a rule.
    """
    files: list[Path] = []

    def unreadable(error: OSError) -> None:
        why = f"cannot be looked into: {error.strerror}; allow it"
        passed_by.append(PassedBy(str(error.filename), why))

    for place, folders, names in os.walk(folder, onerror=unreadable):
        for name in [*folders, *names]:
            path = Path(place, name)
            if name.startswith("."):
                passed_by.append(PassedBy(str(path), "is hidden; name it to read it", foreign=True))
            elif name in folders and path.is_symlink():
                why = "is a link to a directory; name it to read it"
                passed_by.append(PassedBy(str(path), why))
            elif name in names:
                files.append(path)
        folders[:] = [name for name in folders if not name.startswith(".")]
    yield from sorted(files, key=lambda f: (f.is_symlink(), [_natural(part) for part in f.parts]))


def _natural(text: str) -> list[tuple[int, int | str]]:
    return [(0, int(p)) if p.isdigit() else (1, p) for p in re.split(r"(\d+)", text) if p]


def _passed_by(file: Path, error: InputError) -> PassedBy:
    """Weights beside a run are foreign, though they are refused where they are named."""
    why = str(error).removeprefix(str(file)).removeprefix(": ").removeprefix(", ")
    return PassedBy(str(file), why, foreign=isinstance(error, (_Foreign, Pickle)))


def _foreign(path: Path, importer: Importer) -> _Foreign:
    return _Foreign(
        f"{path}: is not recognised ({importer.about}); name its format, or make a table "
        "of run, batch, seq_len, step and loss of it"
    )
