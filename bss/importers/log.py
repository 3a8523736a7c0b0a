"""The rows of one run as its trainer or tracker wrote them, and the base class of importers."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, ClassVar

import numpy as np
import pandas as pd

from bss.errors import InputError
from bss.files import PACKED

COLUMNS = (
    "step", "tokens", "samples", "rounded_tokens", "batch", "batch_tokens", "lr", "loss",
    "eval_loss", "step_time", "planned_steps", "noise_scale", "epoch",
)  # fmt: skip
"""Columns of rows. Rounded tokens are only compared with the tokens that the batches give;
step_time is in seconds; planned_steps is the step at which the run is to end; noise_scale is in
sequences; epoch is there if the data is read more than once, as the log counts it."""

LOSSES = ("loss", "eval_loss")
COUNTS = ("step", "tokens", "samples")

Rows = pd.DataFrame
"""Columns of float64."""

Columns = dict[str, Any]
"""Columns of one run as arrays, by name. Operations on a frame of a run take 100 times as long."""

SHARED = re.compile(
    r"(wandb[-_]?)?history|trainer_state|config|main|stdout|log|metrics|result|"
    r"(train|val|valid|validation|eval)([-_](log|loss|losses|metrics|history))?|"
    r"tracker_metrics|golden_values\w*|losses|\d{4,5}|events\.out\.tfevents.*|output|rank_?\d+",
    re.IGNORECASE,
)
"""File names that do not identify a run: the run takes the name of its directory."""

SHARED_FOLDERS = re.compile(r"checkpoint-\d+|tensorboard|tb|(tb_?|lightning_)?logs?|files", re.I)
"""Directory names that do not identify a run either."""

PICKLES = (".pkl", ".pickle", ".pt", ".pth", ".ckpt")
PICKLED = (b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")
LFS = b"version https://git-lfs.github.com/spec/"

FEW_BYTES = 32
"""Number of bytes by which UTF-16 without a byte-order mark is known."""
HEAD = 2**15
"""Bytes of a file's beginning by which it is recognised."""
PART = 2**14
"""Bytes of a file's middle and end that are searched too, if its beginning holds only warnings."""

_ESCAPES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")


@dataclass(frozen=True)
class Log:
    """One run of one file.

    Attributes:
        run: Name of the run.
        rows: Columns, with rows in the order of the file. Names are in COLUMNS: `step` (steps
            completed), `tokens` and `samples` (tokens and sequences consumed), `batch` (sequences),
            `loss` (training, nats per token) and `eval_loss` (held-out). A value that the log lacks
            is NaN. A value that is NaN or infinite in the log is infinite. A run table may have
            more columns.
        source: Path of the file, for messages.
        place: Logs of one place are attempts at one run, continued after a restart.
        seq_len: Tokens per sequence, if the log has it.
        notes: Remarks for the report.
        cut: Why the end of the log is missing; empty if it is there.
        vocabulary: Size of the vocabulary, if the log has it.
        labels: Columns of one value for the whole run, e.g. model, seed and peak_lr.
        unread: Names that look like a loss, a learning rate, a step or a time and are not read.
        left_out: Number of rows of the file that are not in `rows`, by reason.
        ended: Whether the log has a line that the run ended.
        labelled: Whether the file has the name of the run.
        accumulated: Numbers of micro-batches in a step that the log has, by name.
    """

    run: str
    rows: Rows
    source: str
    place: str
    seq_len: int | None = None
    notes: tuple[str, ...] = ()
    cut: str = ""
    vocabulary: int | None = None
    labels: Mapping[str, Any] | None = None
    unread: tuple[str, ...] = ()
    left_out: Mapping[str, int] = field(default_factory=dict)
    ended: bool = False
    labelled: bool = False
    accumulated: Mapping[str, int] = field(default_factory=dict)


class Unreadable(InputError):
    """A file that cannot hold a log: empty, packed, a pointer, or code when it is read."""


class Empty(Unreadable):
    """A file without text."""


class Importer:
    """The way files of one format are recognised and read.

    Attributes:
        about: What it reads, in one line.
        empty: Why a file that it recognises may give no run.
    """

    about: str
    empty: ClassVar[str] = "no run is logged in it"

    def recognises(self, file: Path, head: str) -> bool:
        """Return whether a file is of the format, by its name and its head (`head_of`)."""
        raise NotImplementedError

    def reader(self, file: Path, head: str, columns: Mapping[str, str]) -> "Importer | None":
        """Return the importer that reads a file; None if the file is of another format.

        Args:
            file: Path of the file.
            head: Its head (`head_of`).
            columns: Names given by --columns, which may help to recognise it.
        """
        return self if self.recognises(file, head) else None

    def read(self, file: Path, columns: Mapping[str, str]) -> Iterator[Log]:
        """Yield the runs of a file.

        Args:
            file: A file that it recognises.
            columns: Names given by --columns, from ours to the file's.

        Raises:
            InputError: If the file is damaged, or has no losses or no counts.
        """
        raise NotImplementedError


