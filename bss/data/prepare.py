"""From a corpus and a tokenizer to token shards, once; corpora by name.

`stdlib` is the embedded default: the sources of the running interpreter's standard library.
`packages:LIST` is those of the installed packages that a list names, `files:PATTERN` one's own
text, `shards:DIRECTORY` what was prepared, perhaps elsewhere. Any other name is of a
tensorflow-datasets data set ("c4/en"), or `package.module:ATTRIBUTE`.

A directory of shards appears complete or not at all: it is written aside and renamed, under a
lock, so that processes which prepare the same corpus at the same time wait for the first. A shard
is whole or made again: a preparation that was killed continues after its last whole shard, and
makes the same bytes.
"""

import contextlib
import fcntl
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from bss.data import tokenizers
from bss.data.corpus import SPLITS, Corpus, CorpusRequest
from bss.data.package_files import PackageFiles
from bss.data.python_files import PythonFiles
from bss.data.shards import MANIFEST, Manifest, Shards, TokenizerInfo, open_shards
from bss.data.text_files import TextFiles
from bss.data.tfds_text import TfdsText
from bss.data.write import Progress, write_split
from bss.errors import InputError
from bss.registry import Registry

MIN_TOKENS = 256

CORPORA: Registry[Corpus] = Registry(
    "corpus",
    {
        "stdlib": PythonFiles(),
        "packages": PackageFiles(Path()),
        "files": TextFiles(""),
        "tfds": TfdsText(),
    },
    of=Corpus,
)
PREPARED = "shards:"
_OWN = re.compile(r"[\w.]+:[^\W\d][\w.]*")  # what follows the name of a data set is a version


def corpus_of(request: CorpusRequest) -> Corpus:
    """Return the corpus that a config asks for.

    Raises:
        InputError: a name or a module that is not there, an attribute that is no corpus.
    """
    name, _, rest = request.name.partition(":")
    if name not in CORPORA:
        name, rest = (request.name, "") if _OWN.fullmatch(request.name) else ("tfds", request.name)
    return CORPORA[name].given(replace(request, rest=rest))


def prepare(
    corpus: str | Corpus = "stdlib",
    tokenizer: str = "bytes",
    root: Path = Path("data"),
    *,
    text_feature: str = "text",
    shard_tokens: int = 2**28,
) -> Shards:
    """Open the token shards of a corpus, and writes them first where they are missing.

    Args:
        corpus: by name, one of `CORPORA`, or a value; shards of that are named by its class. Of
            "shards:DIRECTORY" nothing else counts.
        tokenizer: "bytes", "bpe-SIZE" or the path of a tokenizer.json.
        root: folder of all prepared corpora; this one is at `root/CORPUS-TOKENIZER`.
        text_feature: the feature of a tfds data set, or field of a JSON line, that holds the text.
        shard_tokens: tokens per file; a split beyond it is written in several. It does not
            change the tokens of shards that are there.

    Returns:
        The shards; each file is checked when it is first opened.

    Raises:
        InputError: unknown corpus or tokenizer; a corpus too small to split; shards that were
            prepared from other sources (another Python, edited files); damaged shards; a disk
            that is full or cannot be written.
    """
    name = corpus if isinstance(corpus, str) else type(corpus).__name__
    if name.startswith(PREPARED):
        return open_shards(Path(name.removeprefix(PREPARED)))
    request = CorpusRequest(name, text_feature=text_feature)
    chosen = corpus_of(request) if isinstance(corpus, str) else corpus.given(request)
    directory = Path(root) / f"{chosen.slug(name)}-{tokenizers.name_of(tokenizer)}"
    source = {"corpus": name, **chosen.source()}
    try:
        if not directory.exists():
            with _lock(Path(root)):
                if not directory.exists():  # another process may have been first
                    _build(chosen, source, tokenizer, directory, shard_tokens)
    except OSError as error:
        raise InputError(
            f"root: cannot prepare {directory} ({error.strerror or error}); "
            "free space there or give another root"
        ) from None
    shards = open_shards(directory)
    _refuse_other_sources(shards, source)
    return shards


def _refuse_other_sources(shards: Shards, source: Mapping) -> None:
    written = shards.manifest.source
    if written.get("fingerprint") != source["fingerprint"]:
        before, now = (_version(s) for s in (written, source))
        raise InputError(
            f"corpus: {shards.directory} was prepared from other sources ({before}) than "
            f"{source['corpus']!r} has now ({now}); delete it to prepare it again, "
            "or give another root"
        )


def _version(source: Mapping) -> str:
    return source.get("python") or source.get("dataset") or source.get("fingerprint", "?")[:8]


@contextlib.contextmanager
def _lock(root: Path) -> Iterator[None]:
    """Waits until no other process prepares anything under `root`."""
    root.mkdir(parents=True, exist_ok=True)
    with (root / ".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _build(corpus: Corpus, source: Mapping, spec: str, directory: Path, shard_tokens: int) -> None:
    documents = corpus.open()
    tokenizer = tokenizers.make(spec, documents("train"))
    dtype = np.min_scalar_type(tokenizer.vocab_size - 1).newbyteorder("<")
    partial = directory.with_name(f".{directory.name}.partial")
    what = {"source": source, "tokenizer": tokenizer.hash, "shard_tokens": shard_tokens}
    progress = Progress(partial, what)
    try:
        tokenizer.save(partial)
        splits = {
            name: write_split(progress, name, documents(name), tokenizer, dtype, shard_tokens)
            for name in SPLITS
        }
        for name, split in splits.items():
            if split.tokens < MIN_TOKENS:
                raise InputError(
                    f"corpus: {source['corpus']!r} is too small, its {name} split has "
                    f"{split.documents} documents and {split.tokens} tokens, at least "
                    f"{MIN_TOKENS} are needed; add documents, or cut long ones into several"
                )
        described = TokenizerInfo(
            tokenizer.name, tokenizer.vocab_size, tokenizer.end_of_document, tokenizer.hash
        )
        manifest = Manifest(source, described, dtype.str, splits)
        (partial / MANIFEST).write_text(manifest.to_json())
        progress.close()
        os.replace(partial, directory)
    except OSError:  # like a kill, a full disk leaves whole shards for the next time
        raise
    except Exception:
        shutil.rmtree(partial, ignore_errors=True)
        raise
