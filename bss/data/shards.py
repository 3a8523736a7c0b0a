"""Token shards: the tokens of a corpus in flat memory-mapped files, and the manifest over them.

A directory of shards holds `manifest.json`, the files it lists (each split in one or more), and
the tokenizer's file where it has one. Reading needs numpy alone, so that a bare
accelerator machine trains on a copied directory; `bss.data.prepare` writes them.
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
from bss.values import from_dict

VERSION = 1
MANIFEST = "manifest.json"
_DTYPES = ("|u1", "<u2", "<u4")


@dataclass(frozen=True)
class ShardFile:
    """One file of tokens: its name, how many it holds, sha256 of its bytes."""

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
    """What a directory of shards holds.

    Attributes:
        source: the corpus: its name, options and fingerprint.
        tokenizer: what made the tokens.
        dtype: of the files: "|u1", "<u2" or "<u4", the smallest that holds the vocabulary.
        splits: by name: train, validation, test.
        version: of this format.
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
        """Return the manifest as JSON, with its content hash and, last, the hash of all before it."""
        fields = asdict(self) | {"content_hash": self.content_hash}
        return json.dumps(fields | {"sha256": _hash_of(fields)}, indent=2) + "\n"

    @classmethod
    def from_json(cls, text: str) -> "Manifest":
        """Read `to_json`; raises ValueError, KeyError or TypeError on anything else."""
        fields = json.loads(text)
        if fields["version"] != VERSION:
            raise ValueError(f"format version {fields['version']}, this bss reads {VERSION}")
        whole = fields.pop("sha256") == _hash_of(fields)
        content_hash = fields.pop("content_hash")
        manifest = from_dict(cls, fields)
        if manifest.dtype not in _DTYPES:
            raise ValueError(f"dtype {manifest.dtype!r}, expected one of {', '.join(_DTYPES)}")
        if any(s.tokens != sum(f.tokens for f in s.files) for s in manifest.splits.values()):
            raise ValueError("its files do not add up to its tokens")
        if manifest.content_hash != content_hash:
            raise ValueError("its content hash does not match its files")
        if not whole:
            raise ValueError("it is not as it was written")
        return manifest


def _hash_of(fields: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True, eq=False)
class TokenArray:
    """Arrays of tokens, end to end, as one.

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
        """The `length` tokens from each start, int32 [starts, length].

        Raises:
            IndexError: a window that does not lie within the array.
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
    """A directory of token shards; its sizes were checked when it was opened."""

    directory: Path
    manifest: Manifest

    @property
    def content_hash(self) -> str:
        """Hash of all tokens; a run records it and gives it to `require` when it continues."""
        return self.manifest.content_hash

    @property
    def vocab_size(self) -> int:
        """Tokens are in [0, vocab_size)."""
        return self.manifest.tokenizer.vocab_size

    def split(self, name: str) -> Split:
        """Return the counts and files of a split; InputError where there is none of that name."""
        if name not in self.manifest.splits:
            raise InputError(
                f"split: no {name!r}; expected one of {', '.join(self.manifest.splits)}"
            )
        return self.manifest.splits[name]

    def tokens(self, split: str) -> TokenArray:
        """Return all tokens of a split, memory-mapped; each file is checked when it is first
        opened.

        Raises:
            InputError: a file that is not as it was written.
        """
        files = self.split(split).files
        parts = (_opened(self.directory / file.name, file.sha256) for file in files)
        return TokenArray(tuple(part.view(self.manifest.dtype) for part in parts))

    def bytes_per_token(self, split: str) -> float:
        """Bytes of text per token, end-of-document tokens counted as tokens.

        Bits per byte = loss in nats per token / (ln 2 · bytes per token).
        """
        counts = self.split(split)
        return counts.bytes / counts.tokens

    def require(self, content_hash: str) -> None:
        """Refuses tokens of another content hash than those a run was started on."""
        if content_hash != self.content_hash:
            remedy = f"the run was made on {content_hash[:12]}; restore those, or start a new run"
            if not content_hash:
                remedy = f"the run names none; write data.content {self.content_hash}"
            here = f"the tokens in {self.directory} have hash {self.content_hash[:12]}"
            raise InputError(f"corpus: {here}, {remedy}")


def open_shards(directory: Path) -> Shards:
    """Open a directory that `bss.data.prepare` wrote; checks its manifest, and its files' sizes.

    Raises:
        InputError: no manifest, or a corrupt, truncated or foreign one; a shard that is missing or
            of the wrong size.
    """
    directory = Path(directory)
    try:
        manifest = Manifest.from_json((directory / MANIFEST).read_text())
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
    for split in manifest.splits.values():
        for file in split.files:
            _check(directory / file.name, file, np.dtype(manifest.dtype).itemsize)
    return Shards(directory, manifest)


def beside(directory: Path, content: str) -> Shards:
    """Return the shards of a content hash, or its beginning, in a directory beside another."""
    for path in sorted(Path(directory).parent.glob(f"*/{MANIFEST}")):
        with contextlib.suppress(InputError):  # another's, or one that is being written
            shards = open_shards(path.parent)
            if shards.content_hash.startswith(content):
                return shards
    raise InputError(
        f"shards: none beside {directory} has the content {content[:12]}; prepare them there"
    )


_checked: set[tuple[str, str, int, int]] = set()


def _opened(path: Path, sha256: str) -> np.ndarray:
    """Return the bytes of a file; a process reads each file once for its checksum."""
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


def _check(path: Path, file: ShardFile, itemsize: int) -> None:
    again = f"delete {path.parent} and prepare it again"
    if not path.is_file():
        raise InputError(f"shards: {path} is missing; {again}")
    size = path.stat().st_size
    if size != file.tokens * itemsize:
        raise InputError(
            f"shards: {path} has {size} bytes, expected {file.tokens * itemsize}; {again}"
        )
