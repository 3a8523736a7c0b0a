"""Token shards: what is read equals what was written, and damage is refused in one line."""

import json
import math
import shutil

import numpy as np
import pytest

from bss.data.corpus import SPLITS
from bss.data.local_files import PythonFiles
from bss.data.prepare import prepare
from bss.data.shards import MANIFEST, TokenArray, open_shards
from bss.data.stream import held_out
from bss.errors import InputError


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sources")
    for i in range(120):
        (folder / f"m{i:03d}.py").write_text(f"def f{i}(x):\n    return x + {i}\n" * (i % 7 + 5))
    root = tmp_path_factory.mktemp("data")
    return prepare(PythonFiles(folder), root=root, shard_tokens=1000)


@pytest.fixture
def shards(prepared, tmp_path):
    shutil.copytree(prepared.directory, tmp_path / "copy")
    return open_shards(tmp_path / "copy")


def test_split_over_files_reads_as_one_array(shards):
    train = shards.split("train")
    assert len(train.files) > 5
    assert {file.tokens for file in train.files[:-1]} == {1000}
    array = shards.tokens("train")
    assert len(array) == train.tokens
    whole = array.windows([0], len(array))[0]
    on_disk = b"".join((shards.directory / file.name).read_bytes() for file in train.files)
    assert whole.astype(np.uint8).tobytes() == on_disk


def test_counts_and_bytes_per_token(shards):
    for name in ("train", "validation", "test"):
        split = shards.split(name)
        array = shards.tokens(name)
        ends = int((array.windows([0], len(array)) == 255).sum())
        assert ends == split.documents
        assert split.bytes == split.tokens - split.documents
        assert math.isclose(shards.bytes_per_token(name), split.bytes / split.tokens)
    assert shards.vocab_size == 256


def test_held_out_is_fixed_and_spread_over_the_split(shards):
    array = shards.tokens("validation")
    there = (len(array) - 1) // 16
    every = held_out(shards, "validation", 16, there * 16)
    np.testing.assert_array_equal(every[:, -1][:-1], every[1:, 0])
    some = held_out(shards, "validation", 16, 4 * 16 + 15)
    np.testing.assert_array_equal(some, every[[i * there // 4 for i in range(4)]])
    assert some.dtype == np.int32 and some.shape == (4, 17)


@pytest.mark.parametrize(("seq_len", "tokens"), [(16, 15), (16, 10**9), (16, 0), (16, -64), (0, 5)])
def test_held_out_refuses(shards, seq_len, tokens):
    with pytest.raises(InputError, match=r"evaluation.tokens: |seq_len: "):
        held_out(shards, "validation", seq_len, tokens)


def test_a_run_refuses_other_tokens(shards):
    shards.require(shards.content_hash)
    with pytest.raises(InputError, match="run was made on 000000000000"):
        shards.require("0" * 64)
    with pytest.raises(
        InputError, match=f"run names none; write data.content {shards.content_hash}"
    ):
        shards.require("")


def read_all(directory):
    shards = open_shards(directory)
    for split in SPLITS:
        shards.tokens(split).windows([0], len(shards.tokens(split)))


def edit(change):
    def damage(directory):
        path = directory / MANIFEST
        fields = json.loads(path.read_text())
        change(fields)
        path.write_text(json.dumps(fields))

    return damage


def rewrite(name, function):
    def damage(directory):
        path = directory / name
        path.write_bytes(function(path.read_bytes()))

    return damage


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda d: (d / MANIFEST).unlink(), "cannot read .*No such file"),
        (rewrite(MANIFEST, lambda b: b[: len(b) // 2]), "JSONDecodeError"),
        (rewrite(MANIFEST, lambda b: b""), "JSONDecodeError"),
        (rewrite(MANIFEST, lambda b: b"\xff\xfe"), "UnicodeDecodeError"),
        (rewrite(MANIFEST, lambda b: b"[1]"), "TypeError"),
        (edit(lambda m: m.update(version=2)), "format version 2, this bss reads 1"),
        (edit(lambda m: m.pop("content_hash")), "KeyError"),
        (edit(lambda m: m["tokenizer"].pop("vocab_size")), "lacks .*vocab_size"),
        (edit(lambda m: m.update(dtype="<f8")), "not as it was written"),
        (edit(lambda m: m["splits"]["test"].update(tokens=1)), "not as it was written"),
        (
            edit(lambda m: m["splits"]["test"]["files"][0].update(sha256="0")),
            "not as it was written",
        ),
        (edit(lambda m: m["source"].update(corpus="other")), "not as it was written"),
        (edit(lambda m: m.pop("sha256")), "KeyError"),
        (lambda d: (d / "train-00001.bin").unlink(), "train-00001.bin is missing"),
        (rewrite("train-00001.bin", lambda b: b[:-3]), "has 997 bytes, expected 1000"),
        (rewrite("train-00001.bin", lambda b: bytes(len(b))), r"train-00001\.bin does not hold"),
    ],
)
def test_damage_is_refused_in_one_line(shards, damage, message):
    damage(shards.directory)
    with pytest.raises(InputError, match=message) as error:
        read_all(shards.directory)
    assert "\n" not in str(error.value)
    assert "prepare" in str(error.value)


def test_unknown_split(shards):
    with pytest.raises(InputError, match=r"split: no 'valid'; expected one of train, validation"):
        shards.tokens("valid")


@pytest.mark.parametrize("start", [-1, 7])
def test_windows_stay_inside(start):
    with pytest.raises(IndexError):
        TokenArray((np.arange(10),)).windows([start], 4)
