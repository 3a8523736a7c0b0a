"""Checksums of a file's blocks: made as it is written, checked when a block is first read."""

import zlib
from pathlib import Path

import numpy as np

from bss.errors import InputError

BLOCK = 2**20
"""Bytes of a block; the last one of a file may be shorter."""

_DIGITS = 8


class BlockSums:
    """The sums of a file that grows: CRC-32 of each block."""

    def __init__(self) -> None:
        self._done: list[int] = []
        self._sum = self._filled = 0

    def update(self, content: memoryview) -> None:
        """Takes the next bytes of the file."""
        while content:
            room = BLOCK - self._filled
            piece, content = content[:room], content[room:]
            self._sum, self._filled = zlib.crc32(piece, self._sum), self._filled + len(piece)
            if self._filled == BLOCK:
                self._done.append(self._sum)
                self._sum = self._filled = 0

    def text(self) -> str:
        """All sums, eight hexadecimal digits each."""
        last = [self._sum] if self._filled else []
        return "".join(f"{one:0{_DIGITS}x}" for one in [*self._done, *last])


class CheckedFile:
    """A file of bytes, memory-mapped, of which each block is checked once before it is used."""

    def __init__(self, path: Path, sums: str):
        """Opens it; without `sums`, as files have that were written before there were any, nothing
        is checked."""
        self.content = np.memmap(path, np.uint8, mode="r")
        self._path, self._sums = path, sums
        self._unseen = bytearray(b"\1" * (len(sums) // _DIGITS))

    def check(self, start: int, stop: int) -> None:
        """Checks the blocks of bytes [start, stop).

        Raises:
            InputError: a block that is not as it was written.
        """
        first, end = start // BLOCK, -(-stop // BLOCK)
        while (block := self._unseen.find(1, first, end)) >= 0:
            low = block * BLOCK
            found = zlib.crc32(self.content[low : low + BLOCK].data)
            if found != int(self._sums[block * _DIGITS : (block + 1) * _DIGITS], 16):
                raise InputError(
                    f"shards: {self._path} does not hold the tokens it was written with, in bytes "
                    f"{low} to {min(low + BLOCK, len(self.content))}; delete {self._path.parent} "
                    "and prepare it again"
                )
            self._unseen[block] = 0
