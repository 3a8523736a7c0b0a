"""Configs of sweeps and experiments, read from a file: Python or JSON."""

import importlib.util
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
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
        config = _held(_executed(file), size)
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


def _executed(file: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location("config", file)
    assert spec and spec.loader  # of a .py there is
    module = importlib.util.module_from_spec(spec)
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())  # where a config finds its neighbours
    spec.loader.exec_module(module)
    return module


def _held(module: ModuleType, size: str) -> Any:
    if hasattr(module, "get_config"):
        return module.get_config(*([size] if size else []))
    if size:
        raise ValueError("it has no get_config that takes a size; leave it out")
    return getattr(module, "CONFIG", None)
