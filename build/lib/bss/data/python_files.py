"""Python files as a corpus: the embedded default, real text on every machine."""

import platform
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bss.data.corpus import Asked, Corpus, Documents, slugged
from bss.data.documents import fingerprint, standard_library
from bss.data.tfds_text import documents
from bss.errors import InputError


@dataclass(frozen=True)
class PythonFiles(Corpus):
    """The Python files below folders, one document each, kept as ArrayRecord.

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

    def given(self, asked: Asked) -> Corpus:
        """With the roots that are asked for besides."""
        if asked.rest:
            raise InputError(f"corpus: {asked.name!r} is unknown; expected 'stdlib'")
        found = replace(self, roots=(*self.roots, *asked.roots))
        if not found.folders:
            raise InputError(
                f"roots: corpus {asked.name!r} needs at least one folder of Python files; "
                "or name text files by a pattern, 'files:PATH/**/*.txt'"
            )
        return found

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

    def open(self, kept: Path) -> Documents:
        """See `Corpus`; the files are written to ArrayRecord first."""
        from bss.data.python_sources import build

        return documents(build(self.folders, kept), "text")
