"""Names in logs and tables are text: in pages, figures, on a terminal and next to file names."""

from html.parser import HTMLParser

import pandas as pd
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from matplotlib.figure import Figure

from bss.cli import main
from bss.errors import printable
from bss.plots.curves import _names
from bss.plots.style import handle
from bss.report.curves import interactive
from bss.tables import check_runs, read_runs
from bss.training.run_config import Parent
from tests.cli.test_points import rows

NASTY = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "</script><script>",
    "$\\frac{$",
    "_hidden",
    "../../escaped",
    "/etc/escaped",
    "..",
    "two\nlines\r",
    "\x1b[31mred\x07",
    "nul\x00byte",
    "{{ 7 * 7 }}{% raw %}",
    "\u202eturned",
    "a&amp;b",
    "n" * 300,
]
TABLE = check_runs(rows("r", 8).head(9))
QUICK = ["--targets", "1.9,1.8", "--resamples", "10"]


class Tags(HTMLParser):
    """The elements of a page, and the names of their attributes."""

    def __init__(self, page):
        super().__init__()
        self.tags: list[str] = []
        self.attributes: set[str] = set()
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes |= {name for name, _ in attrs}


def runs_named(names, **columns):
    """A run of each name, of some batches in turn."""
    runs = [rows(name, 2 ** (1 + i % 5), lr=2e-3, **columns) for i, name in enumerate(names)]
    for i, run in enumerate(runs):
        run["loss"] += i / 1000
    return pd.concat(runs)


def report(folder, names, **columns):
    runs_named(names, **columns).to_parquet(folder / "runs.parquet")
    page = folder / "page.html"
    assert main(["report", str(folder / "runs.parquet"), "-o", str(page), *QUICK]) == 0
    return page.read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.parametrize("model", ["<script>alert(1)</script>", "$\\frac{$"])
def test_a_report_shows_names_as_text(tmp_path, model):
    nasty = Tags(report(tmp_path, NASTY, model=model))
    assert nasty.tags.count("script") == 3 and "img" not in nasty.tags
    assert not {name for name in nasty.attributes if name.startswith("on")}
    assert {path.name for path in tmp_path.iterdir()} == {"runs.parquet", "page.html"}


@settings(max_examples=25, deadline=None)
@example("</script><script>")
@given(st.text(min_size=1))
def test_a_name_cannot_end_the_numbers_of_a_page(name):
    runs = TABLE.assign(run=name.encode("utf-8", "replace").decode())
    assert "<" not in interactive(runs)["numbers"]


@settings(max_examples=100, deadline=None)
@example("\x9b31m\x7f")
@given(st.text())
def test_what_is_printed_is_one_line(text):
    shown = printable(text)
    assert len(shown.splitlines()) <= 1 and "\x1b" not in shown and printable(shown) == shown


def test_figures_have_names_of_any_letters(tmp_path):
    curves = [
        {"model": name, "params": 10 ** (5 + i % 3) + i, "tokens": 10**7 * (i + 1), "batch": batch}
        | {"steps": 900 + 40_000 * (1 + i / 5) // batch, "target_loss": 3.0, "seq_len": 64}
        for i, name in enumerate(NASTY[:11])
        for batch in (32, 64, 128, 256, 512)
    ]
    pd.DataFrame(curves).to_parquet(tmp_path / "points.parquet")
    command = ["fit", "critical", str(tmp_path / "points.parquet"), "--resamples", "10"]
    figure = tmp_path / "figure.svg"
    assert main([*command, "--reference-batch", "smallest", "--plot", str(figure)]) == 0
    assert {path.name for path in tmp_path.iterdir()} == {"points.parquet", "figure.svg"}
    runs = pd.concat([rows(name, 2, model=name).tail(20) for name in NASTY])
    entries = [handle(name) for name in _names(check_runs(runs)).values()]
    Figure().legend(handles=entries).figure.savefig(tmp_path / "legend.svg")


def test_imports_write_one_file_whose_names_are_lines(tmp_path, capsys):
    logs = tmp_path / "logs"
    logs.mkdir()
    table = runs_named(NASTY, model="two\nlines").groupby("run").head(3)
    table.to_parquet(logs / "a.parquet")
    assert main(["import", "auto", str(logs), "-o", str(tmp_path / "out.csv")]) == 0
    told = capsys.readouterr().out
    assert "\x1b" not in told and "\x07" not in told
    read = read_runs(tmp_path / "out.csv")
    assert list(dict.fromkeys(read["run"])) == [printable(name) for name in NASTY]
    files = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")}
    assert files == {"logs", "logs/a.parquet", "out.csv"}


@pytest.mark.parametrize("run", ["../x", "/tmp", "", "a/b", "."])
def test_the_id_of_a_parent_names_no_other_directory(run):
    with pytest.raises(Exception, match="is no run's id"):
        Parent(run, 1)
