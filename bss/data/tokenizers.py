"""Tokenizers: bytes, byte-level BPE trained on the corpus, and any `tokenizer.json`.

A tokenizer is chosen by a string: "bytes", "bpe-4096" (with the vocabulary size), or the path of a
local Hugging Face `tokenizer.json` (such as GPT-NeoX's). In the shards, one end-of-document token
follows every document.
"""

import hashlib
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from bss.data.shards import TokenizerInfo
from bss.errors import InputError

if TYPE_CHECKING:
    import tokenizers

FILE_NAME = "tokenizer.json"
_TRAINING_BYTES = 256_000_000
_ALPHABET = 256
_END = "<|endoftext|>"
_ENDS = (_END, "<|end_of_text|>", "</s>", "<eos>", "[SEP]")


class Tokenizer(TokenizerInfo, ABC):
    """Interface of a tokenizer; shards record its `TokenizerInfo` in their manifest."""

    @abstractmethod
    def encode_batch(self, texts: Sequence[str]) -> list[np.ndarray]:
        """Return the ids of every text, a list of unsigned arrays [tokens].

        Special tokens are neither added nor read. All cores are used if the tokenizer can.
        """

    def encode(self, text: str) -> np.ndarray:
        """Return the ids of one text."""
        return self.encode_batch([text])[0]

    @abstractmethod
    def decode(self, tokens: Sequence[int] | np.ndarray) -> str:
        """Return the text of some ids; end-of-document tokens are left out."""

    @abstractmethod
    def save(self, directory: Path) -> None:
        """Write the files that `saved` needs to open it again."""


@dataclass(frozen=True)
class ByteTokenizer(Tokenizer):
    """The bytes of UTF-8, 256 ids; 0xFF, which UTF-8 never uses, ends a document.

    >>> ByteTokenizer().encode("hé").tolist()
    [104, 195, 169]
    """

    name: str = "bytes"
    vocab_size: int = 256
    end_of_document: int = 0xFF
    hash: str = hashlib.sha256(b"utf-8 bytes, 0xff ends a document").hexdigest()

    def encode_batch(self, texts: Sequence[str]) -> list[np.ndarray]:
        """Return the bytes of every text, uint8 [bytes]."""
        return [np.frombuffer(text.encode(), np.uint8) for text in texts]

    def decode(self, tokens: Sequence[int] | np.ndarray) -> str:
        """Return the text of some bytes; an incomplete character becomes U+FFFD."""
        ids = np.asarray(tokens)
        return ids[ids != self.end_of_document].astype(np.uint8).tobytes().decode(errors="replace")

    def save(self, directory: Path) -> None:
        """Write nothing; the name determines the tokenizer."""


@dataclass(frozen=True, eq=False)
class FileTokenizer(Tokenizer):
    """A tokenizer of the `tokenizers` library."""

    inner: "tokenizers.Tokenizer"

    def encode_batch(self, texts: Sequence[str]) -> list[np.ndarray]:
        """Return the ids of every text, uint32 [tokens].

        Raises:
            InputError: If the tokenizer has no tokens for a text.
        """
        try:
            encodings = self.inner.encode_batch_fast(list(texts), add_special_tokens=False)
        except Exception as error:  # the library raises bare Exception
            raise InputError(f"tokenizer: {self.name} cannot encode a document ({error})") from None
        return [np.asarray(encoding.ids, np.uint32) for encoding in encodings]

    def decode(self, tokens: Sequence[int] | np.ndarray) -> str:
        """Return the text of some ids; special tokens are left out."""
        return self.inner.decode(np.asarray(tokens).tolist(), skip_special_tokens=True)

    def save(self, directory: Path) -> None:
        """Write `tokenizer.json`."""
        self.inner.save(str(directory / FILE_NAME))


