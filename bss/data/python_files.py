"""Python sources as corpora: the standard library, the default, and installed packages.

Both are real text on every machine, without a network.
"""

import hashlib
import json
import os
import platform
import sys
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.metadata import Distribution, distributions
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
        if package.files is None:
            raise InputError(
                f"corpus: package {package.name!r} has no list of its files; install it anew by "
                "pip, not editable, or take it from the list"
            )
        files = (file for file in package.files if file.suffix == ".py")
        for file in sorted(file for file in files if ".." not in file.parts):
            try:
                content = Path(str(file.locate())).read_bytes()
                content.decode()
            except UnicodeDecodeError:
                continue
            except OSError as error:
                raise InputError(
                    f"corpus: {file} of package {package.name!r} cannot be read "
                    f"({error.strerror}); install the package anew"
                ) from None
            yield content

    def _installed(self, name: str) -> Distribution | None:
        """Return a package; of two with one name the first on the path, as Python does."""
        found = distributions(name=name, path=list(self.sites or sys.path))
        return next((package for package in found if package.name), None)  # a removed one has none

    def _list(self) -> dict[str, Any]:
        try:
            wanted = json.loads(self.listed.read_text())
        except (OSError, ValueError) as error:
            raise InputError(f"corpus: {self.listed}: not a list ({error}); {_EXPECTED}") from None
        if not isinstance(wanted, dict) or not isinstance(wanted.get("packages"), dict):
            raise InputError(f"corpus: {self.listed} names no packages; {_EXPECTED}")
        if unknown := sorted({*wanted} - {"packages", "python", "sha256"}):
            raise InputError(f"corpus: {self.listed} has {unknown[0]!r}; {_EXPECTED}")
        return wanted
