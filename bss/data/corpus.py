"""The seam between text and shards: a corpus is a value that yields documents.

What a corpus does not say of itself follows from its documents: what it is now, from their hashes;
which split each is in, from its own. They are read as often as needed and never held.
"""

import hashlib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from bss.errors import InputError

Documents = Callable[[str], Iterator[str]]
"""From a split to its documents: streamed, none empty, in one order always."""

SPLITS = ("train", "validation", "test")
SHARES = {"train": (0.0, 0.9), "validation": (0.9, 0.95), "test": (0.95, 1.0)}
"""By split of a corpus that comes without: the documents whose `fraction` is in [low, high)."""


@dataclass(frozen=True)
class CorpusRequest:
    """A corpus as a config asks for it.

    Attributes:
        name: all of it, "files:texts/*.txt".
        rest: of the name, behind the registered one: "texts/*.txt".
        text_feature: the feature of a tfds data set, or field of a JSON line, that holds the text.
    """

    name: str
    rest: str = ""
    text_feature: str = "text"


class Corpus:
    """A text corpus; one of a user's own is a value of a class made of this, with `texts`."""

    def texts(self) -> Iterator[str]:
        """Stream the documents, in one order always; empty ones do not count."""
        raise NotImplementedError(f"{type(self).__name__} has no texts")

    def given(self, request: CorpusRequest) -> "Corpus":
        """This corpus, with what a config says of it besides; here that is nothing."""
        return self

    def slug(self, name: str) -> str:
        """What the corpus of this name is called in a file name: "c4/en" is "c4-en"."""
        return slugged(name)

    def source(self) -> dict[str, Any]:
        """What the corpus is now, for a manifest.

        Returns:
            With a `fingerprint`, which changes when any document does. Here every document is read
            for it.
        """
        total = hashlib.sha256()
        for content in self._contents():
            total.update(hashlib.sha256(content).digest())
        return {"fingerprint": total.hexdigest()}

    def open(self) -> Documents:
        """Return the documents of each split."""
        return self._of_split

    def _of_split(self, split: str) -> Iterator[str]:
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
    """Return a document's fixed place in [0, 1), uniform over documents; it decides their split.

    Identical documents are so in one split: none that is held out was trained on under another
    name.

    >>> fraction(b"import this") == fraction(b"import this")
    True
    """
    return int.from_bytes(hashlib.sha256(content).digest()[:6], "big") / 2**48


def split_of(content: bytes) -> str:
    """Return the split of a document in a corpus that comes without splits: 90%, 5% and 5%."""
    place = fraction(content)
    return next(split for split, (_, below) in SHARES.items() if place < below)


def encoded(text: str, where: str) -> bytes:
    """Return a text in UTF-8; refused is one that has none, with halves of surrogate pairs."""
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise InputError(f"{where} cannot be UTF-8 ({error}); mend its text") from None


def slugged(name: str) -> str:
    """Return a name as part of a file name."""
    return re.sub(r"[^A-Za-z0-9._]+", "-", name)