def name_of(spec: str) -> str:
    """Return the name of the tokenizer that a string selects, without making it.

    Raises:
        InputError: If the string is not "bytes", "bpe-SIZE" or an existing file, or if the size is
            too small for 256 bytes and the end of a document.
    """
    if spec == "bytes":
        return spec
    if size := re.fullmatch(r"bpe-([1-9]\d*)", spec):
        if int(size[1]) <= _ALPHABET:
            raise InputError(
                f"tokenizer: {spec!r} is too small; a byte-level BPE needs at least "
                f"{_ALPHABET + 1} ids, e.g. 'bpe-4096'"
            )
        return spec
    path = Path(spec)
    if not path.is_file():
        raise InputError(
            f"tokenizer: {spec!r} is unknown; expected 'bytes', 'bpe-SIZE' (e.g. 'bpe-4096') "
            "or the path of a tokenizer.json"
        )
    label = path.parent.resolve().name if path.name == FILE_NAME else path.stem
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return f"{re.sub(r'[^A-Za-z0-9._]+', '-', label)}-{digest[:8]}"


def check(spec: str) -> None:
    """Raise InputError if a string selects no tokenizer that can be made."""
    if name_of(spec) != spec:  # a file, which is read whole
        make(spec, ())


def make(spec: str, texts: Iterable[str]) -> Tokenizer:
    """Make the tokenizer that a string selects.

    Args:
        spec: "bytes", "bpe-SIZE", or the path of a `tokenizer.json`.
        texts: the training documents; only BPE reads them, and only their first 256 MB. A small
            corpus may have fewer merges than requested; `vocab_size` is the number found.

    Raises:
        InputError: As `name_of`; or if a file is not a tokenizer or has no end-of-document token.
    """
    name = name_of(spec)
    if name == "bytes":
        return ByteTokenizer()
    if name == spec:
        return _wrap(name, _train_bpe(int(name.removeprefix("bpe-")), texts), spec)
    return _from_file(name, Path(spec))


def saved(directory: Path, name: str) -> Tokenizer:
    """Open the tokenizer that `save` wrote into a directory of shards.

    Raises:
        InputError: If it is missing or damaged.
    """
    return ByteTokenizer() if name == "bytes" else _from_file(name, directory / FILE_NAME)


def _train_bpe(size: int, texts: Iterable[str]) -> "tokenizers.Tokenizer":
    import tokenizers
    from tokenizers import decoders, models, pre_tokenizers, trainers

    inner = tokenizers.Tokenizer(models.BPE())
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=[_END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    inner.train_from_iterator(_first(texts, _TRAINING_BYTES), trainer)
    return inner


def _first(texts: Iterable[str], limit: int) -> Iterator[str]:
    total = 0
    for text in texts:
        yield text
        total += len(text)
        if total >= limit:
            return


def _from_file(name: str, path: Path) -> FileTokenizer:
    import tokenizers

    try:
        inner = tokenizers.Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises bare Exception
        raise InputError(
            f"tokenizer: {str(path)!r} cannot be read as a tokenizer.json ({error})"
        ) from None
    return _wrap(name, inner, str(path))


def _wrap(name: str, inner: "tokenizers.Tokenizer", where: str) -> FileTokenizer:
    from tokenizers.models import BPE
    from tokenizers.pre_tokenizers import ByteLevel

    # The text of a special token in a document is text, not the end of a document; never truncate.
    inner.encode_special_tokens = True
    inner.no_truncation()
    inner.no_padding()
    vocabulary = inner.get_vocab(with_added_tokens=True)
    end = next((vocabulary[text] for text in _ENDS if text in vocabulary), None)
    if end is None:
        raise InputError(
            f"tokenizer: {where!r} has no end-of-document token; expected one of {', '.join(_ENDS)}"
        )
    if isinstance(inner.model, BPE) and not (
        inner.model.unk_token
        or inner.model.byte_fallback
        or {*ByteLevel.alphabet()} <= vocabulary.keys()
    ):
        raise InputError(
            f"tokenizer: {where!r} leaves out what it has no token for; expected an unknown token, "
            "byte fallback, or a token of each byte"
        )
    digest = hashlib.sha256(inner.to_str().encode()).hexdigest()
    return FileTokenizer(name, max(vocabulary.values()) + 1, end, digest, inner)
