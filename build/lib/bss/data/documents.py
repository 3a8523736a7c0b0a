"""Which files make a corpus, and which split a document belongs to.

Both are pure functions of the files: sorted order, and a hash of the content that puts identical
documents into the same split, so that no held-out document was trained on under another name.
"""

import hashlib
import os
import sysconfig
from collections.abc import Iterator, Sequence
from pathlib import Path

SPLITS = ("train", "validation", "test")
SHARES = {"train": (0.0, 0.9), "validation": (0.9, 0.95), "test": (0.95, 1.0)}
"""By split of a corpus that comes without: the documents whose `fraction` is in [low, high)."""
_INSTALLED = {"site-packages", "dist-packages"}


def standard_library() -> Path:
    """The folder of the running interpreter's standard library."""
    return Path(sysconfig.get_path("stdlib"))


def python_documents(roots: Sequence[Path]) -> Iterator[tuple[str, bytes]]:
    """Yields the name and content of every `.py` file below the roots that is text, sorted.

    The name is that in the corpus, the same on every machine: the root's position, in the order
    given, and the path below it, "0/asyncio/base_events.py". Folders named site-packages or
    dist-packages below a root are left out: they become part of a corpus by being a root
    themselves. So are empty files, files that are not UTF-8 and files that cannot be read. Links
    to folders are not followed.
    """
    for position, root in enumerate(roots):
        for folder, subfolders, names in os.walk(root):
            subfolders[:] = sorted(set(subfolders) - _INSTALLED)
            for path in (Path(folder, name) for name in sorted(names) if name.endswith(".py")):
                try:
                    content = path.read_bytes()
                    content.decode()
                except (OSError, UnicodeDecodeError):
                    continue
                if content:
                    yield f"{position}/{path.relative_to(root).as_posix()}", content


def fingerprint(roots: Sequence[Path]) -> str:
    """Hash of the names and contents of all documents below the roots (sha256, hexadecimal)."""
    total = hashlib.sha256()
    for name, content in python_documents(roots):
        total.update(f"{name}\n{hashlib.sha256(content).hexdigest()}\n".encode())
    return total.hexdigest()


def fraction(content: bytes) -> float:
    """A document's fixed place in [0, 1), uniform over documents; it decides their split.

    >>> fraction(b"import this") == fraction(b"import this")
    True
    """
    return int.from_bytes(hashlib.sha256(content).digest()[:6], "big") / 2**48


def split_of(content: bytes) -> str:
    """The split of a document in a corpus that comes without splits: 90%, 5% and 5%."""
    place = fraction(content)
    return next(split for split, (_, below) in SHARES.items() if place < below)
