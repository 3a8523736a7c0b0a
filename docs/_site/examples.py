"""On the site a tested example, `>>> bss("bss rules …")`, reads as the command that it runs."""

import re
from typing import Any

SETUP = re.compile(
    r"^    >>> (?:from|import) .*\n(?:    (?:>>>|\.\.\.) .*\n)*?"
    r"    >>> def bss\(.*\n(?:    \.\.\. .*\n)+\n?",
    re.MULTILINE,
)
SAVED = r"(?P<saved>>>> with open\(fit, .*\n    \.\.\. +)?"
STRINGS = r'(?P<strings>(?:\s*(?:\.\.\. +)?[rf]?"[^"\n]*")+)'
COMMAND = re.compile(rf"^    {SAVED}(?:>>> )?bss\({STRINGS}\)$", re.MULTILINE)
WIDTH = 78
NAMES = {
    "{fit}": "fit.json",
    "{table}": "runs.parquet",
    "{single}": "one_rate.csv",
    "$OUT/": "",
    "{here}/": "",
    "{times}": "times.csv",
}


def commands(text: str) -> str:
    """The page with its examples as commands of a checkout.

    Examples:
        >>> print(commands('    >>> bss("bss rules --loss 2 "\\n    ...     "--rule kaplan")'))
            $ .venv/bin/bss rules --loss 2 --rule kaplan
    """

    def command(found: re.Match[str]) -> str:
        text = "".join(re.findall(r'"([^"]*)"', found["strings"]))
        for name, plain in NAMES.items():
            text = text.replace(name, plain)
        lines = ["    $ .venv/bin/"]
        for part in re.split(r"(?= --)", text + (" > fit.json" if found["saved"] else "")):
            if part.startswith(" ") and len(lines[-1] + part) > WIDTH:
                lines.append("         ")
            lines[-1] += part
        return " \\\n".join(lines)

    return COMMAND.sub(command, SETUP.sub("", text)).replace("    <BLANKLINE>\n", "\n")


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Return a page's Markdown; MkDocs calls this for every page."""
    return commands(markdown)
