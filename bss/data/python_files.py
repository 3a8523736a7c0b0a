"""Python files as a corpus: the default, real text on every machine."""

import hashlib
import os
import platform
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bss.data.corpus import Corpus, CorpusRequest
from bss.errors import InputError

_INSTALLED = {"site-packages", "dist-packages"}


@dataclass(frozen=True)
class PythonFiles(Corpus):
    """The `.py` files below a folder that are text, one document each.

    Folders named site-packages or dist-packages are left out, and so are empty files, files that
    are not UTF-8 and files that cannot be read. Links to folders are not followed.

    Attributes:
        folder: by default the running interpreter's standard library (about 1,790 files, 31 MB).
    """

    folder: Path = Path(sysconfig.get_path("stdlib"))

    def given(self, request: CorpusRequest) -> Corpus:
        """Return itself; the corpus has no settings."""
        if request.rest:
            raise InputError(f"corpus: {request.name!r} is unknown; expected 'stdlib'")
        return self

    def source(self) -> dict[str, Any]:
        """See `Corpus`; the name and content of every file are hashed (0.1 s for the library)."""
        total = hashlib.sha256()
        for name, content in self._files():
            total.update(f"0/{name}\n{hashlib.sha256(content).hexdigest()}\n".encode())
        return {"python": platform.python_version(), "fingerprint": total.hexdigest()}

    def _contents(self) -> Iterator[bytes]:
        return (content for _, content in self._files())

    def _files(self) -> Iterator[tuple[str, bytes]]:
        """Yield (path below the folder, content), sorted: the same on every machine."""
        for folder, subfolders, names in os.walk(self.folder):
            subfolders[:] = sorted(set(subfolders) - _INSTALLED)
            for path in (Path(folder, name) for name in sorted(names) if name.endswith(".py")):
                try:
                    content = path.read_bytes()
                    content.decode()
                except (OSError, UnicodeDecodeError):
                    continue
                if content:
                    yield path.relative_to(self.folder).as_posix(), content
