"""Decide which files are logs: each file is read, skipped with a reason, or refused.

A file that the user names is read or refused. In a directory that the user names, logs are read or
refused. Empty or packed files and files of an unknown format are skipped; those that look like the
log of a run are marked (`unread.py`). A pipe or a socket is never opened.
"""

import os
import re
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bss.errors import InputError
from bss.importers.batches import LogOptions
from bss.importers.beside import with_settings_beside
from bss.importers.log import Empty, Importer, Log, Unreadable, head_of
from bss.importers.notebooks import Notebooks
from bss.importers.own import RunTables
from bss.importers.table import names_in
from bss.importers.unread import (
    is_named_as_log,
    refuse_unnamed,
    resembles_curve,
    resembles_log,
    resembles_table,
)

OURS = {"run", "seq_len"}
CURVE = (
    "is not recognised and has numbers like steps and losses; name a table's columns with "
    "--columns step=NAME,loss=NAME, describe lines with `bss import lines`, or leave it out"
)
SHOWN = 8
"""Number of errors that a message lists."""
FOREIGN = re.compile(
    r"\.(bat|bib|bin|cc?|cfg|ckpt|cpp|css|cu|gif|go|hp?p?|html|ini|jpe?g|js|md|mp4|np[yz]|pdf|"
    r"pickle|pkl|png|pth?|py[ci]?|rst?|safetensors|sbatch|sh|slurm|svg|tex|toml|ts|ya?ml)",
    re.IGNORECASE,
)
"""Suffixes of files that are not logs, even if they quote lines of logs."""


@dataclass(frozen=True)
class SkippedFile:
    """A file below a directory that was not read, and why.

    Attributes:
        file: Path of the file.
        reason: Why it was not read.
        unrecognized: Whether it is of no known format.
        log: Whether it looks like the log of a run.
    """

    file: str
    reason: str
    unrecognized: bool = False
    log: bool = False


class _Skipped(InputError):
    """A file that is skipped below a directory, and refused if it is named."""

    def __init__(
        self, file: Path, reason: str, *, unrecognized: bool = False, log: bool = False
    ) -> None:
        super().__init__(f"{file}: {reason}")
        self.skipped = SkippedFile(str(file), reason, unrecognized, log)


def read_logs(
    paths: Sequence[Path], importer: Importer, options: LogOptions
) -> tuple[list[Log], list[SkippedFile]]:
    """Return the logs of files, and of the files below directories that the importer recognises.

    Args:
        paths: Files and directories.
        importer: Importer of their format.
        options: Facts that the user gives about them.

    Returns:
        The logs, and the files below directories that were skipped.

    Raises:
        InputError: If a file is given twice, is not recognised or is refused, or no log was found;
            all of it at once.
    """
    logs: list[Log] = []
    skipped: list[SkippedFile] = []
    refused: list[InputError] = []
    seen: set[str] = set()
    for path in paths:
        before = len(logs)
        here = list[SkippedFile]()
        below = path.is_dir()
        for file in _below(path, here) if below else [path]:
            try:
                if (real := os.path.realpath(file)) in seen:
                    raise _Skipped(file, "is given twice; name it once")
                seen.add(real)
                logs += _read(file, importer, options, below=below)
            except InputError as error:
                if below and isinstance(error, _Skipped):
                    here.append(error.skipped)
                else:
                    refused.append(error)
        if below and before == len(logs) and not refused:
            reasons = [f"{one.file}: {one.reason}" for one in here if not one.unrecognized]
            refused += map(InputError, reasons) if reasons else [_unrecognized(path, importer)]
        skipped += here
    if refused:
        raise at_once(refused)
    return logs, skipped


def at_once(errors: Sequence[Exception]) -> InputError:
    """Return several errors as one line."""
    lines = [*dict.fromkeys(map(str, errors))]
    several = f"{len(lines)} are refused: " if len(lines) > 1 else ""
    more = f"; and {len(lines) - SHOWN} more" if len(lines) > SHOWN else ""
    return InputError(several + "; ".join(lines[:SHOWN]) + more)


