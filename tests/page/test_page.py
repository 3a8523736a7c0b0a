"""The page is one file without requests, and answers without JavaScript too."""

import re
import subprocess

import pytest

from bss.advice import advise, recommend
from bss.rules import Setting
from bss.units import rounded_tokens
from tests.page.conftest import ROOT


@pytest.fixture(scope="module")
def document(calculator):
    return calculator.document()


def test_the_page_is_one_small_file_that_fetches_nothing(document):
    assert len(document.encode()) <= 400_000
    page = re.sub(r"<script>.*?</script>", "", document, flags=re.DOTALL)  # the plotting library
    assert not re.search(r"https?://|@import|url\(", page)
    assert not re.search(r'(?:src|href)="(?!data:)', page)
    assert "{{" not in page


def test_the_modules_are_one_program(calculator, node, tmp_path):
    program = tmp_path / "program.mjs"
    program.write_text(calculator.script())
    assert "\nimport " not in program.read_text()
    subprocess.run([node, "--check", program], check=True)


def test_the_answers_without_javascript_are_those_of_bss_advise(calculator, document):
    table = document[document.index("bss-usual") :]
    rows = re.findall(r"<tr><th scope=\"row\">(.*?)</tr>", table[: table.index("</table>")])
    assert len(rows) == len(calculator.USUAL) == 12
    for row, (params, tokens) in zip(rows, calculator.USUAL, strict=True):
        advice = recommend(Setting(params, tokens, calculator.SEQ_LEN))
        cells = re.split(r"</t[hd]><td[^>]*>", row.removesuffix("</td>"))
        assert cells[:2] == [rounded_tokens(params), rounded_tokens(tokens)]
        assert cells[3] == f"{advice.sequences:,}"
        assert ("extrapolated" in cells[2]) == (not advice.in_range)


def test_the_first_page_of_the_site_begins_with_it(calculator):
    text = (ROOT / "docs" / "index.md").read_text()
    found = calculator.on_post_page(text, None, None)
    before, _, after = found.partition('<section id="bss-calculator"')
    assert len(before.splitlines()) < 10 and "</section>" in after
    assert "calculator.png" in text and "calculator.png" not in found
    assert calculator.on_post_page("<p>other</p>", None, None) == "<p>other</p>"


def test_known_runs_are_facts_with_a_source(calculator):
    known = calculator.data()["known"]
    assert len(known) == 6
    for run in known:
        assert run["source"].startswith(("arXiv ", "deepseek-ai/DeepSeek-LLM")) and run["batch"] > 0
        used = advise(run["params"], run["tokens"], run["seq_len"], batch=run["batch"])
        assert used.receipt and not used.in_range and used.sequences


def test_every_field_has_a_label_and_a_place_for_its_error(document):
    fields = re.findall(
        r'<label>[^<]+<input name="(\w+)"[^>]*aria-describedby="bss-(\w+)"', document
    )
    assert len(fields) == 7 and all(name == error for name, error in fields)
    assert all(f'<small id="bss-{name}">' in document for name, _ in fields)
