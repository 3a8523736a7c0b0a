"""What of a corpus is prepared already: a line for each batch of documents, so a kill costs one.

A line is written when the tokens before it are on disk; what is behind the last is cut off,
and what is left is read again for its sums.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

import numpy as np

from bss.data.blocks import BlockSums
from bss.data.shards import ShardFile
from bss.errors import InputError

FILE = "progress.jsonl"
_READ = 2**24


class Progress:
    """A directory that is being filled.

    Attributes:
        directory: of the shards.
        done: by split the documents, tokens and bytes of text that are in its shards.
    """

    def __init__(self, directory: Path, what: Mapping[str, Any]):
        """Goes on where the directory was begun for the same `what`; else begins it anew."""
        self.directory, self.done = directory, dict[str, tuple[int, int, int]]()
        lines: list[Any] = _lines(directory / FILE)
        if lines[:1] != [json.loads(json.dumps(what))]:
            (directory / FILE).unlink(missing_ok=True)
            lines[:] = [what]
        for line in lines[1:]:
            self.done[line[0]] = line[1], line[2], line[3]
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (directory / FILE).write_text(text)

    def note(self, split: str, documents: int, tokens: int, size: int) -> None:
        """Notes that a batch is on disk."""
        self.done[split] = documents, tokens, size
        with (self.directory / FILE).open("a") as file:
            file.write(json.dumps([split, documents, tokens, size]) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def close(self) -> None:
        """All is done, and nothing to go on with."""
        (self.directory / FILE).unlink()


def begun(directory: Path) -> Path:
    """The directory, kept where something of it was done."""
    if not (directory / FILE).is_file():
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir()
    return directory


def _lines(path: Path) -> list[Any]:
    """The whole lines of a file; none where there is no file, or where it is damaged."""
    try:
        text = path.read_text()
        return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]
    except (OSError, ValueError):
        return []


def summed(path: Path, file: ShardFile) -> ShardFile:
    """A file with the sums of its blocks, all of it read.

    Raises:
        InputError: where it is not what was written.
    """
    with path.open("rb") as stream:
        digest, sums = hashlib.sha256(), BlockSums()
        while content := stream.read(_READ):
            digest.update(content)
            sums.update(memoryview(content))
    if digest.hexdigest() != file.sha256:
        raise InputError(
            f"shards: {path} does not hold the tokens it was written with; delete {path.parent} "
            "and prepare it again"
        )
    return replace(file, blocks=sums.text())


class ShardWriter:
    """The shards of a split: an open file of tokens, followed by the next when it is full."""

    def __init__(self, directory: Path, split: str, limit: int, itemsize: int, tokens: int):
        """Goes on behind so many tokens; InputError where a file lost some of them."""
        self._directory, self._split = directory, split
        self._limit, self._itemsize = limit, itemsize
        self._file: IO[bytes] | None = None
        self.written: list[ShardFile] = []
        while tokens > 0:
            self._open("r+b")
            assert self._file
            self._take(min(tokens, limit))
            tokens -= self._count
            if self._count == limit:
                self.close()

    def _open(self, mode: str) -> None:
        self._name = f"{self._split}-{len(self.written):05d}.bin"
        self._file = (self._directory / self._name).open(mode)
        self._count, self._hash, self._sums = 0, hashlib.sha256(), BlockSums()

    def _take(self, count: int) -> None:
        """Reads the first tokens of the file for its sums, and cuts off what is behind them."""
        assert self._file
        left = count * self._itemsize
        while left and (content := self._file.read(min(left, _READ))):
            self._add(memoryview(content))
            left -= len(content)
        if left:
            self._file.close()
            raise InputError(
                f"root: {self._directory / self._name} is {left} bytes shorter than {FILE} says; "
                "delete its directory, where it is still there, and run it again"
            )
        self._count = count
        self._file.truncate(count * self._itemsize)

    def _add(self, content: memoryview) -> None:
        self._hash.update(content)
        self._sums.update(content)

    def write(self, tokens: np.ndarray) -> None:
        """Adds tokens."""
        while len(tokens):
            if self._file is None:
                self._open("wb")
            assert self._file
            piece, tokens = np.split(tokens, [self._limit - self._count])
            self._file.write(piece.data)
            self._add(piece.data.cast("B"))
            self._count += len(piece)
            if self._count == self._limit:
                self.close()

    def sync(self) -> None:
        """Returns when what was written is on disk."""
        if self._file is not None:
            self._file.flush()
            os.fsync(self._file.fileno())

    def close(self) -> None:
        """Ends the file that is open."""
        if self._file is not None:
            self.sync()
            self._file.close()
            sums = self._hash.hexdigest(), self._sums.text()
            self.written.append(ShardFile(self._name, self._count, *sums))
            self._file = None
