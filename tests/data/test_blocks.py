"""Checksums of blocks: each is checked when it is first read; no damage is silent."""

import dataclasses
import json
import random
import shutil

import numpy as np
import pytest

from bss.data import blocks, tokenizers
from bss.data.corpus import SPLITS
from bss.data.prepare import prepare
from bss.data.python_files import PythonFiles
from bss.data.shards import MANIFEST, open_shards
from bss.errors import InputError
from bss.files import write_text

DRAWS = 100


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr(blocks, "BLOCK", 100)


@pytest.fixture
def corpus(tmp_path):
    folder = tmp_path / "sources"
    folder.mkdir()
    for i in range(120):
        (folder / f"m{i:03d}.py").write_text(f"def f{i}(x):\n    return x + {i}\n" * (i % 7 + 5))
    return PythonFiles(folder)


def everything(directory):
    """All that can be read of a directory of shards."""
    shards = open_shards(directory)
    info = shards.manifest.tokenizer
    tokenizer = tokenizers.saved(directory, info.name, info.hash)
    arrays = {name: shards.tokens(name) for name in SPLITS}
    ids = {name: array.windows([0], len(array)).tobytes() for name, array in arrays.items()}
    counts = {name: dataclasses.replace(shards.split(name), files=()) for name in SPLITS}
    hashes = tokenizer.hash, shards.content_hash, shards.manifest.dtype
    return ids, counts, hashes, info, shards.manifest.source


@pytest.mark.usefixtures("small_blocks")
def test_a_block_is_checked_when_it_is_read_and_told_by_its_place(corpus, tmp_path):
    shards = prepare(corpus, root=tmp_path / "data", shard_tokens=5000)
    path = shards.directory / shards.split("train").files[1].name
    content = bytearray(path.read_bytes())
    content[730] ^= 4
    path.write_bytes(content)
    array = open_shards(shards.directory).tokens("train")
    array.windows([0, 5600, 5800], 100)
    for start, length in ((5730, 1), (5650, 51), (4990, 800)):
        with pytest.raises(InputError, match=r"00001.bin does not hold .* in bytes 700 to 800;"):
            array.windows([start], length)


@pytest.mark.usefixtures("small_blocks")
def test_shards_that_were_written_without_sums_get_them_once(corpus, tmp_path):
    new = prepare(corpus, root=tmp_path / "data")
    path = new.directory / MANIFEST
    fields = json.loads(path.read_text())
    fields.pop("sha256")
    for split in fields["splits"].values():
        for file in split["files"]:
            file.pop("blocks")
    older = json.dumps(fields)
    write_text(path, older)
    assert open_shards(new.directory).content_hash == new.content_hash
    assert prepare(corpus, root=tmp_path / "data").manifest == new.manifest
    assert open_shards(new.directory).manifest == new.manifest
    write_text(path, older)
    (new.directory / "test-00000.bin").write_bytes(bytes(new.split("test").tokens))
    with pytest.raises(InputError, match=r"test-00000.bin does not hold the tokens"):
        prepare(corpus, root=tmp_path / "data")


def flip(content, draw):
    place = draw.randrange(len(content))
    return content[:place] + bytes([content[place] ^ 1 << draw.randrange(8)]) + content[place + 1 :]


def cut(content, draw):
    return content[: draw.randrange(len(content))]


def garbage(content, draw):
    start = draw.randrange(len(content))
    length = draw.randrange(1, 200)
    return content[:start] + draw.randbytes(length) + content[start + length :]


@pytest.mark.slow
@pytest.mark.usefixtures("small_blocks")
def test_random_damages_are_told_or_change_nothing(corpus, tmp_path, capsys):
    shards = prepare(corpus, "bpe-300", tmp_path / "data", shard_tokens=1000)
    right, copy = everything(shards.directory), tmp_path / "copy"
    draw, told, same = random.Random(), 0, 0
    for _ in range(DRAWS):
        shutil.copytree(shards.directory, copy)
        path = draw.choice(sorted(copy.iterdir()))
        how = draw.choice((flip, cut, garbage, None))
        if how is None:
            path.unlink()
        else:
            path.write_bytes(how(path.read_bytes(), draw))
        try:
            found = everything(copy)
        except InputError as error:
            found, told = right, told + ("\n" not in str(error))
        else:
            same += 1
        assert found == right, (path.name, how)
        shutil.rmtree(copy)
    with capsys.disabled():
        print(f"\n{told} of {DRAWS} damages were told, the others changed nothing")
    assert told + same == DRAWS and told > DRAWS / 2


def test_sums_do_not_depend_on_how_a_file_is_written():
    content = np.random.default_rng(0).bytes(3 * blocks.BLOCK + 7)
    whole, parts = blocks.BlockSums(), blocks.BlockSums()
    whole.update(memoryview(content))
    for start in range(0, len(content), 77_777):
        parts.update(memoryview(content)[start : start + 77_777])
    assert whole.text() == parts.text() and len(whole.text()) == 4 * 8
