"""The README's size and numbers, and what the pages of docs/ link to, list and tell to type."""

import importlib.util
import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import yaml

ROOT = Path(__file__).parents[1]
PAGES = sorted((ROOT / "docs").rglob("*.md"))
READ = [ROOT / name for name in ("README.md", "DESIGN.md", "CONTRIBUTING.md")]
CODE = re.compile(r"^    [^\n]*$|```.*?```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?!\w+:)([^)\s#]*)(#[^)\s]*)?\)")


def hook(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / "_site" / f"{name}.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def slugs(page):
    """The anchors of its headings, as GitHub and the site make them."""
    titles = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"\s", "-", re.sub(r"[^\w\s-]", "", title.lower()).strip()) for title in titles}


@pytest.mark.parametrize("page", [*READ, *PAGES], ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    for path, anchor in LINK.findall(CODE.sub("", page.read_text())):
        target = page.parent / path if path else page
        assert target.exists(), path
        assert not anchor or anchor[1:] in slugs(target), path + anchor


def test_navigation_lists_every_page():
    def leaves(entry):
        if isinstance(entry, dict):
            entry = list(entry.values())
        return (
            [entry] if isinstance(entry, str) else [leaf for one in entry for leaf in leaves(one)]
        )

    listed = set(leaves(yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]))
    pages = {str(page.relative_to(ROOT / "docs")) for page in PAGES}
    beside = {page for page in listed if (ROOT / page.removeprefix("repository/")).is_file()}
    assert listed == pages | {"cli.md", "api.md"} | beside and len(beside) >= 4


@pytest.mark.parametrize("page", [READ[0], *PAGES], ids=lambda page: page.name)
def test_commands_need_no_activated_environment(page):
    for block in re.findall(r"```bash\n(.*?)```", page.read_text(), re.DOTALL):
        assert not re.search(r"^(bss|python|python3|pip|ray) ", block, re.MULTILINE), block


def test_readme_is_short_and_its_numbers_are_those_of_the_results():
    text = READ[0].read_text()
    assert len(text.encode()) <= 9000
    page = " ".join(text.split())
    inside = (
        pd.read_csv(ROOT / "results/es_wsd/findings.csv").set_index("key").loc["optimum_inside"]
    )
    ratio, low, high = np.exp(inside[["effect", "low", "high"]].to_numpy(float))
    assert f"{ratio:.2f} times (95% CI {low:.2f}–{high:.2f})" in page
    found = pd.read_csv(ROOT / "results/late_switch/findings.csv").set_index("key")["effect"]
    for key in ("late_constant", "late_early", "averaged_other"):
        assert f"{abs(found[key]):.3f}" in page


def test_the_first_example_is_one_that_runs_with_its_numbers():
    text = READ[0].read_text()
    fit = (ROOT / "docs" / "fit" / "time.md").read_text()
    command, shown = re.findall(r"```(?:bash|text)\n(.*?)```", text, re.DOTALL)[:2]
    example = re.findall(r'>>> bss\("(.*?)"\)\n(.*?)\n    \.\.\.\n', fit, re.DOTALL)
    first, output = next((line, out) for line, out in example if "mlperf_llama31_8b" in line)
    assert command.startswith(f".venv/bin/{first} ")

    def numbers(lines):
        return [float(n) for n in re.findall(r"\d+\.?\d*", lines.replace("...", ""))]

    assert numbers(shown) == pytest.approx(numbers(output), rel=0.03)
    critical = next(out for line, out in example if "fit critical" in line)
    assert "42.7" in text and "42.7" in critical and "(38 to 48)" in text


def test_every_answer_has_a_question_of_its_own_and_a_command_or_a_page():
    text = (ROOT / "docs" / "answers.md").read_text()
    _, *parts = re.split(r"^\*\*(.*\?)\*\*", text, flags=re.MULTILINE)
    questions = parts[::2]
    assert len(questions) == len(set(questions)) >= 12
    for question, answer in zip(questions, parts[1::2], strict=True):
        assert ">>> bss(" in answer or re.search(r"\]\(fit/\w+\.md[)#]", answer), question


REFERENCE = ("names.md", "commands.md", "scale.md", "answers.md")


def test_pages_of_a_task_are_short():
    tasks = [page for page in PAGES if page.name not in REFERENCE]
    sizes = {str(page.relative_to(ROOT)): len(page.read_bytes()) for page in tasks}
    assert {name: size for name, size in sizes.items() if size > 14_000} == {}


def test_the_8b_example_stands_on_one_page():
    shown = [page.name for page in PAGES if "mlperf_llama31_8b_curves" in page.read_text()]
    assert shown == ["time.md"]


def test_the_site_shows_an_example_as_its_command_and_finds_files_outside_docs():
    text = (ROOT / "docs" / "schedule.md").read_text()
    shown = hook("examples").commands(text)
    assert "def bss" in text and "def bss" not in shown and "bss(" not in shown
    assert "$ .venv/bin/bss schedule --from fit.json --tokens 1M --stages 3\n" in shown
    links = hook("links")
    assert links.target("machines/many.md", "../../results/LOG.md") == "results/LOG.md"
    assert links.page_of("results/LOG.md") == "repository/results/LOG.md"

    def shown_on(path):
        page = SimpleNamespace(file=SimpleNamespace(src_uri=path), meta={})
        return links.on_page_markdown("[gone](results/none.md)", page, None, None)

    assert shown_on("repository/CHANGELOG.md") == "gone"  # history outlives files
    assert shown_on("repository/README.md") == "[gone](results/none.md)"


def test_every_command_is_on_the_page_of_options():
    from bss.cli import COMMANDS

    page = hook("reference").cli()
    assert [f"## bss {name}" for name in COMMANDS] == re.findall(r"^## .*", page, re.MULTILINE)
    assert page.count("--level") >= 2 and "Usage: bss fit critical" in page
