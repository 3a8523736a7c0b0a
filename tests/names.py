"""The table of names: each column, JSON key, option and public name once, with unit and meaning.

docs/names.toml is the table; `python -m tests.names` writes its page, docs/names.md.
"""

import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs/names.md"
NAMES: dict[str, Any] = tomllib.loads((ROOT / "docs/names.toml").read_text(encoding="utf-8"))
TITLES = {
    "columns": "Columns, and keys of JSON",
    "keys": "Keys of JSON alone",
    "options": "Options and operands of `bss`",
    "python": "Python: names in `bss`",
}
CONFIG = re.compile(r"(model|optimizer|schedule|evaluation|parent)\.\w+")
"""A field of a run's config, as a column."""
BY_NAME = ("source_weights", "left_out", "counts", "fits")
"""Keys of mappings from names that are data, whose values may have keys."""


def declared(*sections: str) -> set[str]:
    """Return the declared names of some sections."""
    return {name for section in sections for name, _, _ in NAMES[section]}


def undeclared(names: set[str], *sections: str) -> set[str]:
    """Return the names that are not declared, also not with one of the declared suffixes."""
    known = declared(*sections) | {*NAMES["symbols"]["names"]}
    return {name for name in names if not CONFIG.fullmatch(name) and _stem(name, known) is None}


def _stem(name: str, known: set[str]) -> str | None:
    """Return the declared name of which this is a variant; None if there is none."""
    if name in known:
        return name
    for pattern, _ in NAMES["suffixes"]:
        stem = re.sub(f"{pattern}$", "", name)
        if stem != name and (found := _stem(stem, known)) is not None:
            return found
    return None


def keys_in(value: Any) -> Iterator[str]:
    """Yield the keys of nested JSON, except those of mappings from names that a user chose."""
    if isinstance(value, list):
        for one in value:
            yield from keys_in(one)
    if isinstance(value, dict):
        for key, inner in value.items():
            yield key
            named = key in BY_NAME and isinstance(inner, dict)
            yield from keys_in([*inner.values()] if named else inner)


def page() -> str:
    """Return docs/names.md."""
    lines = [
        "# Names\n",
        "Each name has one meaning and one unit everywhere. Losses are in nats.\n",
    ]
    lines += ["A column or key can end in:\n", "| ending | meaning |", "|---|---|"]
    lines += [f"| `{_readable(pattern)}` | {meaning} |" for pattern, meaning in NAMES["suffixes"]]
    for section, title in TITLES.items():
        lines += [f"\n## {title}\n", "| name | unit | meaning |", "|---|---|---|"]
        lines += [f"| `{name}` | {unit} | {text} |" for name, unit, text in NAMES[section]]
    symbols = ", ".join(f"`{name}`" for name in NAMES["symbols"]["names"])
    return (
        "\n".join([*lines, "\n## Symbols\n", f"{NAMES['symbols']['meaning']}: {symbols}."]) + "\n"
    )


def _readable(pattern: str) -> str:
    return pattern.replace("[0-9]+%", "4%")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    sys.exit(0)