@dataclass(frozen=True)
class AnyOf(Importer):
    """The first of several importers that recognises a file."""

    about: str
    importers: tuple[Importer, ...]

    def reader(self, file: Path, head: str, columns: Mapping[str, str]) -> Importer | None:
        """Return the first importer that recognises the file."""
        readers = (importer.reader(file, head, columns) for importer in self.importers)
        return next(filter(None, readers), None)


def head_of(file: Path) -> str:
    """Return the beginning of a file, with parts of its middle and end, as text without colours.

    Raises:
        Unreadable: If it is empty, compressed, a pointer of git LFS, a record of W&B, or a pickle,
            which runs code when it is read.
        OSError: If it cannot be read.
    """
    with file.open("rb") as opened:
        head = opened.read(HEAD)
        encoding = encoding_of(head)
        size = opened.seek(0, 2)
        if size <= HEAD + 2 * PART:
            opened.seek(HEAD)
            head += opened.read(size)
        elif encoding.startswith("utf-8"):
            # A first line that is longer goes on; other files are looked into at their middle.
            second = _to_line_end(_from(opened, size // 2 if b"\n" in head else HEAD))
            head = _to_line_end(head) + second + _from(opened, size - PART)
    if file.suffix in PICKLES or file.name == "training_args.bin" or head[:2] in PICKLED:
        raise Unreadable(
            "is a pickle, and reading one runs its code; export the log as CSV or JSON"
        )
    if not head.strip():
        raise Empty("is empty; copy it again, or leave it out")
    if head.startswith(LFS):
        raise Unreadable("is a pointer of git LFS; fetch the file with git lfs pull")
    if head[257:262] == b"ustar":
        raise Unreadable("is an archive; unpack it with tar first")
    for begin, program in PACKED.items():
        if head.startswith(begin):
            raise Unreadable(f"is compressed; unpack it with {program} first")
    if file.suffix == ".wandb":
        raise Unreadable("is W&B's own record; save the run's scan_history() as CSV or JSON lines")
    return plain(head.decode(encoding, errors="replace")).replace("\r\n", "\n")


def _to_line_end(data: bytes) -> bytes:
    """Return the whole lines of a beginning; all of it if it has no whole line."""
    whole, end, _ = data.rpartition(b"\n")
    return whole + end or data


def _from(opened: BinaryIO, at: int) -> bytes:
    """Return the lines of a part of a file, without the rest of a line that began after HEAD."""
    opened.seek(at)
    part = opened.read(PART)
    return part if at == HEAD else part.partition(b"\n")[2] or part


def plain(text: str) -> str:
    """Return a text without terminal colours and without the zero bytes that a crash leaves."""
    if "\0" in text:
        text = text.replace("\0", "")
    return _ESCAPES.sub("", text) if "\x1b" in text else text


def encoding_of(head: bytes) -> str:
    """Return the encoding of a text by its first bytes: UTF-32, UTF-16 or UTF-8.

    Without a byte-order mark it is UTF-16 if every second byte is 0, as those of Latin letters are.
    """
    if head[:4] in (b"\xff\xfe\0\0", b"\0\0\xfe\xff"):
        return "utf-32"
    if head[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return "utf-16"
    first = head[:FEW_BYTES]
    if len(first) < FEW_BYTES:
        return "utf-8-sig"
    zeros = first[0::2].count(0), first[1::2].count(0)
    if max(zeros) == FEW_BYTES // 2 and min(zeros) == 0:
        return "utf-16-be" if zeros[0] else "utf-16-le"
    return "utf-8-sig"


def run_name(file: Path) -> str:
    """Return the name of a run: its file's, or its directory's if the file's is a common one."""
    return run_folder(file).name if named_by_directory(file) else file.stem


def run_folder(file: Path) -> Path:
    """Return the directory that names a run whose file's name is a common one."""
    folder = file.resolve().parent
    while SHARED_FOLDERS.fullmatch(folder.name):
        folder = folder.parent
    return folder


def named_by_directory(file: Path) -> bool:
    """Return whether a file's name is one that many runs share."""
    return SHARED.fullmatch(file.stem) is not None or file.name.startswith("events.out.tfevents")


Correction = Callable[[Rows], Rows]


def only(rows: Rows, names: Iterable[str]) -> Rows:
    """Return the columns of some names that are there, in their order."""
    there = [name for name in names if name in rows]
    # pandas takes as long to select all columns as for ten other operations.
    return rows if there == [*rows] else rows[there]


def present(rows: Rows | Columns, column: str) -> np.ndarray:
    """Return which rows have a number in a column that is there."""
    return ~np.isnan(np.asarray(rows[column]))


def some(names: Iterable[str]) -> str:
    """Return at most eight names as a list for a message."""
    names = list(names)
    return ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
