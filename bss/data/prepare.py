"""Write token shards from a corpus and a tokenizer, once; corpora by name.

`stdlib` is the default: the sources of the running interpreter's standard library.
`packages:LIST` selects the installed packages of a list, `files:PATTERN` custom text, and
`shards:DIRECTORY` prepared shards, e.g. from another machine. Any other name is a
tensorflow-datasets data set ("c4/en") or `package.module:ATTRIBUTE`.

A directory of shards appears complete or not at all. It is written under a temporary name and
renamed, under a lock; processes that prepare the same corpus wait for the first. A preparation that
was killed continues after its last complete shard and writes the same bytes.
"""

import fcntl
import hashlib
import itertools
import json
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from bss.data import tokenizers
from bss.data.corpus import SPLITS, Corpus, CorpusRequest
from bss.data.local_files import PackageFiles, PythonFiles, TextFiles
from bss.data.shards import MANIFEST, Manifest, ShardFile, Shards, Split, TokenizerInfo, open_shards
from bss.data.tfds_text import TfdsText
from bss.data.tokenizers import Tokenizer
from bss.errors import InputError
from bss.files import write_json
from bss.registry import Registry
from bss.values import from_dict

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
    """Return the corpus that a config names.

    Raises:
        InputError: If the name or module does not exist, or the attribute is not a corpus.
    """
    name, _, rest = request.name.partition(":")
    if name not in CORPORA:
        name, rest = (request.name, "") if _OWN.fullmatch(request.name) else ("tfds", request.name)
    return CORPORA.load(name).given(replace(request, rest=rest))


def check_corpus(
    corpus: str, tokenizer: str, root: Path = Path("data"), *, text_feature: str = "text"
) -> None:
    """Check what `prepare` would refuse, as far as it is known without reading a document.

    Args:
        corpus: see `prepare`.
        tokenizer: see `prepare`.
        root: see `prepare`.
        text_feature: see `prepare`.

    Raises:
        InputError: If the corpus or tokenizer is unknown or not there, or `root` is a file.
    """
    if corpus.startswith(PREPARED):
        open_shards(Path(corpus.removeprefix(PREPARED)))
        return
    corpus_of(CorpusRequest(corpus, text_feature=text_feature)).check()
    tokenizers.check(tokenizer)
    if Path(root).exists() and not Path(root).is_dir():
        raise InputError(f"root: {root} is a file; name a folder of prepared corpora")


