"""Local files as corpora: Python sources, which are the default, and custom text.

The standard library and installed packages are real text on every machine, without a network. Each
file of custom text, or each line of JSON lines, is a document.
"""

import csv
import glob
import hashlib
import itertools
import json
import os
import platform
import sys
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.metadata import Distribution, distributions
from pathlib import Path, PurePosixPath
from typing import Any

from bss.data.corpus import Corpus, CorpusRequest, encoded, slugged
from bss.errors import InputError
from bss.files import read_text

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


_EXPECTED = 'expected {"packages": {"NAME": "VERSION"}}, with "python" and "sha256" if wanted'

_BUILD = "_sysconfigdata"  # records where and how the interpreter was built


@dataclass(frozen=True)
class PackageFiles(Corpus):
    """The `.py` files of listed packages, in the order of the list; each content appears once.

    A list is JSON: `packages`, from names to versions; `python`, the version of the interpreter
    whose standard library comes first; `sha256`, the hash of all contents. The folder in which
    packages are installed has no effect, because scripts, which contain its path, are left out. A
    standard library is specific to its build: one of its modules contains the interpreter's path.

    Attributes:
        listed: path of the list.
        sites: folders in which packages are installed; None for the interpreter's.
        library: the standard library, read only for lists with `python`.
    """

    listed: Path
    sites: tuple[str, ...] | None = None
    library: PythonFiles = field(default_factory=PythonFiles)

    def given(self, request: CorpusRequest) -> Corpus:
        """Return the packages of the list that the name contains."""
        if not request.rest:
            return self
        return PackageFiles(Path(request.rest), self.sites, self.library)

    def check(self) -> None:
        """Raise InputError if the list is invalid."""
        self._list()

    def source(self) -> dict[str, Any]:
        """See `Corpus`; only contents are hashed, so the folder of a package has no effect.

        Raises:
            InputError: If the list is invalid; if a package is missing, has another version or
                lacks a file; or if the contents have another hash than the list's.
        """
        wanted = self._list()
        fingerprint = super().source()["fingerprint"]
        if (expected := wanted.get("sha256", fingerprint)) != fingerprint:
            raise InputError(
                f"corpus: the packages of {self.listed} have the hash {fingerprint}, expected "
                f"{expected}; install them anew, or write that hash into the list"
            )
        return {"packages": wanted["packages"], "fingerprint": fingerprint}

    def _contents(self) -> Iterator[bytes]:
        seen = set()
        for content in self._all():
            if content and (digest := hashlib.sha256(content).digest()) not in seen:
                seen.add(digest)
                yield content

    def _all(self) -> Iterator[bytes]:
        wanted = self._list()
        there = {name: self._installed(name) for name in wanted["packages"]}
        for name, version in wanted["packages"].items():
            package = there[name]
            if (found := package.version if package else "missing") != version:
                raise InputError(
                    f"corpus: package {name!r} of {self.listed} is {found}, expected {version}; "
                    f"pip install {name}=={version}, or change the list"
                )
        if wanted.get("python", platform.python_version()) != platform.python_version():
            raise InputError(
                f"corpus: {self.listed} is of Python {wanted['python']}, this is "
                f"{platform.python_version()}; run that one, or change the list"
            )
        if "python" in wanted:
            files = self.library._files()
            yield from (content for name, content in files if _BUILD not in name)
        for package in filter(None, there.values()):
            yield from self._sources(package)

    def _sources(self, package: Distribution) -> Iterator[bytes]:
        files = [file for file in self._record(package) if file.suffix == ".py"]
        for file in sorted(file for file in files if ".." not in file.parts):
            try:
                content = Path(str(package.locate_file(file))).read_bytes()
                content.decode()
            except UnicodeDecodeError:
                continue
            except OSError as error:
                raise InputError(
                    f"corpus: {file} of package {package.name!r} cannot be read "
                    f"({error.strerror}); install the package anew"
                ) from None
            yield content

    def _record(self, package: Distribution) -> list[PurePosixPath]:
        """Return the files that were installed, those that are gone among them.

        From Python 3.12 on `Distribution.files` leaves out files that are gone.
        """
        if record := package.read_text("RECORD"):
            return [PurePosixPath(row[0]) for row in csv.reader(record.splitlines()) if row]
        if package.files is None:
            raise InputError(
                f"corpus: package {package.name!r} has no list of its files; install it anew by "
                "pip, not editable, or take it from the list"
            )
        return [*package.files]

    def _installed(self, name: str) -> Distribution | None:
        """Return a package; of two with one name the first on the path, as Python does."""
        found = distributions(name=name, path=list(self.sites or sys.path))
        return next((package for package in found if package.name), None)  # a removed one has none

    def _list(self) -> dict[str, Any]:
        try:
            wanted = json.loads(read_text(self.listed))
        except (OSError, ValueError) as error:
            raise InputError(f"corpus: {self.listed}: not a list ({error}); {_EXPECTED}") from None
        if not isinstance(wanted, dict) or not isinstance(wanted.get("packages"), dict):
            raise InputError(f"corpus: {self.listed} names no packages; {_EXPECTED}")
        if unknown := sorted({*wanted} - {"packages", "python", "sha256"}):
            raise InputError(f"corpus: {self.listed} has {unknown[0]!r}; {_EXPECTED}")
        return wanted


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

    def check(self) -> None:
        """Raise InputError if no file matches."""
        self._names()

    def slug(self, name: str) -> str:
        """Return the name with a hash of the pattern, because two patterns can share a name."""
        place = f"{Path(self.pattern).expanduser().absolute()}\n{self.text_feature}"
        return f"{slugged(name)[:_SHOWN]}-{hashlib.sha256(place.encode()).hexdigest()[:8]}"

    def source(self) -> dict[str, Any]:
        """See `Corpus`; the bytes and the relative path of every file are hashed."""
        total = hashlib.sha256(self.text_feature.encode())
        names = self._names()
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
            if path.suffix.lower() not in _LINES:
                yield _decoded(path.read_bytes(), f"corpus: {path}")
                continue
            with path.open("rb") as file:
                for number, line in enumerate(file, 1):
                    if line.strip():
                        yield self._text(line, f"corpus: {path}, line {number},")

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
