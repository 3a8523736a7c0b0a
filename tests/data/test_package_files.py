"""Sources of packages as a corpus, on made-up folders of packages."""

import json
import platform

import pytest

from bss.data.local_files import PackageFiles, PythonFiles
from bss.data.prepare import prepare
from bss.errors import InputError


def install(site, name, version, files):
    """Writes a package as pip does."""
    info = f"{name}-{version}.dist-info"
    files = files | {
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    }
    for path, text in files.items():
        (site / path).parent.mkdir(parents=True, exist_ok=True)
        (site / path).write_text(text)
    record = "".join(f"{path},,\n" for path in [*files, f"{info}/RECORD"])
    (site / info / "RECORD").write_text(record)


@pytest.fixture
def sites(tmp_path):
    """Two environments, installed in another order; the first has more packages and scripts."""
    one = {f"one/{n}.py": f"x = {n}\n" * 40 for n in range(60)}
    two = {"two/a.py": "x = 3\n" * 40, "two/b.py": "y = 1\n", "two/empty.py": "", "two/c.txt": "c"}
    here, there = tmp_path / "here/site-packages", tmp_path / "there/lib/site-packages"
    install(here, "One_Pack", "1.0", one | {"../bin/run.py": f"#!{here}\n"})
    install(here, "two", "2.1", two)
    install(here, "more", "3", {"more.py": "z = 1\n"})
    install(there, "two", "2.1", two)
    install(
        there, "One_Pack", "1.0", dict(reversed(one.items())) | {"../bin/run.py": f"#!{there}\n"}
    )
    return here, there


def listed(path, **wanted):
    path.write_text(json.dumps({"packages": {"one-pack": "1.0", "two": "2.1"}} | wanted))
    return path


def test_two_environments_have_one_hash_and_each_content_once(sites, tmp_path):
    path = listed(tmp_path / "list.json")
    here, there = (PackageFiles(path, (str(site),)) for site in sites)
    assert here.source() == there.source()
    contents = list(here._contents())
    assert len(contents) == len(set(contents)) == 61
    assert contents == list(there._contents())
    shards = [prepare(c, root=tmp_path / str(n)) for n, c in enumerate((here, there))]
    assert shards[0].manifest == shards[1].manifest
    (sites[1] / "two/b.py").write_text("y = 2\n")
    assert here.source() != there.source()
    path = listed(tmp_path / "hashed.json", sha256=here.source()["fingerprint"])
    PackageFiles(path, (str(sites[0]),)).source()
    with pytest.raises(InputError, match=r"have the hash .*, expected"):
        PackageFiles(path, (str(sites[1]),)).source()


def test_the_library_comes_first_without_what_its_build_wrote(sites, tmp_path):
    library = tmp_path / "library"
    library.mkdir()
    (library / "_sysconfigdata_linux.py").write_text(f"prefix = {str(library)!r}\n")
    (library / "this.py").write_text("first = 1\n")
    path = listed(tmp_path / "list.json", python=platform.python_version())
    contents = list(PackageFiles(path, (str(sites[0]),), PythonFiles(library))._contents())
    assert contents[0] == b"first = 1\n"
    assert len(contents) == 62


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        (
            {"packages": {"two": "2.2"}},
            r"'two' of .* is 2\.1, expected 2\.2; pip install two==2\.2",
        ),
        ({"packages": {"three": "1"}}, r"'three' of .* is missing, expected 1"),
        ({"python": "2.7.1"}, r"is of Python 2\.7\.1, this is 3"),
        ({"packages": ["two"]}, "names no packages; expected"),
        ({"pyton": "3.11.7"}, "has 'pyton'; expected"),
    ],
)
def test_what_is_refused(sites, tmp_path, wanted, message):
    with pytest.raises(InputError, match=message):
        PackageFiles(listed(tmp_path / "list.json", **wanted), (str(sites[0]),)).source()


def test_what_pip_left_or_did_not_list(sites, tmp_path):
    (sites[0] / "removed-1.dist-info").mkdir()
    path = listed(tmp_path / "list.json")
    PackageFiles(path, (str(sites[0]),)).source()
    (sites[0] / "two-2.1.dist-info/RECORD").unlink()
    with pytest.raises(InputError, match="'two' has no list of its files; install it anew"):
        PackageFiles(path, (str(sites[0]),)).source()


def test_a_file_that_is_gone_and_a_list_that_is_none_are_named(sites, tmp_path):
    (sites[0] / "two/b.py").unlink()
    with pytest.raises(InputError, match=r"two/b\.py of package 'two' cannot be read"):
        PackageFiles(listed(tmp_path / "list.json"), (str(sites[0]),)).source()
    with pytest.raises(InputError, match=r"none\.json: not a list"):
        prepare(f"packages:{tmp_path}/none.json", root=tmp_path / "data")
