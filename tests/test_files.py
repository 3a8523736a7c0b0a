"""Files: a write is whole or not at all, and a bad file is told in one line."""

import pytest

from bss.errors import InputError
from bss.files import read_json, write_json, write_text


def test_a_value_comes_back_and_leaves_no_temporary_file(tmp_path):
    write_json(tmp_path / "a.json", {"loss": 1 / 3})
    write_json(tmp_path / "a.json", {"loss": 2.5})
    assert read_json(tmp_path / "a.json", "write it") == {"loss": 2.5}
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]


def test_an_error_on_the_way_keeps_what_was_there(tmp_path):
    write_json(tmp_path / "a.json", {"loss": 1})
    with pytest.raises(UnicodeEncodeError):
        write_text(tmp_path / "a.json", "half\udcff")
    assert read_json(tmp_path / "a.json", "write it") == {"loss": 1}
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (None, "no such file"),
        (b"{\n1", r"is not JSON \(line 2"),
        (b"\xff", r"cannot be read \(UnicodeDecodeError\)"),
        (b"[]", "holds no JSON object"),
    ],
)
def test_a_bad_file_is_one_line_with_its_name_and_what_to_do(tmp_path, content, told):
    path = tmp_path / "a.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError, match=f"^--from .*a.json: {told}.*; save a fit$") as error:
        read_json(path, "save a fit", "--from")
    assert "\n" not in str(error.value)
