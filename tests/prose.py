"""Find hard-to-read sentences: `python -m tests.prose [PATH ...]` lists them by file.

Sentences come from Markdown, docstrings, messages (string literals) and notebooks. A sentence is
flagged if it matches a rule of docs/words.toml, is long, or has too many numbers or commas.
`--glossary` writes docs/glossary.md from the same file.
"""

import ast
import functools
import json
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
WORDS = tomllib.loads((ROOT / "docs" / "words.toml").read_text())
RULES = [(rule["name"], re.compile(rule["pattern"], re.IGNORECASE)) for rule in WORDS["rule"]]
NUMBER = re.compile(r"(?<![\w.])[+−-]?\d*[.,]?\d+(?:[.,]\d+)*(?:e-?\d+)?[KMB%]?")
CODE_OR_LINK = re.compile(r"`[^`]*`|\[([^\]]*)\]\([^)]*\)")
PROSE_AS_CODE = re.compile(r"`[A-Za-z]?[a-z]+(?: [a-z]+){5,}[.,]?`")
ABBREVIATION = re.compile(r"\b(e\.g|i\.e|et al|Fig|vs|cf|approx|no|resp)\.$")
SENTENCE_END = re.compile(r"(?<=[.!?])[\"')*\]]*\s+(?=[\"'(*`\[A-Z0-9])")
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
SECTION = re.compile(r"^(Args|Returns|Raises|Attributes|Yields):\s*")


class Sentence(NamedTuple):
    """A sentence with its place; kind is prose, heading, cell, docstring or message."""

    path: str
    line: int
    kind: str
    text: str


def sentences(text: str) -> list[str]:
    """Return the sentences of a paragraph that have at least three words."""
    text = re.sub(r"\s+", " ", text).strip()
    parts, start = [], 0
    for end in SENTENCE_END.finditer(text):
        if not ABBREVIATION.search(text[start : end.start()]):
            parts.append(text[start : end.start()].strip())
            start = end.end()
    parts.append(text[start:].strip())
    return [part for part in parts if len(re.findall(r"[A-Za-z]{2,}", part)) >= 3]


def markdown_blocks(text: str) -> Iterator[tuple[int, str, str]]:
    """Yield (line, kind, text) of paragraphs, headings and table cells; code is left out."""
    block: list[str] = []
    first, fenced = 0, False
    for number, raw in enumerate([*text.splitlines(), ""], 1):
        line = raw.strip()
        fence = line.startswith("```")
        item = re.match(r"([-*]|\d+\.)\s+", line)
        code = fenced or fence or (raw.startswith("    ") and not item)
        if block and (code or not line or line[0] in "#|" or item):
            yield first, "prose", " ".join(block)
            block = []
        fenced ^= fence
        if code or not line or re.match(r"\|[\s:|-]+\|$", line):
            continue
        if line.startswith("#"):
            yield number, "heading", line.lstrip("# ")
        elif line.startswith("|"):
            yield from ((number, "cell", cell) for cell in line.strip("|").split("|"))
        else:
            first = first if block else number
            block.append(line[item.end() :] if item else line)


def of_markdown(text: str, name: str) -> list[Sentence]:
    """Return the sentences of a page."""
    found = []
    for line, kind, block in markdown_blocks(text):
        texts = [block] if kind == "heading" else sentences(block)
        found += [Sentence(name, line, kind, one) for one in texts]
    return found


def of_notebook(text: str, name: str) -> list[Sentence]:
    """Return the sentences of a notebook's Markdown cells."""
    found = []
    for number, cell in enumerate(json.loads(text)["cells"]):
        if cell["cell_type"] == "markdown":
            found += of_markdown("".join(cell["source"]), f"{name}#cell{number}")
    return found


@functools.lru_cache(maxsize=1)
def nodes_of(tree: ast.Module) -> list[ast.AST]:
    """Return the nodes of a module, which several readers go through."""
    return [*ast.walk(tree)]


def of_docstrings(tree: ast.Module, name: str) -> list[Sentence]:
    """Return the sentences of a module's docstrings, without their examples."""
    found = []
    for node in nodes_of(tree):
        if not isinstance(node, DOCUMENTED) or not (text := ast.get_docstring(node)):
            continue
        text = re.split(r"\n\s*Examples?:\n", text)[0]
        text = re.sub(r"(?m)^\|.*$", lambda row: row[0].replace("|", "\n\n"), text)  # cells
        for paragraph in re.split(r"\n\s*\n", text):
            if all(line.startswith("    ") for line in paragraph.splitlines()):
                continue  # code or a formula
            paragraph = SECTION.sub("", paragraph.strip())
            for item in re.split(r"\n(?=\s*(?:[\w, *]+:|-) )", paragraph):
                line = getattr(node, "lineno", 1)
                found += [Sentence(name, line, "docstring", one) for one in sentences(item)]
    return found


