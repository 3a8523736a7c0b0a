"""Every tokenizer gives back the text, and keeps its ids when it is saved."""

import numpy as np
import pytest
import tokenizers as inner
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

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


def t5(path):
    """A file of T5's form: pieces with scores, marked spaces, 3 special tokens and sentinels."""
    made = inner.Tokenizer(models.Unigram())
    made.normalizer = normalizers.NFKC()
    made.pre_tokenizer = pre_tokenizers.Metaspace()
    made.decoder = decoders.Metaspace()
    first = ["<pad>", "</s>", "<unk>"]
    made.train_from_iterator(
        TEXTS,
        trainers.UnigramTrainer(
            vocab_size=90, special_tokens=first, unk_token="<unk>", show_progress=False
        ),
    )
    made.add_special_tokens([f"<extra_id_{i}>" for i in range(100)])
    made.post_processor = processors.TemplateProcessing("$A </s>", special_tokens=[("</s>", 1)])
    made.save(str(path))


def neox(path):
    """A file of GPT-NeoX's form: byte-level BPE, with runs of spaces added behind it."""
    BPE.inner.save(str(path))
    made = inner.Tokenizer.from_file(str(path))
    made.add_tokens([inner.AddedToken(" " * n, normalized=False) for n in range(24, 1, -1)])
    made.save(str(path))


def test_one_of_t5s_form(tmp_path):
    t5(tmp_path / "t5.json")
    tokenizer = tokenizers.make(str(tmp_path / "t5.json"), [])
    text = "def function_3(argument): return 1"
    ids = tokenizer.encode(text)
    assert tokenizer.decode([*ids, tokenizer.end_of_document]) == text
    assert tokenizer.end_of_document == 1 and 1 not in ids
    size = tokenizer.inner.get_vocab_size()
    assert tokenizer.vocab_size == size > 150
    assert len(tokenizer.encode("</s><extra_id_0>")) > 2


def test_no_document_is_cut_or_padded_whatever_the_file_says(tmp_path):
    BPE.inner.save(str(tmp_path / "plain.json"))
    made = inner.Tokenizer.from_file(str(tmp_path / "plain.json"))
    made.enable_truncation(3)
    made.enable_padding(length=64)
    made.save(str(tmp_path / "set.json"))
    plain, other = (tokenizers.make(str(tmp_path / f"{n}.json"), []) for n in ("plain", "set"))
    text = "def function_3(argument): return 1"
    assert other.encode(text).tolist() == plain.encode(text).tolist()
    assert other.hash == plain.hash


def test_one_of_gpt_neoxs_form(tmp_path):
    neox(tmp_path / "20B_tokenizer.json")
    tokenizer = tokenizers.make(str(tmp_path / "20B_tokenizer.json"), [])
    assert tokenizer.vocab_size == 320 + 23
    ids = tokenizer.encode(" " * 24 + "é")
    assert ids[0] == 320 and len(ids) == 3
    assert tokenizer.decode([*ids, tokenizer.end_of_document]) == " " * 24 + "é"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "cannot be read as a tokenizer.json"),
        (
            '{"model": {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "a"}}',
            "no end-of-document token",
        ),
        (
            '{"model": {"type": "BPE", "vocab": {"a": 0, "</s>": 1}, "merges": []}}',
            "leaves out what it has no token for",
        ),
    ],
)
def test_a_bad_tokenizer_json(tmp_path, content, message):
    path = tmp_path / "tokenizer.json"
    path.write_text(content)
    with pytest.raises(InputError, match=message) as error:
        tokenizers.make(str(path), [])
    assert "\n" not in str(error.value)
