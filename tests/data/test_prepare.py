"""From documents to shards: tiny corpora, one of them a tfds data set in C4's form."""

import multiprocessing
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tensorflow_datasets as tfds
import tokenizers as inner

from bss.data import tokenizers
from bss.data.corpus import SPLITS, split_of
from bss.data.local_files import PythonFiles
from bss.data.prepare import prepare
from bss.data.tokenizers import saved
from bss.errors import InputError


def write_sources(folder: Path, count: int = 120, text: str = "x = 1  # {}\n" * 20) -> Path:
    folder.mkdir(parents=True)
    for i in range(count):
        (folder / f"m{i:03d}.py").write_text(text.replace("{}", str(i)))
    return folder


@pytest.fixture
def sources(tmp_path):
    return write_sources(tmp_path / "sources")


def texts_of(shards, split) -> list[str]:
    tokenizer = saved(shards.directory, shards.manifest.tokenizer.name)
    array = shards.tokens(split)
    ids = array.windows([0], len(array))[0]
    ends = np.flatnonzero(ids == tokenizer.end_of_document)
    assert ends[-1] == len(ids) - 1
    return [tokenizer.decode(piece) for piece in np.split(ids, ends + 1)[:-1]]


def files_below(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@pytest.mark.parametrize("tokenizer", ["bytes", "bpe-300"])
def test_documents_come_back_from_the_shards(sources, tmp_path, tokenizer):
    (sources / "empty.py").write_text("")
    (sources / "latin.py").write_bytes("é".encode("latin-1"))
    (sources / "site-packages").mkdir()
    (sources / "site-packages" / "installed.py").write_text("x")
    (sources / "unicode.py").write_text("s = 'λ→∞ <|endoftext|>'\n")
    (sources / "notes.txt").write_text("no source")
    shards = prepare(PythonFiles(sources), tokenizer, tmp_path / "data")
    assert shards.directory.name == f"PythonFiles-{tokenizer}"
    expected = {name: [] for name in SPLITS}
    for path in sorted(sources.glob("*.py")):
        content = path.read_bytes()
        if path.stem not in ("empty", "latin"):
            expected[split_of(content)].append(content.decode())
    assert {name: texts_of(shards, name) for name in SPLITS} == expected
    for name in SPLITS:
        assert shards.split(name).bytes == sum(len(text.encode()) for text in expected[name])


def test_two_preparations_are_byte_identical(sources, tmp_path):
    one = prepare(PythonFiles(sources), "bpe-300", tmp_path / "one")
    two = prepare(PythonFiles(sources), "bpe-300", tmp_path / "two")
    assert files_below(one.directory) == files_below(two.directory)


def test_the_shards_of_python_files_stay_the_same(sources, tmp_path):
    shards = prepare(PythonFiles(sources), root=tmp_path / "data")
    files = [shards.split(name).files[0] for name in SPLITS]
    assert [(file.tokens, file.sha256[:8]) for file in files] == [
        (26409, "024e37ae"),
        (1245, "99fc3dbc"),
        (1466, "391f9712"),
    ]


def test_prepared_shards_are_used_again(sources, tmp_path, monkeypatch, capsys):
    first = prepare(PythonFiles(sources), root=tmp_path / "data")
    monkeypatch.setattr("bss.data.prepare._build", None)
    assert prepare(PythonFiles(sources), root=tmp_path / "data") == first
    assert capsys.readouterr() == ("", "")


def test_changed_sources_are_noticed(sources, tmp_path):
    prepare(PythonFiles(sources), root=tmp_path / "data")
    (sources / "m003.py").write_text("x = 2  # 3\n" * 20)
    with pytest.raises(InputError, match=r"prepared from other sources .* delete it to prepare"):
        prepare(PythonFiles(sources), root=tmp_path / "data")


def test_splits_do_not_move_when_documents_are_added(sources, tmp_path):
    one = prepare(PythonFiles(sources), root=tmp_path / "one")
    write_sources(sources / "more", 40, "y = {}\n" * 30)
    two = prepare(PythonFiles(sources), root=tmp_path / "two")
    for name in SPLITS:
        assert set(texts_of(one, name)) <= set(texts_of(two, name))


def _prepare_at(root, sources):
    prepare(PythonFiles(sources), root=root)


@pytest.mark.slow
def test_processes_that_prepare_at_once_agree(sources, tmp_path):
    context = multiprocessing.get_context("spawn")
    workers = [
        context.Process(target=_prepare_at, args=(tmp_path / "data", sources)) for _ in range(2)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0, 0]
    alone = prepare(PythonFiles(sources), root=tmp_path / "alone")
    both = prepare(PythonFiles(sources), root=tmp_path / "data")
    assert files_below(both.directory) == files_below(alone.directory)


def test_a_full_disk_is_one_line_and_keeps_whole_shards(sources, tmp_path, monkeypatch):
    whole = prepare(PythonFiles(sources), root=tmp_path / "whole", shard_tokens=1000)
    synced, left = os.fsync, [5]

    def full(file):
        left[0] -= 1
        if left[0] < 0:
            raise OSError(28, os.strerror(28))
        synced(file)

    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", full)
        with pytest.raises(InputError, match=r"root: cannot prepare .*No space left on device"):
            prepare(PythonFiles(sources), root=tmp_path / "data", shard_tokens=1000)
    kept = tmp_path / "data" / ".PythonFiles-bytes.partial" / "train-00000.bin"
    written = kept.stat().st_mtime_ns
    again = prepare(PythonFiles(sources), root=tmp_path / "data", shard_tokens=1000)
    assert files_below(again.directory) == files_below(whole.directory)
    assert (again.directory / kept.name).stat().st_mtime_ns == written


class FakeC4(tfds.core.GeneratorBasedBuilder):
    """C4's form: train and validation alone, `text` beside other features."""

    VERSION = tfds.core.Version("3.1.0")
    BUILDER_CONFIGS = [tfds.core.BuilderConfig(name="en")]  # noqa: RUF012

    def _info(self):
        text = tfds.features.Text()
        features = tfds.features.FeaturesDict({"text": text, "url": text, "n": np.int64})
        return tfds.core.DatasetInfo(builder=self, features=features)

    def _split_generators(self, dl_manager):
        return {"train": self._examples("t", 60), "validation": self._examples("v", 80)}

    def _generate_examples(self):
        raise NotImplementedError

    def _examples(self, kind, count):
        for i in range(count):
            yield i, {"text": f"{kind} document {i} é. " * 9, "url": f"https://{kind}/{i}", "n": i}


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tfds")
    FakeC4(data_dir=str(folder), config="en", file_format="array_record").download_and_prepare()
    with pytest.MonkeyPatch.context() as patch:  # what TFDS_DATA_DIR said as tfds was imported
        patch.setattr("tensorflow_datasets.core.constants.DATA_DIR", str(folder))
        yield folder


@pytest.mark.usefixtures("data_dir")
def test_a_tfds_data_set_by_name(tmp_path):
    shards = prepare("fake_c4/en", root=tmp_path)
    assert shards.directory.name == "fake_c4-en-bytes"
    assert shards.manifest.source["dataset"] == "fake_c4/en/3.1.0"
    texts = {name: texts_of(shards, name) for name in SPLITS}
    assert sorted(texts["train"]) == sorted(f"t document {i} é. " * 9 for i in range(60))
    assert sorted(texts["validation"] + texts["test"]) == sorted(
        f"v document {i} é. " * 9 for i in range(80)
    )
    assert min(len(texts["validation"]), len(texts["test"])) >= 25
    assert prepare("fake_c4/en", root=tmp_path) == shards
    urls = prepare("fake_c4/en", root=tmp_path / "u", text_feature="url")
    assert "https://t/7" in texts_of(urls, "train")
    assert "tensorflow" not in sys.modules


def test_a_tfds_data_set_that_was_half_prepared(data_dir, tmp_path):
    (shard,) = data_dir.glob("fake_c4/en/3.1.0/*-validation.array_record-00000-of-00001")
    aside = shard.rename(tmp_path / "aside")
    try:
        with pytest.raises(InputError, match=rf"half prepared, 1 of its 2 files .*{shard.name}"):
            prepare("fake_c4/en", root=tmp_path)
    finally:
        aside.rename(shard)
    assert prepare("fake_c4/en", root=tmp_path).split("validation").documents > 0


@pytest.mark.parametrize("left", [0, 1000, 65536])
def test_a_tfds_data_set_of_which_a_file_was_cut(data_dir, tmp_path, left):
    (shard,) = data_dir.glob("fake_c4/en/3.1.0/*-train.array_record-00000-of-00001")
    whole = shard.read_bytes()
    try:
        shard.write_bytes(whole[:left])
        with pytest.raises(
            InputError, match=r"its train split cannot be read .*; delete .*3\.1\.0"
        ):
            prepare("fake_c4/en", root=tmp_path)
    finally:
        shard.write_bytes(whole)


def test_a_tfds_data_set_without_its_description(data_dir, tmp_path):
    info = data_dir / "fake_c4/en/3.1.0/dataset_info.json"
    aside = info.rename(tmp_path / "aside")
    try:
        for left in (None, aside.read_text()[:60], ""):
            if left is not None:
                info.write_text(left)
            with pytest.raises(InputError, match=r"'fake_c4/en' is half prepared, dataset_info"):
                prepare("fake_c4/en", root=tmp_path)
        with pytest.raises(InputError, match=r"no data set 'fake_c4/en:1\.0\.0' is prepared"):
            prepare("fake_c4/en:1.0.0", root=tmp_path)
    finally:
        aside.rename(info)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"corpus": "c4/en"}, r"corpus: no data set 'c4/en' is prepared in .*download_and_prepare"),
        ({"corpus": "no such//name"}, "corpus: no data set 'no such//name'"),
        ({"corpus": ""}, "corpus: no data set ''"),
        ({"corpus": "fake_c4/en", "text_feature": "n"}, "text_feature: .*its texts are text, url"),
        ({"corpus": "files"}, "corpus: '' matches no file in .*expected a file or a pattern"),
        ({"tokenizer": "words"}, "tokenizer: 'words' is unknown; expected 'bytes', 'bpe-SIZE'"),
        ({"tokenizer": "bpe-200"}, "tokenizer: 'bpe-200' is too small"),
        ({"tokenizer": "bpe--3"}, "tokenizer: 'bpe--3' is unknown"),
    ],
)
@pytest.mark.usefixtures("data_dir")
def test_bad_input(tmp_path, arguments, message):
    with pytest.raises(InputError, match=message) as error:
        prepare(**{"root": tmp_path} | arguments)
    assert "\n" not in str(error.value)


