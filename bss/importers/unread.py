"""Files that no importer reads: whether one looks like the log of a run, which must not vanish."""

import re
from pathlib import Path

import numpy as np

from bss.errors import InputError
from bss.importers.lines import columns_of
from bss.importers.log import COUNTS, LOSSES, some
from bss.importers.names import NAMES, by_plain_name
from bss.importers.table import first_rows, names_in
from bss.tables.likeness import kind_of_name, unit_of_loss, words_of_name

ROWS = 3
"""Number of rows from which on a text looks like a log."""
_LOGS = re.compile(
    r"\.(log|out|txt|csv|tsv|json|jsonl|ndjson|parquet|wandb)(\.(gz|bz2|xz|zst|zip|tar|tgz))*|"
    r"\.(tgz|tar|zip)",
    re.IGNORECASE,
)
_TABLES = (".csv", ".tsv", ".json", ".jsonl", ".ndjson", ".parquet")
_STEP = re.compile(
    r"(?:step|iter|iteration|update|batch|it)s?[\]\"')]?\s{0,3}[:=#/ ]\s{0,3}(\d{1,15})\b",
    re.IGNORECASE,
)
_LOSS = re.compile(
    r"(?:loss(?![ _]?scal)|\bce\b|nll|xent|cross[ _-]?entropy|perplexity|ppl)"
    r"[^\d\n]{1,12}?(\d+\.\d+)",
    re.IGNORECASE,
)
_WHOLE = re.compile(r"(?<![\d.:\-])\d{1,15}(?![\d.:\-])")
"""Whole numbers that are not parts of times or dates."""


def is_named_as_log(file: Path) -> bool:
    """Return whether a file has the name of a log, maybe packed.

    Examples:
        >>> [is_named_as_log(Path(name)) for name in ("a.log.gz", "a.jsonl", "weights.bin")]
        [True, True, False]
    """
    name = file.name
    suffixes = re.search(r"(\.[^.]+)(\.[^.]+)?$", name)
    both = suffixes[0] if suffixes else ""
    return bool(_LOGS.fullmatch(both) or _LOGS.fullmatch(file.suffix)) or "tfevents" in name


def resembles_log(file: Path, head: str) -> bool:
    """Return whether a text has lines with a loss, and in them or others a step that rises."""
    if file.suffix in _TABLES:
        return False
    lines = head.splitlines()
    alike: dict[int, list[tuple[str, list[str]]]] = {}
    for line in lines:
        if loss := _LOSS.search(line):
            counts = _WHOLE.findall(line)
            alike.setdefault(len(counts), []).append((loss[1], counts))
    rows = max(alike.values(), key=len, default=[])
    if len(rows) < ROWS or len({loss for loss, _ in rows}) < 2:
        return False
    found = [[int(step[1]) for line in lines for step in _STEP.finditer(line)]]
    found += [
        [int(count) for count in column] for column in zip(*(c for _, c in rows), strict=True)
    ]
    return any(len(counts) >= ROWS and rises(np.array(counts, float)) for counts in found)


def refuse_unnamed(file: Path, head: str) -> bool:
    """Refuse a table of a curve whose loss or step is not known by its name.

    Returns:
        Whether it is the table of a curve whose losses are in another unit than nats.

    Raises:
        InputError: If it has a column that rises like a step, and one that is named like a loss.
    """
    names = names_in(file, head)
    plain = by_plain_name(names)
    known = {column: there[0] for column, there in NAMES["plain"].named_in(plain).items()}
    losses = [name for name in names if kind_of_name(name) in LOSSES]
    losses = [name for name in losses if "target" not in words_of_name(name)]
    counts = [plain[known[column]] for column in COUNTS if column in known]
    counts += [name for name in names if kind_of_name(name) == "step" and name not in counts]
    if file.suffix == ".parquet" or not losses or not counts:
        return False
    values = columns_of(enumerate(first_rows(head))).numbers
    counts = [name for name in counts if name in values and rises(values[name])]
    if not counts or len(values[counts[0]]) < ROWS:
        return False
    in_nats = [name for name in losses if not unit_of_loss(name)]
    if in_nats and not set(LOSSES) & known.keys():
        raise InputError(
            f"{file}: no loss is known by its name; name a training loss with --columns "
            f"loss=NAME, a held-out one with eval_loss=NAME, of {some(names)}"
        )
    if in_nats and not set(COUNTS) & known.keys():
        raise InputError(
            f"{file}: no step is known by its name; name it with --columns step=NAME, "
            f"of {some(names)}"
        )
    return not in_nats


def rises(counts: np.ndarray) -> bool:
    """Return whether counts rise, as in a log of one run or of several."""
    finite = counts[np.isfinite(counts) & (counts >= 0)]
    more = np.diff(finite)
    up = int((more > 0).sum())
    down = int((more < 0).sum())
    return up > 0 and 2 * (more >= 0).sum() >= len(more) and (down < ROWS or 4 * down <= up)
