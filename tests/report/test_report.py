import json
import re
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest

from bss.cli.app import main
from bss.errors import InputError
from bss.report import write_report
from bss.report.results import read_results

FILES = (
    "experiment.json", "runs.parquet", "points.csv", "fits.json",
    "contenders.csv",
)  # fmt: skip


@pytest.fixture(scope="module")
def results(planted, tmp_path_factory):
    return planted.write(tmp_path_factory.mktemp("results"))


@pytest.fixture(scope="module")
def page(results):
    file = results.parent / "out" / "report.html"
    write_report(results, file)
    assert [path.name for path in file.parent.iterdir()] == ["report.html"]
    return file.read_text()


class Links(HTMLParser):
    """What a browser might fetch or run; all tags and ids; the names of pictures."""

    def __init__(self):
        super().__init__()
        self.links, self.tags, self.ids, self.labels = [], [], [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.links += [value for key, value in attrs if key in ("src", "href", "xlink:href")]
        self.ids += [value for key, value in attrs if key == "id"]
        self.labels += [dict(attrs).get("aria-label")] if ("role", "img") in attrs else []


def test_the_page_needs_no_network_and_no_script(page):
    before, section, after = page.partition('<section id="curves" hidden>')  # shown by its script
    assert section
    page = before + after.partition("</section>")[2]
    parser = Links()
    parser.feed(page)
    assert all(link.startswith("#") for link in parser.links)
    assert "<title>E(S) of a planted law &amp; &lt;script&gt;</title>" in page
    assert not {"script", "link", "img", "iframe"} & set(parser.tags)
    assert parser.tags.count("svg") == len(parser.labels) >= 5
    assert parser.tags.count("table") >= 4
    assert len(parser.ids) == len(set(parser.ids))
    assert all(label and len(label) > 10 for label in parser.labels)
    assert not re.search(r"@import|url\((?!#)", page)


def test_the_page_holds_the_key_numbers(page, planted):
    text = re.sub(r"<[^>]+>", "", re.sub(r"<svg.*?</svg>", "", page, flags=re.DOTALL))
    table = planted.contenders()
    for loss in table["test_loss"]:
        assert f"{loss:.4f}" in text
    for fit in planted.fits["surface"].fits:
        assert f"{fit.batches['B_opt'].value:.4g}" in text
    for told in (
        planted.schedule,
        "python -m experiments.es_curve --config=configs/es_curve.py:smoke",
        "0123abc",
        "jax 0.10.2",
        "2026-11-20",
    ):
        assert told in text


@pytest.mark.parametrize("name", FILES)
def test_damaged_files_are_one_line(results, tmp_path, name):
    for file in FILES:
        (tmp_path / file).write_bytes((results / file).read_bytes())
    (tmp_path / name).write_text('{"a": \n')
    with pytest.raises(InputError, match=re.escape(name)) as raised:
        write_report(tmp_path, tmp_path / "report.html")
    assert "\n" not in str(raised.value)
    assert not (tmp_path / "report.html").exists()


def test_an_incomplete_experiment_is_one_line(tmp_path, capsys):
    (tmp_path / "experiment.json").write_text('{"title": "x"}')
    with pytest.raises(InputError, match="'command'"):
        write_report(tmp_path, tmp_path / "report.html")
    assert main(["report", str(tmp_path)]) == 2
    assert "'command'" in capsys.readouterr().err
    assert not (tmp_path / "report.html").exists()


def test_results_that_are_no_experiment_are_one_line(tmp_path):
    with pytest.raises(InputError, match=r"experiment.json: no such file; run the"):
        write_report(tmp_path, tmp_path / "report.html")


SECTIONS = {
    "Loss against tokens": ("runs.parquet",),
    "E(S): tokens and steps to a target loss": ("points.csv", "fits.json"),
    "Schedules at equal tokens": ("contenders.csv",),
}


@pytest.mark.parametrize("title", SECTIONS)
def test_a_section_stands_where_its_files_are(results, tmp_path, title):
    for file in ("experiment.json", *SECTIONS[title]):
        (tmp_path / file).write_bytes((results / file).read_bytes())
    write_report(tmp_path, tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    assert [name for name in SECTIONS if f"<h2>{name}</h2>" in page] == [title]


@pytest.mark.slow
def test_grouped_fits_and_pictures_are_shown_too(planted, results, tmp_path):
    for file in ("experiment.json", "points.csv"):
        (tmp_path / file).write_bytes((results / file).read_bytes())
    fits = {name: fit.to_dict() for name, fit in planted.fits.items()}
    phases = {phase: {"fit": fits["surface"]} for phase in ("constant", "averaged")}
    groups = {"constant, shared": {"fits": fits}, "SGD": phases}
    (tmp_path / "fits.json").write_text(json.dumps(groups))
    (tmp_path / "curve.png").write_bytes(b"picture")
    write_report(tmp_path, tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    assert all(
        f"({name})" in page for name in ("constant, shared", "SGD, constant", "SGD, averaged")
    )
    assert "Cross-validation" in page
    assert "data:image/png;base64,cGljdHVyZQ==" in page


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda table: table.drop(columns="steps"), "lacks steps"),
        (lambda table: table.head(0), "lacks rows"),
    ],
)
def test_bad_contenders_are_refused(results, tmp_path, change, told):
    for file in FILES:
        (tmp_path / file).write_bytes((results / file).read_bytes())
    table = change(pd.read_csv(results / "contenders.csv", dtype={"batch": str}))
    table.to_csv(tmp_path / "contenders.csv", index=False)
    with pytest.raises(InputError, match=re.escape(told)):
        read_results(tmp_path)


def test_schedules_that_failed_leave_a_page(results, tmp_path):
    (tmp_path / "experiment.json").write_bytes((results / "experiment.json").read_bytes())
    table = pd.read_csv(results / "contenders.csv", dtype={"batch": str})
    kept = table[(table["role"] == "constant") & (table["lr_phase"] == "constant")]
    kept.assign(test_loss=np.nan).to_csv(tmp_path / "contenders.csv", index=False)
    write_report(tmp_path, tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text()
    assert "decayed to zero" not in text and "constant 4" in text
