"""Text corpora: a corpus is a value that yields documents.

By default a corpus is identified by the hashes of its documents, and the hash of a document decides
its split. Documents are streamed and may be read several times; they are never kept in memory.
"""

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from bss.errors import InputError

SPLITS = ("train", "validation", "test")
SHARES = {"train": (0.0, 0.9), "validation": (0.9, 0.95), "test": (0.95, 1.0)}
"""By split: the range [low, high) of `fraction`, for a corpus that has no splits."""


@dataclass(frozen=True)
class CorpusRequest:
    """A corpus as named in a config.

    Attributes:
        name: the whole name, e.g. "files:texts/*.txt".
        rest: the name without its registered prefix, e.g. "texts/*.txt".
        text_feature: the feature of a tfds data set, or the field of a JSON line, with the text.
    """

    name: str
    rest: str = ""
    text_feature: str = "text"


class Corpus:
    """Base class of text corpora; a custom corpus is a subclass with `texts`.

    Examples:
        >>> class Notes(Corpus):
        ...     def texts(self):
        ...         yield "first text"
        ...         yield "second text"
        >>> [*Notes().documents("train")]  # the hash of a text decides its split
        ['second text']
    """

    def texts(self) -> Iterator[str]:
        """Yield the documents, always in the same order; empty ones are ignored."""
        raise NotImplementedError(f"{type(self).__name__} has no texts")

    def given(self, request: CorpusRequest) -> "Corpus":
        """Return this corpus with the settings of a config; by default there are none."""
        return self

    def check(self) -> None:
        """Raise InputError if the documents are not there, without reading them.

        By default nothing is checked.
        """

    def slug(self, name: str) -> str:
        """Return the name of the corpus as part of a file name: "c4/en" becomes "c4-en"."""
        return slugged(name)

    def source(self) -> dict[str, Any]:
        """Return what identifies the corpus, for a manifest.

        Returns:
            A JSON object with a `fingerprint`, which changes when any document does. By default
            every document is read to compute it.
        """
        total = hashlib.sha256()
        for content in self._contents():
            total.update(hashlib.sha256(content).digest())
        return {"fingerprint": total.hexdigest()}

    def documents(self, split: str) -> Iterator[str]:
        """Yield the documents of a split: streamed, without empty ones, always in one order."""
        return (content.decode() for content in self._contents() if split_of(content) == split)

    def _contents(self) -> Iterator[bytes]:
        """Yield the documents in UTF-8."""
        for number, text in enumerate(self.texts(), 1):
            where = f"corpus: document {number} of {type(self).__name__}"
            if not isinstance(text, str):
                raise InputError(f"{where} is {type(text).__name__}; texts must yield str")
            if text:
                yield encoded(text, where)


def fraction(content: bytes) -> float:
    """Return a document's position in [0, 1), uniform over documents; it decides the split.

    Identical documents have the same position. So no held-out document is trained on under another
    name.

    >>> fraction(b"import this") == fraction(b"import this")
    True
    """
    return int.from_bytes(hashlib.sha256(content).digest()[:6], "big") / 2**48


def split_of(content: bytes) -> str:
    """Return the split of a document, for a corpus without splits: 90%, 5% and 5%."""
    place = fraction(content)
    return next(split for split, (_, below) in SHARES.items() if place < below)


def encoded(text: str, where: str) -> bytes:
    """Return a text in UTF-8; raise InputError if it has unpaired surrogates."""
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise InputError(f"{where} cannot be UTF-8 ({error}); mend its text") from None


def slugged(name: str) -> str:
    """Return a name as part of a file name."""
    return re.sub(r"[^A-Za-z0-9._]+", "-", name)
