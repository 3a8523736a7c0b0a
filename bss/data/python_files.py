"""Python files as a corpus: the embedded default, real text on every machine."""

import platform
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bss.data.corpus import Corpus, CorpusRequest, Documents, slugged
from bss.data.documents import (
    SPLITS,
    fingerprint,
    python_documents,
    split_of,
    standard_library,
)
from bss.errors import InputError


@dataclass(frozen=True)
class PythonFiles(Corpus):
    """The Python files below folders, one document each.

    Attributes:
        library: the running interpreter's standard library (about 1,790 files, 31 MB) is one.
        roots: more folders.
    """

    library: bool = False
    roots: tuple[Path, ...] = ()

    def __post_init__(self) -> None:
        for root in self.roots:
            if not root.is_dir():
                raise InputError(f"roots: {str(root)!r} is not a folder; give existing folders")

    def given(self, request: CorpusRequest) -> Corpus:
        """With the roots that are asked for besides."""
        if request.rest:
            raise InputError(f"corpus: {request.name!r} is unknown; expected 'stdlib'")
        corpus = replace(self, roots=(*self.roots, *request.roots))
        if not corpus.folders:
            raise InputError(
                f"roots: corpus {request.name!r} needs at least one folder of Python files; "
                "or name text files by a pattern, 'files:PATH/**/*.txt'"
            )
        return corpus

    @property
    def folders(self) -> tuple[Path, ...]:
        """All of them."""
        return (standard_library(), *self.roots) if self.library else self.roots

    def slug(self, name: str) -> str:
        """The name and those of the roots: "stdlib+jax"."""
        return "+".join(slugged(each) for each in (name, *(r.resolve().name for r in self.roots)))

    def source(self) -> dict[str, Any]:
        """See `Corpus`; the name and content of every file are hashed, 0.1 s for the library."""
        return {
            "roots": [str(root) for root in self.roots],
            "python": platform.python_version(),
            "fingerprint": fingerprint(self.folders),
        }

    def open(self) -> Documents:
        """See `Corpus`; refused are so few files that a split has none."""
        counts = Counter(map(split_of, self._contents()))
        for empty in [split for split in SPLITS if not counts[split]][:1]:
            raise InputError(
                f"corpus: {counts.total()} Python files are too small a corpus, its {empty} split "
                "has none of them; add roots"
            )
        return super().open()

    def _contents(self) -> Iterator[bytes]:
        return (content for _, content in python_documents(self.folders))
