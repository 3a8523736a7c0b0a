"""Files that no importer reads: whether one looks like the log of a run, which must not vanish."""

import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np

from bss.errors import InputError
from bss.importers.lines import columns_of
from bss.importers.log import COUNTS, LOSSES, some
from bss.importers.names import NAMES, by_plain_name
from bss.importers.table import beginning_of, names_in
from bss.tables.likeness import kind_of_name, unit_of_loss, words_of_name
from bss.units import parse_number

ROWS = 3
"""Number of rows from which on a text looks like a log."""
CURVE_ROWS = 5
"""Number of rows of numbers alone from which on they look like a curve."""
_LOSSES = (0.3, 30.0)
"""Losses of language models are in this range, in nats or bits."""
_FALLEN = 0.98
"""Share of the first loss below which the last one is, in a curve."""
_LOGS = re.compile(
    r"\.(log|out|txt|csv|tsv|json|jsonl|ndjson|parquet|wandb)(\.(gz|bz2|xz|zst|zip|tar|tgz))*|"
    r"\.(tgz|tar|zip)",
    re.IGNORECASE,
)
_COUNTED = frozenset({"epoch", "epochs", "tokens", "samples"})
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
_NUMBER = re.compile(r"\d+(?:\.\d+)?(?:[eE][+-]?\d+)?")
_LIST = re.compile(r"\[([-+\d.eE,\s]+)\]")
_REMAINS = re.compile(r"\b(?:eta|remaining|left)\b", re.IGNORECASE)
_SEEN = 2000
_WIDE = 400
"""Lines of a head, and letters of a line, that are compared."""
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
    if not losses or not counts:
        return False
    values = columns_of(enumerate(beginning_of(file, head))).numbers
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


def resembles_table(file: Path, head: str) -> bool:
    """Return whether a table has a loss in any unit, and a count that rises or falls.

    Such a table has no row per step in order, no numbers as counts, or a list in JSON.
    """
    names = names_in(file, head) if file.suffix in _TABLES else []
    if file.suffix == ".json" and not names:
        names = [*dict.fromkeys(re.findall(r'"([^"]{1,80})"\s*:', head))]
    words = {name: words_of_name(name) for name in names}
    lost = any(
        kind_of_name(n) in LOSSES or unit_of_loss(n) for n in names if "target" not in words[n]
    )
    counted = [n for n in names if kind_of_name(n) == "step" or words[n] & _COUNTED]
    # A table with a row per run has the size or the batch of each.
    if not lost or not counted or any(one & {"params", "batch"} for one in words.values()):
        return False
    rows = beginning_of(file, head)
    for name in counted:
        texts = [str(row[name]) for row in rows if name in row]
        if not texts:  # a list in JSON
            texts = re.findall(rf'"{re.escape(name)}"\s*:\s*"?([\d.,]+[kKmMbBtT]?)\b', head)
        counts = np.array([_read_count(text) for text in texts], float)
        if len(counts) >= ROWS and (rises(counts) or rises(counts[::-1])):
            return True
    return False


def resembles_curve(file: Path, head: str) -> bool:
    """Return whether a column of numbers rises like a step next to one that falls like a loss.

    Names do not matter: it is what lines of one form have in common, the rows of a table, or lists
    in JSON.
    """
    if file.suffix == ".parquet":
        values = columns_of(enumerate(beginning_of(file, head))).numbers
        return _is_curve([*values.values()])
    if file.suffix == ".json":
        lists = [_NUMBER.findall(text) for text in _LIST.findall(head)]
        if _is_curve([np.array(one, float) for one in lists]):
            return True
        head = re.sub(r"[\]}]\s*,?\s*", "\n", head)
    rows: dict[str, list[list[str]]] = {}
    for line in head.splitlines()[:_SEEN]:
        if not _REMAINS.search(line[:_WIDE]):
            form = _NUMBER.sub("0", line[:_WIDE])
            rows.setdefault(form, []).append(_NUMBER.findall(line[:_WIDE]))
    alike = max(rows.values(), key=len, default=[])
    return _is_curve([np.array(column, float) for column in zip(*alike, strict=True)])


def _is_curve(columns: Sequence[np.ndarray]) -> bool:
    """Return whether one column rises like a step and another of the same length falls."""
    long = [column for column in columns if len(column) >= CURVE_ROWS]
    steps = [c for c in long if _is_whole(c) and rises(c) and len(np.unique(c)) >= CURVE_ROWS]
    return any(len(loss) == len(step) and falls(loss) for step in steps for loss in long)


def _is_whole(values: np.ndarray) -> bool:
    return bool(np.isfinite(values).all() and not (values % 1).any())


def falls(values: np.ndarray) -> bool:
    """Return whether values are losses of a run: none whole, in their range, and lower later."""
    low, high = _LOSSES
    if not ((values > low) & (values < high)).all() or _is_whole(values):
        return False
    half = len(values) // 2
    lower = np.median(values[half:]) < np.median(values[:half])
    return bool(lower and values[-1] < _FALLEN * values[0] and (np.diff(values) <= 0).mean() > 0.5)


def _read_count(text: str) -> float:
    """Return a count that may have a suffix or commas; NaN for what is none."""
    with suppress(InputError, ValueError):
        return parse_number(text.replace(",", ""))
    return float("nan")


def rises(counts: np.ndarray) -> bool:
    """Return whether counts rise, as in a log of one run or of several."""
    finite = counts[np.isfinite(counts) & (counts >= 0)]
    more = np.diff(finite)
    up = int((more > 0).sum())
    down = int((more < 0).sum())
    return up > 0 and 2 * (more >= 0).sum() >= len(more) and (down < ROWS or 4 * down <= up)
