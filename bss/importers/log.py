"""What a reader hands over: the rows of one run, as its trainer or tracker wrote them."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from bss.errors import InputError
from bss.files import PACKED

COLUMNS = (
    "step", "tokens", "samples", "rounded_tokens", "batch", "batch_tokens", "lr", "loss",
    "eval_loss",
)  # fmt: skip
"""Columns of rows; rounded tokens are only compared with what the others make."""

LOSSES = ("loss", "eval_loss")

Rows = dict[str, np.ndarray]
"""Columns of equal length, float64."""

SHARED = re.compile(
    r"(wandb[-_]?)?history|trainer_state|config|main|stdout|log|train|train_log|metrics|"
    r"tracker_metrics|\d{4,5}|events\.out\.tfevents.*|output|rank_?\d+",
    re.IGNORECASE,
)
"""File names that say nothing of a run: it is called as the directory is."""

SHARED_FOLDERS = re.compile(r"checkpoint-\d+|tensorboard|tb|(tb_?|lightning_)?logs?|files", re.I)
"""Directories whose names say nothing of a run either."""

PICKLES = (".pkl", ".pickle", ".pt", ".pth", ".ckpt")
LFS = b"version https://git-lfs.github.com/spec/"

HEAD = 2**18
PART = 2**16
"""Bytes of a text file's middle and end, where its beginning is all warnings."""

_ESCAPES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")


@dataclass(frozen=True)
class Log:
    """One run of one file.

    Attributes:
        run: its name.
        rows: in the order written, some of COLUMNS: `step` steps completed, `tokens` and
            `samples` (sequences) consumed, `batch` in sequences, `loss` of training and
            `eval_loss` held out, in nats per token. NaN where a row lacks a value; infinite where
            the log says NaN or infinity.
        source: of the file, for messages.
        place: logs of one place are one run, continued after a restart.
        seq_len: tokens per sequence, where the log says it.
        notes: what its reader has to tell.
        cut: whether its end is missing.
        named: whether its file was named, and not found below a directory.
    """

    run: str
    rows: Rows
    source: str
    place: str
    seq_len: int | None = None
    notes: tuple[str, ...] = ()
    cut: bool = False
    named: bool = True


class Pickle(InputError):
    """A file that runs code when it is read."""


class Importer:
    """How files of one format are recognised and read; one in each file of this room.

    Attributes:
        about: what it reads, in a line.
    """

    about: str

    def recognises(self, file: Path, head: str) -> bool:
        """Whether a file is of the format, by its name and what `head_of` gives of it."""
        raise NotImplementedError

    def reader(self, file: Path, head: str) -> "Importer | None":
        """What reads a file that it recognises, itself; None for another file."""
        return self if self.recognises(file, head) else None

    def with_columns(self, columns: Mapping[str, str]) -> "Importer":
        """Itself, knowing the names that the user gave; some recognise a file by them."""
        return self

    def read(self, file: Path, columns: Mapping[str, str]) -> Iterator[Log]:
        """The runs of a file.

        Args:
            file: one that it recognises.
            columns: names that the user gave, by ours; only trackers of named metrics use them.

        Raises:
            InputError: the file is damaged, or tells no losses or no counts.
        """
        raise NotImplementedError


@dataclass(frozen=True)
class AnyOf(Importer):
    """The first of several importers that recognises a file."""

    about: str
    importers: tuple[Importer, ...]

    def reader(self, file: Path, head: str) -> Importer | None:
        """The first that recognises the file."""
        readers = (importer.reader(file, head) for importer in self.importers)
        return next(filter(None, readers), None)

    def with_columns(self, columns: Mapping[str, str]) -> Importer:
        """Each of them, knowing the names."""
        return replace(self, importers=tuple(i.with_columns(columns) for i in self.importers))


def head_of(file: Path) -> str:
    """The beginning of a file, and some of a text's middle and end, as text without colours.

    Raises:
        InputError: it is empty, compressed, a pointer of git LFS, what W&B keeps for itself, or a
            pickle, which runs code when it is read.
        OSError: it cannot be read.
    """
    with file.open("rb") as opened:
        head = opened.read(HEAD)
        encoding = encoding_of(head)
        size = opened.seek(0, 2)
        if encoding != "latin-1" and size > HEAD:
            for at in (max(size // 2, HEAD), max(size - PART, HEAD)):
                opened.seek(at // 2 * 2)
                head += opened.read(PART)
    if file.suffix in PICKLES or file.name == "training_args.bin" or _is_pickle(head):
        raise Pickle(
            f"{file}: is a pickle, and reading one runs its code; export the log as CSV or JSON"
        )
    if not head.strip():
        raise InputError(f"{file}: is empty; copy it again, or leave it out")
    if head.startswith(LFS):
        raise InputError(f"{file}: is a pointer of git LFS; fetch the file with git lfs pull")
    if head[257:262] == b"ustar":
        raise InputError(f"{file}: is an archive; unpack it with tar first")
    for begin, program in PACKED.items():
        if head.startswith(begin):
            raise InputError(f"{file}: is compressed; unpack it with {program} first")
    if file.suffix == ".wandb":
        raise InputError(
            f"{file}: is W&B's own record; save the run's scan_history() as CSV or JSON lines"
        )
    return plain(head.decode(encoding, errors="replace"))


def plain(text: str) -> str:
    """A text without what terminals are told, as colours, and the zeros that a crash leaves."""
    text = text.replace("\0", "")
    return _ESCAPES.sub("", text) if "\x1b" in text else text


def encoding_of(head: bytes) -> str:
    """The encoding of a text by its first bytes: UTF-16 where they say so, else UTF-8."""
    if head[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return "utf-16"
    return "latin-1" if b"\0" in head else "utf-8-sig"


def _is_pickle(head: bytes) -> bool:
    return head[:1] == b"\x80" and head[1:2] in (b"\x02", b"\x03", b"\x04", b"\x05")


def run_name(file: Path) -> str:
    """What a run is called: as its file, or as its directory where the file's name says nothing."""
    if not named_by_directory(file):
        return file.stem
    folder = file.resolve().parent
    while SHARED_FOLDERS.fullmatch(folder.name):
        folder = folder.parent
    return folder.name


def named_by_directory(file: Path) -> bool:
    """Whether a file's name says nothing of its run."""
    return SHARED.fullmatch(file.stem) is not None or file.name.startswith("events.out.tfevents")
