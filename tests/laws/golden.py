"""Fits of planted and published tables, number by number, as they were when they were reviewed.

Intervals too: refits draw from seeds. GOLDEN=write in the environment writes them anew, to be read
before they are committed.
"""

import json
import math
import os
from collections.abc import Mapping, Set
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bss.cli.output import finite

FOLDER = Path(__file__).with_name("golden")
MANY, FEW = 24, 5  # numbers of an array that are kept one by one; of a larger one, so many
LEFT_OUT = ("draws", "design")  # of which intervals tell, and what was put in


def entries(value: Any, path: str = "") -> dict[str, Any]:
    """Numbers and texts by their path."""
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, dict):
        parts = [(f"{path}.{key}", part) for key, part in value.items() if key not in LEFT_OUT]
    elif isinstance(value, list | tuple):
        parts = [(f"{path}[{i}]", part) for i, part in enumerate(value)]
    else:
        return {path: value}
    return {at: x for key, part in parts for at, x in entries(part, key).items()}


def assert_golden(name: str, found: dict[str, Any], rel: float = 1e-4) -> None:
    """Every number of a fit's JSON is the one that is kept, other processors' rounding aside."""
    room, _, part = name.partition("-")
    file = FOLDER / room / f"{part.replace(',', '').replace(' ', '-') or 'fit'}.json"
    found = entries(json.loads(json.dumps(finite(found))))
    if os.environ.get("GOLDEN") == "write":
        short = {k: float(f"{x:.9g}") if isinstance(x, float) else x for k, x in found.items()}
        file.write_text(json.dumps(short, indent=0, ensure_ascii=False) + "\n")
    kept = json.loads(file.read_text())
    assert found.keys() == kept.keys()
    for path, value in kept.items():
        if isinstance(value, float) and isinstance(found[path], int | float):
            assert not math.isnan(found[path])
            assert found[path] == pytest.approx(value, rel=rel, abs=1e-8), path
        else:
            assert found[path] == value, path


def numbers(value: Any) -> Any:
    """Any value of the laws, and what is in it, for `assert_golden`; of many numbers a few."""
    if is_dataclass(value):
        value = {one.name: getattr(value, one.name) for one in fields(value)}
    elif hasattr(value, "_asdict"):
        value = value._asdict()
    if isinstance(value, Mapping):
        named = {str(key): part for key, part in value.items() if key != "version"}
        return {f"{key}s" * (key in LEFT_OUT) or key: numbers(x) for key, x in named.items()}
    if hasattr(value, "tolist"):
        value = np.asarray(value)
        if value.size > MANY:
            few = value.ravel()[np.linspace(0, value.size - 1, FEW).astype(int)]
            known = np.where(np.isfinite(value), value, 0.0).astype(float).ravel()
            ramp = np.linspace(1, 2, value.size)
            value = {"shape": value.shape, "some": few, "sum": known.sum(), "moment": known @ ramp}
            return numbers(value)
        value = value.tolist()
    if isinstance(value, list | tuple | set | frozenset):
        return [numbers(part) for part in (sorted(value) if isinstance(value, Set) else value)]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if isinstance(value, bool | int | float | str | None) else str(value)
