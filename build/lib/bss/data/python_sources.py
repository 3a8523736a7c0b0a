"""A tensorflow-datasets builder over Python files: real text on every machine, no download."""

import contextlib
import io
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import tensorflow_datasets as tfds

from bss.data.documents import SPLITS, python_documents, split_of
from bss.errors import InputError


class PythonSources(tfds.core.GeneratorBasedBuilder):
    """The Python files below some folders, one document each, split by their content's hash.

    Features: `text` (the file) and `path` (its name in the corpus). Two builds from the same
    files are byte-identical.
    """

    VERSION = tfds.core.Version("1.0.0")

    def __init__(self, *, roots: Sequence[Path], **kwargs):
        self._roots = tuple(roots)
        super().__init__(**kwargs)

    def _info(self) -> tfds.core.DatasetInfo:
        return tfds.core.DatasetInfo(
            builder=self,
            description="Python source files, one document each.",
            features=tfds.features.FeaturesDict(
                {"text": tfds.features.Text(), "path": tfds.features.Text()}
            ),
            # Documents stay in sorted order; the stream does the shuffling.
            disable_shuffling=True,
        )

    def _split_generators(self, dl_manager):
        return {split: self._generate_examples(split) for split in SPLITS}

    def _generate_examples(self, split: str) -> Iterator[tuple[int, dict]]:
        documents = (d for d in python_documents(self._roots) if split_of(d[1]) == split)
        for key, (name, content) in enumerate(documents):
            yield key, {"text": content, "path": name}


def build(roots: Sequence[Path], data_dir: Path) -> tfds.core.DatasetBuilder:
    """Writes the corpus as ArrayRecord under `data_dir`, unless it is there, and opens it.

    Raises:
        InputError: so few documents that a split has none.
    """
    counts = Counter(split_of(content) for _, content in python_documents(roots))
    if empty := [split for split in SPLITS if not counts[split]]:
        raise InputError(
            f"corpus: {counts.total()} Python files are too small a corpus, its {empty[0]} split "
            "has none of them; add roots"
        )
    builder = PythonSources(roots=roots, data_dir=str(data_dir), file_format="array_record")
    # tfds reports on stdout, which belongs to the command that called us.
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        builder.download_and_prepare()
    return builder
