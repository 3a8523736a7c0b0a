"""Lines of any trainer, described on the command line by regular expressions with named groups."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from bss.errors import InputError
from bss.importers.formats import GROUPS, LineFormat
from bss.importers.lines import Lines, words_of
from bss.importers.log import COUNTS, Log

KNOWN = tuple(name for name in GROUPS if name not in ("estimate", "nan"))
NEAR = 2000
"""Number of lines that are compared with a regular expression that matches none."""


@dataclass(frozen=True)
class OwnLines(LineFormat):
    """Lines that the user describes; every file is taken to have them."""

    options: Mapping[str, str] = field(default_factory=dict)

    def recognises(self, file: Path, head: str) -> bool:
        """Return True: the user chose this format."""
        return True

    def read(self, file: Path, columns: Mapping[str, str]) -> Iterator[Log]:
        """Yield the run of a file.

        Raises:
            InputError: If a regular expression matches no line; with the line nearest to it.
        """
        lines = [(line, text) for line, text in Lines(file) if text.strip()]
        for option, regex in self.options.items():
            if not any(re.search(regex, text) for _, text in lines):
                raise InputError(_nearest(file, option, regex, lines[:NEAR]))
        yield from super().read(file, columns)


def own_lines(train: str, evaluation: str) -> OwnLines:
    """Return the importer of lines with these regular expressions.

    Args:
        train: Regular expression of a line of training; may be empty if `evaluation` is not.
        evaluation: Regular expression of a line with a held-out loss, or nothing.

    Raises:
        InputError: If neither is given, or one is not a regular expression, lacks a required group
            or has an unknown group.
    """
    given = {"--train-line": (train, "loss"), "--eval-line": (evaluation, "eval_loss")}
    options = {option: regex for option, (regex, _) in given.items() if regex}
    if not options:
        example = r"'step (?P<step>\d+) loss (?P<loss>\S+)'"
        raise InputError(f"--train-line: the format lines needs one, e.g. {example}")
    groups: set[str] = set()
    for option, regex in options.items():
        loss, here = given[option][1], _groups(option, regex)
        if not {loss, f"{loss}_bits"} & here:
            raise InputError(f"{option} {regex!r}: has no group {loss}; write (?P<{loss}>\\S+)")
        groups |= here
    if not groups & {*COUNTS, "index"}:
        option, regex = next(iter(options.items()))
        why = r"has no group step, index, tokens or samples; write (?P<step>\d+)"
        raise InputError(f"{option} {regex!r}: {why}")
    return OwnLines("lines by --train-line, --eval-line", train, evaluation, options=options)


def _groups(option: str, regex: str) -> set[str]:
    """Return the named groups of a regular expression."""
    try:
        groups = set(re.compile(regex).groupindex)
    except re.error as error:
        raise InputError(f"{option} {regex!r}: {error}; correct it") from None
    for name in groups - set(KNOWN):
        raise InputError(f"{option}: group {name} is unknown; known are {', '.join(KNOWN)}")
    return groups


def _nearest(file: Path, option: str, regex: str, lines: list[tuple[int, str]]) -> str:
    """Return that no line matches, with the line that has most words of the regular expression."""
    words = words_of(regex)
    line, text = max(lines, key=lambda line: len(words & words_of(line[1])), default=(0, ""))
    return (
        f"{option} {regex!r}: matches no line of {file}; the nearest is line {line}: {text[:200]!r}"
    )
