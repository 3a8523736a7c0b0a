"""Corpora of one's own: text files, JSON lines, a value of a user's module."""

import itertools
import json
import tracemalloc
from dataclasses import dataclass, replace
from typing import Any

import pytest

from bss.data.corpus import SPLITS, Corpus, split_of
from bss.data.local_files import TextFiles
from bss.data.prepare import prepare
from bss.errors import InputError
from tests.data.letters import LETTERS, Letters
from tests.data.test_prepare import texts_of

TEXTS = [f"document {i}, naïve λ: " + "words and words " * 5 for i in range(400)]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Where the same documents are text files in folders, and JSON lines in two files."""
    monkeypatch.chdir(tmp_path)
    for i, text in enumerate(TEXTS):
        path = tmp_path / "texts" / f"part{i // 200}" / f"{i:03d}.md"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    for part in (0, 1):
        lines = (json.dumps({"id": 1, "body": t}) for t in TEXTS[200 * part :][:200])
        (tmp_path / f"part{part}.jsonl").write_text("\n\n".join([*lines, '{"body": ""}']))
    return tmp_path


def test_text_files_and_json_lines_are_split_by_their_content(folder):
    expected = {name: [] for name in SPLITS}
    for text in TEXTS:
        expected[split_of(text.encode())].append(text)
    files = prepare("files:texts/**/*.md", "bpe-300", folder / "data")
    lines = prepare("files:*.jsonl", "bpe-300", folder / "data", text_feature="body")
    for shards in (files, lines):
        assert {name: texts_of(shards, name) for name in SPLITS} == expected
    assert files.content_hash == lines.content_hash
    assert files.directory.name.startswith("files-texts-.md-")
    assert prepare("files:texts/**/*.md", "bpe-300", folder / "data") == files


def test_a_pattern_has_one_directory_and_its_documents_one_fingerprint(folder):
    one, same = TextFiles("texts/**/*.md"), TextFiles(f"{folder}/texts/**/*.md")
    assert one.slug("files") == same.slug("files") != TextFiles("texts/*/*.md").slug("files")
    before = one.source()["fingerprint"]
    assert before == same.source()["fingerprint"]
    changed = folder / "texts" / "part1" / "250.md"
    changed.write_text(TEXTS[250] + ".")
    assert one.source()["fingerprint"] != before
    changed.write_text(TEXTS[250])
    assert one.source()["fingerprint"] == before


def test_one_of_a_users_module_is_prepared_by_its_name(tmp_path):
    shards = prepare("tests.data.letters:LETTERS", root=tmp_path)
    assert shards.directory.name == "tests.data.letters-LETTERS-bytes"
    assert sum(shards.split(name).documents for name in SPLITS) == 200
    assert prepare(LETTERS, root=tmp_path / "value").content_hash == shards.content_hash
    assert replace(LETTERS, text="abd ").source() != LETTERS.source() == Letters().source()


def test_documents_are_streamed():
    @dataclass(frozen=True)
    class Long(Corpus):
        def texts(self):
            return (str(i) * 200_000 for i in range(99))

    tracemalloc.start()
    try:
        Long().source()
        assert sum(1 for _ in itertools.chain(*map(Long().documents, SPLITS))) == 99
        assert tracemalloc.get_traced_memory()[1] < 10_000_000
    finally:
        tracemalloc.stop()


BAD = [
    ("files:nothing/**/*.txt", "'nothing/**/*.txt' matches no file in ... expected a file"),
    ("files:empty.*", "'files:empty.*' is too small, its train split has 0 documents"),
    ("files:latin.txt", "latin.txt is not UTF-8 at byte 2; convert it"),
    ("files:latin.jsonl", "latin.jsonl, line 2, is not UTF-8 at byte 10; convert it"),
    ("files:broken.jsonl", 'broken.jsonl, line 3, is not JSON ( ... expected {"text": "'),
    ("files:field.jsonl", "field.jsonl, line 1, has no text 'text' but body, id; ... text_feature"),
    ("files:list.jsonl", "list.jsonl, line 1, has no text 'text' but list; expected"),
    ("files:half.jsonl", "half.jsonl, line 1, cannot be UTF-8"),
    ("files:", "'' matches no file in ... expected a file"),
    ("stdlib:more", "'stdlib:more' is unknown; expected 'stdlib'"),
    ("math:tau", "math:tau is float; expected Corpus"),
    ("no.such:CORPUS", "no.such:CORPUS cannot be imported"),
]


@pytest.mark.parametrize(("name", "told"), BAD)
def test_bad_input_is_one_line(tmp_path, monkeypatch, name, told):
    monkeypatch.chdir(tmp_path)
    good = b'{"text": "good"}\n'
    files = {
        "empty.txt": b"",
        "empty.jsonl": b'{"text": ""}\n',
        "latin.txt": "na\xefve".encode("latin-1"),
        "latin.jsonl": good + '{"text": "\xef"}'.encode("latin-1"),
        "broken.jsonl": good + good + b"{",
        "field.jsonl": b'{"body": "x", "id": 3}',
        "list.jsonl": b"[1]",
        "half.jsonl": rb'{"text": "\ud800"}',
    }
    for file, content in files.items():
        (tmp_path / file).write_bytes(content)
    with pytest.raises(InputError) as error:
        prepare(name, root=tmp_path / "data")
    said = str(error.value)
    assert all(part in said for part in told.split(" ... ")), said
    assert said.startswith("corpus: ") and "\n" not in said


def test_what_is_no_text_is_refused():
    class Numbers(Corpus):
        def texts(self) -> Any:
            return iter([3])

    with pytest.raises(InputError, match="document 1 of Numbers is int; texts must yield str"):
        Numbers().source()
