"""Every tokenizer gives back the text, and keeps its ids when it is saved."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bss.data import tokenizers
from bss.errors import InputError

TEXTS = [f"def function_{i}(argument):\n    return argument * {i}\n" for i in range(50)]
BPE = tokenizers.make("bpe-320", TEXTS)


@pytest.mark.parametrize("tokenizer", [tokenizers.ByteTokenizer(), BPE], ids=lambda t: t.name)
@given(text=st.text(max_size=60))
def test_round_trip(tokenizer, text):
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text
    assert tokenizer.end_of_document not in ids
    assert all(0 <= i < tokenizer.vocab_size for i in ids)
    (batched,) = tokenizer.encode_batch([text])
    np.testing.assert_array_equal(batched, ids)


def test_bytes():
    tokenizer = tokenizers.ByteTokenizer()
    np.testing.assert_array_equal(tokenizer.encode("a→"), [97, 226, 134, 146])
    assert tokenizer.decode([97, 255, 226, 134]) == "a\ufffd"


def test_bpe_learns_the_corpus_and_only_as_much_as_it_holds():
    assert BPE.vocab_size == 320
    assert len(BPE.encode(TEXTS[3])) < len(TEXTS[3]) / 3
    assert tokenizers.make("bpe-100000", TEXTS).vocab_size < 1000


def test_bpe_is_deterministic():
    assert tokenizers.make("bpe-320", TEXTS).hash == BPE.hash


def test_the_end_of_a_document_cannot_be_spelled():
    ids = BPE.encode("<|endoftext|>")
    assert len(ids) > 1
    assert BPE.decode([*ids, BPE.end_of_document]) == "<|endoftext|>"


def test_a_saved_tokenizer_is_the_same(tmp_path):
    BPE.save(tmp_path)
    again = tokenizers.saved(tmp_path, "bpe-320")
    assert (again.name, again.vocab_size, again.hash) == ("bpe-320", 320, BPE.hash)
    np.testing.assert_array_equal(again.encode(TEXTS[0]), BPE.encode(TEXTS[0]))


def test_a_tokenizer_json_from_elsewhere(tmp_path):
    folder = tmp_path / "gpt neox"
    folder.mkdir()
    BPE.save(folder)
    path = str(folder / "tokenizer.json")
    tokenizer = tokenizers.make(path, [])
    assert tokenizer.name == tokenizers.name_of(path)
    assert tokenizer.name.startswith("gpt-neox-")
    np.testing.assert_array_equal(tokenizer.encode(TEXTS[0]), BPE.encode(TEXTS[0]))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "cannot be read as a tokenizer.json"),
        (
            '{"model": {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "a"}}',
            "no end-of-document token",
        ),
    ],
)
def test_a_bad_tokenizer_json(tmp_path, content, message):
    path = tmp_path / "tokenizer.json"
    path.write_text(content)
    with pytest.raises(InputError, match=message) as error:
        tokenizers.make(str(path), [])
    assert "\n" not in str(error.value)
