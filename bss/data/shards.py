"""Token shards: the tokens of a corpus in flat memory-mapped files, with a manifest.

A directory of shards contains `manifest.json`, the files that it lists (one or more per split),
and the tokenizer's file, if the tokenizer has one. Reading needs only numpy, so that a minimal
accelerator machine can train on a copied directory. `bss.data.prepare` writes them.
"""

import bisect
import contextlib
import hashlib
import itertools
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from bss.errors import InputError
from bss.files import read_text
from bss.values import from_dict

VERSION = 1
MANIFEST = "manifest.json"


@dataclass(frozen=True)
class ShardFile:
    """One file of tokens: its name, its number of tokens, the sha256 of its bytes."""

    name: str
    tokens: int
    sha256: str


@dataclass(frozen=True)
class Split:
    """One split: its documents, tokens (one per document ends it), bytes of text, and files."""

    documents: int
    tokens: int
    bytes: int
    files: tuple[ShardFile, ...]


@dataclass(frozen=True)
class TokenizerInfo:
    """The tokenizer of some shards; `bss.data.tokenizers.saved` opens the tokenizer itself.

    Attributes:
        name: as part of a file name, e.g. "bytes" or "bpe-4096".
        vocab_size: ids are in [0, vocab_size).
        end_of_document: the id that follows every document.
        hash: sha256 of all that determines the ids.
    """

    name: str
    vocab_size: int
    end_of_document: int
    hash: str


@dataclass(frozen=True)
class Manifest:
    """The contents of a directory of shards.

    Attributes:
        source: the corpus: its name, options and fingerprint.
        tokenizer: the tokenizer that made the tokens.
        dtype: Data type of the files: "|u1", "<u2" or "<u4", the smallest that fits the vocabulary.
        splits: by name: train, validation, test.
        version: Version of this format.
    """

    source: Mapping[str, Any]
    tokenizer: TokenizerInfo
    dtype: str
    splits: Mapping[str, Split]
    version: int = VERSION

    @cached_property
    def content_hash(self) -> str:
        """sha256 over the shards' hashes, dtype and tokenizer: equal iff the tokens are."""
        files = {n: [(f.sha256, f.tokens) for f in s.files] for n, s in self.splits.items()}
        content = [self.version, self.dtype, self.tokenizer.hash, files]
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()

    def to_json(self) -> str:
        """Return the manifest as JSON, with its content hash; the last key hashes all others."""
        fields = asdict(self) | {"content_hash": self.content_hash}
        return json.dumps(fields | {"sha256": _hash_of(fields)}, indent=2) + "\n"

    @classmethod
    def from_json(cls, text: str) -> "Manifest":
        """Read `to_json`; raise ValueError, KeyError or TypeError for anything else."""
        fields = json.loads(text)
        if fields["version"] != VERSION:
            raise ValueError(f"format version {fields['version']}, this bss reads {VERSION}")
        whole = fields.pop("sha256") == _hash_of(fields)
        del fields["content_hash"]
        manifest = from_dict(cls, fields)
        if not whole:
            raise ValueError("it is not as it was written")
        return manifest


def _hash_of(fields: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True, eq=False)
class TokenArray:
    """Several arrays of tokens, joined end to end.

    Attributes:
        parts: one-dimensional unsigned arrays, none empty; memory-mapped ones stay on disk.
    """

    parts: tuple[np.ndarray, ...]

    @cached_property
    def starts(self) -> tuple[int, ...]:
        """Position of each part's first token, and the total."""
        return (0, *itertools.accumulate(len(part) for part in self.parts))

    def __len__(self) -> int:
        return self.starts[-1]

    def windows(self, starts: Iterable[int], length: int) -> np.ndarray:
        """Return the `length` tokens from each start, int32 [starts, length].

        Raises:
            IndexError: If a window does not lie within the array.
        """
        starts = list(starts)
        rows = np.empty((len(starts), length), np.int32)
        for row, start in zip(rows, starts, strict=True):
            if start < 0 or start + length > len(self):
                raise IndexError(f"tokens {start} to {start + length} of {len(self)}")
            part = bisect.bisect_right(self.starts, start) - 1
            filled = 0
            while filled < length:
                offset = start + filled - self.starts[part]
                piece = self.parts[part][offset : offset + length - filled]
                row[filled : filled + len(piece)] = piece
                filled += len(piece)
                part += 1
        return rows


