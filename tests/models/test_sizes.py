import dataclasses

import pytest

from bss.data.tokenizers import ByteTokenizer
from bss.errors import InputError
from bss.models.sizes import SIZES, named, table

# Zhang et al., 2410.21676: layers, width, heads, and N of the name in millions.
PUBLISHED = {
    "85M": (12, 768, 12, 85),
    "151M": (12, 1024, 16, 151),
    "302M": (24, 1024, 16, 302),
    "604M": (12, 2048, 16, 604),
    "1.2B": (24, 2048, 32, 1208),
}


@pytest.mark.parametrize(("name", "expected"), PUBLISHED.items())
def test_published_models(name, expected):
    config = named(name)
    millions = round(config.counts().non_embedding / 1e6)
    assert (config.num_layers, config.d_model, config.num_heads, millions) == expected
    assert config.vocab_size == 50_280
    assert config.d_ff == 4 * config.d_model
    assert (config.activation, config.norm, config.qk_norm) == ("gelu", "layer", True)
    assert not config.tied
    assert config.kv_heads == config.num_heads


# Of the released weights: Qwen3-0.6B has 751,632,384 numbers and 1.7B 2,031,739,904, each with the
# tied head written once more; 30B-A3B, untied, 30,532,122,624.
RELEASED = {
    "qwen3-0.6B": 751_632_384,
    "qwen3-1.7B": 2_031_739_904,
    "qwen3-30B-A3B": 30_532_122_624,
}


@pytest.mark.parametrize(("name", "numbers"), RELEASED.items())
def test_released_models_have_their_numbers(name, numbers):
    counts = named(name).counts()
    tied = named(name).tied
    assert counts.embedding == 151_936 * named(name).d_model * (1 if tied else 2)
    assert counts.total + tied * counts.embedding == numbers


def test_of_a_mixture_the_parameters_that_a_token_passes_are_told():
    active = named("qwen3-30B-A3B").counts().active  # "3.3B activated", with embeddings and head
    assert active + named("qwen3-30B-A3B").counts().embedding == pytest.approx(3.3e9, rel=0.02)


def test_names_in_millions_tell_the_non_embedding_parameters():
    for name in ("10M", "25M", "49M"):
        assert named(name).counts().non_embedding == pytest.approx(1e6 * int(name[:-1]), rel=0.07)


def test_small_models_have_the_vocabulary_they_are_trained_on():
    small = {named(name).vocab_size for name in ("pico", "nano", "micro", "mini", "4x16")}
    assert small == {ByteTokenizer().vocab_size}


def test_a_given_vocabulary_changes_nothing_else():
    assert named("micro", 1000) == dataclasses.replace(SIZES["micro"], vocab_size=1000)


def test_table_has_a_row_for_every_size():
    rows = {row["name"]: row for row in table(seq_len=128, vocab_size=300)}
    assert list(rows) == list(SIZES)
    nano = named("nano", 300)
    assert rows["nano"]["flops_per_token"] == nano.training_flops_per_token(128)
    assert rows["nano"]["total"] == rows["nano"]["non_embedding"] + 2 * 300 * 64


@pytest.mark.parametrize(
    ("name", "told"), [("nanoo", "did you mean 'nano'?"), ("", "qwen3-30B-A3B")]
)
def test_unknown_names_are_refused(name, told):
    with pytest.raises(InputError, match="expected one of pico, nano") as error:
        named(name)
    assert told in str(error.value)
