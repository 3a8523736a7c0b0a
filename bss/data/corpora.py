"""Text corpora by name: the standard library, folders of Python files, any tfds text data set.

`stdlib` is the embedded default: the sources of the running interpreter's standard library (about
1,790 files, 31 MB), and with `roots` more folders, such as installed packages. `files` is the
roots alone. Every other name is a tensorflow-datasets data set ("c4/en"), read where it was
already prepared. Nothing is downloaded, and TensorFlow is never imported.
"""

import hashlib
import json
import platform
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from bss.data.documents import SHARES, fingerprint, fraction, standard_library
from bss.errors import InputError

if TYPE_CHECKING:
    import tensorflow_datasets as tfds

_READ_AT_ONCE = 64
_EMBEDDED = ("stdlib", "files")


@dataclass(frozen=True)
class Corpus:
    """The name of a text corpus and where to find it; roots that do not go with it are refused.

    Attributes:
        name: "stdlib", "files" or the name of a tfds data set ("c4/en", "c4/en:3.1.0").
        roots: folders of Python files; beside the standard library, or all there is in "files".
        data_dir: folder of prepared tfds data sets; None for tfds' own (~/tensorflow_datasets).
        text_feature: the feature of a tfds data set that holds the text.
    """

    name: str = "stdlib"
    roots: tuple[Path, ...] = ()
    data_dir: Path | None = None
    text_feature: str = "text"

    def __post_init__(self):
        if self.roots and self.name not in _EMBEDDED:
            raise InputError(
                f"roots: corpus {self.name!r} takes none; only 'stdlib' and 'files' read folders"
            )
        if self.name == "files" and not self.roots:
            raise InputError("roots: corpus 'files' needs at least one folder of Python files")
        for root in self.roots:
            if not root.is_dir():
                raise InputError(f"roots: {str(root)!r} is not a folder; give existing folders")

    @property
    def folders(self) -> tuple[Path, ...]:
        """The folders of Python files that make an embedded corpus."""
        return (standard_library(), *self.roots) if self.name == "stdlib" else self.roots

    @property
    def slug(self) -> str:
        """The corpus' name as part of a file name, e.g. "stdlib+jax" or "c4-en"."""
        names = (self.name, *(root.resolve().name for root in self.roots))
        return "+".join(re.sub(r"[^A-Za-z0-9._]+", "-", name) for name in names)


@dataclass(frozen=True)
class Text:
    """An opened corpus, in three splits.

    Attributes:
        builder: the tfds data set.
        text_feature: the feature that holds the text.
        shares: split -> (tfds split, low, high): the documents whose `fraction` is in
            [low, high).
    """

    builder: "tfds.core.DatasetBuilder"
    text_feature: str
    shares: Mapping[str, tuple[str, float, float]]

    def documents(self, split: str) -> Iterator[str]:
        """Streams the non-empty UTF-8 documents of a split in a fixed order."""
        tfds_split, low, high = self.shares[split]
        source = self.builder.as_data_source(tfds_split)  # pyright: ignore[reportCallIssue]
        for start in range(0, len(source), _READ_AT_ONCE):
            indices = list(range(start, min(start + _READ_AT_ONCE, len(source))))
            for example in source.__getitems__(indices):
                content = example[self.text_feature]
                if content and (high - low == 1 or low <= fraction(content) < high):
                    try:
                        yield content.decode()
                    except UnicodeDecodeError:
                        continue


def source_of(corpus: Corpus) -> dict:
    """What the corpus is now, for a manifest; its `fingerprint` changes when any document does.

    For Python files it hashes every document's name and content (0.1 s for the standard
    library); for a tfds data set its full name and the examples and bytes of its splits.

    Raises:
        InputError: unknown data set, not prepared, not ArrayRecord, no such text feature.
    """
    if corpus.name in _EMBEDDED:
        origin = {
            "roots": [str(root) for root in corpus.roots],
            "python": platform.python_version(),
            "fingerprint": fingerprint(corpus.folders),
        }
    else:
        info = _prepared(corpus).info
        sizes = {name: [s.num_examples, s.num_bytes] for name, s in sorted(info.splits.items())}
        identity = json.dumps([info.full_name, corpus.text_feature, sizes])
        origin = {
            "dataset": info.full_name,
            "text_feature": corpus.text_feature,
            "fingerprint": hashlib.sha256(identity.encode()).hexdigest(),
        }
    return {"corpus": corpus.name, **origin}


def open_text(corpus: Corpus, source: Mapping, text_dir: Path) -> Text:
    """Opens the text of a corpus, of which `source` is the `source_of`.

    Python files are first written to ArrayRecord under `text_dir`. The three splits of a tfds data
    set are its own where it has them. With only one of validation and test (C4), its documents are
    divided between the two by their hash; with neither, all documents are divided, 90%, 5% and 5%.
    """
    if corpus.name in _EMBEDDED:
        from bss.data.python_sources import build

        builder, feature = build(corpus.folders, text_dir / source["fingerprint"][:16]), "text"
    else:
        builder, feature = _prepared(corpus), corpus.text_feature
    return Text(builder, feature, _shares(set(builder.info.splits)))


def _shares(splits: set[str]) -> dict[str, tuple[str, float, float]]:
    held_out = sorted(splits & {"validation", "test"})
    if not held_out:
        return {split: ("train", *share) for split, share in SHARES.items()}
    whole = {split: (split, 0.0, 1.0) for split in ("train", *held_out)}
    if len(held_out) == 2:
        return whole
    return whole | {"validation": (held_out[0], 0.0, 0.5), "test": (held_out[0], 0.5, 1.0)}


def _prepared(corpus: Corpus) -> "tfds.core.DatasetBuilder":
    """Opens a prepared tfds data set from its files alone, or says how to prepare it."""
    from tensorflow_datasets.core.features import Text as TextFeature
    from tensorflow_datasets.core.read_only_builder import builder_from_files

    where = "~/tensorflow_datasets" if corpus.data_dir is None else corpus.data_dir
    how = (
        f"tfds.builder({corpus.name!r}, data_dir={str(where)!r}, "
        "file_format='array_record').download_and_prepare()"
    )
    try:
        builder = builder_from_files(
            corpus.name, data_dir=None if corpus.data_dir is None else str(corpus.data_dir)
        )
    except ValueError:  # DatasetNotFoundError, or a name that does not parse
        raise InputError(
            f"corpus: no data set {corpus.name!r} is prepared in {where}; use 'stdlib' or "
            f"'files', set data_dir to where it is, or prepare it once with {how}"
        ) from None
    info = builder.info
    if info.file_format is None or info.file_format.value != "array_record":
        raise InputError(f"corpus: {corpus.name!r} is not in ArrayRecord; prepare it with {how}")
    features = cast(Mapping[str, Any], info.features)
    texts = sorted(name for name, kind in features.items() if isinstance(kind, TextFeature))
    if corpus.text_feature not in texts:
        raise InputError(
            f"text_feature: {corpus.name!r} has no text {corpus.text_feature!r}; "
            f"its texts are {', '.join(texts) or 'none'}"
        )
    if "train" not in info.splits:
        raise InputError(f"corpus: {corpus.name!r} has no train split; choose another data set")
    return builder
