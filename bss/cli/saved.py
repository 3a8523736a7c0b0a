"""A fit that `--from` names, for the commands that ask one."""

from collections.abc import Collection
from pathlib import Path
from typing import Any

from bss.errors import InputError
from bss.files import read_json

FITS = ("es", "table", "curve", "critical")
"""Kinds of fits, each printed by `bss fit KIND --json`."""


def read_fit(path: Path, command: str, kinds: Collection[str]) -> dict[str, Any]:
    """The entry of a fit whose kind is one of those that a command reads.

    Raises:
        InputError: it is no fit, or one that other commands read.
    """
    entry = read_json(path, "save a fit with `bss fit … --json`", "--from")
    kind = entry.get("kind")
    if kind in kinds:
        return entry
    told = f"is of kind {kind!r}, no fit"
    if kind in FITS:
        told = f"is a fit of kind {kind!r}, which `bss predict` and `bss advise` read"
    wanted = ", ".join(repr(one) for one in kinds)
    raise InputError(f"--from {path}: {told}; `bss {command}` reads fits of kind {wanted}")
