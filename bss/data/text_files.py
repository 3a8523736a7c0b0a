"""Custom text files as a corpus: each file, or each line of JSON lines, is a document."""

import glob
import hashlib
import itertools
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bss.data.corpus import Corpus, CorpusRequest, encoded, slugged
from bss.errors import InputError

_LINES = (".jsonl", ".ndjson")
_SHOWN = 60


@dataclass(frozen=True)
class TextFiles(Corpus):
    """The files that match a pattern, sorted by name; text in UTF-8.

    Attributes:
        pattern: a path with the wildcards `*`, `?`, `[...]` and `**` (folders).
        text_feature: the field of a JSON line that contains the text.
    """

    pattern: str
    text_feature: str = "text"

    def given(self, request: CorpusRequest) -> Corpus:
        """Return the files that match the pattern in the name."""
        return TextFiles(request.rest, request.text_feature) if request.rest else self

    def slug(self, name: str) -> str:
        """Return the name with a hash of the pattern, because two patterns can share a name."""
        place = f"{Path(self.pattern).expanduser().absolute()}\n{self.text_feature}"
        return f"{slugged(name)[:_SHOWN]}-{hashlib.sha256(place.encode()).hexdigest()[:8]}"

    def source(self) -> dict[str, Any]:
        """See `Corpus`; the bytes and the relative path of every file are hashed."""
        total, names = hashlib.sha256(self.text_feature.encode()), self._names()
        for name in names:
            try:
                with (self._folder / name).open("rb") as file:
                    digest = hashlib.file_digest(file, "sha256").hexdigest()
            except OSError as error:
                raise InputError(
                    f"corpus: {self._folder / name} cannot be read ({error.strerror}); mend that, "
                    "or leave it out of the pattern"
                ) from None
            total.update(os.fsencode(name) + f"\n{digest}\n".encode())
        return {"pattern": self.pattern, "files": len(names), "fingerprint": total.hexdigest()}

    def texts(self) -> Iterator[str]:
        """Yield the files, or the lines of JSON lines."""
        for path in (self._folder / name for name in self._names()):
            if path.suffix.lower() in _LINES:
                yield from self._lines(path)
            else:
                yield _decoded(path.read_bytes(), f"corpus: {path}")

    @property
    def _folder(self) -> Path:
        """Return the part of the pattern before its first wildcard."""
        parts = Path(self.pattern).expanduser().parts[:-1]
        return Path(*itertools.takewhile(lambda part: not glob.has_magic(part), parts))

    def _names(self) -> list[str]:
        """Return the files below the folder, sorted."""
        pattern = str(Path(self.pattern).expanduser().relative_to(self._folder))
        paths = glob.iglob(pattern, root_dir=self._folder, recursive=True)
        names = sorted(name for name in paths if (self._folder / name).is_file())
        if not names:
            raise InputError(
                f"corpus: {self.pattern!r} matches no file in {Path.cwd()}; expected a file or a "
                "pattern, e.g. 'files:texts/**/*.txt' for a folder"
            )
        return names

    def _lines(self, path: Path) -> Iterator[str]:
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    yield self._text(line, f"corpus: {path}, line {number},")

    def _text(self, line: bytes, where: str) -> str:
        """Return the text of a JSON line."""
        expected = f'expected {{"{self.text_feature}": "..."}}'
        try:
            fields = json.loads(_decoded(line, where))
        except (json.JSONDecodeError, RecursionError) as error:
            raise InputError(f"{where} is not JSON ({error}); {expected}") from None
        if not isinstance(fields, dict) or not isinstance(fields.get(self.text_feature), str):
            there = ", ".join(fields) if isinstance(fields, dict) else type(fields).__name__
            raise InputError(
                f"{where} has no text {self.text_feature!r} but {there or 'nothing'}; {expected}, "
                "or name another text_feature"
            )
        encoded(fields[self.text_feature], where)
        return fields[self.text_feature]


def _decoded(content: bytes, where: str) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(
            f"{where} is not UTF-8 at byte {error.start}; convert it, or leave the file out"
        ) from None
