"""Fits of published tables, number by number, as they were when they were reviewed."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from bss.cli.output import finite

LEFT_OUT = ("draws", "design")  # of which intervals tell, and what was put in


def entries(value: Any, path: str = "") -> dict[str, Any]:
    """Numbers and texts by their path."""
    if isinstance(value, dict):
        parts = [(f"{path}.{key}", part) for key, part in value.items() if key not in LEFT_OUT]
    elif isinstance(value, list):
        parts = [(f"{path}[{i}]", part) for i, part in enumerate(value)]
    else:
        return {path: value}
    return {at: x for key, part in parts for at, x in entries(part, key).items()}


def assert_golden(file: str, found: dict[str, Any], rel: float = 1e-4) -> None:
    """Check that every number of a fit's JSON is the recorded one, up to rounding."""
    numbers = entries(json.loads(json.dumps(finite(found))))
    kept = json.loads((Path(__file__).with_name("golden") / file).read_text())
    assert numbers.keys() == kept.keys()
    for path, value in kept.items():
        if isinstance(value, float):
            np.testing.assert_allclose(numbers[path], value, rel, 1e-8, err_msg=path)
        else:
            assert numbers[path] == value, path
