"""Files: a write is whole or not at all, and a bad file is told in one line."""

import os
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from bss.cli import main
from bss.errors import InputError
from bss.files import read_json, replacing, write_json, write_text
from bss.tables import write_table
from bss.tables.storage import appending


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


def make_node(path, kind, minor=0):
    """Make a device of its own; none that the machine uses is touched."""
    try:
        os.mknod(path, kind | 0o600, os.makedev(1, minor))
        os.close(os.open(path, os.O_WRONLY))
    except PermissionError:
        pytest.skip("only root makes devices, where the file system allows them")
    return path


def type_of(path):
    return stat.S_IFMT(os.lstat(path).st_mode)


def test_a_device_is_written_and_stays_a_device(tmp_path):
    null = make_node(tmp_path / "null.csv", stat.S_IFCHR, minor=3)
    write_table(pd.DataFrame({"run": ["a"]}), null)
    write_json(null, {})
    with appending(null) as append:
        append(pd.DataFrame({"run": ["a"]}))
    assert type_of(null) == stat.S_IFCHR
    assert [path.name for path in tmp_path.iterdir()] == ["null.csv"]


def test_frames_that_are_appended_make_one_table(tmp_path, monkeypatch):
    """In any number of parts; a column that some frames lack is null there."""
    frames = [pd.DataFrame({"run": [f"r{i}"] * 2, "step": [1, 2]}) for i in range(6)]
    frames[3]["seed"] = 7
    tables = []
    for part in (1, 3, 100):
        monkeypatch.setattr("bss.tables.storage.PART", part)
        with appending(tmp_path / "runs.parquet") as append:
            for frame in frames:
                append(frame)
        tables.append(pd.read_parquet(tmp_path / "runs.parquet"))
    assert tables[0]["run"].tolist() == [f"r{i // 2}" for i in range(12)]
    assert tables[0]["seed"].dropna().tolist() == [7, 7]
    assert tables[0].equals(tables[1]) and tables[0].equals(tables[2])


def test_a_full_device_is_an_error_and_stays_a_device(tmp_path):
    full = make_node(tmp_path / "full.json", stat.S_IFCHR, minor=7)
    with pytest.raises(OSError, match="No space left"):
        write_json(full, {})
    assert type_of(full) == stat.S_IFCHR


def test_a_pipe_is_written_to_its_reader_and_refused_without_one(tmp_path):
    pipe = tmp_path / "pipe.csv"
    os.mkfifo(pipe)
    with pytest.raises(InputError, match=r"pipe.csv: no process reads this pipe; start its reader"):
        write_text(pipe, "text")
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        write_text(pipe, "text")
        assert os.read(reader, 100) == b"text"
    finally:
        os.close(reader)
    assert type_of(pipe) == stat.S_IFIFO


def test_a_socket_and_a_disk_are_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # the name of a socket is short
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("socket.csv")
        with pytest.raises(InputError, match=r"socket.csv: is a socket, which is not written"):
            write_table(pd.DataFrame({"run": ["a"]}), "socket.csv")
        assert type_of("socket.csv") == stat.S_IFSOCK
    monkeypatch.setattr("bss.files._read_mode", lambda _: stat.S_IFBLK)
    with pytest.raises(InputError, match="is a disk"):
        write_text("disk", "text")


def test_a_link_is_followed(tmp_path):
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    (folder / "real.csv").write_text("old\n")
    for link, target in (("link.csv", "elsewhere/real.csv"), ("chain.csv", "link.csv")):
        (tmp_path / link).symlink_to(target)
    (tmp_path / "dangling.csv").symlink_to("elsewhere/new.csv")
    write_table(pd.DataFrame({"run": ["a"]}), tmp_path / "chain.csv")
    write_text(tmp_path / "dangling.csv", "new\n")
    assert (folder / "real.csv").read_text() == "run\na\n"
    assert (folder / "new.csv").read_text() == "new\n"
    assert all((tmp_path / name).is_symlink() for name in ("link.csv", "chain.csv", "dangling.csv"))
    assert {path.name for path in folder.iterdir()} == {"real.csv", "new.csv"}


def test_standard_output_that_is_a_file_is_written_where_the_shell_goes_on(tmp_path):
    code = "from bss.files import write_text; write_text('/dev/stdout', 'one\\n'); print('two')"
    with open(tmp_path / "out.txt", "a") as out:
        subprocess.run([sys.executable, "-c", code], stdout=out, check=True)
    assert (tmp_path / "out.txt").read_text() == "one\ntwo\n"


RUNS = "run,step,tokens,batch,loss\n" + "".join(
    f"b{batch},{step},{step * batch * 8},{batch},{3 - 0.1 * step}\n"
    for batch in (1, 2)
    for step in range(1, 9)
)


@pytest.mark.parametrize(
    "command",
    [
        ("import", "auto", "RUNS.csv", "--seq-len", "8", "-o", "OUT.csv"),
        ("points", "RUNS.csv", "--seq-len", "8", "--targets", "2.7", "--out", "OUT.csv"),
        (
            "plan",
            "--tokens",
            "1M",
            "--batch",
            "8",
            "--seq-len",
            "128",
            "--lr",
            "1e-3",
            "--plot",
            "OUT.svg",
        ),
        ("report", "RUNS.csv", "--seq-len", "8", "--targets", "2.7", "-o", "OUT.html"),
    ],
)
def test_every_command_writes_to_a_device_and_keeps_it(tmp_path, monkeypatch, capsys, command):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "RUNS.csv").write_text(RUNS)
    name = command[-1]
    make_node(tmp_path / name, stat.S_IFCHR, minor=3)
    assert main([*command]) == 0, capsys.readouterr().err
    assert type_of(name) == stat.S_IFCHR
    (tmp_path / name).unlink()
    os.mkfifo(tmp_path / name)
    assert main([*command]) == 2
    assert "no process reads this pipe" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("target", "says"),
    [("runs.csv", "leads to itself"), ("nowhere/runs.csv", "whose directory is missing; make it")],
)
def test_a_link_that_leads_nowhere_is_one_line(target, says, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("runs.csv").symlink_to(target)
    with pytest.raises(InputError, match=says), replacing("runs.csv"):
        pass
    rows = "".join(f"{i},{5 - i / 9}\n" for i in range(1, 9))
    Path("b8.csv").write_text("step,loss\n" + rows)
    arguments = ["import", "auto", "b8.csv", "-o", "runs.csv", "--batch", "8", "--seq-len", "64"]
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and "runs.csv" in error
    assert main(["points", "runs.csv"]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert Path("runs.csv").is_symlink()
