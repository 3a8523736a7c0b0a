"""One committed fit of each kind as JSON, and the places in it."""

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
Place = tuple[str | int, ...]


@cache
def _text(kind: str) -> str:
    files = {
        "es": "results/demo/fits.json",
        "critical": "results/critical_batch/fits.json",
        "loss": "bss/laws/published/steplaw_dense.json",
        "curve": "results/late_switch/fit.json",
    }
    entry = json.loads((ROOT / files[kind]).read_text(encoding="utf-8"))
    while "kind" not in entry:
        entry = next(iter(entry.values()))
    return json.dumps(entry)


def fit_entry(kind: str) -> dict[str, Any]:
    """Return the JSON of a committed fit of a kind, anew at each call."""
    return json.loads(_text(kind))


def places(value: Any, place: Place = ()) -> Iterator[tuple[Place, Any]]:
    """Yield every place in JSON with its value; of a list the first and the last element."""
    if place:
        yield place, value
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from places(inner, (*place, key))
    elif isinstance(value, list):
        for i in sorted({0, len(value) - 1} if value else ()):
            yield from places(value[i], (*place, i))


def changed(entry: Any, place: Place, value: Any) -> Any:
    """Return the JSON with another value at a place."""
    whole = json.loads(json.dumps(entry))
    inner = whole
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    return whole
