"""Fits of planted and published tables, number by number, as they were when they were reviewed.

Intervals too: refits draw from seeds. GOLDEN=write in the environment writes them anew, to be read
before they are committed.
"""

import json
import math
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bss.cli.output import finite

FOLDER = Path(__file__).with_name("golden")
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
    file, found = FOLDER / f"{name}.json", entries(json.loads(json.dumps(finite(found))))
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
