"""The kinds of fits, and reading one back from its JSON."""

from collections.abc import Collection
from pathlib import Path
from typing import Any

from bss.errors import InputError
from bss.files import read_json
from bss.laws import FITS, fit_from_dict

POLICIES_OF = {"es": "follow-optimum", "table": "best-batch", "curve": "functional-best"}
"""The default policy of `bss schedule`, by kind of fit that has a best batch size."""


def read_fit(
    path: Path, command: str, kinds: Collection[str] = tuple(FITS), option: str = "--from"
) -> Any:
    """Read a fit whose kind is one of those that a command reads.

    Raises:
        InputError: the file has no fit, or a fit of another kind, or is damaged.
    """
    entry = read_json(path, "save a fit with `bss fit … --json`", option)
    kind = str(entry.get("kind"))
    if kind in kinds:
        return fit_from_dict(entry)
    problem = f"is of kind {entry.get('kind')!r}, no fit"
    if kind in FITS:
        problem = f"is a fit of kind {kind!r}, which `bss predict` reads"
    wanted = ", ".join(repr(one) for one in sorted(kinds))
    raise InputError(
        f"{f'{option} {path}'.strip()}: {problem}; `bss {command}` reads fits of kind {wanted}"
    )