def _read(file: Path, importer: Importer, options: LogOptions, *, below: bool) -> list[Log]:
    """Return the logs of a file."""
    try:
        if not stat.S_ISREG(file.stat().st_mode):
            why = "is a pipe, a socket or a device; save it to a file"
            raise _Skipped(file, why, log=is_named_as_log(file))
        if below and file.resolve() == options.out:
            raise _Skipped(file, "is the table that this import writes")
        head = "" if below and FOREIGN.fullmatch(file.suffix) else head_of(file)
        reader = importer.reader(file, head, options.columns) if head else None
        if below and file.suffix == ".ipynb" and not isinstance(reader, Notebooks):
            reader = None
            head = ""  # it may quote lines of logs
        # Last losses, which a sweep writes next to its runs, are no curves.
        ours = below and bool(head) and _header_of(file, head) >= OURS
        if ours and not isinstance(reader, RunTables):
            reader = None
    except Unreadable as error:
        hidden = is_named_as_log(file) and not isinstance(error, Empty)
        raise _Skipped(file, str(error), log=hidden) from None
    except FileNotFoundError:
        why = "is a link to nothing; correct it" if file.is_symlink() else "no such file"
        raise _Skipped(file, why, log=is_named_as_log(file)) from None
    except OSError as error:
        raise _Skipped(file, f"cannot be read: {error.strerror}; allow it", log=True) from None
    if reader is None:
        unread = bool(head) and not ours
        unread = unread and (refuse_unnamed(file, head) or resembles_log(file, head))
        table = bool(head) and not ours and not unread and resembles_table(file, head)
        if head and not (ours or unread or table) and resembles_curve(file, head):
            raise _Skipped(file, CURVE, unrecognized=True, log=True)
        raise _unrecognized(file, importer, log=unread, table=table)
    logs = [with_settings_beside(log, file) for log in reader.read(file, options.columns)]
    if not logs:
        raise _Skipped(
            file, reader.empty, log=file.suffix == ".csv" and resembles_curve(file, head)
        )
    return logs


def _header_of(file: Path, head: str) -> set[str]:
    """Return the columns of a table that bss wrote, or the fields of the first line."""
    if file.suffix == ".parquet":
        return {*names_in(file, head)}
    return {*head.partition("\n")[0].strip().split(",")}


def _below(folder: Path, skipped: list[SkippedFile]) -> Iterator[Path]:
    """Yield the files of a directory in natural order, checkpoint-1000 after checkpoint-200.

    Hidden files and links to directories, which may form a circle, are skipped; links to files
    come last, because they are usually second names.
    """
    files = list[Path]()
    errors = list[OSError]()
    for place, folders, names in os.walk(folder, onerror=errors.append):
        for name in [*folders, *names]:
            path = Path(place, name)
            hidden = name.startswith(".")
            if hidden or (name in folders and path.is_symlink()):
                what = "hidden" if hidden else "a link to a directory"
                skipped.append(SkippedFile(str(path), f"is {what}; name it to read it", hidden))
            elif name in names:
                files.append(path)
        folders[:] = [name for name in folders if not name.startswith(".")]
    for error in errors:
        reason = f"cannot be looked into: {error.strerror}; allow it"
        skipped.append(SkippedFile(str(error.filename), reason, log=True))
    yield from sorted(files, key=lambda f: (f.is_symlink(), [_natural(part) for part in f.parts]))


def _natural(text: str) -> list[tuple[int, int | str]]:
    return [(0, int(p)) if p.isdigit() else (1, p) for p in re.split(r"(\d+)", text) if p]


def _unrecognized(
    path: Path, importer: Importer, *, log: bool = False, table: bool = False
) -> _Skipped:
    reason = (
        f"is not recognised ({importer.about}); name its format, describe its lines with "
        "`bss import lines`, or make a table of run, batch, seq_len, step and loss"
    )
    if log:
        reason = (
            "is not recognised and looks like the log of a run; describe its lines with "
            "`bss import lines`, or leave it out"
        )
    if table:
        reason = (
            "is not recognised and looks like the table of a run; write a row per step in order, "
            "with step or tokens as plain numbers and a loss in nats per token"
        )
    return _Skipped(path, reason, unrecognized=True, log=log or table)
