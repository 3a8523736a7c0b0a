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


def with_few_rows(entry: dict[str, Any], every: int = 8) -> dict[str, Any]:
    """Return a fit of final losses with a part of its rows: quick to ask, and its law as it is.

    The row of the lowest loss, which bounds L_0, is kept.
    """
    points = entry["law"]["points"]
    losses = points["loss"]
    kept = sorted({*range(0, len(losses), every), losses.index(min(losses))})
    for name in ("params", "tokens", "batch", "lr", "count"):
        rows = points[name]["rows"]  # none, if all have one value
        points[name]["rows"] = [rows[i] for i in kept if rows]
    points["loss"] = [losses[i] for i in kept]
    entry["cell_error"] = [entry["cell_error"][i] for i in kept]
    return entry


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