@dataclass(frozen=True)
class Shards:
    """A directory of token shards; file sizes were checked when it was opened."""

    directory: Path
    manifest: Manifest

    @property
    def content_hash(self) -> str:
        """Hash of all tokens; a run records it and passes it to `require` when it continues."""
        return self.manifest.content_hash

    @property
    def vocab_size(self) -> int:
        """Tokens are in [0, vocab_size)."""
        return self.manifest.tokenizer.vocab_size

    def split(self, name: str) -> Split:
        """Return the counts and files of a split; raise InputError if it does not exist."""
        if name not in self.manifest.splits:
            raise InputError(
                f"split: no {name!r}; expected one of {', '.join(self.manifest.splits)}"
            )
        return self.manifest.splits[name]

    def tokens(self, split: str) -> TokenArray:
        """Return all tokens of a split, memory-mapped; a file is checked when first opened.

        Raises:
            InputError: If a file was changed after it was written.
        """
        files = self.split(split).files
        parts = (_opened(self.directory / file.name, file.sha256) for file in files)
        return TokenArray(tuple(part.view(self.manifest.dtype) for part in parts))

    def bytes_per_token(self, split: str) -> float:
        """Return the bytes of text per token; end-of-document tokens count as tokens.

        Bits per byte = loss in nats per token / (ln 2 · bytes per token).
        """
        counts = self.split(split)
        return counts.bytes / counts.tokens

    def require(self, content_hash: str) -> None:
        """Raise InputError if the tokens have another content hash than a run started with."""
        if content_hash != self.content_hash:
            remedy = f"the run was made on {content_hash[:12]}; restore those, or start a new run"
            if not content_hash:
                remedy = f"the run names none; write data.content {self.content_hash}"
            here = f"the tokens in {self.directory} have hash {self.content_hash[:12]}"
            raise InputError(f"corpus: {here}, {remedy}")


def open_shards(directory: Path) -> Shards:
    """Open a directory that `bss.data.prepare` wrote; check its manifest and file sizes.

    Raises:
        InputError: If the manifest is missing, corrupt, truncated or of another version; or if a
            shard is missing or has the wrong size.
    """
    directory = Path(directory)
    try:
        manifest = Manifest.from_json(read_text(directory / MANIFEST))
    except OSError as error:
        raise InputError(
            f"shards: cannot read {directory / MANIFEST} ({error.strerror}); "
            "give a directory that was prepared; delete one that is incomplete to prepare it again"
        ) from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(
            f"shards: {directory / MANIFEST} is corrupt or of another version "
            f"({type(error).__name__}: {error}); delete {directory} and prepare it again"
        ) from None
    for file in (file for split in manifest.splits.values() for file in split.files):
        path = directory / file.name
        size = file.tokens * np.dtype(manifest.dtype).itemsize
        there = path.stat().st_size if path.is_file() else None
        if there != size:
            found = "is missing" if there is None else f"has {there} bytes, expected {size}"
            raise InputError(f"shards: {path} {found}; delete {directory} and prepare it again")
    return Shards(directory, manifest)


def sibling(directory: Path, content: str) -> Shards:
    """Return the shards with a content hash (or its prefix) that lie next to a directory."""
    for path in sorted(Path(directory).parent.glob(f"*/{MANIFEST}")):
        with contextlib.suppress(InputError):  # another program's, or one that is being written
            shards = open_shards(path.parent)
            if shards.content_hash.startswith(content):
                return shards
    raise InputError(
        f"shards: none next to {directory} has the content {content[:12]}; prepare them there"
    )


_checked: set[tuple[str, str, int, int]] = set()


def _opened(path: Path, sha256: str) -> np.ndarray:
    """Return the bytes of a file; its checksum is verified once per process."""
    # A plain view: slicing a np.memmap costs ten times as much.
    content = np.asarray(np.memmap(path, np.uint8, mode="r"))
    state = path.stat()
    key = str(path.resolve()), sha256, state.st_mtime_ns, state.st_ino
    if key not in _checked and hashlib.sha256(content.data).hexdigest() != sha256:
        raise InputError(
            f"shards: {path} does not hold the tokens it was written with; "
            f"delete {path.parent} and prepare it again"
        )
    _checked.add(key)
    return content