def test_a_root_that_cannot_be_written(sources, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="root: cannot prepare"):
        prepare(PythonFiles(sources), root=tmp_path / "file")


@pytest.mark.parametrize(
    ("count", "text", "message"),
    [
        (0, "", "corpus: 'PythonFiles' is too small, its train split has 0 documents"),
        (3, "x = {}", "corpus: 'PythonFiles' is too small, its train split has"),
        (99, "x{}", "corpus: 'PythonFiles' is too small, its validation split has"),
    ],
)
def test_an_empty_or_tiny_corpus(tmp_path, count, text, message):
    folder = write_sources(tmp_path / "sources", count, text)
    with pytest.raises(InputError, match=message) as error:
        prepare(PythonFiles(folder), root=tmp_path / "data")
    assert "\n" not in str(error.value)
    assert not (tmp_path / "data" / "PythonFiles-bytes").exists()


@pytest.mark.slow
def test_the_standard_library(tmp_path):
    shards = prepare(root=tmp_path)
    assert shards.split("train").tokens > 10_000_000
    assert shards.split("validation").tokens > 200_000


PREPARE = """
import sys
from pathlib import Path
from bss.data import prepare
from bss.data.local_files import PythonFiles
noted = prepare.Progress.note
left = int(sys.argv[3])
def note(self, *counts):
    global left
    noted(self, *counts)
    left -= 1
    if left == 0:
        print("there", flush=True)
        input()
prepare.Progress.note = note
prepare.prepare(PythonFiles(Path(sys.argv[1])), "bpe-300", Path(sys.argv[2]), shard_tokens=1000)
"""


