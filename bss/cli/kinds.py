"""The kinds of fits: what the commands do with each, and the fit that `--from` names."""

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import bss.laws
from bss.errors import InputError
from bss.files import read_json


@dataclass(frozen=True)
class Kind:
    """A kind of fit, and where what is done with it stands: modules, loaded when they are asked.

    Attributes:
        about: it, in the help of `bss fit`.
        fit: its class in bss.laws.
        commands: what fits it (`add_arguments`) and what asks it (`predicted`).
        advice: what it says of a setting (`fit_advice`); "" without a best batch.
        options: those of `bss predict` that say what is asked of it; others are refused.
        policy: that `bss schedule` follows where none is named; "" for a fit of no use to any.
        predicts_schedules: whether it predicts the loss of any schedule and rate.
    """

    about: str
    fit: str
    commands: str
    advice: str
    options: tuple[str, ...]
    policy: str = ""
    predicts_schedules: bool = False


KINDS = {
    "es": Kind(
        "E(S): tokens against steps to target losses",
        "EsFit",
        "bss.cli.of_es",
        "bss.advice.of_runs",
        ("loss", "batch"),
        "follow-optimum",
    ),
    "critical": Kind(
        "critical batch sizes and their law, from steps to a target",
        "CriticalFit",
        "bss.cli.of_critical",
        "",
        ("params", "tokens"),
    ),
    "table": Kind(
        "the law of final losses over model size, tokens and batch",
        "TableFit",
        "bss.cli.of_table",
        "bss.advice.of_table",
        ("params", "tokens", "batch", "seq_len", "lr", "runs", "columns"),
        "best-batch",
    ),
    "curve": Kind(
        "the functional scaling law, from loss curves under any schedule",
        "CurveFit",
        "bss.cli.of_curve",
        "bss.advice.of_runs",
        ("batch", "tokens", "lr", "warmup", "decay", "shape", "runs", "columns"),
        "functional-best",
        predicts_schedules=True,
    ),
}


def read_fit(path: Path, command: str, kinds: Collection[str] = tuple(KINDS)) -> Any:
    """A fit whose kind is one of those that a command reads.

    Raises:
        InputError: it is no fit, a damaged one, or one that other commands read.
    """
    entry = read_json(path, "save a fit with `bss fit … --json`", "--from")
    kind = str(entry.get("kind"))
    if kind in kinds:
        return getattr(bss.laws, KINDS[kind].fit).from_dict(entry)
    problem = f"is of kind {entry.get('kind')!r}, no fit"
    if kind in KINDS:
        problem = f"is a fit of kind {kind!r}, which `bss predict` reads"
    wanted = ", ".join(repr(one) for one in sorted(kinds))
    raise InputError(f"--from {path}: {problem}; `bss {command}` reads fits of kind {wanted}")
