"""Write the shards of a split: each file is complete or written again."""

import hashlib
import itertools
import json
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from bss.data.shards import ShardFile, Split
from bss.data.tokenizers import Tokenizer
from bss.files import write_json
from bss.values import from_dict

FILE = "progress.json"
BATCH = 2**22
"""Characters of documents to encode at once."""


class Progress:
    """A directory that is being filled, with a record of its complete shards.

    Attributes:
        directory: Directory of the shards.
        done: by split, its complete shards, with the number, tokens and bytes of text of the
            documents that end before the end of the last shard.
    """

    def __init__(self, directory: Path, what: Mapping[str, Any]):
        """Continue if the directory was begun for the same `what`; otherwise empty it."""
        self.directory, self._what = directory, json.loads(json.dumps(what))
        self.done: dict[str, Split] = {}
        try:
            found = json.loads((directory / FILE).read_text())
            if found["what"] != self._what:
                raise ValueError("written for other documents")
            self.done = {name: from_dict(Split, one) for name, one in found["done"].items()}
        except (OSError, ValueError, KeyError, TypeError):
            shutil.rmtree(directory, ignore_errors=True)
            directory.mkdir()

    def note(self, split: str, done: Split) -> None:
        """Record that a shard is on disk."""
        self.done[split] = done
        found = {"what": self._what, "done": {n: asdict(one) for n, one in self.done.items()}}
        write_json(self.directory / FILE, found)

    def close(self) -> None:
        """Remove the record; the directory is complete."""
        (self.directory / FILE).unlink()


def write_split(
    progress: Progress,
    name: str,
    documents: Iterable[str],
    tokenizer: Tokenizer,
    dtype: np.dtype,
    shard_tokens: int,
) -> Split:
    """Write the tokens of documents into files, after the complete ones."""
    done = progress.done.get(name, Split(0, 0, 0, ()))
    count, tokens, size, files = done.documents, done.tokens, done.bytes, done.files
    whole = sum(file.tokens for file in files)
    texts = itertools.islice(documents, count, None)
    shard: _Whole | None = None

    def close() -> None:
        nonlocal shard, files, whole
        if shard is not None:
            written = shard.size // dtype.itemsize
            files = (*files, ShardFile(shard.path.name, written, shard.close()))
            shard, whole = None, whole + written
            progress.note(name, Split(count, tokens, size, files))

    try:
        for text, ids in _encoded(texts, tokenizer, dtype):
            left = ids[max(whole - tokens, 0) :]
            while len(left):
                if shard is None:
                    shard = _Whole(progress.directory / f"{name}-{len(files):05d}.bin")
                room = shard_tokens - shard.size // dtype.itemsize
                shard.write(left[:room].tobytes())
                if len(left) >= room:
                    close()
                left = left[room:]
            count, tokens, size = count + 1, tokens + len(ids), size + len(text.encode())
        close()
    finally:
        if shard is not None:
            shard.file.close()
    return Split(count, tokens, size, files)


def _encoded(
    texts: Iterable[str], tokenizer: Tokenizer, dtype: np.dtype
) -> Iterator[tuple[str, np.ndarray]]:
    """Yield documents and their tokens, each with its end; the tokenizer uses all cores."""
    end = np.array([tokenizer.end_of_document], dtype)
    for batch in _batches(texts):
        for text, ids in zip(batch, tokenizer.encode_batch(batch), strict=True):
            yield text, np.concatenate([ids.astype(dtype), end])


def _batches(texts: Iterable[str]) -> Iterator[list[str]]:
    """Yield documents in order, in groups of at least BATCH characters."""
    batch, size = [], 0
    for text in texts:
        batch.append(text)
        if (size := size + len(text)) >= BATCH:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


class _Whole:
    """A file that appears, complete and on disk, when it is closed."""

    def __init__(self, path: Path):
        self.path, self.size, self._hash = path, 0, hashlib.sha256()
        self.file = path.with_name(f"{path.name}.part").open("wb")

    def write(self, content: bytes) -> None:
        self.file.write(content)
        self._hash.update(content)
        self.size += len(content)

    def close(self) -> str:
        """Close the file and return the sha256 of its content."""
        with self.file:
            self.file.flush()
            os.fsync(self.file.fileno())
        os.replace(self.file.name, self.path)
        return self._hash.hexdigest()