def test_a_killed_preparation_continues_after_its_whole_shards(sources, tmp_path):
    whole = prepare(PythonFiles(sources), "bpe-300", tmp_path / "whole", shard_tokens=1000)
    command = [sys.executable, "-c", PREPARE, str(sources), str(tmp_path / "killed"), "4"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout and process.stdout.readline() == "there\n"
    process.kill()
    process.communicate()
    partial = tmp_path / "killed" / ".PythonFiles-bpe-300.partial"
    kept = {path.name: path.stat().st_mtime_ns for path in partial.glob("*.bin")}
    assert sorted(kept) == [f"train-0000{i}.bin" for i in range(4)]
    (partial / "train-00004.bin.part").write_bytes(b"half")
    again = prepare(PythonFiles(sources), "bpe-300", tmp_path / "killed", shard_tokens=1000)
    assert files_below(again.directory) == files_below(whole.directory)
    assert {name: (again.directory / name).stat().st_mtime_ns for name in kept} == kept


def test_a_text_without_tokens_is_one_line(tmp_path):
    words = inner.Tokenizer(inner.models.WordLevel({"a": 0, "</s>": 1}))
    words.save(str(tmp_path / "tokenizer.json"))
    tokenizer = tokenizers.make(str(tmp_path / "tokenizer.json"), [])
    with pytest.raises(InputError, match="cannot encode a document"):
        tokenizer.encode_batch(["a", "b"])


def test_prepared_shards_are_a_corpus_wherever_they_lie(sources, tmp_path):
    first = prepare(PythonFiles(sources), root=tmp_path / "here")
    moved = first.directory.rename(tmp_path / "there")
    assert prepare(f"shards:{moved}").content_hash == first.content_hash
    with pytest.raises(InputError, match="here"):
        prepare(f"shards:{first.directory}")


@pytest.mark.parametrize(
    "noted", ['{"what": {"source": "another"}, "done": {}}', "[1]", '{"what":']
)
def test_what_was_begun_of_other_documents_or_is_damaged_is_begun_again(sources, tmp_path, noted):
    right = prepare(PythonFiles(sources), root=tmp_path / "one")
    partial = tmp_path / "two" / ".PythonFiles-bytes.partial"
    partial.mkdir(parents=True)
    (partial / "progress.json").write_text(noted)
    (partial / "train-00007.bin").write_bytes(b"other")
    again = prepare(PythonFiles(sources), root=tmp_path / "two")
    assert files_below(again.directory) == files_below(right.directory)
