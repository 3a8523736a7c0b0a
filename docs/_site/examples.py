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
NAMES = {"{fit}": "fit.json", "{table}": "runs.parquet", "{single}": "one_rate.csv", "$OUT/": ""}


def commands(text: str) -> str:
    """The page with its examples as commands of a checkout.

    Examples:
        >>> print(commands('    >>> bss("bss rules --loss 2 "\\n    ...     "--rule kaplan")'))
            $ .venv/bin/bss rules --loss 2 \\
                  --rule kaplan
    """

    def command(found: re.Match[str]) -> str:
        parts = [part.strip() for part in re.findall(r'"([^"]*)"', found["strings"])]
        line = " \\\n          ".join(parts) + (" > fit.json" if found["saved"] else "")
        for name, plain in NAMES.items():
            line = line.replace(name, plain)
        return f"    $ .venv/bin/{line}"

    return COMMAND.sub(command, SETUP.sub("", text)).replace("    <BLANKLINE>\n", "\n")


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """What MkDocs calls for every page."""
    return commands(markdown)
