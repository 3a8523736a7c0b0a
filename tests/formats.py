"""The table of formats in docs/import/formats.md, made from bss/importers/formats.toml.

`python -m tests.formats` writes it.
"""

import re
from pathlib import Path

from bss.importers.names import declared

PAGE = Path(__file__).parents[1] / "docs/import/formats.md"
HEADER = "| format | input | usually missing |\n|---|---|---|\n"
TABLE = re.compile(re.escape(HEADER) + r"(?:\|.*\n)*")


def table() -> str:
    """Return the table: one row for each format, as it is declared."""
    rows = [
        f"| {name} | {one['input']} | {one['missing']} |\n".replace(" |  |", " | |")
        for name, one in declared("formats.toml").items()
    ]
    return HEADER + "".join(rows)


def with_table(page: str) -> str:
    """Return the page with the table of today."""
    return TABLE.sub(lambda found: table(), page)


if __name__ == "__main__":
    PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
