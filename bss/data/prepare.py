"""From a corpus and a tokenizer to token shards, once; corpora by name.

`stdlib` is the embedded default: the sources of the running interpreter's standard library.
`packages:LIST` is those of the installed packages that a list names, `files:PATTERN` one's own
text, `shards:DIRECTORY` what was prepared, perhaps elsewhere. Any other name is of a
tensorflow-datasets data set ("c4/en"), or `package.module:ATTRIBUTE`.

A directory of shards appears complete or not at all: it is written aside and renamed, under a
lock, so that processes which prepare the same corpus at the same time wait for the first. All cores
encode; a preparation that was killed goes on where it was, and makes the same bytes.
"""

import contextlib
import fcntl
import itertools
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from bss.data import tokenizers
from bss.data.corpus import SPLITS, Corpus, CorpusRequest
from bss.data.encode import Ended, encoded
from bss.data.package_files import PackageFiles
from bss.data.progress import Progress, ShardWriter, begun, summed
from bss.data.python_files import PythonFiles
from bss.data.shards import MANIFEST, Manifest, Shards, Split, TokenizerInfo, open_shards
from bss.data.text_files import TextFiles
from bss.data.tfds_text import TfdsText
from bss.errors import InputError
from bss.files import write_text
from bss.machines.slots import cores
from bss.registry import Registry

MIN_TOKENS = 256
BATCH = 2**22
"""Characters of the documents that are encoded at once: a kill costs as many for every core."""

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
    """The corpus that a config asks for.

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
    """Opens the token shards of a corpus, and writes them first where they are missing.

    Args:
        corpus: by name, one of `CORPORA`, or a value; shards of that are named by its class. Of
            "shards:DIRECTORY" nothing else counts.
        tokenizer: "bytes", "bpe-SIZE" or the path of a tokenizer.json.
        root: folder of all prepared corpora; this one is at `root/CORPUS-TOKENIZER`.
        text_feature: the feature of a tfds data set, or field of a JSON line, that holds the text.
        shard_tokens: tokens per file; a split beyond it is written in several. It does not
            change the tokens of shards that are there.

    Returns:
        The shards; each block of them is checked when it is first read.

    Raises:
        InputError: unknown corpus or tokenizer; a corpus too small to split; shards that were
            prepared from other sources (another Python, edited files); damaged shards; a disk
            that is full or cannot be written.
    """
    name = corpus if isinstance(corpus, str) else type(corpus).__name__
    if name.startswith(PREPARED):
        return _summed(open_shards(Path(name.removeprefix(PREPARED))))
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
    return _summed(shards)


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
    partial = begun(directory.with_name(f".{directory.name}.partial"))
    try:
        tokenizer.save(partial)
        what = {"source": source, "tokenizer": tokenizer.hash, "shard_tokens": shard_tokens}
        progress = Progress(partial, what)
        splits = {
            name: _write_split(progress, name, documents(name), tokenizer, dtype, shard_tokens)
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
    except (Ended, OSError):  # as a kill, a full disk leaves what was done, for the next time
        raise
    except Exception:
        shutil.rmtree(partial, ignore_errors=True)
        raise


def _write_split(
    progress: Progress,
    name: str,
    documents: Iterable[str],
    tokenizer: tokenizers.Tokenizer,
    dtype: np.dtype,
    shard_tokens: int,
) -> Split:
    """Streams the documents of a split, behind those that are done, into files of tokens."""
    count, tokens, size = progress.done.get(name, (0, 0, 0))
    files = ShardWriter(progress.directory, name, shard_tokens, dtype.itemsize, tokens)
    left = itertools.islice(documents, count, None)
    with contextlib.closing(files):
        batches = encoded(batches_of(left), tokenizer, dtype, progress.directory, cores())
        for texts, ids in batches:
            files.write(ids)
            files.sync()
            count, tokens = count + len(texts), tokens + len(ids)
            size += sum(len(text.encode()) for text in texts)
            progress.note(name, count, tokens, size)
    return Split(count, tokens, size, tuple(files.written))


def batches_of(documents: Iterable[str]) -> Iterator[tuple[str, ...]]:
    """Documents in order, as they are encoded: together until they have BATCH characters."""
    batch, size = [], 0
    for text in documents:
        batch.append(text)
        if (size := size + len(text)) >= BATCH:
            yield tuple(batch)
            batch, size = [], 0
    if batch:
        yield tuple(batch)


def _summed(shards: Shards) -> Shards:
    """Shards with the sums of their blocks, which older ones lack: read, checked and written once.

    Raises:
        InputError: a file of other content.
    """
    if all(file.blocks for split in shards.manifest.splits.values() for file in split.files):
        return shards
    splits = {
        name: replace(split, files=tuple(summed(shards.directory / f.name, f) for f in split.files))
        for name, split in shards.manifest.splits.items()
    }
    manifest = replace(shards.manifest, splits=splits)
    with contextlib.suppress(OSError):  # where it may not be written, it is read again next time
        write_text(shards.directory / MANIFEST, manifest.to_json())
    return replace(shards, manifest=manifest)
