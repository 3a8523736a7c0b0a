"""Prepared tensorflow-datasets text data sets as corpora.

The data sets are read from ~/tensorflow_datasets or TFDS_DATA_DIR. Nothing is downloaded, and
TensorFlow is never imported.
"""

import contextlib
import hashlib
import itertools
import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from bss.data.corpus import SHARES, Corpus, CorpusRequest, fraction, slugged
from bss.errors import InputError

if TYPE_CHECKING:
    import tensorflow_datasets as tfds

_READ_AT_ONCE = 64


@dataclass(frozen=True)
class TfdsText(Corpus):
    """A prepared data set.

    Attributes:
        name: e.g. "c4/en" or "c4/en:3.1.0".
        text_feature: see `CorpusRequest`.
    """

    name: str = ""
    text_feature: str = "text"

    def given(self, request: CorpusRequest) -> Corpus:
        """Return the data set that a config names."""
        return TfdsText(request.rest, request.text_feature) if request.rest else self

    def check(self) -> None:
        """Raise InputError as `source`."""
        _prepared(self)

    def slug(self, name: str) -> str:
        """Return the name, followed by the feature if it is not "text"."""
        return slugged(name if self.text_feature == "text" else f"{name}-{self.text_feature}")

    def source(self) -> dict[str, Any]:
        """See `Corpus`; the full name, and the examples and bytes of the splits, are hashed.

        Raises:
            InputError: If the data set is unknown, not fully prepared, not ArrayRecord, or has no
                such text feature.
        """
        info = _prepared(self).info
        sizes = {name: [s.num_examples, s.num_bytes] for name, s in sorted(info.splits.items())}
        identity = json.dumps([info.full_name, self.text_feature, sizes])
        return {
            "dataset": info.full_name,
            "text_feature": self.text_feature,
            "fingerprint": hashlib.sha256(identity.encode()).hexdigest(),
        }

    def documents(self, split: str) -> Iterator[str]:
        """Yield the non-empty UTF-8 documents of a split.

        The data set's three splits are used if it has them. If only one of validation and test
        exists (C4), its documents are divided between the two by their hash. If neither exists, all
        documents are divided: 90%, 5% and 5%.
        """
        builder = _prepared(self)
        tfds_split, low, high = _shares(set(builder.info.splits))[split]
        source = builder.as_data_source(tfds_split)
        for start in range(0, len(source), _READ_AT_ONCE):
            indices = list(range(start, min(start + _READ_AT_ONCE, len(source))))
            try:
                examples = source.__getitems__(indices)
            except RuntimeError as error:  # a truncated file
                raise _damaged(builder, tfds_split, str(error).partition(";")[0]) from None
            for example in examples:
                if (content := example[self.text_feature]) is None:
                    raise _damaged(builder, tfds_split, f"{len(source)} documents expected")
                if content and (high - low == 1 or low <= fraction(content) < high):
                    with contextlib.suppress(UnicodeDecodeError):
                        yield content.decode()


def _damaged(builder: "tfds.core.DatasetBuilder", split: str, what: str) -> InputError:
    return InputError(
        f"corpus: {builder.info.full_name!r} was half prepared or is damaged, its {split} split "
        f"cannot be read ({what}); delete {builder.data_dir} and prepare it again"
    )


def _shares(splits: set[str]) -> dict[str, tuple[str, float, float]]:
    held_out = sorted(splits & {"validation", "test"})
    if not held_out:
        return {split: ("train", *share) for split, share in SHARES.items()}
    whole = {split: (split, 0.0, 1.0) for split in ("train", *held_out)}
    if len(held_out) == 2:
        return whole
    return whole | {"validation": (held_out[0], 0.0, 0.5), "test": (held_out[0], 0.5, 1.0)}


def _left(name: str) -> Path | None:
    """Return the folder of a data set that cannot be opened, if there is one."""
    from tensorflow_datasets.core.utils.file_utils import list_data_dirs

    name, _, version = name.partition(":")
    if not re.fullmatch(r"[\w./-]*\w", name) or name.startswith("/"):
        return None
    found = (
        Path(root).expanduser().glob(f"{name}/{version or '[0-9]*'}")
        for root in list_data_dirs(None)
    )
    return next(itertools.chain.from_iterable(found), None)


def _prepared(corpus: TfdsText) -> "tfds.core.DatasetBuilder":
    """Open a prepared tfds data set from its files alone; raise InputError if there is none."""
    from google.protobuf.json_format import ParseError
    from tensorflow_datasets.core.features import Text as TextFeature
    from tensorflow_datasets.core.read_only_builder import builder_from_files

    folder = os.environ.get("TFDS_DATA_DIR", "~/tensorflow_datasets")
    how = f"tfds.builder({corpus.name!r}, file_format='array_record').download_and_prepare()"
    try:
        builder = builder_from_files(corpus.name)
    # Not found, a name that does not parse, or a dataset_info.json that is missing or truncated.
    except (ValueError, OSError, ParseError):
        if there := _left(corpus.name):
            raise InputError(
                f"corpus: {corpus.name!r} is half prepared, dataset_info.json or features.json is "
                f"missing or cut in {there}; copy it, or delete that and prepare it with {how}"
            ) from None
        raise InputError(
            f"corpus: no data set {corpus.name!r} is prepared in {folder}; use 'stdlib', "
            "'files:PATTERN' or your own as package.module:ATTRIBUTE, set TFDS_DATA_DIR to the "
            f"folder that contains it, or prepare it once with {how}"
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
    paths = [Path(path) for split in info.splits.values() for path in split.filepaths]
    if missing := [path for path in paths if not path.exists()]:
        raise InputError(
            f"corpus: {corpus.name!r} is half prepared, {len(missing)} of its {len(paths)} files "
            f"are missing, the first is {missing[0]}; copy them, or delete {missing[0].parent} "
            f"and prepare it with {how}"
        )
    return builder
