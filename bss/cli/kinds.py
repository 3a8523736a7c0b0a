"""The kinds of fits, and reading one back from its JSON."""

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bss import laws
from bss.errors import InputError
from bss.files import read_json


@dataclass(frozen=True)
class Kind:
    """A kind of fit.

    Attributes:
        fit: its class in `bss.laws`.
        policy: the default policy of `bss schedule`; empty if there is none.
        predicts_schedules: whether it predicts the loss of any schedule.
    """

    fit: str
    policy: str = ""
    predicts_schedules: bool = False


KINDS = {
    "es": Kind("EsFit", "follow-optimum"),
    "critical": Kind("CriticalFit"),
    "table": Kind("TableFit", "best-batch"),
    "curve": Kind("CurveFit", "functional-best", predicts_schedules=True),
}


def read_fit(path: Path, command: str, kinds: Collection[str] = tuple(KINDS)) -> Any:
    """Read a fit whose kind is one of those that a command reads.

    Raises:
        InputError: the file is no fit, is damaged, or is a fit of another kind.
    """
    entry = read_json(path, "save a fit with `bss fit … --json`", "--from")
    kind = str(entry.get("kind"))
    if kind in kinds:
        return getattr(laws, KINDS[kind].fit).from_dict(entry)
    problem = f"is of kind {entry.get('kind')!r}, no fit"
    if kind in KINDS:
        problem = f"is a fit of kind {kind!r}, which `bss predict` and `bss advise` read"
    wanted = ", ".join(repr(one) for one in sorted(kinds))
    raise InputError(f"--from {path}: {problem}; `bss {command}` reads fits of kind {wanted}")