def literal(node: ast.AST) -> str:
    """Return the text of a string or an f-string, with its expressions as {...}."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if not isinstance(node, ast.JoinedStr):
        return ""
    return "".join(
        literal(part) if isinstance(part, ast.Constant) else "{" + ast.unparse(part)[:25] + "}"
        for part in node.values
    )


def of_messages(tree: ast.Module, name: str) -> list[Sentence]:
    """Return the sentences of a module's string literals, without docstrings and identifiers."""
    inside = set()
    for node in nodes_of(tree):
        if isinstance(node, ast.JoinedStr):
            inside |= {id(part) for part in ast.walk(node) if part is not node}
        elif isinstance(node, ast.Expr):
            inside.add(id(node.value))
    found = []
    for node in nodes_of(tree):
        text = "" if id(node) in inside else literal(node)
        if len(re.findall(r"[A-Za-z]{2,}", text)) >= 3 and not re.match(r"^[\w./:*{}-]+$", text):
            line = getattr(node, "lineno", 1)
            found += [Sentence(name, line, "message", one) for one in sentences(text)]
    return found


def of_file(path: Path) -> list[Sentence]:
    """Return the sentences of a page, a notebook or a module below the repository."""
    name, text = str(path.relative_to(ROOT)), path.read_text()
    if path.suffix == ".md":
        return of_markdown(text, name)
    if path.suffix == ".ipynb":
        return of_notebook(text, name)
    tree = ast.parse(text)
    return of_docstrings(tree, name) + of_messages(tree, name)


def phrases(sentence: Sentence) -> list[str]:
    """Return the names of the rules of docs/words.toml that a sentence breaks."""
    return [name for name, pattern in RULES if pattern.search(plain(sentence))]


def flags(sentence: Sentence) -> list[str]:
    """Return the names of all rules that a sentence breaks."""
    text, found = plain(sentence), phrases(sentence)
    if is_long(sentence):
        found.append("more than 28 words")
    if PROSE_AS_CODE.search(sentence.text):
        found.append("prose in a code span")
    if sentence.kind == "prose":
        if len(NUMBER.findall(text)) > 5:
            found.append("more than 5 numbers")
        if text.count(",") + 2 * text.count(";") + 2 * text.count(":") > 5:
            found.append("more than 5 commas (a semicolon or a colon counts twice)")
    return found


def is_long(sentence: Sentence) -> bool:
    """Return True if a sentence of a paragraph or docstring has more than 28 words."""
    return sentence.kind in ("prose", "docstring") and len(plain(sentence).split()) > 28


def plain(sentence: Sentence) -> str:
    """Return the text with its code spans as CODE and its links as their text."""
    return CODE_OR_LINK.sub(lambda match: match.group(1) or "CODE", sentence.text)


def files() -> list[Path]:
    """Return every page, notebook and module that users read; archives and tests are left out."""
    found = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "results" / "LOG.md"]
    found += (ROOT / "benchmarks").glob("*.md")
    found += (ROOT / "notebooks").glob("*.ipynb")
    for folder in ("bss", "experiments", "configs", "benchmarks", "docs", "notebooks"):
        found += (ROOT / folder).rglob("*.py")
    return sorted(found)


def glossary() -> str:
    """Return docs/glossary.md."""
    lines = [
        "# Glossary\n",
        "One term per concept, in the order in which a reader meets them. Batch sizes are in",
        "sequences and losses in nats per token unless a line states another unit.",
        "[Names](names.md) lists each column, JSON key, option and public name, with its unit.",
    ]
    for section in WORDS["section"]:
        lines += [f"\n## {section['title']}\n", "| term | meaning |", "|---|---|"]
        lines += [f"| **{term}** | {meaning} |" for term, meaning in section["terms"]]
    return "\n".join(lines) + "\n"


def main(arguments: list[str]) -> None:
    """Print the flagged sentences of files and folders, or write the glossary."""
    if arguments == ["--glossary"]:
        (ROOT / "docs" / "glossary.md").write_text(glossary())
        return
    chosen = [(ROOT / path).resolve() for path in arguments] or [ROOT]
    for path in files():
        if not any(path == one or one in path.parents for one in chosen):
            continue
        found = of_file(path)
        flagged = [(sentence, flags(sentence)) for sentence in found]
        flagged = [(sentence, names) for sentence, names in flagged if names]
        print(f"{path.relative_to(ROOT)}: {len(flagged)} of {len(found)}")
        for sentence, names in flagged:
            print(f"  {sentence.line} {sentence.kind} [{', '.join(names)}] {sentence.text}")


if __name__ == "__main__":
    main(sys.argv[1:])
