"""Configs of sweeps and experiments, read from a file: Python or JSON."""

import json
import os
import runpy
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bss.errors import InputError
from bss.files import read_json
from bss.sweeps.setup import Setup
from bss.values import to_dict

_EXPECTED = "write FILE.py, FILE.py:SIZE or FILE.json"


def read_config(text: str, field: str = "--config") -> dict[str, Any]:
    """Return a config as nested dicts.

    Args:
        text: FILE.json, or FILE.py with a `get_config()` or `CONFIG` that is a ConfigDict, a dict
            or a `Setup`. FILE.py:SIZE passes SIZE to its `get_config`.
        field: Name of the option for error messages.

    Raises:
        InputError: If the file does not exist, fails, or has no config.
    """
    file, _, size = text.partition(":")
    if file.endswith(".json"):
        return read_json(file, "write a config", field)
    if not file.endswith(".py") or not Path(file).is_file():
        raise InputError(f"{field} {text}: config not found; {_EXPECTED}")
    try:
        config = _held(file, size)
    except Exception as error:  # a user's file may fail in any way
        message = (
            str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
        )
        first = message.splitlines()[0] if message else ""
        raise InputError(f"{field} {text}: {first}") from None
    if hasattr(config, "to_json_best_effort"):
        return json.loads(config.to_json_best_effort())
    if isinstance(config, Setup):
        return {"setup": to_dict(config)}
    if not isinstance(config, Mapping):
        raise InputError(
            f"{field} {text}: holds no config; expected get_config() or CONFIG, "
            'a dict {"setup": {...}, "axes": {...}} or a Setup'
        )
    return {**config, **{k: to_dict(v) for k, v in config.items() if isinstance(v, Setup)}}


def _held(file: str, size: str) -> Any:
    """Return the config of a module, which finds its neighbours in the working directory."""
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    module = runpy.run_path(file, run_name=Path(file).stem)
    if "get_config" in module:
        return module["get_config"](*([size] if size else []))
    if size:
        raise ValueError("it has no get_config that takes a size; leave it out")
    return module.get("CONFIG")