def prepare(
    corpus: str | Corpus = "stdlib",
    tokenizer: str = "bytes",
    root: Path = Path("data"),
    *,
    text_feature: str = "text",
    shard_tokens: int = 2**28,
) -> Shards:
    """Open the token shards of a corpus; write them first if they are missing.

    Args:
        corpus: a name of `CORPORA`, or a value, whose class names the shards. For
            "shards:DIRECTORY" the other arguments have no effect.
        tokenizer: "bytes", "bpe-SIZE" or the path of a tokenizer.json.
        root: folder of all prepared corpora; this one is at `root/CORPUS-TOKENIZER`.
        text_feature: the feature of a tfds data set, or the field of a JSON line, with the text.
        shard_tokens: tokens per file; a larger split is written in several files. It does not
            change the tokens of existing shards.

    Returns:
        The shards; each file is checked when it is first opened.

    Raises:
        InputError: If the corpus or tokenizer is unknown, or the corpus too small to split. If
            existing shards are damaged or of other sources (another Python, edited files). If the
            disk is full or cannot be written.
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
            Path(root).mkdir(parents=True, exist_ok=True)
            with Path(root, ".lock").open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                if not directory.exists():  # another process may have been first
                    _build(chosen, source, tokenizer, directory, shard_tokens)
    except OSError as error:
        raise InputError(
            f"root: cannot prepare {directory} ({error.strerror or error}); "
            "free space there or give another root"
        ) from None
    shards = open_shards(directory)
    written = shards.manifest.source
    if written.get("fingerprint") != source["fingerprint"]:
        before, now = map(_identify, (written, source))
        raise InputError(
            f"corpus: {directory} was prepared from other sources ({before:.40}) than {name!r} has "
            f"now ({now:.40}); delete it to prepare it again, or give another root"
        )
    return shards


def _identify(source: Mapping[str, Any]) -> str:
    """Return the name by which a user knows the version of a source."""
    names = ("python", "dataset", "fingerprint")
    return next((source[name] for name in names if source.get(name)), "?")


def _build(corpus: Corpus, source: Mapping, spec: str, directory: Path, shard_tokens: int) -> None:
    tokenizer = tokenizers.make(spec, corpus.documents("train"))
    dtype = np.min_scalar_type(tokenizer.vocab_size - 1).newbyteorder("<")
    partial = directory.with_name(f".{directory.name}.partial")
    what = {"source": source, "tokenizer": tokenizer.hash, "shard_tokens": shard_tokens}
    progress = Progress(partial, what)
    try:
        tokenizer.save(partial)
        splits = {
            name: write_split(
                progress, name, corpus.documents(name), tokenizer, dtype, shard_tokens
            )
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


FILE = "progress.json"
BATCH = 2**22
"""Characters of documents to encode at once."""


class Progress:
    """A directory that is being filled, with a record of its complete shards.

    Attributes:
        directory: Directory of the shards.
        done: by split, its complete shards, with the number, tokens and bytes of text of the
            documents that end before the end of the last shard.
    """

    def __init__(self, directory: Path, what: Mapping[str, Any]) -> None:
        """Continue if the directory was begun for the same `what`; otherwise empty it."""
        self.directory = directory
        self._what = json.loads(json.dumps(what))
        self.done: dict[str, Split] = {}
        try:
            found = json.loads((directory / FILE).read_text())
            if found["what"] != self._what:
                raise ValueError("written for other documents")
            self.done = {name: from_dict(Split, one) for name, one in found["done"].items()}
        except (OSError, ValueError, KeyError, TypeError):
            shutil.rmtree(directory, ignore_errors=True)
            directory.mkdir()

    def note(self, split: str, done: Split) -> None:
        """Record that a shard is on disk."""
        self.done[split] = done
        found = {"what": self._what, "done": {n: asdict(one) for n, one in self.done.items()}}
        write_json(self.directory / FILE, found)

    def close(self) -> None:
        """Remove the record; the directory is complete."""
        (self.directory / FILE).unlink()


def write_split(
    progress: Progress,
    name: str,
    documents: Iterable[str],
    tokenizer: Tokenizer,
    dtype: np.dtype,
    shard_tokens: int,
) -> Split:
    """Write the tokens of documents into files, after the complete ones."""
    done = progress.done.get(name, Split(0, 0, 0, ()))
    count = done.documents
    tokens = done.tokens
    size = done.bytes
    files = done.files
    whole = sum(file.tokens for file in files)
    texts = itertools.islice(documents, count, None)
    shard: _Whole | None = None

    def close() -> None:
        nonlocal shard, files, whole
        if shard is not None:
            written = shard.size // dtype.itemsize
            files = (*files, ShardFile(shard.path.name, written, shard.close()))
            shard = None
            whole += written
            progress.note(name, Split(count, tokens, size, files))

    try:
        for text, ids in _encoded(texts, tokenizer, dtype):
            left = ids[max(whole - tokens, 0) :]
            while len(left):
                if shard is None:
                    shard = _Whole(progress.directory / f"{name}-{len(files):05d}.bin")
                room = shard_tokens - shard.size // dtype.itemsize
                shard.write(left[:room].tobytes())
                if len(left) >= room:
                    close()
                left = left[room:]
            count += 1
            tokens += len(ids)
            size += len(text.encode())
        close()
    finally:
        if shard is not None:
            shard.file.close()
    return Split(count, tokens, size, files)


def _encoded(
    texts: Iterable[str], tokenizer: Tokenizer, dtype: np.dtype
) -> Iterator[tuple[str, np.ndarray]]:
    """Yield documents and their tokens, each with its end; the tokenizer uses all cores."""
    end = np.array([tokenizer.end_of_document], dtype)
    for batch in _batches(texts):
        for text, ids in zip(batch, tokenizer.encode_batch(batch), strict=True):
            yield text, np.concatenate([ids.astype(dtype), end])


def _batches(texts: Iterable[str]) -> Iterator[list[str]]:
    """Yield documents in order, in groups of at least BATCH characters."""
    batch: list[str] = []
    size = 0
    for text in texts:
        batch.append(text)
        size += len(text)
        if size >= BATCH:
            yield batch
            batch = []
            size = 0
    if batch:
        yield batch


class _Whole:
    """A file that appears, complete and on disk, when it is closed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.size = 0
        self._hash = hashlib.sha256()
        self.file = path.with_name(f"{path.name}.part").open("wb")

    def write(self, content: bytes) -> None:
        self.file.write(content)
        self._hash.update(content)
        self.size += len(content)

    def close(self) -> str:
        """Close the file and return the sha256 of its content."""
        with self.file:
            self.file.flush()
            os.fsync(self.file.fileno())
        os.replace(self.file.name, self.path)
        return self._hash.hexdigest()
